"""Format arithmetic: free functions of a :class:`Format` and a shape.

Shapes and indices are in the canonical order of ``format.axes``. Offsets and strides count
elements. All functions derive from :func:`loops`: the offset of an index is the sum over the loops
of ``stride * (index of the axis // step % extent)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from operator import index as as_int
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import FormatError
from stridewise.formats.data import Block, FormatData, Fuse, Pitch, Split

__all__ = [
    "Loop",
    "axis_offsets",
    "element_count",
    "index",
    "is_dense",
    "loops",
    "offset",
    "offsets",
    "padded_shape",
    "same_bytes",
    "sources",
    "storage_shape",
    "strides",
    "sub_tensor",
    "walked_extents",
    "walked_index",
]

_LARGEST = 2**63 - 1

_Index = TypeVar("_Index", int, NDArray[np.int64])


class Loop(NamedTuple):
    """One digit of the memory walk.

    Attributes:
        axis: the axis that the digit belongs to.
        extent: the number of values of the digit.
        step: distance between consecutive values, in indices of the axis.
        stride: distance between consecutive values in memory, in elements.
    """

    axis: str
    extent: int
    step: int
    stride: int


def _checked(fmt: FormatData, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the extents as numbers of Python; those of NumPy overflow."""
    try:
        extents = tuple(map(as_int, shape))
    except TypeError:
        extents = ()
    if len(extents) != fmt.rank or any(extent < 0 for extent in extents):
        raise FormatError.at(
            f"format {fmt}",
            expected=f"{fmt.rank} non-negative extents over {_listed(fmt.axes)}",
            found=f"shape {tuple(shape)}",
        )
    return extents


def _listed(axes: Sequence[str]) -> str:
    return ("" if all(len(axis) == 1 for axis in axes) else ",").join(axes)


