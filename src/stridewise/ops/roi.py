"""Pooling of regions of images into images of one size: ``roi_align`` and ``max_roi_pool``.

Regions are worked on one by one, each for all channels and pixels at once.
"""

from __future__ import annotations

from math import ceil, floor
from typing import Any, NamedTuple

import numpy as np

from stridewise.errors import ExecutionError
from stridewise.graph import Node, TensorType
from stridewise.ops.gather import index_type
from stridewise.ops.registry import Array, Operands, Types, array, needs, register, tensor

_FARTHEST = 2**31
"""No image is as wide; indices of 64 bits hold all samples of a region that ends there."""


def _result(node: Node, x: TensorType, rois: int) -> TensorType:
    size = node.ints_attr("size")
    needs(node, len(x.shape) == 4 and min(x.shape[2:]) >= 1, "images [N, C, H, W]", x)
    needs(node, len(size) == 2 and min(size) >= 1, "a size of two positive extents", size)
    return TensorType(x.dtype, (rois, x.shape[1], *size))


def _images(node: Node, batch: Array, count: int) -> list[int]:
    """Return which image each region lies in.

    Raises:
        ExecutionError: there is no such image.
    """
    found = [int(item) for item in batch.reshape(-1)]
    if found and not 0 <= min(found) <= max(found) < count:
        raise ExecutionError.at(
            f"node {node.name!r} ({node.op})",
            expected=f"images from 0 to {count - 1}",
            found=str(max(found, key=lambda item: abs(2 * item - count))),
            fix="check the batch indices that the model is given",
        )
    return found


def _check_corners(node: Node, corners: Array) -> None:
    """Raise an ExecutionError unless all corners are numbers of pixels."""
    wrong = corners[~(np.abs(corners) < _FARTHEST)]
    if wrong.size:
        raise ExecutionError.at(
            f"node {node.name!r} ({node.op})",
            expected=f"regions with corners below {_FARTHEST} pixels",
            found=str(wrong[0]),
            fix="check the regions that the model is given or computes",
        )


# --- means or maxima of interpolated samples ------------------------------------------------------


class _Samples(NamedTuple):
    """The samples of a region along one axis, those that lie on the image.

    Attributes:
        bins: which element of the result each belongs to, ascending.
        low: the pixel before each.
        high: the pixel after it.
        part: how far each is on the way from one to the other.
        number: samples of an element of the result, those off the image counted too.
    """

    bins: Array
    low: Array
    high: Array
    part: Array
    number: int


