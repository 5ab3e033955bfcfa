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
    "COORDINATES",
    "INTERPOLATE",
    "MODES",
    "RESIZE",
    "ROUNDINGS",
    "interpolation",
    "is_resampling",
    "resize_matrix",
    "resized_axes",
]

MODES = ("nearest", "linear", "cubic")
COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners",
)  # fmt: skip
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_CUBIC = -0.75


def _positions(size: int, count: int, scale: float, coordinates: str) -> Array:
    """Return where in the input each output element lies (source: ONNX, Resize)."""
    index = np.arange(count, dtype=np.float64)
    if coordinates == "align_corners":
        return index * (size - 1) / max(count - 1, 1)
    if coordinates == "asymmetric":
        return index / scale
    if coordinates == "pytorch_half_pixel" and count == 1:
        return np.zeros(1)
    centered = (index + 0.5) / scale - 0.5
    if coordinates == "half_pixel_symmetric":
        centered += size / 2 * (1 - count / (scale * size))
    return centered


def _rounded(positions: Array, rounding: str) -> Array:
    # Scales come in float32: what lies next to a tie is one. True neighbors are farther apart.
    positions = np.round(positions, 5)
    return {
        "round_prefer_floor": lambda: np.ceil(positions - 0.5),
        "round_prefer_ceil": lambda: np.floor(positions + 0.5),
        "floor": lambda: np.floor(positions),
        "ceil": lambda: np.ceil(positions),
    }[rounding]()


def _taps(positions: Array, mode: str, rounding: str, cubic: float) -> list[tuple[Array, Array]]:
    """Return pairs of the indices that are read, which may lie outside, and their weights."""
    if mode == "nearest":
        return [(_rounded(positions, rounding), np.ones_like(positions))]
    low = np.floor(positions)
    t = positions - low
    if mode == "linear":
        return [(low, 1 - t), (low + 1, t)]
    # Keys (1981): one polynomial near the center, another one beyond.
    near = [((cubic + 2) * d - (cubic + 3)) * d * d + 1 for d in (t, 1 - t)]
    far = [((cubic * d - 5 * cubic) * d + 8 * cubic) * d - 4 * cubic for d in (1 + t, 2 - t)]
    return [(low - 1, far[0]), (low, near[0]), (low + 1, near[1]), (low + 2, far[1])]


def interpolation(
    size: int,
    count: int,
    mode: str,
    coordinates: str,
    rounding: str = "round_prefer_floor",
    *,
    scale: float | None = None,
    cubic: float = _CUBIC,
) -> Array:
    """Return the float64 matrix [count, size] that resizes one axis; its rows add up to 1.

    Args:
        size: extent of the input.
        count: extent of the output.
        mode: one of :data:`MODES`.
        coordinates: one of :data:`COORDINATES`.
        rounding: one of :data:`ROUNDINGS`, for nearest neighbors.
        scale: outputs per input where coordinates are mapped by another ratio than the extents'.
        cubic: the coefficient of cubic interpolation.

    >>> interpolation(2, 4, "linear", "half_pixel").tolist()
    [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]]
    """
    positions = _positions(size, count, count / size if scale is None else scale, coordinates)
    matrix = np.zeros((count, size))
    rows = np.arange(count)
    for indices, weights in _taps(positions, mode, rounding, cubic):
        np.add.at(matrix, (rows, np.clip(indices, 0, size - 1).astype(np.int64)), weights)
    return matrix


def _settings(node: Node) -> tuple[str, str, str]:
    return (
        node.str_attr("mode"),
        node.str_attr("coordinates", "half_pixel"),
        node.str_attr("rounding", "round_prefer_floor"),
    )


def resized_axes(node: Node, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes whose extent a ``resize`` changes."""
    wanted = node.ints_attr("shape")
    return tuple(axis for axis, extent in enumerate(shape) if wanted[axis] != extent)


def resize_matrix(node: Node, shape: tuple[int, ...], axis: int) -> Array:
    """Return the float64 matrix by which a ``resize`` changes one axis of a tensor."""
    return interpolation(shape[axis], node.ints_attr("shape")[axis], *_settings(node))


def _infer_resize(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, shape = tensor(node, types, 0), node.ints_attr("shape")
    fits = len(shape) == len(x.shape) and min(shape, default=1) > 0
    needs(node, fits, f"a shape of {len(x.shape)} positive extents", shape)
    for found, known in zip(_settings(node), (MODES, COORDINATES, ROUNDINGS), strict=True):
        needs(node, found in known, f"one of {', '.join(known)}", found)
    return (TensorType(x.dtype, shape),)


def _contract(x: Array, matrix: Array, axis: int) -> Array:
    return np.moveaxis(np.tensordot(matrix, x.astype(np.float64), (1, axis)), 0, axis)


def _evaluate_resize(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    result = x
    for axis in resized_axes(node, x.shape):
        result = _contract(result, resize_matrix(node, x.shape, axis), axis)
    return (np.ascontiguousarray(result, x.dtype),)


@cache
def _aligns_centers(size: int, count: int, mode: str, coordinates: str, rounding: str) -> bool:
    """Return whether oneDNN resizes an axis alike; nearest neighbors without any tie only."""
    wanted = interpolation(size, count, mode, coordinates, rounding)
    ties = ("round_prefer_floor", "round_prefer_ceil") if mode == "nearest" else ("floor",)
    theirs = [interpolation(size, count, mode, "half_pixel", tie) for tie in ties]
    return all(np.allclose(wanted, each, rtol=0, atol=1e-7) for each in theirs)


def is_resampling(node: Node, shape: tuple[int, ...]) -> bool:
    """Return whether a ``resize`` of a tensor of this shape is what oneDNN's resampling computes.

    Two axes must keep their extents, to be batch and channels there.
    """
    mode, coordinates, rounding = _settings(node)
    wanted = node.ints_attr("shape")
    return (
        mode in ("nearest", "linear")
        and 3 <= len(shape) <= 5
        and len(resized_axes(node, shape)) <= len(shape) - 2
        and all(
            _aligns_centers(shape[axis], wanted[axis], mode, coordinates, rounding)
            for axis in resized_axes(node, shape)
        )
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
