"""Max and average pooling, adaptive or with windows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stridewise.frontends.torch.handlers.shape import batched
from stridewise.frontends.torch.library import torch
from stridewise.frontends.torch.reader import Handler, Operand, Reader, Results, Traced
from stridewise.graph import Attr

__all__ = ["HANDLERS", "adaptive_windows", "averaged", "avg_windows", "windows"]

Matrix: TypeAlias = NDArray[np.float32]


def _numbers(given: Sequence[int] | int, count: int) -> tuple[int, ...]:
    listed = (given,) if isinstance(given, int) else tuple(given)
    return listed * count if len(listed) == 1 else listed


def _extent(size: int, reach: int, stride: int, pad: int, *, ceil: bool) -> int:
    """Return the number of windows along an axis.

    Source: PyTorch, ``pooling_output_shape``: with ``ceil`` the last window may go beyond the
    padding at the end, if it begins inside of the input or the padding at the beginning.
    """
    count = (size + 2 * pad - reach + (stride - 1 if ceil else 0)) // stride + 1
    return count - 1 if ceil and (count - 1) * stride >= size + pad else count


def windows(
    r: Reader,
    x: Operand,
    count: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int] | int,
    dilation: Sequence[int] | int,
    ceil: bool,
) -> dict[str, tuple[int, ...]]:
    """Return the attributes of a pooling over ``count`` axes, with pads at the end for ``ceil``."""
    shape = r.shape(x)
    if len(shape) != count + 2:
        raise r.refuse("an image without a batch axis")
    sizes, dilations = _numbers(kernel, count), _numbers(dilation, count)
    strides = _numbers(stride, count) if stride else sizes
    begins = _numbers(padding, count)
    ends: list[int] = []
    for size, taps, step, pad, apart in zip(
        shape[2:], sizes, strides, begins, dilations, strict=True
    ):
        reach = apart * (taps - 1) + 1
        windows = _extent(size, reach, step, pad, ceil=ceil)
        ends.append(max((windows - 1) * step + reach - size - pad, pad))
    return {
        "kernel": sizes,
        "strides": strides,
        "pads": (*begins, *ends),
        "dilations": dilations,
    }


def _max_pool(
    r: Reader,
    x: Operand,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil: bool = False,
    *,
    count: int,
) -> Results:
    attrs = windows(r, x, count, kernel, stride, padding, dilation, ceil)
    return r.emit("max_pool", [x], **attrs), None


def avg_windows(
    r: Reader,
    x: Operand,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    ceil: bool = False,
    count_padding: bool = True,
    divisor: int | None = None,
    *,
    count: int,
) -> tuple[dict[str, Attr], list[Any]]:
    """Return the attributes of an average pooling over ``count`` axes, and factors of its results.

    PyTorch may divide by another number than the pooling does.
    """
    attrs = windows(r, x, count, kernel, stride, padding, 1, ceil)
    begins, ends = attrs["pads"][:count], attrs["pads"][count:]
    if divisor is not None:
        return {**attrs, "count_include_pad": 1}, [prod(attrs["kernel"]) / divisor]
    counted = count_padding and any(begins)
    found: dict[str, Attr] = {**attrs, "count_include_pad": int(counted)}
    if not counted or begins == ends:
        return found, []
    factors: list[Any] = []
    for axis, (taps, step, pad) in enumerate(
        zip(attrs["kernel"], attrs["strides"], begins, strict=True), start=2
    ):
        size = r.shape(x)[axis]
        number = _extent(size, taps, step, pad, ceil=ceil)
        shares = _shares(size, number, taps, step, pad)
        factors.append(shares.reshape(-1, *(1,) * (count + 1 - axis)))
    return found, factors


def _shares(size: int, count: int, taps: int, step: int, pad: int) -> Any:
    """Return taps per counted tap: those beyond the padding, which ``ceil`` allows, do not count.

    Source: PyTorch, ``avg_pool2d``: a window is as large as its part inside of the padded image.
    """
    starts = torch.arange(count) * step - pad
    return taps / (torch.clamp(starts + taps, max=size + pad) - starts).float()


def _avg_pool(r: Reader, x: Operand, *window: Any, count: int, **options: Any) -> Traced:
    attrs, factors = avg_windows(r, x, *window, count=count, **options)
    found = r.emit("avg_pool", [x], **attrs)
    for factor in factors:
        found = r.emit("mul", [found, factor])
    return found


def _even(shape: Sequence[int], wanted: Sequence[int]) -> dict[str, Attr] | None:
    """Return windows of one size that do not overlap, if adaptive pooling has such."""
    sizes = shape[-len(wanted) :]
    if any(not count or size % count for size, count in zip(sizes, wanted, strict=True)):
        return None
    kernel = tuple(size // count for size, count in zip(sizes, wanted, strict=True))
    return {"kernel": kernel, "strides": kernel, "pads": (0,) * (2 * len(wanted))}


def _ranges(size: int, count: int) -> list[tuple[int, int]]:
    """Return windows from i * size // count to ceil((i + 1) * size / count)."""
    return [(at * size // count, -(-(at + 1) * size // count)) for at in range(count)]


def _averages(size: int, count: int) -> Matrix:
    """Return the matrix that averages the windows of adaptive pooling."""
    matrix = np.zeros((count, size), np.float32)
    for row, (begin, end) in enumerate(_ranges(size, count)):
        matrix[row, begin:end] = 1 / (end - begin)
    return matrix


def adaptive_windows(shape: Sequence[int], wanted: Sequence[int]) -> dict[str, Attr] | list[Matrix]:
    """Return what adaptive average pooling to some extents is: windows, or a matrix for each axis.

    Args:
        shape: of the images.
        wanted: spatial extents of the result.
    """
    even = _even(shape, wanted)
    if even is not None:
        return even
    return [_averages(size, count) for size, count in zip(shape[2:], wanted, strict=True)]


def _adaptive_avg_pool(r: Reader, x: Operand, wanted: Sequence[int]) -> Traced:
    shape = r.shape(x)
    if all(count == 1 for count in wanted):
        return r.emit("reduce_mean", [x], axes=tuple(range(2, len(shape))), keepdims=1)
    found = adaptive_windows(shape, wanted)
    return r.emit("avg_pool", [x], **found) if isinstance(found, dict) else averaged(r, x, found)


def averaged(r: Reader, x: Operand, matrices: Sequence[Matrix]) -> Operand:
    """Multiply the spatial axes of images by matrices, one for each."""
    for axis, matrix in enumerate(matrices, start=2):
        name = r.builder.constant(np.ascontiguousarray(matrix), "windows")
        x = r.emit("interpolate", [x, r.traced(name)], axis=axis)
    return x


def _adaptive_max_pool(r: Reader, x: Operand, wanted: Sequence[int]) -> Results:
    even = _even(r.shape(x), wanted)
    if even is not None:
        return r.emit("max_pool", [x], **even), None
    for axis, count in enumerate(wanted, start=2):
        rows = [r.cut(x, axis, *ends) for ends in _ranges(r.shape(x)[axis], count)]
        found = [r.emit("reduce_max", [row], axes=(axis,), keepdims=1) for row in rows]
        x = r.emit("concat", found, axis=axis)
    return x, None


_POOLS: dict[str, tuple[Handler, int]] = {
    "aten._adaptive_avg_pool2d.default": (_adaptive_avg_pool, 2),
    "aten._adaptive_avg_pool3d.default": (_adaptive_avg_pool, 3),
    "aten.adaptive_max_pool2d.default": (_adaptive_max_pool, 2),
    "aten.adaptive_max_pool3d.default": (_adaptive_max_pool, 3),
    "aten.avg_pool1d.default": (partial(_avg_pool, count=1), 1),
    "aten.avg_pool2d.default": (partial(_avg_pool, count=2), 2),
    "aten.avg_pool3d.default": (partial(_avg_pool, count=3), 3),
    "aten.max_pool2d_with_indices.default": (partial(_max_pool, count=2), 2),
    "aten.max_pool3d_with_indices.default": (partial(_max_pool, count=3), 3),
}
"""Handlers with the number of spatial axes."""

HANDLERS: dict[str, Handler] = {
    name: batched(handler, spatial + 2) for name, (handler, spatial) in _POOLS.items()
}
