"""Resizing images: every output element is a weighted sum of input elements, axis by axis.

``resize`` is what users say: a shape, and how coordinates are mapped. ``interpolate`` is one axis
of it with the weights written out as a matrix. The pass ``split_resize`` turns a ``resize`` without
a kernel into ``interpolate``, a matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.attributes import each
from stridewise.ops.backward import Term
from stridewise.ops.interpolation import COORDINATES, CUBIC, MODES, ROUNDINGS, Interpolation
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

__all__ = ["extrapolates", "interpolation", "resized_axes"]


def _floats(node: Node, key: str, count: int) -> tuple[float, ...]:
    """Return a list of numbers, () where it is absent."""
    value = node.get(key)
    if value is None:
        return ()
    numbers = (
        tuple(float(x) for x in value if not isinstance(x, str))
        if (isinstance(value, tuple))
        else ()
    )
    needs(node, len(numbers) == count, f"{count} numbers as {key}", value)
    return numbers


def interpolation(node: Node, shape: tuple[int, ...], axis: int) -> Interpolation:
    """Return how a ``resize`` of a tensor of this shape changes one axis."""
    rank = len(shape)
    scales = _floats(node, "scales", rank)
    crops = _floats(node, "roi", 2 * rank)
    return Interpolation(
        size=shape[axis],
        count=node.ints_attr("shape")[axis],
        mode=node.str_attr("mode"),
        coordinates=node.str_attr("coordinates", "half_pixel"),
        rounding=node.str_attr("rounding", "round_prefer_floor"),
        scale=scales[axis] if scales else None,
        cubic=node.float_attr("cubic", CUBIC),
        antialias=bool(node.int_attr("antialias", 0)),
        exclude_outside=bool(node.int_attr("exclude_outside", 0)),
        crop=(crops[axis], crops[rank + axis]) if crops else (0.0, 1.0),
    )


def resized_axes(node: Node, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes that a ``resize`` changes."""
    axes = range(len(shape))
    return tuple(axis for axis in axes if not interpolation(node, shape, axis).is_identity)


def extrapolates(node: Node, shape: tuple[int, ...]) -> bool:
    """Return whether a ``resize`` gives outputs outside of the input a value other than zero."""
    return node.float_attr("extrapolation", 0.0) != 0 and any(
        interpolation(node, shape, axis).outside().any() for axis in resized_axes(node, shape)
    )


