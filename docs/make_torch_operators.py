"""Write docs/torch-operators.md: what PyTorch's operators do with channels-last, and how they run.

Run ``python docs/make_torch_operators.py`` where PyTorch is installed. A test compares what it
would write with what is there.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch  # noqa: TID251 (the page is about it)
import torch.nn.functional as F  # noqa: N812, TID251

from stridewise.torch import FallbackWarning
from stridewise.torch.layouts import format_of
from stridewise.torch.region import REGIONS, Region
from stridewise.torch.steps import NativeStep

PAGE = Path(__file__).with_name("torch-operators.md")

_EXPRESSIONS = {
    "Convolutions": (
        "F.conv2d(x, w)", "F.conv2d(x, w[:, :4], groups=2)",
        "F.conv2d(x, w, dilation=2, padding=2)",
        "F.conv_transpose2d(x, w, stride=2)", "F.unfold(x, 3)",
        "F.fold(F.unfold(x, 3), (6, 6), 3)",
    ),
    "Pooling": (
        "F.max_pool2d(x, 3, 2)", "F.max_pool2d(x, 2, return_indices=True)[1]",
        "F.avg_pool2d(x, 3, 2)",
        "F.lp_pool2d(x, 2, 2)", "F.adaptive_avg_pool2d(x, 1)", "F.adaptive_avg_pool2d(x, 4)",
        "F.adaptive_max_pool2d(x, 4)",
    ),
    "Norms": (
        "batch_norm(x)", "F.group_norm(x, 2)", "F.instance_norm(x)",
        "F.layer_norm(x, (6, 6))", "F.layer_norm(x.permute(0, 2, 3, 1), (8,)).permute(0, 3, 1, 2)",
        "F.local_response_norm(x, 2)", "F.normalize(x)",
    ),
    "Activations": (
        "F.relu(x)", "F.relu6(x)", "F.leaky_relu(x)", "F.prelu(x, v)", "F.elu(x)", "F.selu(x)",
        "F.celu(x)", "F.gelu(x)", "F.gelu(x, approximate='tanh')", "F.silu(x)", "F.mish(x)",
        "F.hardswish(x)", "F.hardsigmoid(x)", "F.hardtanh(x)", "F.hardshrink(x)",
        "F.softshrink(x)", "F.softplus(x)", "F.softsign(x)", "F.tanhshrink(x)",
        "F.threshold(x, 0, 1)",
        "F.logsigmoid(x)", "F.glu(x, 1)", "torch.sigmoid(x)", "torch.tanh(x)", "F.softmax(x, 1)",
        "F.softmax(x, 3)", "F.log_softmax(x, 1)",
    ),
    "Arithmetic": (
        "x + x", "x - 1", "x * v.view(1, 8, 1, 1)", "x / 2", "x ** 2", "x ** 0.5", "-x",
        "x.abs()", "x.exp()",
        "x.log()", "x.sqrt()", "x.rsqrt()", "x.sin()", "x.cos()", "x.erf()", "x.floor()",
        "x.ceil()", "x.round()", "x.sign()", "x.clamp(0, 1)", "torch.maximum(x, y)",
        "torch.minimum(x, y)", "torch.lerp(x, y, 0.5)", "torch.addcmul(x, x, y)", "x % 2",
        "x // 2",
        "torch.atan2(x, y)",
    ),
    "Comparisons and choices": (
        "x > 0", "x == y", "torch.where(x > 0, x, y)", "x.masked_fill(x > 0, 0.0)",
        "torch.logical_not(x > 0)", "torch.isnan(x)",
    ),
    "Reductions": (
        "x.sum(1, keepdim=True)", "x.mean((2, 3), keepdim=True)", "x.mean(1, keepdim=True)",
        "x.amax(1, keepdim=True)", "x.max(1, keepdim=True)[0]", "x.argmax(1, keepdim=True)",
        "x.var((2, 3), keepdim=True)", "x.std(1, keepdim=True)", "x.norm(dim=1, keepdim=True)",
        "x.prod(1, keepdim=True)", "x.cumsum(1)", "x.sort(1)[0]", "x.topk(2, 1)[0]",
        "torch.logsumexp(x, 1, keepdim=True)",
    ),
    "Shapes": (
        "x.reshape(2, 2, 4, 36).reshape(2, 8, 6, 6)", "x.flatten(2).view(2, 8, 6, 6)",
        "x.permute(0, 1, 3, 2)", "x.transpose(1, 2)", "x[:, ::2]", "x[:, :, 1:5]",
        "x.narrow(1, 2, 4)",
        "x.chunk(2, 1)[0]", "x.unsqueeze(2).squeeze(2)", "x.expand(2, 8, 6, 6)",
        "x.repeat(1, 2, 1, 1)",
        "x.repeat_interleave(2, 2)", "x.flip(3)", "x.roll(1, 3)", "x.contiguous()", "x.clone()",
        "torch.cat([x, x], 1)", "torch.cat([x, y], 1)", "torch.stack([x, x], 1).flatten(1, 2)",
        "F.pad(x, (1, 1, 1, 1))", "F.pad(x, (1, 1, 1, 1), mode='reflect')",
        "F.pad(x, (1, 1, 1, 1), mode='replicate')", "F.pad(x, (1, 1, 1, 1), mode='circular')",
        "F.pixel_shuffle(x, 2)", "F.pixel_unshuffle(x, 2)", "F.channel_shuffle(x, 2)",
        "x.tril()", "x[:, i]", "torch.index_select(x, 1, i)", "torch.gather(x, 1, j)",
    ),
    "Resizing and sampling": (
        "F.interpolate(x, scale_factor=2)",
        "F.interpolate(x, scale_factor=2, mode='nearest-exact')",
        "F.interpolate(x, scale_factor=2, mode='bilinear')",
        "F.interpolate(x, scale_factor=2, mode='bicubic')",
        "F.interpolate(x, scale_factor=0.5, mode='area')",
        "F.interpolate(x, scale_factor=0.5, mode='bilinear', antialias=True)",
        "F.grid_sample(x, g, align_corners=False)",
    ),
    "Products": (
        "F.linear(x, torch.ones(6, 6))",
        "F.linear(x.permute(0, 2, 3, 1), torch.ones(8, 8)).permute(0, 3, 1, 2)", "x @ y",
        "torch.einsum('nchw,cd->ndhw', x, torch.ones(8, 8))",
        "F.scaled_dot_product_attention(x, x, x)",
    ),
    "Other element types": (
        "F.relu(x.bfloat16())", "F.relu(x.half())", "F.relu(x.double())", "x.int() + 1",
        "F.embedding(j[:, :, 0, 0], torch.ones(8, 4))",
    ),
}  # fmt: skip
"""Expressions of ``x`` and ``y``, images [2, 8, 6, 6], ``x`` channels-last and ``y`` contiguous."""

_TEXT = """\
# Operators of PyTorch

