"""Kernels of PReLU."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from stridewise.formats import Format
from stridewise.graph import Refusal
from stridewise.ops.geometry import canonical_shape, user_format
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
from stridewise.targets.onednn.family import Family, KernelKind, Offer, refused
from stridewise.targets.onednn.memory import memory_of

__all__ = ["FAMILY"]


def _slope(
    context: KernelContext, kind: str, fmt: Format
) -> tuple[MemorySpec, Arg, Format | None] | None:
    """Describe the slope beside a tensor stored in ``fmt``; None where it cannot be."""
    x, slope = (context.value(name) for name in context.node.inputs)
    names = user_format(x).order
    order = tuple(names.index(axis) for axis in fmt.axes)
    aligned = (1,) * (len(x.shape) - len(slope.shape)) + slope.shape
    dims = tuple(aligned[position] for position in order)
    if context.is_constant(slope.name):
        arg = Arg("weights", input_of(1), reshape=aligned, permute=order)
        return memory_of(fmt, dims), arg, None
    stored = context.formats(slope.name).get(kind)
    if stored is None or slope.origin != x.origin or len(slope.shape) != len(x.shape):
        return None
    memory = memory_of(stored, canonical_shape(slope, stored))
    return memory, Arg("weights", input_of(1)), stored


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if x.origin != y.origin:
        yield refused(node, "the axes of the result are not those of its input")
        return
    for kind, fmt in context.formats(x.name).items():
        found = _slope(context, kind, fmt)
        if found is None:
            yield refused(node, f"{fmt}: the slope has other axes")
            continue
        weights, arg, stored = found
        memory = memory_of(fmt, canonical_shape(x, fmt))
        spec = KernelSpec(
            "prelu",
            (("src", memory), ("weights", weights), ("dst", memory)),
            flops=2.0 * prod(x.shape),
        )
        # With a slope an element, threads of the library compute some elements of others again.
        in_place = () if weights.dims == memory.dims else (Alias(0, 0, 0, "in place"),)
        yield KernelOption(
            f"prelu, {kind}",
            (fmt, stored),
            (fmt,),
            (Call(spec, (Arg("src", input_of(0)), arg, Arg("dst", output_of()))),),
            in_place,
        )


FAMILY = Family({"prelu": Offer(_kernels)}, {"prelu": KernelKind()})
