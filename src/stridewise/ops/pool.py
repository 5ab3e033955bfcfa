"""Max and average pooling over spatial windows; global pooling is a window of the whole image.

``max_pool_indices`` returns the positions of the maxima in the whole input, ``max_pool_places``
those in their windows, which are enough for the gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np

from stridewise.dtypes import dtype_of
from stridewise.graph import Node, TensorType
from stridewise.ops.attributes import WINDOW, Attributes
from stridewise.ops.backward import Term
from stridewise.ops.conv import window_extent, windows
from stridewise.ops.registry import (
    Array,
    Backward,
    Operands,
    Types,
    array,
    needs,
    register,
    tensor,
)

__all__ = ["MOST_PLACES"]

MOST_PLACES = 255
"""Elements of the windows whose positions kernels store as bytes."""

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
    best: Array = _stack(node, x, -np.inf).argmax(axis=0)
    order = range(x.ndim - 2)
    if node.int_attr("storage_order", 0) != _COLUMN_MAJOR:
        order = reversed(order)
    return (_flat(node, best, x.shape, order),)


def _flat(node: Node, best: Array, shape: tuple[int, ...], order: Iterable[int]) -> Array:
    """Return positions in windows as those in the flattened input, which walks axes in order."""
    sizes = shape[2:]
    kernel, strides, dilations, begins, _ = geometry(node, len(sizes))
    taps: tuple[Array, ...] = np.unravel_index(best, kernel)
    grid: Array = np.indices(best.shape, np.int64)
    result: Array = np.zeros(best.shape, np.int64)
    step = 1
    for axis in order:
        place: Array = grid[axis + 2] * strides[axis] - begins[axis] + taps[axis] * dilations[axis]
        result += step * place
        step *= sizes[axis]
    return result + (grid[0] * shape[1] + grid[1]) * step


def _infer_places(node: Node, types: Types) -> tuple[TensorType, ...]:
    (found,) = _infer(node, types)
    elements = prod(node.ints_attr("kernel"))
    needs(node, elements <= MOST_PLACES, f"a window of up to {MOST_PLACES} elements", elements)
    return found, found


def _evaluate_places(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    seen = _stack(node, x, -np.inf)
    return seen.max(axis=0).astype(x.dtype), seen.argmax(axis=0).astype(x.dtype)


def _evaluate_avg(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    total = _stack(node, x, 0.0).sum(axis=0)
    if node.int_attr("count_include_pad", 0):
        return ((total / prod(node.ints_attr("kernel"))).astype(x.dtype),)
    return ((total / _stack(node, np.ones_like(x), 0.0).sum(axis=0)).astype(x.dtype),)


# --- gradients ------------------------------------------------------------------------------------


def _vjp_max(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    x, dy = Term(b, node.inputs[0]), Term(b, gradients[0])
    return (x.of("max_pool_gradient", dy, **dict(node.attrs)).name,)


def _infer_max_gradient(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, dy = tensor(node, types, 0), tensor(node, types, 1)
    (expected,) = _infer(node, (x,))
    needs(node, dy == expected, f"a gradient of type {expected}", dy)
    return (x,)


def _evaluate_max_gradient(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Give each gradient to the first of the greatest elements of its window."""
    x, dy = array(operands, 0), array(operands, 1)
    return (_scattered(node, _stack(node, x, -np.inf).argmax(axis=0), dy, x.shape),)


def _scattered(node: Node, best: Array, dy: Array, shape: tuple[int, ...]) -> Array:
    """Add each gradient to the element at a position in its window."""
    places = _flat(node, best, shape, reversed(range(len(shape) - 2)))
    result = np.zeros(prod(shape))
    np.add.at(result, places.reshape(-1), dy.reshape(-1).astype(np.float64))
    return result.reshape(shape).astype(dy.dtype)


