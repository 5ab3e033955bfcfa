"""Write docs/torch-modules.md: PyTorch's test of memory formats for modules, through the backend.

Run ``python docs/make_torch_modules.py`` where PyTorch and its test package are installed; it takes
some minutes. Tests run a part of it.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import torch  # noqa: TID251 (the page is about it)
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: TID251
from torch.testing._internal.common_modules import module_db  # noqa: TID251

from stridewise.torch import FallbackWarning
from stridewise.torch.region import REGIONS

PAGE = Path(__file__).with_name("torch-modules.md")
MOST = 15
"""Inputs of a module that are run."""

_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
_FORMATS = ("contiguous", "channels-last")

_TRACING = (
    "PyTorch's tracing, and so each backend, is told another shape or strides than eager gives"
)

_TEXT = """\
# Modules of PyTorch in all memory formats

<!-- Made by docs/make_torch_modules.py; change that file instead. -->

PyTorch {version} tests memory formats with a table of modules and inputs (`module_db` in
`torch.testing._internal.common_modules`). Its test `test_memory_format` runs each module on images
and volumes, stores inputs and parameters contiguous and channels-last in all combinations, and
checks results and their memory formats. Here the modules run through
`torch.compile(backend="stridewise")`, forward, in float32 and in evaluation mode. Results are
compared with those of PyTorch: element type, shape, exactly the same strides, and values within
1e-4.

- **runs**: compared results. Each input runs in {combinations} combinations of formats.
- **outside**: operators that PyTorch computes, over all runs.

{right} of {runs} runs are right, of {modules} modules and {inputs} inputs.

| module | inputs | runs | failures | outside |
|---|---|---|---|---|
{rows}

## Left out

{excluded}
"""


@dataclass
class Row:
    """A module and what its runs gave.

    Attributes:
        name: of the module.
        inputs: number of inputs that were run.
        runs: number of compared results.
        failures: what was wrong.
        outside: operators that PyTorch computed, by name.
        left_out: number of inputs by the reason for which they were not run.
    """

    name: str
    inputs: int = 0
    runs: int = 0
    failures: list[str] = field(default_factory=list[str])
    outside: Counter[str] = field(default_factory=Counter[str])
    left_out: Counter[str] = field(default_factory=Counter[str])

    def __str__(self) -> str:
        names = ", ".join(f"{count} x `{name}`" for name, count in sorted(self.outside.items()))
        failures = "; ".join(self.failures) or "0"
        return f"| `{self.name}` | {self.inputs} | {self.runs} | {failures} | {names or '0'} |"


def leaves(tree: Any) -> list[Any]:
    """Return the tensors of a structure."""
    found = torch.utils._pytree.tree_leaves(tree)
    return [item for item in found if isinstance(item, torch.Tensor)]


def _stored(tree: Any, kind: str) -> Any:
    """Return a structure with images and volumes in a memory format."""

    def stored(item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        last = kind == "channels-last" and item.dim() in _LAST
        form = _LAST[item.dim()] if last else torch.contiguous_format
        return item.clone(memory_format=form)

    return torch.utils._pytree.tree_map(stored, tree)


def _has_images(case: Any) -> bool:
    call = case.forward_input
    return call is not None and any(x.dim() in _LAST for x in leaves((call.args, call.kwargs)))


def _difference(wanted: list[Any], found: list[Any]) -> str:
    """Return what is wrong with results; "" if nothing is."""
    if len(wanted) != len(found):
        return f"{len(found)} results in place of {len(wanted)}"
    for a, b in zip(wanted, found, strict=True):
        if (a.dtype, a.shape, a.stride()) != (b.dtype, b.shape, b.stride()):
            return f"{b.dtype} {b.shape} {b.stride()} in place of {a.dtype} {a.shape} {a.stride()}"
        if not torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True):
            return f"values differ by {float((a - b).abs().max()):.1e}"
    return ""


def _is_promised(module: Any, args: Any, kwargs: Any, found: list[Any]) -> bool:
    """Return whether results have the types and strides that PyTorch's own tracing gives."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        given = torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
        traced = leaves(module(*given[0], **given[1]))
    return [(x.dtype, x.shape, x.stride()) for x in traced] == [
        (x.dtype, x.shape, x.stride()) for x in found
    ]


