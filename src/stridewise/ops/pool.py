"""Max and average pooling over spatial windows; global pooling is a window of the whole image.

``max_pool_indices`` returns the positions of the maxima.
"""

from __future__ import annotations

from math import prod

import numpy as np

from stridewise.dtypes import dtype_of
from stridewise.graph import Node, TensorType
from stridewise.ops.conv import window_extent, windows
from stridewise.ops.registry import Array, Operands, OpSpec, Types, array, needs, register, tensor

__all__ = ["AVG_POOL", "MAX_POOL", "MAX_POOL_INDICES"]

_COLUMN_MAJOR = 1
"""Source: ONNX, MaxPool: the storage order in which the first spatial axis is the innermost."""


def geometry(node: Node, spatial: int) -> tuple[tuple[int, ...], ...]:
    """Return kernel, strides, dilations, begins and ends of the padding."""
    kernel = node.ints_attr("kernel")
    strides = node.ints_attr("strides", (1,) * spatial)
    dilations = node.ints_attr("dilations", (1,) * spatial)
    pads = node.ints_attr("pads", (0,) * (2 * spatial))
    fits = len(kernel) == len(strides) == len(dilations) == spatial and len(pads) == 2 * spatial
    needs(node, fits, f"kernel, strides, dilations, pads for {spatial} spatial axes", node.attrs)
    positive = min(kernel) > 0 and min(strides) > 0 and min(dilations) > 0 and min(pads) >= 0
    needs(node, positive, "positive sizes, pads of 0 or more", node.attrs)
    return kernel, strides, dilations, pads[:spatial], pads[spatial:]


def _extents(node: Node, shape: tuple[int, ...]) -> tuple[int, ...]:
    kernel, strides, dilations, begins, ends = geometry(node, len(shape) - 2)
    pads = tuple(b + e for b, e in zip(begins, ends, strict=True))
    return tuple(
        window_extent(*item)
        for item in zip(shape[2:], kernel, strides, dilations, pads, strict=True)
    )


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    needs(node, 3 <= len(x.shape) <= 5, "an input of rank 3 to 5", x)
    spatial = _extents(node, x.shape)
    needs(node, min(spatial) > 0, "a window that fits into the padded input", x)
    return (TensorType(x.dtype, (*x.shape[:2], *spatial)),)


def _stack(node: Node, x: Array, fill: float) -> Array:
    """Return the elements that each window meets, along a new first axis."""
    kernel, strides, dilations, begins, ends = geometry(node, x.ndim - 2)
    pads = ((0, 0), (0, 0), *zip(begins, ends, strict=True))
    padded = np.pad(x.astype(np.float64), pads, constant_values=fill)
    out = _extents(node, x.shape)
    return np.stack([view for _, view in windows(padded, out, strides, kernel, dilations)])


def _evaluate_max(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    return (_stack(node, x, -np.inf).max(axis=0).astype(x.dtype),)


def _infer_indices(node: Node, types: Types) -> tuple[TensorType, ...]:
    (found,) = _infer(node, types)
    return (TensorType(dtype_of("int64"), found.shape),)


def _evaluate_indices(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Return the positions of the maxima in the flattened input, the first of equal ones."""
    x = array(operands, 0)
    sizes = x.shape[2:]
    kernel, strides, dilations, begins, _ = geometry(node, len(sizes))
    best: Array = _stack(node, x, -np.inf).argmax(axis=0)
    taps: tuple[Array, ...] = np.unravel_index(best, kernel)
    grid: Array = np.indices(best.shape, np.int64)
    order = range(len(sizes))
    if node.int_attr("storage_order", 0) != _COLUMN_MAJOR:
        order = reversed(order)
    result: Array = np.zeros(best.shape, np.int64)
    step = 1
    for axis in order:
        place: Array = grid[axis + 2] * strides[axis] - begins[axis] + taps[axis] * dilations[axis]
        result += step * place
        step *= sizes[axis]
    return (result + (grid[0] * x.shape[1] + grid[1]) * step,)


def _evaluate_avg(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    total = _stack(node, x, 0.0).sum(axis=0)
    if node.int_attr("count_include_pad", 0):
        return ((total / prod(node.ints_attr("kernel"))).astype(x.dtype),)
    return ((total / _stack(node, np.ones_like(x), 0.0).sum(axis=0)).astype(x.dtype),)


MAX_POOL = register(OpSpec("max_pool", (1, 1), _infer, _evaluate_max, "anchor"))
MAX_POOL_INDICES = register(
    OpSpec("max_pool_indices", (1, 1), _infer_indices, _evaluate_indices, "anchor")
)
AVG_POOL = register(OpSpec("avg_pool", (1, 1), _infer, _evaluate_avg, "anchor"))