def _round_up(extent: int, multiple: int) -> int:
    return -(-extent // multiple) * multiple


def _padded(fmt: FormatData, axis: str, extent: int) -> int:
    multiple = fmt.multiple(axis)
    if extent % multiple and fmt.policy(axis) == "divide":
        raise FormatError.at(
            f"format {fmt}",
            expected=f"a multiple of {multiple} along {axis}, which the format does not pad",
            found=f"{extent}",
        )
    return _round_up(extent, multiple)


def _stages(fmt: FormatData, shape: Sequence[int]) -> list[dict[str, int]]:
    """Return the extents of all axes before each step of a format, and after the last one.

    Raises:
        FormatError: the rank is wrong, or an extent is not a multiple of a split or of a block.
    """
    extents = dict(zip(fmt.axes, _checked(fmt, shape), strict=True))
    found = [dict(extents)]
    for step in fmt.steps:
        if isinstance(step, Fuse):
            extents[step.into] = prod(_padded(fmt, axis, extents.pop(axis)) for axis in step.axes)
        else:
            extent = extents.pop(step.axis)
            if extent % step.size:
                raise FormatError.at(
                    f"format {fmt}",
                    expected=f"a multiple of {step.size} along {step.axis}, which is split",
                    found=f"{extent}",
                )
            extents[step.outer], extents[step.inner] = extent // step.size, step.size
        found.append(dict(extents))
    return found


def walked_extents(fmt: FormatData, shape: Sequence[int]) -> dict[str, int]:
    """Return the extent of every axis that the digits name, before padding.

    Raises:
        FormatError: the rank is wrong, or an extent is not a multiple of a split or of a block.
    """
    extents = _stages(fmt, shape)[-1]
    for axis, extent in extents.items():
        if axis not in fmt.order and extent != fmt.multiple(axis):
            raise FormatError.at(
                f"format {fmt}",
                expected=f"{fmt.multiple(axis)} along {axis}, which the format fixes",
                found=f"{extent}",
            )
    return extents


def _walk(fmt: FormatData, shape: Sequence[int]) -> tuple[list[Loop], int, int | None]:
    """Return the loops, the size of memory, and the number of loops outside the outermost gap."""
    extents = walked_extents(fmt, shape)
    found: list[Loop] = []
    size = 1
    inside: int | None = None
    blocks = iter(reversed(fmt.blocks))
    for item in reversed(fmt.digits):
        if isinstance(item, Pitch):
            rounded = _round_up(size, item.multiple)
            inside = len(found) if rounded != size else inside
            size = rounded
            continue
        if isinstance(item, Block):
            block = next(blocks)
            axis, extent, step = block.axis, block.size, block.step or 1
        else:
            unit = prod(block.size for block in fmt.blocks if block.axis == item)
            axis, extent, step = item, _padded(fmt, item, extents[item]) // unit, unit
        found.append(Loop(axis, extent, step, size))
        size *= extent
    if size > _LARGEST:
        raise FormatError.at(
            f"format {fmt}",
            expected=f"fewer than 2**63 elements in shape {tuple(shape)}",
            found=f"{size}",
        )
    found.reverse()
    return found, size, inside


def loops(fmt: FormatData, shape: Sequence[int]) -> tuple[Loop, ...]:
    """Return the loops of the memory walk, outermost to innermost.

    >>> from stridewise.formats import parse
    >>> for loop in loops(parse("nChw16c"), (1, 32, 2, 3))[1:]:
    ...     print(*loop)
    C 2 16 96
    H 2 1 48
    W 3 1 16
    C 16 1 1
    """
    return tuple(_walk(fmt, shape)[0])


def padded_shape(fmt: FormatData, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the canonical shape with every padded axis rounded up to its multiple.

    Axes that are flattened or split are rounded up individually. :func:`walked_extents` and
    :func:`storage_shape` return the extents after flattening and splitting.
    """
    shape = _checked(fmt, shape)
    walked_extents(fmt, shape)
    return tuple(_padded(fmt, axis, extent) for axis, extent in zip(fmt.axes, shape, strict=True))


def storage_shape(fmt: FormatData, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the extents of the dense array that holds the bytes, outermost first.

    If a pitch leaves a gap, all digits inside it form one extent that includes the gap.

    >>> from stridewise.formats import parse
    >>> storage_shape(parse("nChw16c"), (8, 3, 224, 224))
    (8, 1, 224, 224, 16)
    """
    walk, size, inside = _walk(fmt, shape)
    if inside is None:
        return tuple(loop.extent for loop in walk)
    outer = walk[: len(walk) - inside]
    return (*(loop.extent for loop in outer), outer[-1].stride if outer else size)


def element_count(fmt: FormatData, shape: Sequence[int]) -> int:
    """Return the number of stored elements, padding included."""
    return _walk(fmt, shape)[1]


def is_dense(fmt: FormatData, shape: Sequence[int]) -> bool:
    """Return whether the format stores this shape without padding."""
    return element_count(fmt, shape) == prod(_checked(fmt, shape))


def strides(fmt: FormatData, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the stride of every canonical axis.

    Raises:
        FormatError: an axis is blocked, flattened or split and has no single stride.
    """
    if fmt.is_blocked or fmt.steps:
        raise FormatError.at(
            f"strides of {fmt}",
            expected="a format without blocks",
            found="axes which have one stride per block",
            fix="use loops()",
        )
    found = {loop.axis: loop.stride for loop in loops(fmt, shape)}
    return tuple(found[axis] for axis in fmt.axes)


def walked_index(
    fmt: FormatData, position: Mapping[str, _Index], shape: Sequence[int]
) -> dict[str, _Index]:
    """Convert indices of canonical axes to indices of the axes that the digits name.

    Args:
        fmt: the format.
        position: an index, or an array of indices, for each canonical axis. Axes may be left out
            together with all others that steps combine them with.
        shape: the canonical shape.
    """
    found = dict(position)
    for step, extents in zip(fmt.steps, _stages(fmt, shape), strict=False):
        if isinstance(step, Split):
            if step.axis in found:
                whole = found.pop(step.axis)
                found[step.outer], found[step.inner] = whole // step.size, whole % step.size
        elif step.axes[0] in found:
            flat = found.pop(step.axes[0])
            for axis in step.axes[1:]:
                flat = flat * _padded(fmt, axis, extents[axis]) + found.pop(axis)
            found[step.into] = flat
    return found


def sources(fmt: FormatData) -> dict[str, frozenset[str]]:
    """Return the canonical axes that each axis, also one between two steps, consists of."""
    found = {axis: frozenset((axis,)) for axis in fmt.axes}
    for step in fmt.steps:
        if isinstance(step, Fuse):
            found[step.into] = frozenset[str]().union(*(found[axis] for axis in step.axes))
        else:
            found[step.outer] = found[step.inner] = found[step.axis]
    return found


def offset(fmt: FormatData, index: Sequence[int], shape: Sequence[int]) -> int:
    """Return the offset of the element at canonical ``index``, in elements.

    Args:
        fmt: the format.
        index: one index per canonical axis.
        shape: the canonical shape.

    Raises:
        FormatError: the index is outside the shape.
    """
    shape, index = _checked(fmt, shape), tuple(map(as_int, index))
    if len(index) != fmt.rank or any(not 0 <= i < n for i, n in zip(index, shape, strict=True)):
        raise FormatError.at(
            f"format {fmt}", expected=f"an index into {shape}", found=f"{tuple(index)}"
        )
    walk = loops(fmt, shape)
    position = walked_index(fmt, dict(zip(fmt.axes, index, strict=True)), shape)
    return sum(position[axis] // step % extent * stride for axis, extent, step, stride in walk)


def index(fmt: FormatData, offset: int, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the canonical index of the element at ``offset``, or None for padding.

    Args:
        fmt: the format.
        offset: an offset in elements, below the number of stored elements.
        shape: the canonical shape.

    Raises:
        FormatError: the offset is outside the storage.
    """
    walk, size, _ = _walk(fmt, shape)
    if not 0 <= offset < size:
        raise FormatError.at(f"format {fmt}", expected=f"an offset below {size}", found=f"{offset}")
    stages = _stages(fmt, shape)
    position = dict.fromkeys(stages[-1], 0)
    rest = offset
    for loop in walk:
        digit, rest = divmod(rest, loop.stride)
        if digit >= loop.extent:
            return None
        position[loop.axis] += digit * loop.step
    if rest:
        return None
    for step, extents, after in zip(
        reversed(fmt.steps), stages[-2::-1], stages[:0:-1], strict=True
    ):
        if any(position[axis] >= extent for axis, extent in after.items()):
            return None
        if isinstance(step, Fuse):
            flat = position.pop(step.into)
            for axis in reversed(step.axes):
                flat, position[axis] = divmod(flat, _padded(fmt, axis, extents[axis]))
        else:
            position[step.axis] = position.pop(step.outer) * step.size + position.pop(step.inner)
    if any(position[axis] >= extent for axis, extent in stages[0].items()):
        return None
    return tuple(position[axis] for axis in fmt.axes)


def axis_offsets(fmt: FormatData, shape: Sequence[int]) -> dict[str, NDArray[np.int64]]:
    """Return each axis' contribution to the offset, per index of the axis.

    The axes are those that the digits name. The offset of an element is the sum of one contribution
    per axis. The arrays have the extents before padding.
    """
    extents = walked_extents(fmt, shape)
    found = {axis: np.zeros(extent, np.int64) for axis, extent in extents.items()}
    for axis, extent, step, stride in loops(fmt, shape):
        found[axis] += np.arange(extents[axis]) // step % max(extent, 1) * stride
    return found


def offsets(fmt: FormatData, shape: Sequence[int]) -> NDArray[np.int64]:
    """Return the offset of every element, as an array of the canonical shape.

    >>> from stridewise.formats import parse
    >>> offsets(parse("NHWC"), (1, 2, 1, 3)).ravel()
    array([0, 2, 4, 1, 3, 5])
    """
    shape = _checked(fmt, shape)
    parts = axis_offsets(fmt, shape)
    grid = {
        axis: np.arange(extent).reshape([-1 if a == axis else 1 for a in fmt.axes])
        for axis, extent in zip(fmt.axes, shape, strict=True)
    }
    total = np.zeros(shape, np.int64)
    for axis, positions in walked_index(fmt, grid, shape).items():
        total += parts[axis][positions]
    return total


def _merged(walk: Sequence[Loop]) -> tuple[Loop, ...]:
    """Return the loops without those of extent 1, neighbors of one axis merged."""
    found: list[Loop] = []
    for loop in walk:
        if loop.extent == 1:
            continue
        last = found[-1] if found else None
        if (
            last is not None
            and last.axis == loop.axis
            and last.step == loop.extent * loop.step
            and last.stride == loop.extent * loop.stride
        ):
            found[-1] = Loop(loop.axis, last.extent * loop.extent, loop.step, loop.stride)
        else:
            found.append(loop)
    return tuple(found)


def same_bytes(f: FormatData, g: FormatData, shape: Sequence[int]) -> bool:
    """Return whether both formats put the same elements of ``shape`` at the same offsets.

    This is equality for one shape. NCHW and NHWC are equal if C = 1 or H = W = 1. nChw16c is then
    equal to both if, in addition, C is a multiple of 16. The sizes of the storage must be equal,
    too.

    Args:
        f: a format.
        g: a format over the same axes.
        shape: the shape in the canonical order of ``f``.

    >>> from stridewise.formats import parse
    >>> same_bytes(parse("NCHW"), parse("NHWC"), (1, 3, 1, 1))
    True
    >>> same_bytes(parse("NCHW"), parse("nChw16c"), (1, 3, 1, 1))
    False
    """
    if set(f.axes) != set(g.axes):
        return False
    shape = _checked(f, shape)
    in_g = tuple(shape[f.axes.index(axis)] for axis in g.axes)
    if 0 in shape:
        return True
    walk_f, size_f, _ = _walk(f, shape)
    walk_g, size_g, _ = _walk(g, in_g)
    if size_f != size_g:
        return False
    if not f.steps and not g.steps:
        if _merged(walk_f) == _merged(walk_g):
            return True
        if size_f == prod(shape):
            # Without gaps, maximal merging is unique: if two merged walks differed, the one with
            # the shorter innermost loop could be merged further, because the other one continues
            # with the same stride. So different merged walks are different layouts.
            return False
        # The offset is a sum of one contribution per axis, so each axis is compared separately.
        parts = axis_offsets(g, in_g)
        found = axis_offsets(f, shape)
        return all(np.array_equal(part, parts[axis]) for axis, part in found.items())
    turned = offsets(g, in_g).transpose([g.axes.index(axis) for axis in f.axes])
    return bool(np.array_equal(offsets(f, shape), turned))


def sub_tensor(
    fmt: FormatData,
    shape: Sequence[int],
    starts: Sequence[int],
    lengths: Sequence[int],
    steps: Sequence[int] | None = None,
) -> tuple[tuple[Loop, ...], int] | None:
    """Describe a box inside a stored tensor as a view, if it is one.

    Args:
        fmt: the format of the whole tensor.
        shape: its canonical shape.
        starts: the first index of the box, per canonical axis.
        lengths: its extents.
        steps: distance between its indices; 1 by default.

    Returns:
        The loops over the box in the memory of the whole tensor and the offset of its first
        element; None if the box cuts a block or a flattened axis and therefore is not a view.

    Raises:
        FormatError: the box is not inside the shape.

    >>> from stridewise.formats import parse
    >>> walk, start = sub_tensor(parse("nChw16c"), (1, 64, 2, 2), (0, 16, 0, 0), (1, 32, 2, 2))
    >>> start, [loop.extent for loop in walk]
    (64, [1, 2, 2, 2, 16])
    >>> sub_tensor(parse("nChw16c"), (1, 64, 2, 2), (0, 8, 0, 0), (1, 32, 2, 2)) is None
    True
    """
    shape = _checked(fmt, shape)
    box = _checked_box(fmt, shape, starts, lengths, tuple(steps or (1,) * fmt.rank))
    changed = {
        axis
        for step in fmt.steps
        for axis in (step.axes if isinstance(step, Fuse) else (step.axis,))
    }
    blocks = {axis: prod(b.size for b in fmt.blocks if b.axis == axis) for axis in fmt.axes}
    for axis, (extent, start, length, step) in box.items():
        whole = start == 0 and length == extent
        aligned = step == 1 and start % blocks[axis] == 0
        ends = length % blocks[axis] == 0 or start + length == extent
        if (axis in changed and not whole) or (blocks[axis] > 1 and not (aligned and ends)):
            return None
    found: list[Loop] = []
    first = 0
    for loop in loops(fmt, shape):
        if loop.axis in changed or loop.axis not in box or loop.step != blocks[loop.axis]:
            found.append(loop)
            continue
        _, start, length, step = box[loop.axis]
        first += start // loop.step * loop.stride
        extent = -(-length // loop.step) if length else 0
        found.append(Loop(loop.axis, extent, loop.step * step, loop.stride * step))
    return tuple(found), first


def _checked_box(
    fmt: FormatData,
    shape: tuple[int, ...],
    starts: Sequence[int],
    lengths: Sequence[int],
    steps: tuple[int, ...],
) -> dict[str, tuple[int, int, int, int]]:
    """Return the extent, and the start, length and step of a box, of each axis.

    Raises:
        FormatError: the box is not inside the shape.
    """
    if not len(starts) == len(lengths) == len(steps) == fmt.rank or not all(
        start >= 0 and length >= 0 and step >= 1 and start + max(length - 1, 0) * step < max(n, 1)
        for n, start, length, step in zip(shape, starts, lengths, steps, strict=True)
    ):
        raise FormatError.at(
            f"format {fmt}",
            expected=f"a box inside {shape}",
            found=f"starts {tuple(starts)}, lengths {tuple(lengths)}, steps {steps}",
        )
    return dict(zip(fmt.axes, zip(shape, starts, lengths, steps, strict=True), strict=True))