def _module(info: Any, case: Any, kind: str) -> Any:
    """Return a module with its parameters in a memory format."""
    torch.manual_seed(0)
    made = case.constructor_input
    module = info.module_cls(*made.args, **made.kwargs).to(torch.float32).eval()
    for parameter in (*module.parameters(), *module.buffers()):
        if not torch.nn.parameter.is_lazy(parameter) and parameter.dim() in _LAST:
            parameter.data = _stored(parameter.data, kind)
    return module


def run_case(info: Any, case: Any, row: Row, formats: Any) -> None:
    """Run one input in combinations of formats of inputs and parameters, and note the outcome."""
    torch._dynamo.reset()
    call = case.forward_input
    for given, held in formats:
        module = _module(info, case, held)
        args, kwargs = _stored((call.args, call.kwargs), given)
        before = set(REGIONS)
        try:
            torch.manual_seed(0)
            wanted = leaves(module(*args, **kwargs))
        except Exception as error:
            row.left_out[f"PyTorch itself raises {type(error).__name__}"] += 1
            return
        torch.manual_seed(0)
        args, kwargs = _stored((call.args, call.kwargs), given)
        found = leaves(torch.compile(module, backend="stridewise")(*args, **kwargs))
        wrong = _difference(wanted, found)
        if " in place of " in wrong and _is_promised(module, args, kwargs, found):
            row.left_out[_TRACING] += 1
            continue
        row.failures += [f"{given} input, {held} parameters: {wrong}"] if wrong else []
        row.runs += 1
        outside = [
            item.operator.removeprefix("aten.").partition(".")[0]
            for region in set(REGIONS) - before
            for program in region.programs()
            for item in program.partition.outside
        ]
        row.outside.update(outside)
    row.inputs += 1


def row_of(info: Any, most: int = MOST) -> Row:
    """Run a module and return its row; one without images runs in its own formats.

    Args:
        info: its entry in the table of PyTorch.
        most: the number of inputs that are run at most.
    """
    row = Row(info.name)
    cases = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=False, training=False
    )
    images = [case for case in cases if _has_images(case)]
    formats = list(product(_FORMATS, repeat=2)) if images else [("contiguous", "contiguous")]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("ignore", FallbackWarning)
        for case in (images or cases)[:most]:
            run_case(info, case, row, formats)
    if not images:
        row.left_out["no input has four or five axes: memory formats are those of images"] += 1
    elif len(images) > most:
        row.left_out[f"inputs beyond the first {most}: options of a loss, in all combinations"] += (
            len(images) - most
        )
    return row


def generated() -> str:
    """Return the page."""
    rows = [row_of(info) for info in module_db if torch.float32 in info.dtypes]
    images = [row for row in rows if not any("axes" in reason for reason in row.left_out)]
    reasons: dict[str, list[str]] = {}
    for row in rows:
        for reason, count in row.left_out.items():
            plain = row not in images
            text = f"`{row.name}`" if plain else f"`{row.name}` ({count})"
            reasons.setdefault(reason, []).append(text)
    runs, failures = sum(row.runs for row in images), sum(len(row.failures) for row in images)
    other = [row for row in rows if row not in images]
    wrong = [f"`{row.name}`: {'; '.join(row.failures)}" for row in other if row.failures]
    listed = [f"- {reason}: {', '.join(names)}." for reason, names in reasons.items()]
    listed += [
        f"- Backward, other element types and other devices: the backend is about float32 "
        f"inference on the CPU.\n\nThe modules without images were run as they are: "
        f"{sum(row.runs for row in other) - len(wrong)} of {sum(row.runs for row in other)} runs "
        f"are right{'; ' if wrong else '.'}{'; '.join(wrong)}"
    ]
    return _TEXT.format(
        version=torch.__version__.partition("+")[0],
        combinations=len(_FORMATS) ** 2,
        right=runs - failures,
        runs=runs,
        modules=len(images),
        inputs=sum(row.inputs for row in images),
        rows="\n".join(map(str, images)),
        excluded="\n".join(listed),
    )


if __name__ == "__main__":
    PAGE.write_text(generated())