def _infer_resize(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, shape = tensor(node, types, 0), node.ints_attr("shape")
    fits = len(shape) == len(x.shape) and min(shape, default=1) > 0 and 0 not in x.shape
    needs(node, fits, f"a shape of {len(x.shape)} positive extents", shape)
    for key, default, known in (
        ("mode", None, MODES),
        ("coordinates", "half_pixel", COORDINATES),
        ("rounding", "round_prefer_floor", ROUNDINGS),
    ):
        found = node.str_attr(key, default)
        needs(node, found in known, f"one of {', '.join(known)}", found)
    scales = _floats(node, "scales", len(shape))
    needs(node, min(scales, default=1) > 0, "positive scales", scales)
    _floats(node, "roi", 2 * len(shape))
    plain = node.str_attr("mode") != "nearest" or not node.int_attr("antialias", 0)
    needs(node, plain, "antialias=0 for nearest neighbors", 1)
    return (TensorType(x.dtype, shape),)


def _contract(x: Array, matrix: Array, axis: int) -> Array:
    return np.moveaxis(np.tensordot(matrix, x.astype(np.float64), (1, axis)), 0, axis)


MOST_ENTRIES = 1 << 24
"""Entries of a matrix that resizes an axis; larger ones are applied tap by tap."""


def _resized(x: Array, how: Interpolation, axis: int) -> Array:
    """Return a tensor with one axis resized, in double precision."""
    if how.count * how.size <= MOST_ENTRIES:
        return _contract(x, how.matrix(), axis)
    index, weights = how.taps()
    rows = (-1,) + (1,) * (x.ndim - axis - 1)
    total = x.take(index[:, 0], axis) * weights[:, 0].reshape(rows)
    for tap in range(1, index.shape[1]):
        total += x.take(index[:, tap], axis) * weights[:, tap].reshape(rows)
    return total


def _saturated(x: Array, dtype: np.dtype[np.generic]) -> Array:
    """Return numbers as another element type, rounded to even and cut off at its limits."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype.name)
        x = np.clip(np.rint(x), limits.min, limits.max)
    return np.ascontiguousarray(x, dtype)


def _evaluate_resize(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    result, exact = x, node.str_attr("mode") == "nearest"
    for axis in resized_axes(node, x.shape):
        how = interpolation(node, x.shape, axis)
        # Of nearest neighbors every element is one of the input, whatever its type.
        found = result.take(how.taps()[0][:, 0], axis) if exact else _resized(result, how, axis)
        beyond = how.outside().reshape((-1,) + (1,) * (x.ndim - axis - 1))
        value = node.float_attr("extrapolation", 0.0)
        result = np.where(beyond, np.asarray(value, found.dtype), found) if beyond.any() else found
    return (_saturated(result, x.dtype),)


def has_matrices(node: Node, shape: tuple[int, ...]) -> bool:
    """Return whether a ``resize`` of a tensor of this shape can be a matrix product an axis."""
    axes = resized_axes(node, shape)
    return all(shape[a] * node.ints_attr("shape")[a] <= MOST_ENTRIES for a in axes)


# --- one axis by a matrix -------------------------------------------------------------------------


def _infer_interpolate(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, matrix, axis = tensor(node, types, 0), tensor(node, types, 1), node.int_attr("axis")
    needs(node, 0 <= axis < len(x.shape), f"an axis below {len(x.shape)}", axis)
    fits = len(matrix.shape) == 2 and matrix.shape[1] == x.shape[axis] and matrix.dtype == x.dtype
    needs(node, fits, f"a matrix of {x.shape[axis]} columns of dtype {x.dtype}", matrix)
    shape = (*x.shape[:axis], matrix.shape[0], *x.shape[axis + 1 :])
    return (TensorType(x.dtype, shape),)


def _evaluate_interpolate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x, matrix = array(operands, 0), array(operands, 1)
    result = _contract(x, matrix.astype(np.float64), node.int_attr("axis"))
    return (np.ascontiguousarray(result, x.dtype),)


# --- gradients ------------------------------------------------------------------------------------


def _vjp_resize(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    """Return dy times the transposed matrix of each axis; a border of another value has none."""
    x, dy = Term(b, node.inputs[0]), Term(b, gradients[0])
    needs(node, has_matrices(node, x.shape), f"axes of at most {MOST_ENTRIES} weights", x.type)
    for axis in resized_axes(node, x.shape):
        matrix = interpolation(node, x.shape, axis).matrix()
        dy = dy.of("interpolate", x.constant(matrix.T), axis=axis)
    return (dy.name,)


def _vjp_interpolate(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    x, matrix, dy = (Term(b, name) for name in (*node.inputs, gradients[0]))
    axis = node.int_attr("axis")
    order = (axis, *(i for i in range(len(x.shape)) if i != axis))
    rest = prod(x.shape[i] for i in order[1:])
    rows = dy.transpose(order).reshape((matrix.shape[0], rest))
    columns = x.transpose(order).reshape((matrix.shape[1], rest))
    dx = dy.of("interpolate", matrix.swapped(), axis=axis)
    return dx.name, rows.of("matmul", columns.swapped()).name


register(
    "resize",
    (1, 1),
    _infer_resize,
    _evaluate_resize,
    "same",
    vjp=_vjp_resize,
    attributes={
        "shape": "integers",
        **each("text", "mode", "coordinates", "rounding"),
        **each("numbers", "scales", "roi"),
        **each("number", "cubic", "extrapolation"),
        **each("flag", "antialias", "exclude_outside"),
    },
)
register(
    "interpolate",
    (2, 2),
    _infer_interpolate,
    _evaluate_interpolate,
    "same",
    vjp=_vjp_interpolate,
    attributes={"axis": "integer"},
)
