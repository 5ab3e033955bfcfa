"""Resizing images: every output element is a weighted sum of input elements, axis by axis.

``resize`` is what users say: a shape, and how coordinates are mapped. ``interpolate`` is one axis
of it with the weights written out as a matrix. oneDNN's resampling aligns the centers of pixels;
the pass ``split_resize`` turns every other ``resize`` into ``interpolate``, a matrix product.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from math import prod

import numpy as np

from stridewise.formats import Format, loops
from stridewise.graph import Attr, Node, Refusal, TensorType, Value
from stridewise.ops.geometry import (
    Walk,
    canonical_shape,
    elementwise_formats,
    user_format,
    walks,
)
from stridewise.ops.interpolation import COORDINATES, CUBIC, MODES, ROUNDINGS, Interpolation
from stridewise.ops.kernels import (
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

__all__ = [
    "INTERPOLATE",
    "RESIZE",
    "extrapolates",
    "interpolation",
    "is_resampling",
    "resized_axes",
]


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


@cache
def _aligns_centers(wanted: Interpolation) -> bool:
    """Return whether oneDNN resizes an axis alike; nearest neighbors without any tie only."""
    ties = ("round_prefer_floor", "round_prefer_ceil") if wanted.mode == "nearest" else ("floor",)
    theirs = [Interpolation(wanted.size, wanted.count, wanted.mode, rounding=tie) for tie in ties]
    return all(_is_close(wanted.entries(), each.entries()) for each in theirs)


def _is_close(one: tuple[Array, Array], other: tuple[Array, Array]) -> bool:
    places = np.union1d(one[0], other[0])
    difference = np.zeros(len(places))
    difference[np.searchsorted(places, one[0])] += one[1]
    difference[np.searchsorted(places, other[0])] -= other[1]
    return bool(np.all(np.abs(difference) <= 1e-7))


def has_matrices(node: Node, shape: tuple[int, ...]) -> bool:
    """Return whether a ``resize`` of a tensor of this shape can be a matrix product an axis."""
    axes = resized_axes(node, shape)
    return all(shape[a] * node.ints_attr("shape")[a] <= MOST_ENTRIES for a in axes)


def is_resampling(node: Node, shape: tuple[int, ...]) -> bool:
    """Return whether a ``resize`` of a tensor of this shape is what oneDNN's resampling computes.

    Two axes must keep their extents, to be batch and channels there.
    """
    axes = resized_axes(node, shape)
    return (
        node.str_attr("mode") in ("nearest", "linear")
        and 3 <= len(shape) <= 5
        and len(axes) <= len(shape) - 2
        and not extrapolates(node, shape)
        and all(_aligns_centers(interpolation(node, shape, axis)) for axis in axes)
    )


def _memories(
    x: Value, y: Value, source: Format, result: Format
) -> tuple[MemorySpec, MemorySpec] | None:
    """Return operand and result as images, None unless batch and channels stay as they are."""
    if x.origin is None or x.origin != y.origin:
        return None
    before, after = canonical_shape(x, source), canonical_shape(y, result)
    if before[:2] != after[:2]:
        return None
    return MemorySpec.of(source, before), MemorySpec.of(result, after)


def _kept_first(
    x: Value, y: Value, source: Format, resized: tuple[int, ...]
) -> tuple[MemorySpec, MemorySpec] | None:
    """Return operand and result in the user's order as images whose channels are not resized."""
    if source != user_format(x):
        return None
    order = sorted(range(len(x.shape)), key=lambda axis: axis in resized)
    if order == list(range(len(x.shape))):
        return MemorySpec.plain(x.shape), MemorySpec.plain(y.shape)
    return _turned(x.shape, order), _turned(y.shape, order)


def _turned(shape: tuple[int, ...], order: Sequence[int]) -> MemorySpec:
    """Return a row-major tensor with its axes in another order."""
    strides = tuple(prod(shape[axis + 1 :]) for axis in order)
    return MemorySpec(tuple(shape[axis] for axis in order), strides=strides)


def _kernels_resize(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if not is_resampling(node, x.shape):
        reason = "oneDNN resizes images only, with the centers of pixels aligned"
        yield Refusal("onednn-cpu", node.name, reason)
        return
    params: tuple[tuple[str, Attr], ...] = (("algorithm", node.str_attr("mode")),)
    resized = resized_axes(node, x.shape)
    for source, result, _ in elementwise_formats(context, x, y):
        memories = _memories(x, y, source, result) or _kept_first(x, y, source, resized)
        if memories is None:
            yield Refusal("onednn-cpu", node.name, f"axes {resized} are not all spatial")
            continue
        taps = 1 if params[0][1] == "nearest" else 2 ** (len(x.shape) - 2)
        spec = KernelSpec(
            "resampling",
            (("src", memories[0]), ("dst", memories[1])),
            params,
            flops=2.0 * taps * prod(y.shape),
        )
        call = Call(spec, (Arg("src", input_of(0)), Arg("dst", output_of())))
        yield KernelOption("resampling", (source,), (result,), (call,))


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


def _around(walk: Walk, axis: str) -> tuple[int, int]:
    """Return how many elements are stored outside of an axis, and how many inside of it."""
    stored = loops(walk.axes, walk.shape)
    position = [loop.axis for loop in stored].index(axis)
    extents = [loop.extent for loop in stored]
    return prod(extents[:position]), prod(extents[position + 1 :])


def _product(outer: int, size: int, count: int, inner: int) -> Call:
    """Return the matrix product over an axis that is stored between two others."""
    flops = 2.0 * outer * count * size * inner
    if inner == 1:
        memories = (
            ("src", MemorySpec.plain((outer, size))),
            ("weights", MemorySpec((size, count), "any")),
            ("dst", MemorySpec.plain((outer, count))),
        )
        weights = Arg("weights", input_of(1), permute=(1, 0))
        args = (Arg("src", input_of(0)), weights, Arg("dst", output_of()))
    else:
        memories = (
            ("src", MemorySpec.plain((1, count, size))),
            ("weights", MemorySpec.plain((outer, size, inner))),
            ("dst", MemorySpec.plain((outer, count, inner))),
        )
        matrix = Arg("src", input_of(1), reshape=(1, count, size))
        args = (matrix, Arg("weights", input_of(0)), Arg("dst", output_of()))
    return Call(KernelSpec("matmul", memories, flops=flops), args)


def _kernels_interpolate(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    if not context.is_constant(node.inputs[1]):
        yield Refusal("onednn-cpu", node.name, "the matrix is not a constant")
        return
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    axis = node.int_attr("axis")
    for source, result in walks(context, x, y):
        name = source.axes.axes[source.order.index(axis)]
        if source.axes.multiple(name) > 1:
            yield Refusal("onednn-cpu", node.name, f"{source.fmt} has blocks of axis {name}")
            continue
        outer, inner = _around(source, name)
        call = _product(outer, x.shape[axis], y.shape[axis], inner)
        yield KernelOption("matmul", (source.fmt, None), (result.fmt,), (call,))


RESIZE = register(
    OpSpec("resize", (1, 1), _infer_resize, _evaluate_resize, "same", _kernels_resize)
)
INTERPOLATE = register(
    OpSpec(
        "interpolate", (2, 2), _infer_interpolate, _evaluate_interpolate, "same",
        _kernels_interpolate,
    )
)  # fmt: skip
