"""How the arrays of a reorder lie: shape, dtype and strides, checked at each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import FormatError
from stridewise.formats import algebra
from stridewise.runtime.execution.arrays import empty
from stridewise.tensor.desc import TensorDesc

if TYPE_CHECKING:
    from stridewise.tensor.moves import Side

__all__ = ["Layout", "dense_strides", "falls_along", "is_same_walk", "layout_of"]

Array = NDArray[Any]


class Layout:
    """How the arrays of one side of a reorder must lie, found once.

    Attributes:
        desc: the tensor.
        what: ``"source"`` or ``"destination"``.
        shape: the shape of its storage.
        dtype: NumPy's element type.
        strides: bytes along each dimension.
        is_dense: whether these are the strides of a new array.
        nbytes: bytes from the first element to just past the last.
    """

    __slots__ = ("desc", "dtype", "is_dense", "nbytes", "shape", "strides", "what")

    def __init__(self, desc: TensorDesc, strides: Sequence[int] | None, what: str) -> None:
        self.desc = desc
        self.what = what
        self.shape = desc.storage.shape
        self.dtype = desc.dtype.numpy
        dense = dense_strides(self.shape, desc.dtype.itemsize)
        self.strides = dense if strides is None else tuple(strides)
        self.is_dense = 0 in self.shape or all(
            extent == 1 or stride == wanted
            for extent, stride, wanted in zip(self.shape, self.strides, dense, strict=True)
        )
        last = sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))
        self.nbytes = 0 if 0 in self.shape else last + desc.dtype.itemsize

    def check(self, array: Array) -> None:
        """Check an array whose attributes are not literally those that are wanted.

        Raises:
            FormatError: it has another shape, dtype or strides.
        """
        self.check_kind(array.shape, array.dtype)
        differ = any(
            extent > 1 and have != wanted
            for extent, have, wanted in zip(self.shape, array.strides, self.strides, strict=True)
        )
        if differ and 0 not in self.shape:
            raise FormatError.at(
                f"{self.what} of a reorder",
                expected=f"strides of {self.strides} bytes",
                found=f"{array.strides}",
                fix="make a Reorder for these strides, or call reorder(), which does",
            )

    def check_kind(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Check the shape and the dtype of an array; FormatError where one is wrong."""
        if shape != self.shape or dtype != self.dtype:
            raise FormatError.at(
                f"{self.what} of a reorder",
                expected=f"{self.dtype} array of shape {self.shape}, {self.desc.summary}",
                found=f"{dtype} array of shape {shape}",
            )

    def side(self) -> Side:
        """Return the strides, for the planning of moves."""
        # Only reorders plan moves; compiled models read their inputs without them.
        from stridewise.tensor.moves import Side  # noqa: PLC0415

        fmt, shape = self.desc.storage.format, self.desc.canonical_shape
        if self.is_dense:
            return Side.of(fmt, shape)
        itemsize = self.desc.dtype.itemsize
        return Side.of(fmt, shape, [stride // itemsize for stride in self.strides])

    def empty(self) -> Array:
        """Return a new array; a large one begins at a cache line."""
        return empty(self.shape, self.dtype)


def dense_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the strides of a C-contiguous array, in bytes."""
    strides: list[int] = []
    step = itemsize
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= max(extent, 1)
    return tuple(strides)


def falls_along(order: Sequence[int], shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether strides do not grow along axes in this order, outermost first.

    Axes of extent 1 say nothing, and neither do those whose elements are all in one place. Reversed
    axes count as what they are reversed of, and gaps do not matter.

    >>> channels_last = (512, 1, 64, 8)
    >>> falls_along((0, 2, 3, 1), (1, 8, 8, 8), channels_last)
    True
    >>> falls_along((0, 1, 2, 3), (1, 8, 8, 8), channels_last)
    False
    """
    steps = [abs(strides[axis]) for axis in order if shape[axis] > 1 and strides[axis]]
    return steps == sorted(steps, reverse=True)


def is_same_walk(order: Sequence[int], shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether an array has the same elements in the same places if its axes are permuted.

    Args:
        order: the permutation, of axes of equal extents.
        shape: the extents.
        strides: along each axis.
    """
    return 0 in shape or all(
        extent == 1 or strides[axis] == stride
        for axis, extent, stride in zip(order, shape, strides, strict=True)
    )


def layout_of(desc: TensorDesc, strides: Sequence[int] | None, what: str) -> Layout:
    """Return how the arrays of one side of a reorder must lie.

    Args:
        desc: the tensor.
        strides: bytes along each dimension of its storage; dense by default.
        what: ``"source"`` or ``"destination"``, for messages.

    Raises:
        FormatError: the strides are negative, overlap, or are those of no array of this dtype.
    """
    shape, itemsize = desc.storage.shape, desc.dtype.itemsize
    if strides is not None:
        if len(strides) != len(shape):
            raise _refuse_strides(what, f"{len(shape)} strides", strides)
        if any(stride % itemsize for stride in strides):
            raise _refuse_strides(what, f"multiples of {itemsize} bytes", strides)
        ordered = sorted((s, n) for s, n in zip(strides, shape, strict=True) if n > 1)
        reach = itemsize
        for stride, extent in ordered:
            if stride < reach and 0 not in shape:
                raise _refuse_strides(what, "positive strides that do not overlap", strides)
            reach = (extent - 1) * stride + reach
    layout = Layout(desc, strides, what)
    walk = algebra.loops(desc.storage.format, desc.canonical_shape)
    if not layout.is_dense and len(walk) != len(shape):
        raise _refuse_strides(what, f"a dense array, as {desc.storage.format} has gaps", strides)
    return layout


def _refuse_strides(what: str, expected: str, strides: Sequence[int] | None) -> FormatError:
    return FormatError.at(
        f"{what} of a reorder",
        expected=expected,
        found=f"strides {strides}",
        fix="copy it with numpy.ascontiguousarray first",
    )
