"""PReLU: a rectifier whose slope for negative elements is a tensor."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from stridewise.formats import Format
from stridewise.graph import Node, Refusal, TensorType
from stridewise.ops.geometry import canonical_shape, user_format
from stridewise.ops.kernels import (
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
from stridewise.ops.registry import Array, Operands, OpSpec, Types, array, needs, register, tensor

__all__ = ["PRELU"]


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, slope = tensor(node, types, 0), tensor(node, types, 1)
    needs(node, slope.dtype == x.dtype, f"a slope of dtype {x.dtype}", slope.dtype)
    aligned = (1,) * (len(x.shape) - len(slope.shape)) + slope.shape
    fits = len(aligned) == len(x.shape) and all(
        extent in (1, whole) for extent, whole in zip(aligned, x.shape, strict=True)
    )
    needs(node, fits, f"a slope that broadcasts to {x}", slope)
    return (x,)


def _evaluate(_node: Node, operands: Operands) -> tuple[Array, ...]:
    x, slope = array(operands, 0), array(operands, 1)
    with np.errstate(over="ignore"):
        return (np.where(x < 0, slope * x, x).astype(x.dtype),)


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
        return MemorySpec.of(fmt, dims), arg, None
    stored = context.formats(slope.name).get(kind)
    if stored is None or slope.origin != x.origin or len(slope.shape) != len(x.shape):
        return None
    memory = MemorySpec.of(stored, canonical_shape(slope, stored))
    return memory, Arg("weights", input_of(1)), stored


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if x.origin != y.origin:
        yield Refusal("onednn-cpu", node.name, "the axes of the result are not those of its input")
        return
    for kind, fmt in context.formats(x.name).items():
        found = _slope(context, kind, fmt)
        if found is None:
            yield Refusal("onednn-cpu", node.name, f"{fmt}: the slope has other axes")
            continue
        weights, arg, stored = found
        memory = MemorySpec.of(fmt, canonical_shape(x, fmt))
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


PRELU = register(OpSpec("prelu", (2, 2), _infer, _evaluate, "elementwise", _kernels))
