"""Shapes and formats of stored values: axis orders, canonical shapes, row-major strides."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from numpy.typing import NDArray

from stridewise.formats import Format, nd
from stridewise.formats.axes import POSITIONAL
from stridewise.graph import Value
from stridewise.tensor import Storage, TensorDesc
from stridewise.tensor.quantization import convert, scales_of

Array = NDArray[Any]

__all__ = [
    "canonical_shape",
    "converted",
    "positional",
    "positions",
    "reshape_groups",
    "row_major",
    "storage_shape",
    "stored",
    "user_format",
    "way_of",
]


def user_format(value: Value) -> Format:
    """Return the row-major format in the user's own axis order."""
    return positional(len(value.shape)) if value.origin is None else value.origin


def positional(rank: int) -> Format:
    """Return the row-major format over positional axes, of any rank.

    >>> positional(2).order, positional(13).order[-1]
    (('a', 'b'), 'm')
    """
    if rank <= len(POSITIONAL):
        return nd(rank)
    # There are no conventional names for so many, and NumPy has no more than 64 axes.
    more = (*ascii_lowercase, *ascii_uppercase, *(f"x{index}" for index in range(rank)))
    axes = tuple(more[:rank])
    return Format(axes, axes)


def canonical_shape(value: Value, fmt: Format) -> tuple[int, ...]:
    """Return the shape of a value in the canonical order of ``fmt``'s axes."""
    if value.origin is None:
        return value.shape
    return tuple(value.shape[value.origin.order.index(axis)] for axis in fmt.axes)


def positions(value: Value, fmt: Format) -> tuple[int, ...]:
    """Return the user's position of each axis of a format."""
    if value.origin is None:
        return tuple(range(fmt.rank))
    return tuple(value.origin.order.index(axis) for axis in fmt.axes)


def storage_shape(value: Value, fmt: Format) -> tuple[int, ...]:
    """Return the shape of the array that stores a value in a format."""
    return fmt.storage_shape(canonical_shape(value, fmt))


def stored(value: Value, storage: Storage) -> TensorDesc:
    """Return Origin and Storage of a value that is stored in one way."""
    dtype = storage.element(value.dtype)
    return TensorDesc(value.shape, dtype, user_format(value), storage.format)


def way_of(value: Value, desc: TensorDesc) -> Storage:
    """Return the way in which a value is stored, from a description of it."""
    fmt, dtype = desc.storage.format, desc.dtype
    if dtype == value.dtype:
        return Storage(fmt)
    grid = value.grid or value.offer
    is_grid = grid is not None and grid.dtype == dtype.short
    return Storage(fmt, dtype, grid.quantization if grid and is_grid else None)


def converted(value: Value, array: Array, source: Storage, goal: Storage) -> Array:
    """Return elements of a value as another storage has them, in any order.

    Args:
        value: the tensor.
        array: elements of the source.
        source: how they are stored.
        goal: what they become; the format does not matter.
    """
    sides = source.quantization, goal.quantization
    types = source.element(value.dtype), goal.element(value.dtype)
    return convert(array, *types, scales_of(*sides, (), ()), ())


def row_major(dims: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense row-major tensor, in elements."""
    strides: list[int] = []
    step = 1
    for extent in reversed(dims):
        strides.insert(0, step)
        step *= extent
    return tuple(strides)


def reshape_groups(
    before: tuple[int, ...], after: tuple[int, ...]
) -> tuple[tuple[slice, slice], ...]:
    """Return which axes of a shape a reshape turns into which axes of another one.

    Args:
        before: the shape before the reshape.
        after: a shape of as many elements.

    Returns:
        The smallest groups of neighboring axes, before and after, of as many elements each.

    >>> reshape_groups((2, 12, 5), (2, 3, 4, 5))[1]
    (slice(1, 2, None), slice(1, 3, None))
    """
    if 0 in before:
        return ((slice(0, len(before)), slice(0, len(after))),)
    groups: list[tuple[slice, slice]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        first, second = i, j
        left, right = (before[i] if i < len(before) else 1), (after[j] if j < len(after) else 1)
        i, j = min(i + 1, len(before)), min(j + 1, len(after))
        while left != right:
            if left < right:
                left, i = left * before[i], i + 1
            else:
                right, j = right * after[j], j + 1
        groups.append((slice(first, i), slice(second, j)))
    return tuple(groups)
