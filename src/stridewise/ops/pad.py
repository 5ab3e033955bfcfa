"""Padding that no window operator could take over: a constant border, or one made of the tensor."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import cast

import numpy as np

from stridewise.dtypes import DType
from stridewise.graph import Node, TensorType
from stridewise.ops.attributes import Attributes
from stridewise.ops.backward import Term
from stridewise.ops.data_format import inverse
from stridewise.ops.registry import (
    Array,
    Backward,
    Operands,
    Permuted,
    Types,
    array,
    needs,
    register,
    tensor,
)

__all__ = ["PAD_MODES", "pad_amounts", "pad_mode"]

PAD_MODES = ("constant", "reflect", "edge", "wrap")
"""What the border consists of, by ONNX's names, which are NumPy's too."""


def pad_mode(node: Node) -> str:
    """Return what the border consists of, one of :data:`PAD_MODES`."""
    return node.str_attr("mode", "constant")


def pad_amounts(node: Node, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how much is added before and after each axis."""
    pads = node.ints_attr("pads")
    needs(node, len(pads) == 2 * rank and min(pads, default=0) >= 0, f"{2 * rank} pads", pads)
    needs(node, pad_mode(node) in PAD_MODES, f"mode {', '.join(PAD_MODES)}", pad_mode(node))
    return pads[:rank], pads[rank:]


def bordered(x: Array, amounts: tuple[tuple[int, int], ...], mode: str) -> Array:
    # NumPy types its modes as literals.
    return cast("Array", np.pad(x, amounts, mode))  # pyright: ignore


def _holds(dtype: DType, number: float) -> bool:
    """Return whether an element can be a number; floats round it."""
    if dtype.numpy.kind == "b":
        return number in (0, 1)
    if dtype.numpy.kind not in "iu":
        return True
    limits = np.iinfo(dtype.name)
    return limits.min <= number <= limits.max and number == int(number)


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    begins, ends = pad_amounts(node, len(x.shape))
    if len(types) > 1:
        value = tensor(node, types, 1)
        fits = value.dtype == x.dtype and prod(value.shape) == 1
        needs(node, fits and pad_mode(node) == "constant", f"a value of {x.dtype}", value)
    number = node.get("value")
    if isinstance(number, int | float) and number:
        is_read = pad_mode(node) == "constant" and len(types) == 1
        needs(node, is_read, "a value in mode constant only, once", number)
        needs(node, _holds(x.dtype, number), f"a value that {x.dtype} holds", number)
    shape = tuple(b + n + e for b, n, e in zip(begins, x.shape, ends, strict=True))
    drawn = pad_mode(node) == "constant" or all(
        extent > 0 or not whole for extent, whole in zip(x.shape, shape, strict=True)
    )
    needs(node, drawn, f"elements to make a border of by mode {pad_mode(node)}", x)
    return (TensorType(x.dtype, shape),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    amounts = tuple(zip(*pad_amounts(node, x.ndim), strict=True))
    mode = pad_mode(node)
    if mode != "constant":
        return (bordered(x, amounts, mode),)
    value = array(operands, 1).reshape(()) if len(operands) > 1 else node.get("value") or 0
    result = np.full(
        [b + n + e for (b, e), n in zip(amounts, x.shape, strict=True)], value, x.dtype
    )
    result[tuple(slice(b, b + n) for (b, _), n in zip(amounts, x.shape, strict=True))] = x
    return (result,)


def _permuted(node: Node, shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    if len(node.inputs) > 1:
        return "the value of its border is not known before a run"
    begins, ends = pad_amounts(node, len(shape))
    order = inverse(perm)
    pads = (*(begins[axis] for axis in order), *(ends[axis] for axis in order))
    return Permuted({**dict(node.attrs), "pads": pads}, perm)


# --- gradient -------------------------------------------------------------------------------------


def _vjp(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    x, dy = Term(b, node.inputs[0]), Term(b, gradients[0])
    if pad_mode(node) != "constant":
        attrs = dict(node.attrs)
        return (dy.of("pad_gradient", **attrs).name,)
    begins, _ = pad_amounts(node, len(x.shape))
    stops = tuple(begin + extent for begin, extent in zip(begins, x.shape, strict=True))
    dx = dy.of("slice", starts=begins, stops=stops, steps=(1,) * len(begins))
    if len(node.inputs) == 1:
        return (dx.name,)
    axes = range(len(begins))
    border = dy.sum(axes, keepdims=False) - dx.sum(axes, keepdims=False)
    return dx.name, border.reshape(b.type(node.inputs[1]).shape).name


def _cut(node: Node, shape: tuple[int, ...]) -> tuple[int, ...]:
    begins, ends = pad_amounts(node, len(shape))
    return tuple(n - b - e for n, b, e in zip(shape, begins, ends, strict=True))


def _infer_gradient(node: Node, types: Types) -> tuple[TensorType, ...]:
    dy = tensor(node, types, 0)
    shape = _cut(node, dy.shape)
    needs(node, pad_mode(node) != "constant", "a border made of the tensor", pad_mode(node))
    needs(node, min(shape, default=1) > 0, "a gradient larger than its border", dy)
    return (TensorType(dy.dtype, shape),)


def _evaluate_gradient(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Add each gradient to that of the element which the border repeats, axis by axis."""
    result: Array = array(operands, 0).astype(np.float64)
    shape = _cut(node, result.shape)
    for axis, amounts in enumerate(zip(*pad_amounts(node, len(shape)), strict=True)):
        source = bordered(np.arange(shape[axis]), (amounts,), pad_mode(node))
        summed = np.zeros((shape[axis], *np.moveaxis(result, axis, 0).shape[1:]))
        np.add.at(summed, source, np.moveaxis(result, axis, 0))
        result = np.moveaxis(summed, 0, axis)
    return (result.astype(array(operands, 0).dtype),)


_ATTRIBUTES: Attributes = {"pads": "integers", "mode": "text", "value": "number"}

register(
    "pad", (1, 2), _infer, _evaluate, "same", permuted=_permuted, vjp=_vjp, attributes=_ATTRIBUTES
)
# The gradient of padding with a border made of the tensor; attributes are those of the padding.
register(
    "pad_gradient", (1, 1), _infer_gradient, _evaluate_gradient, "interrupt", attributes=_ATTRIBUTES
)
