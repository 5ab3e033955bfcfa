"""Reading images at computed places: ``grid_sample``, and the grids of affine maps.

Everything is computed for all places at once, one tap of the interpolation at a time.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.registry import Array, Operands, Types, array, needs, register, tensor

__all__ = ["BORDERS", "GRID_MODES"]

GRID_MODES = ("linear", "nearest", "cubic")
BORDERS = ("zeros", "border", "reflection")
"""What lies outside of the image: zeros, its nearest pixel, or its mirror image."""

_CUBIC = -0.75

Tap = tuple[Array, Array]
"""Indices along an axis, -1 where there is no pixel, and the weights of what is there."""


def _infer_sample(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, grid = tensor(node, types, 0), tensor(node, types, 1)
    rank = len(x.shape) - 2
    needs(node, rank >= 1 and min(x.shape[2:]) >= 1, "an image", x)
    fits = len(grid.shape) == rank + 2 and grid.shape[0] == x.shape[0] and grid.shape[-1] == rank
    needs(node, fits, f"a grid of batch {x.shape[0]} and {rank} coordinates", grid)
    for key, known in (("mode", GRID_MODES), ("border", BORDERS)):
        found = node.str_attr(key, known[0])
        needs(node, found in known, f"{key} {', '.join(known)}", found)
    return (TensorType(x.dtype, (*x.shape[:2], *grid.shape[1:-1])),)


def _places(grid: Array, extent: int, *, aligned: bool) -> Array:
    """Return indices from coordinates in [-1, 1] (source: ONNX, GridSample)."""
    if aligned:
        return (grid + 1) / 2 * (extent - 1)
    return ((grid + 1) * extent - 1) / 2


def _mirrored(places: Array, extent: int, *, aligned: bool) -> Array:
    """Reflect places at the borders until they lie inside."""
    low, high = (0.0, extent - 1.0) if aligned else (-0.5, extent - 0.5)
    span = high - low
    if span <= 0:
        return np.full_like(places, low)
    with np.errstate(invalid="ignore"):
        away = np.fmod(np.abs(places - low), 2 * span)
    return low + np.where(away > span, 2 * span - away, away)


def _taps(places: Array, mode: str) -> list[Tap]:
    """Return what each place is interpolated from; indices may lie outside."""
    if mode == "nearest":
        # Ties go to the even index, as in PyTorch.
        return [(np.rint(places), np.ones_like(places))]
    low = np.floor(places)
    t = places - low
    if mode == "linear":
        return [(low, 1 - t), (low + 1, t)]
    # Keys (1981): one polynomial near the center, another one beyond.
    near = [((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1 for d in (t, 1 - t)]
    far = [((_CUBIC * d - 5 * _CUBIC) * d + 8 * _CUBIC) * d - 4 * _CUBIC for d in (1 + t, 2 - t)]
    return [(low - 1, far[0]), (low, near[0]), (low + 1, near[1]), (low + 2, far[1])]


def _resolved(node: Node, tap: Tap, extent: int) -> Tap:
    """Return the tap with indices inside of the image; what is not there has no weight."""
    index, weight = tap
    border, aligned = node.str_attr("border", "zeros"), bool(node.int_attr("align_corners", 0))
    if border == "reflection":
        index = np.trunc(_mirrored(index, extent, aligned=aligned))
    with np.errstate(invalid="ignore"):
        inside = (index >= 0) & (index < extent)
        # A place that is no number lies nowhere.
        whole = np.clip(np.nan_to_num(index, nan=-1.0), 0, extent - 1).astype(np.int64)
    return (np.where(inside, whole, -1) if border == "zeros" else whole), weight


def _axis_taps(node: Node, grid: Array, extent: int) -> list[Tap]:
    mode, border = node.str_attr("mode", "linear"), node.str_attr("border", "zeros")
    aligned = bool(node.int_attr("align_corners", 0))
    with np.errstate(invalid="ignore", over="ignore"):
        places = _places(grid, extent, aligned=aligned)
        if mode == "nearest":
            places = np.rint(places)
        if border == "border":
            # In cubic interpolation, taps beyond the edge count as the edge (as in PyTorch and ONNX
            # Runtime; ONNX's reference moves some places first). Farther out there is nothing else.
            places = np.clip(places, -3, extent + 2)
        elif border == "reflection":
            places = _mirrored(places, extent, aligned=aligned)
        return [_resolved(node, tap, extent) for tap in _taps(places, mode)]


def _evaluate_sample(node: Node, operands: Operands) -> tuple[Array, ...]:
    x, grid = array(operands, 0), array(operands, 1)
    dims = x.shape[2:]
    # Places are found in single precision as elsewhere, so that ties fall alike.
    grid = grid.astype(np.promote_types(grid.dtype, np.float32)) if grid.itemsize < 4 else grid
    batch, points = x.shape[0], grid.shape[1:-1]
    axes = [
        _axis_taps(node, grid[..., len(dims) - 1 - axis].reshape(batch, -1), extent)
        for axis, extent in enumerate(dims)
    ]
    flat = x.reshape(*x.shape[:2], prod(dims))
    exact = node.str_attr("mode", "linear") == "nearest"
    total = np.zeros((*x.shape[:2], prod(points)), x.dtype if exact else np.float64)
    for taps in product(*axes):
        is_outside = np.any([tap[0] < 0 for tap in taps], axis=0)
        index = np.ravel_multi_index([np.maximum(tap[0], 0) for tap in taps], dims)
        read = np.take_along_axis(flat, index[:, None], 2)
        if exact:
            total = np.where(is_outside[:, None], total, read)
        else:
            weight = np.prod([tap[1] for tap in taps], axis=0)
            with np.errstate(invalid="ignore"):
                part = read * weight[:, None].astype(np.float64)
                total += np.where(is_outside[:, None], 0, part)
    return (total.astype(x.dtype).reshape(*x.shape[:2], *points),)


# --- grids of affine maps -------------------------------------------------------------------------


def _infer_affine(node: Node, types: Types) -> tuple[TensorType, ...]:
    theta, size = tensor(node, types, 0), node.ints_attr("size")
    rank = len(size) - 2
    needs(node, rank in (2, 3) and min(size) >= 1, "a size [N, C, H, W] or [N, C, D, H, W]", size)
    fits = theta.shape == (size[0], rank, rank + 1)
    needs(node, fits, f"{size[0]} matrices of {rank} by {rank + 1}", theta)
    return (TensorType(theta.dtype, (size[0], *size[2:], rank)),)


def _centers(count: int, *, aligned: bool) -> Array:
    """Return the coordinates of pixels along an axis, the outermost at -1 and 1 or inside."""
    if aligned:
        return np.linspace(-1, 1, count) if count > 1 else np.zeros(1)
    return (2 * np.arange(count) + 1) / count - 1


def _evaluate_affine(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Source: ONNX, AffineGrid: points (x, y, 1), or (x, y, z, 1), times a matrix each."""
    theta = array(operands, 0)
    dims = node.ints_attr("size")[2:]
    aligned = bool(node.int_attr("align_corners", 0))
    axes = np.meshgrid(*(_centers(count, aligned=aligned) for count in dims), indexing="ij")
    points = np.stack([*reversed(axes), np.ones(dims)], -1).reshape(prod(dims), -1)
    grid = points @ theta.astype(np.float64).transpose(0, 2, 1)
    return (grid.astype(theta.dtype).reshape(len(theta), *dims, len(dims)),)


register(
    "grid_sample",
    (2, 2),
    _infer_sample,
    _evaluate_sample,
    "anchor",
    attributes={"mode": "text", "border": "text", "align_corners": "flag"},
)
register(
    "affine_grid",
    (1, 1),
    _infer_affine,
    _evaluate_affine,
    "interrupt",
    attributes={"size": "integers", "align_corners": "flag"},
)
