"""Layer normalization: by the mean and variance over some axes, for every position of the others.

The parameters have the extents of those axes. The library normalizes rows, so the axes must be
innermost in storage: that is any trailing axis stored plain, and the channels stored channels-last.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from stridewise.formats import Format, nd
from stridewise.graph import Node, Refusal, TensorType, Value
from stridewise.ops.geometry import elementwise_formats, row_major, user_format
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
from stridewise.ops.registry import (
    Array,
    Operands,
    OpSpec,
    Permuted,
    Types,
    array,
    needs,
    register,
    tensor,
)

__all__ = ["LAYER_NORM"]

_EPSILON = 1e-5
_ROLES = {1: "scale", 2: "shift"}


def _axes(node: Node, rank: int) -> tuple[int, ...]:
    """Return the normalized axes, in the order that the parameters have them."""
    axes = node.ints_attr("axes")
    fits = bool(axes) and all(0 <= axis < rank for axis in axes) and len(set(axes)) == len(axes)
    needs(node, fits, f"distinct axes below {rank}", axes)
    return axes


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    needs(node, "float" in x.dtype.name, "a float tensor", x.dtype)
    needs(node, node.float_attr("epsilon", _EPSILON) >= 0, "an epsilon of 0 or more", node.attrs)
    expected = TensorType(x.dtype, tuple(x.shape[axis] for axis in _axes(node, len(x.shape))))
    for index, found in enumerate(types[1:], start=1):
        needs(
            node, found is None or found == expected, f"input {index} to be {expected}", str(found)
        )
    return (x,)


def _spread(parameter: Array, axes: tuple[int, ...], rank: int) -> Array:
    """Return a parameter in a shape that broadcasts to the normalized tensor."""
    order = sorted(range(len(axes)), key=lambda position: axes[position])
    extents = dict(zip(axes, parameter.shape, strict=True))
    return parameter.transpose(order).reshape([extents.get(axis, 1) for axis in range(rank)])


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Source: ONNX, LayerNormalization: (x - mean) / sqrt(var + epsilon) * scale + shift."""
    x = array(operands, 0)
    axes = _axes(node, x.ndim)
    wide = x.astype(np.float64)
    centered = wide - wide.mean(axes, keepdims=True)
    variance = np.square(centered).mean(axes, keepdims=True)
    result = centered / np.sqrt(variance + node.float_attr("epsilon", _EPSILON))
    own = [operands[i] if i < len(operands) and node.inputs[i] else None for i in _ROLES]
    scale, shift = own
    if scale is not None:
        result = result * _spread(scale, axes, x.ndim)
    if shift is not None:
        result = result + _spread(shift, axes, x.ndim)
    return (result.astype(x.dtype),)


def _rows(x: Value, axes: tuple[int, ...], fmt: Format) -> MemorySpec | None:
    """Return a stored tensor as one whose last axis is normalized, None where that cannot be."""
    if fmt.is_blocked:
        return None
    names = user_format(x).order
    extents = dict(zip(names, x.shape, strict=True))
    stored = [axis for axis in fmt.order if extents[axis] > 1]
    wanted = [names[axis] for axis in axes if x.shape[axis] > 1]
    length = prod(extents[axis] for axis in wanted)
    if stored[len(stored) - len(wanted) :] == wanted:
        return MemorySpec.plain((prod(x.shape) // length, length))
    if len(wanted) > 1:
        return None
    strides = dict(zip(fmt.order, row_major(tuple(extents[a] for a in fmt.order)), strict=True))
    order = [*(axis for axis in stored if axis not in wanted), *wanted]
    dims = tuple(extents[axis] for axis in order)
    return MemorySpec(dims, strides=tuple(strides[axis] for axis in order))


def _parameters(
    context: KernelContext, length: int
) -> tuple[list[tuple[str, MemorySpec]], list[Arg], list[Format | None]]:
    memories: list[tuple[str, MemorySpec]] = []
    args: list[Arg] = []
    formats: list[Format | None] = []
    for index, name in enumerate(context.node.inputs[1:], start=1):
        formats.append(None)
        if not name:
            continue
        memories.append((_ROLES[index], MemorySpec((length,), "a")))
        if context.is_constant(name):
            args.append(Arg(_ROLES[index], input_of(index), reshape=(length,)))
        else:
            args.append(Arg(_ROLES[index], input_of(index)))
            formats[-1] = nd(len(context.value(name).shape))
    return memories, args, formats


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    axes = _axes(node, len(x.shape))
    memories, args, formats = _parameters(context, prod(x.shape[axis] for axis in axes))
    for fmt, result, _ in elementwise_formats(context, x, y):
        rows = _rows(x, axes, fmt)
        if rows is None:
            yield Refusal("onednn-cpu", node.name, f"{fmt}: the normalized axes are not innermost")
            continue
        spec = KernelSpec(
            "layer_norm",
            (("src", rows), *memories, ("dst", rows)),
            (("epsilon", node.float_attr("epsilon", _EPSILON)),),
            flops=8.0 * prod(x.shape),
        )
        yield KernelOption(
            "layer norm" if rows.strides is None else "layer norm, strided",
            (fmt, *formats),
            (result,),
            (Call(spec, (Arg("src", input_of(0)), *args, Arg("dst", output_of()))),),
            (Alias(0, 0, 0, "in place"),),
        )


def _permuted(node: Node, shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    axes = tuple(perm[axis] for axis in _axes(node, len(shape)))
    return Permuted({**dict(node.attrs), "axes": axes}, perm)


LAYER_NORM = register(
    OpSpec("layer_norm", (1, 3), _infer, _evaluate, "data", _kernels, permuted=_permuted)
)