def _samples(start: float, length: float, size: int, extent: int, ratio: int) -> _Samples:
    """Place samples evenly in each bin; ``ratio`` of them, or one a pixel where it is 0."""
    width = length / size
    count = ratio if ratio > 0 else max(ceil(width), 0)
    step = width / count if count else 0.0
    first, last = 0, size * count
    if step > 0:
        # The others lie off the image, by one pixel at least, and count as zeros.
        first = int(np.clip((-1 - start) / step - 1, 0, last))
        last = int(np.clip((extent - start) / step + 1, first, last))
    index = np.arange(first, last)
    places = start + (index + 0.5) * step
    inside = (places >= -1) & (places <= extent)
    index, places = index[inside], np.maximum(places[inside], 0)
    low = np.minimum(places.astype(np.int64), extent - 1)
    part = np.where(low >= extent - 1, 0.0, places - low)
    return _Samples(index // max(count, 1), low, np.minimum(low + 1, extent - 1), part, count)


def _weights(samples: _Samples, size: int, extent: int) -> Array:
    """Return the matrix [size, extent] that adds up the samples of every bin."""
    matrix = np.zeros((size, extent))
    np.add.at(matrix, (samples.bins, samples.low), 1 - samples.part)
    np.add.at(matrix, (samples.bins, samples.high), samples.part)
    return matrix


def _greatest(image: Array, rows: _Samples, columns: _Samples, size: tuple[int, int]) -> Array:
    """Return the maximum over samples of the greatest weighted corner (source: ONNX, RoiAlign)."""
    corners = [
        image[:, y][:, :, x] * (a[:, None] * b)
        for y, a in ((rows.low, 1 - rows.part), (rows.high, rows.part))
        for x, b in ((columns.low, 1 - columns.part), (columns.high, columns.part))
    ]
    result = np.full((len(image), *size), -np.inf)
    index: Any = (slice(None), rows.bins[:, None], columns.bins[None, :])
    np.maximum.at(result, index, np.maximum.reduce(corners))
    whole = [
        np.bincount(samples.bins, minlength=count) == max(samples.number, 1)
        for samples, count in zip((rows, columns), size, strict=True)
    ]
    # A sample off the image is zero, and so is a maximum of none.
    partial = ~(whole[0][:, None] & whole[1])
    return np.where(partial, np.maximum(result, 0), result)


def _infer_align(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, rois, batch = tensor(node, types, 0), tensor(node, types, 1), index_type(node, types, 2)
    fits = len(rois.shape) == 2 and rois.shape[1] == 4 and rois.dtype == x.dtype
    needs(node, fits, f"regions of 4 corners of {x.dtype}", rois)
    needs(node, batch.shape == rois.shape[:1], f"{rois.shape[0]} batch indices", batch)
    mode, ratio = node.str_attr("mode", "avg"), node.int_attr("sampling_ratio", 0)
    needs(node, mode in ("avg", "max"), "mode avg or max", mode)
    needs(node, 0 <= ratio <= max(1024, *x.shape), "a sampling ratio of an image's size", ratio)
    return (_result(node, x, rois.shape[0]),)


def _evaluate_align(node: Node, operands: Operands) -> tuple[Array, ...]:
    x, rois, batch = (array(operands, index) for index in range(3))
    (height, width), ratio = node.ints_attr("size"), node.int_attr("sampling_ratio", 0)
    half = bool(node.int_attr("half_pixel", 1))
    scaled = rois.astype(np.float64) * node.float_attr("scale", 1.0) - (0.5 if half else 0.0)
    _check_corners(node, scaled)
    result = np.zeros((len(rois), x.shape[1], height, width), x.dtype)
    for number, image in enumerate(_images(node, batch, len(x))):
        left, top, right, bottom = (float(corner) for corner in scaled[number])
        least = -np.inf if half else 1.0
        extents = max(bottom - top, least), max(right - left, least)
        rows = _samples(top, extents[0], height, x.shape[2], ratio)
        columns = _samples(left, extents[1], width, x.shape[3], ratio)
        values = x[image].astype(np.float64)
        if node.str_attr("mode", "avg") == "max":
            result[number] = _greatest(values, rows, columns, (height, width))
            continue
        sums = _weights(rows, height, x.shape[2]) @ values @ _weights(columns, width, x.shape[3]).T
        result[number] = sums / max(rows.number * columns.number, 1)
    return (result,)


# --- maxima of whole pixels -----------------------------------------------------------------------


def _infer_pool(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, rois = tensor(node, types, 0), tensor(node, types, 1)
    fits = len(rois.shape) == 2 and rois.shape[1] == 5 and rois.dtype == x.dtype
    needs(node, fits, f"regions of an image and 4 corners of {x.dtype}", rois)
    return (_result(node, x, rois.shape[0]),)


def _bins(start: int, stop: int, count: int, extent: int) -> list[slice]:
    """Return the pixels of each bin of a region that ends with the pixel ``stop``."""
    width = max(stop - start + 1, 1) / count
    edges = [(start + floor(i * width), start + ceil((i + 1) * width)) for i in range(count)]
    return [slice(min(max(a, 0), extent), min(max(b, 0), extent)) for a, b in edges]


def _evaluate_pool(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Source: Girshick (2015), Fast R-CNN; a bin without pixels is zero."""
    x, rois = array(operands, 0), array(operands, 1)
    height, width = node.ints_attr("size")
    corners = np.floor(rois[:, 1:].astype(np.float64) * node.float_attr("scale", 1.0) + 0.5)
    _check_corners(node, corners)
    result = np.zeros((len(rois), x.shape[1], height, width), x.dtype)
    for number, image in enumerate(_images(node, rois[:, 0], len(x))):
        left, top, right, bottom = (int(corner) for corner in corners[number])
        columns = _bins(left, right, width, x.shape[3])
        for row, lines in enumerate(_bins(top, bottom, height, x.shape[2])):
            for column, dots in enumerate(columns):
                part = x[image, :, lines, dots]
                if part.shape[1] and part.shape[2]:
                    result[number, :, row, column] = part.max((1, 2))
    return (result,)


register(
    "roi_align",
    (3, 3),
    _infer_align,
    _evaluate_align,
    "interrupt",
    attributes={
        "size": "integers",
        "mode": "text",
        "sampling_ratio": "integer",
        "half_pixel": "flag",
        "scale": "number",
    },
)
register(
    "max_roi_pool",
    (2, 2),
    _infer_pool,
    _evaluate_pool,
    "interrupt",
    attributes={"size": "integers", "scale": "number"},
)