def _infer_places_gradient(node: Node, types: Types) -> tuple[TensorType, ...]:
    places, dy = tensor(node, types, 0), tensor(node, types, 1)
    x = TensorType(dy.dtype, node.ints_attr("shape"))
    expected, _ = _infer_places(node, (x,))
    needs(node, dy == places == expected, f"positions and a gradient of type {expected}", dy)
    return (x,)


def _evaluate_places_gradient(node: Node, operands: Operands) -> tuple[Array, ...]:
    places, dy = array(operands, 0), array(operands, 1)
    return (_scattered(node, places.astype(np.int64), dy, node.ints_attr("shape")),)


def _vjp_avg(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    x, dy = Term(b, node.inputs[0]), Term(b, gradients[0])
    return (dy.of("avg_pool_gradient", shape=x.shape, **dict(node.attrs)).name,)


def _infer_avg_gradient(node: Node, types: Types) -> tuple[TensorType, ...]:
    dy = tensor(node, types, 0)
    x = TensorType(dy.dtype, node.ints_attr("shape"))
    (expected,) = _infer(node, (x,))
    needs(node, dy == expected, f"a gradient of type {expected}", dy)
    return (x,)


def _evaluate_avg_gradient(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Give each element of a window its share, counted as the mean counts them."""
    dy, shape = array(operands, 0), node.ints_attr("shape")
    kernel, strides, dilations, begins, ends = geometry(node, len(shape) - 2)
    counts = np.array(float(prod(kernel)))
    if not node.int_attr("count_include_pad", 0):
        counts = _stack(node, np.ones((1, 1, *shape[2:])), 0.0).sum(axis=0)
    sizes = (n + b + e for n, b, e in zip(shape[2:], begins, ends, strict=True))
    padded = np.zeros((*shape[:2], *sizes))
    for _, view in windows(padded, dy.shape[2:], strides, kernel, dilations):
        np.add(view, dy / counts, out=view)
    inner = (slice(begin, begin + n) for begin, n in zip(begins, shape[2:], strict=True))
    return (padded[(slice(None), slice(None), *inner)].astype(dy.dtype),)


def _vjp_avg_gradient(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    attrs = {key: value for key, value in node.attrs if key != "shape"}
    return (Term(b, gradients[0]).of("avg_pool", **attrs).name,)


_MAXIMUM: Attributes = {"kernel": "integers", **WINDOW}
_MEAN: Attributes = {**_MAXIMUM, "count_include_pad": "flag"}

register("max_pool", (1, 1), _infer, _evaluate_max, "anchor", vjp=_vjp_max, attributes=_MAXIMUM)
# The gradient of max pooling, from x and dy; attributes are those of the pooling.
register(
    "max_pool_gradient",
    (2, 2),
    _infer_max_gradient,
    _evaluate_max_gradient,
    "same",
    attributes=_MAXIMUM,
)
register(
    "max_pool_indices",
    (1, 1),
    _infer_indices,
    _evaluate_indices,
    "anchor",
    attributes={**_MAXIMUM, "storage_order": "flag"},
)
# Max pooling, and the position in its window of each maximum, the first of equal ones.
#
# Positions are whole numbers in row-major order of the window, of the type of x.
register("max_pool_places", (1, 1), _infer_places, _evaluate_places, "anchor", attributes=_MAXIMUM)
# The gradient of max pooling, from positions and dy; ``shape`` is that of x.
register(
    "max_pool_places_gradient",
    (2, 2),
    _infer_places_gradient,
    _evaluate_places_gradient,
    "same",
    attributes={**_MAXIMUM, "shape": "integers"},
)
register("avg_pool", (1, 1), _infer, _evaluate_avg, "anchor", vjp=_vjp_avg, attributes=_MEAN)
# The gradient of average pooling, from dy; ``shape`` is that of x, the rest is the pooling's.
register(
    "avg_pool_gradient",
    (1, 1),
    _infer_avg_gradient,
    _evaluate_avg_gradient,
    "same",
    vjp=_vjp_avg_gradient,
    attributes={**_MEAN, "shape": "integers"},
)
