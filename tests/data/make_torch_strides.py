"""Write ``torch_strides.json``: what PyTorch says of sizes and strides.

Made with torch 2.13.0 (CPU):

    pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu
    python tests/data/make_torch_strides.py

``empty`` has lists of sizes and the strides of new tensors, by memory format. ``cases`` has lists
of sizes, strides, the names of the questions answered with yes, the suggested memory format, and
the strides of ``empty_like``.

The suggestion is that of the C++ code, which Python cannot call but can watch: ``resize_as_`` with
``preserve_format`` restrides its result by it, and nearest upsampling makes its result in it. The
latter tells formats apart whose strides are alike for the sizes of the operand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random

import torch
from torch import Tensor

FILE = Path(__file__).with_name("torch_strides.json")
COUNT = 3000
FORMATS = {
    "contiguous_format": torch.contiguous_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
}
RANKS = {"channels_last": 4, "channels_last_3d": 5}


def empty(sizes: tuple[int, ...]) -> dict[str, list[int]]:
    """Strides of a new tensor in each memory format that takes its rank."""
    return {
        name: list(torch.empty(sizes, memory_format=memory_format).stride())
        for name, memory_format in FORMATS.items()
        if RANKS.get(name, len(sizes)) == len(sizes)
    }


def suggested(tensor: Tensor) -> str:
    """What TensorBase::suggest_memory_format says, seen from its effects."""
    seen = torch.empty(0).resize_as_(tensor, memory_format=torch.preserve_format)
    if tensor.dim() == 4 and tensor.numel():
        seen = torch.ops.aten.upsample_nearest2d(tensor, [2, 2], None)
    elif tensor.dim() == 5 and tensor.numel():
        seen = torch.ops.aten.upsample_nearest3d(tensor, [2, 2, 2], None)
    fitting = empty(tuple(seen.shape))
    # Formats come in the order of suspicion: an empty tensor is never channels-last, so strides
    # that are alike there are the contiguous ones.
    return next(name for name, strides in fitting.items() if strides == list(seen.stride()))


def answers(tensor: Tensor) -> list[object]:
    """One line of the table."""
    yes = [
        name
        for name, memory_format in FORMATS.items()
        if tensor.is_contiguous(memory_format=memory_format)
    ]
    if torch.ops.aten.is_non_overlapping_and_dense(tensor):
        yes.append("dense")
    like = list(torch.empty_like(tensor).stride())
    return [list(tensor.shape), list(tensor.stride()), yes, suggested(tensor), like]


def known() -> Iterator[Tensor]:
    """The cases that comments in PyTorch argue about."""
    yield torch.empty(5, 1, 1, 1)
    yield torch.empty(5, 1, 1, 7)[..., :1]
    yield torch.empty(5, 7, 1, 1).contiguous(memory_format=torch.channels_last)[:, :1]
    yield torch.empty(3, 1, 4, 1).contiguous(memory_format=torch.channels_last)
    yield torch.empty(3, 1, 4, 1)
    yield torch.empty(1, 6, 1, 5).transpose(1, 3)
    yield torch.empty(1, 1, 1, 1)
    yield torch.empty(2, 1, 3, 3).expand(2, 4, 3, 3)


def view(random: Random) -> Tensor:
    """A tensor as users get it: permuted, sliced and expanded."""
    rank = random.randint(0, 6) if random.random() < 0.3 else random.randint(4, 5)
    sizes = random.choices((0, 1, 2, 3, 4), (1, 12, 12, 12, 6), k=rank)
    tensor = torch.empty(sizes)
    if random.random() < 0.7 and rank in (4, 5):
        name = "channels_last" if rank == 4 else "channels_last_3d"
        tensor = tensor.contiguous(memory_format=FORMATS[name])
    if random.random() < 0.2:
        tensor = tensor.permute(random.sample(range(rank), rank))
    for axis in range(rank):
        chance = random.random()
        extent = tensor.shape[axis]
        if chance < 0.05:
            start = random.randint(0, extent)
            tensor = tensor.narrow(axis, start, random.randint(0, extent - start))
        elif chance < 0.12 and extent:
            tensor = tensor.narrow(axis, random.randrange(extent), 1)
        elif chance < 0.15 and extent == 1:
            tensor = tensor.expand(*tensor.shape[:axis], 3, *tensor.shape[axis + 1 :])
        elif chance < 0.18:
            tensor = tensor[(slice(None),) * axis + (slice(None, None, 2),)]
    return tensor


def strided(random: Random) -> Tensor:
    """A tensor of any small strides."""
    rank = random.randint(1, 6)
    sizes = random.choices((0, 1, 2, 3), (1, 8, 8, 4), k=rank)
    return torch.empty_strided(sizes, random.choices((0, 1, 2, 3, 4, 6, 8, 12), k=rank))


def main() -> None:
    """Write the table, one line a case."""
    if torch.__version__.split("+")[0] != "2.13.0":
        raise SystemExit(f"torch is {torch.__version__}, not 2.13.0")
    random = Random(0)
    found: dict[str, None] = {}
    for tensor in known():
        found[json.dumps(answers(tensor))] = None
    while len(found) < COUNT:
        tensor = (view if random.random() < 0.7 else strided)(random)
        found[json.dumps(answers(tensor))] = None
    sizes = [(), (0,), (3,), (2, 0, 3), *product((0, 1, 3), (0, 1, 2), (1, 4), (0, 2))]
    sizes += [(2, *rest) for rest in product((0, 1, 3), (1, 2), (0, 1, 4), (0, 5))]
    fresh = [json.dumps([shape, empty(shape)]) for shape in sizes]
    lists = {"empty": fresh, "cases": list(found)}
    body = ",\n".join(f'"{key}": [\n' + ",\n".join(rows) + "\n]" for key, rows in lists.items())
    FILE.write_text(f'{{"torch": "2.13.0",\n{body}\n}}\n')


if __name__ == "__main__":
    main()