<!-- Made by docs/make_torch_operators.py; change that file instead. -->

What PyTorch {version} does with the memory format of images, and how Stridewise runs the same
operators. Each expression was run, with the image `x` stored channels-last and the image `y`
contiguous, both float32 of shape [2, 8, 6, 6]. `batch_norm` is a module in evaluation mode.

- **PyTorch gives**: the memory format of the result. *channels_last* is what `x` has. *strided* is
  neither channels-last nor contiguous, *either* is both, and *-* is no image.
- **Stridewise**: *kernels* are native kernels, or views. *NumPy* is the NumPy fallback, a step of
  the same program. *PyTorch* computes what has neither, with the reason. The format inside a
  program is chosen by the plan, and the result has the strides that PyTorch promises.

{sections}"""


def _tensors() -> dict[str, Any]:
    torch.manual_seed(0)
    x, y = torch.rand(2, 8, 6, 6), torch.rand(2, 8, 6, 6)
    return {
        "torch": torch,
        "F": F,
        "x": x.contiguous(memory_format=torch.channels_last),
        "y": y,
        "w": torch.rand(8, 8, 3, 3),
        "v": torch.rand(8),
        "batch_norm": torch.nn.BatchNorm2d(8).eval(),
        "i": torch.tensor([1, 0, 3]),
        "j": torch.zeros(2, 8, 6, 6, dtype=torch.int64),
        "g": torch.zeros(2, 6, 6, 2),
    }


def row(expression: str) -> str:
    """Return the row of an expression."""
    known = _tensors()
    exec(f"def function(x, y):\n    return {expression}", known)
    images = known["x"], known["y"]
    torch._dynamo.reset()
    before = set(REGIONS)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        kept = format_of(known["function"](*images))
        torch.compile(known["function"], backend="stridewise")(*images)
        (region,) = set(REGIONS) - before
    nodes = [n for n in region.module.graph.nodes if n.op == "call_function"]
    operators = dict.fromkeys(str(n.target) for n in nodes if str(n.target).startswith("aten."))
    names = ", ".join(f"`{name.removeprefix('aten.')}`" for name in operators)
    return f"| `{expression}` | {names} | {kept} | {_runs(region)} |"


def _runs(region: Region) -> str:
    """Return how a region has run."""
    outside = [item for p in region.programs() for item in p.partition.outside]
    if outside:
        reasons = dict.fromkeys(
            f"`{o.operator.removeprefix('aten.')}`: {o.reason}" for o in outside
        )
        return f"PyTorch: {'; '.join(reasons)}"
    steps = [step for program in region.programs() for step in program.steps]
    native = [step for step in steps if isinstance(step, NativeStep)]
    names = [name for step in native for name in step.fallback_nodes()]
    return f"NumPy: {', '.join(names)}" if names else "kernels"


def generated() -> str:
    """Return the page."""
    sections = [
        "\n".join([
            f"## {title}\n",
            "| expression | operators | PyTorch gives | Stridewise |",
            "|---|---|---|---|",
            *map(row, expressions),
        ])
        for title, expressions in _EXPRESSIONS.items()
    ]  # fmt: skip
    version = torch.__version__.partition("+")[0]
    return _TEXT.format(version=version, sections="\n\n".join(sections) + "\n")


if __name__ == "__main__":
    PAGE.write_text(generated())
