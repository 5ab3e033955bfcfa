"""Kernels of softmax and its logarithm."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from stridewise.graph import Refusal
from stridewise.targets.kernels import (
    Alias,
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    input_of,
    output_of,
)
from stridewise.targets.onednn.family import Family, KernelKind, Offer, float32_only
from stridewise.targets.onednn.memory import elementwise_formats
from stridewise.targets.onednn.reductions import softmax_options

__all__ = ["FAMILY"]


@float32_only
def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    axis = node.int_attr("axis")
    for fmt, result, memory in elementwise_formats(context, x, y):
        position = axis
        if x.origin is not None and x.origin == y.origin:
            position = fmt.axes.index(x.origin.order[axis])
        spec = KernelSpec(
            "softmax",
            (("src", memory), ("dst", memory)),
            (("axis", position), ("log", int(node.op == "log_softmax"))),
            flops=4.0 * prod(x.shape),
        )
        args = (Arg("src", input_of(0)), Arg("dst", output_of()))
        yield KernelOption(
            "softmax", (fmt,), (result,), (Call(spec, args),), (Alias(0, 0, 0, "in place"),)
        )
    yield from softmax_options(context, elementwise_formats(context, x, y), axis)


def _is_naive(spec: KernelSpec, storage: str, dst: MemorySpec) -> bool:
    """Return whether the axis is not the innermost one: channels, or the last one if plain."""
    innermost = len(dst.dims) - 1 if storage == "plain" else 1
    return dict(spec.params).get("axis") != innermost


FAMILY = Family(
    {"softmax": Offer(_kernels), "log_softmax": Offer(_kernels)},
    {"softmax": KernelKind({"plain": 0.25}, _is_naive)},
)
