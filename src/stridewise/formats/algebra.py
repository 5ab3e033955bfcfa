"""Arithmetic of formats: free functions over a :class:`Format` and a shape.

Shapes and indices are in the canonical order of ``format.axes``. Offsets and strides count
elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from stridewise.errors import FormatError, describe
from stridewise.formats.format import Format

__all__ = [
    "Digit",
    "digits",
    "element_count",
    "is_dense",
    "offset",
    "padded_shape",
    "same_bytes",
    "storage_shape",
    "strides",
]

Digit = tuple[str, int, int]
"""``(axis, extent, step)``: one loop of the memory walk; its index counts ``step`` of the axis."""


def _checked(fmt: Format, shape: Sequence[int]) -> tuple[int, ...]:
    if len(shape) != fmt.rank or any(extent < 0 for extent in shape):
        raise FormatError(
            describe(
                f"format {fmt}",
                expected=f"{fmt.rank} non-negative extents over {''.join(fmt.axes)}",
                found=f"shape {tuple(shape)}",
            )
        )
    return tuple(shape)


def padded_shape(fmt: Format, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the canonical shape with every blocked axis rounded up to its multiple."""
    shape = _checked(fmt, shape)
    return tuple(
        -(-extent // fmt.multiple(axis)) * fmt.multiple(axis)
        for axis, extent in zip(fmt.axes, shape, strict=True)
    )


def storage_shape(fmt: Format, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the extents of the dense array that holds the bytes, outermost first.

    >>> from stridewise.formats.dialects import parse
    >>> storage_shape(parse("nChw16c"), (8, 3, 224, 224))
    (8, 1, 224, 224, 16)
    """
    return tuple(extent for _, extent, _ in digits(fmt, shape))


def digits(fmt: Format, shape: Sequence[int]) -> tuple[Digit, ...]:
    """Return the loops of the memory walk, outermost to innermost, with their extents."""
    padded = dict(zip(fmt.axes, padded_shape(fmt, shape), strict=True))
    outer = [(axis, padded[axis] // fmt.multiple(axis), fmt.multiple(axis)) for axis in fmt.order]
    inner: list[Digit] = []
    for position, block in enumerate(fmt.blocks):
        later = (b.size for b in fmt.blocks[position + 1 :] if b.axis == block.axis)
        inner.append((block.axis, block.size, prod(later)))
    return (*outer, *inner)


def element_count(fmt: Format, shape: Sequence[int]) -> int:
    """Return the number of stored elements, padding included."""
    return prod(padded_shape(fmt, shape))


def strides(fmt: Format, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the stride of every canonical axis.

    Raises:
        FormatError: an axis is blocked, so that it has no single stride.
    """
    if fmt.is_blocked:
        raise FormatError(
            describe(
                f"strides of {fmt}",
                expected="a format without blocks",
                found="blocked axes, which have one stride per block",
                fix="use digits()",
            )
        )
    step = 1
    found: dict[str, int] = {}
    for axis, extent, _ in reversed(digits(fmt, shape)):
        found[axis] = step
        step *= extent
    return tuple(found[axis] for axis in fmt.axes)


def offset(fmt: Format, index: Sequence[int], shape: Sequence[int]) -> int:
    """Return where the element at canonical ``index`` lies.

    Raises:
        FormatError: the index does not lie in the shape.
    """
    shape = _checked(fmt, shape)
    if len(index) != fmt.rank or any(not 0 <= i < n for i, n in zip(index, shape, strict=True)):
        raise FormatError(
            describe(f"format {fmt}", expected=f"an index into {shape}", found=f"{tuple(index)}")
        )
    position = dict(zip(fmt.axes, index, strict=True))
    total = 0
    for axis, extent, step in digits(fmt, shape):
        total = total * extent + position[axis] // step % extent
    return total


def is_dense(fmt: Format, shape: Sequence[int]) -> bool:
    """Return whether the format stores this shape without padding."""
    return padded_shape(fmt, shape) == tuple(shape)


def _walk(fmt: Format, shape: Sequence[int]) -> tuple[Digit, ...]:
    """Return the digits without those of extent 1, neighbours of one axis merged."""
    walk: list[Digit] = []
    for axis, extent, step in digits(fmt, shape):
        if extent == 1:
            continue
        if walk and walk[-1][0] == axis and walk[-1][2] == extent * step:
            walk[-1] = (axis, walk[-1][1] * extent, step)
        else:
            walk.append((axis, extent, step))
    return tuple(walk)


def same_bytes(f: Format, g: Format, shape: Sequence[int]) -> bool:
    """Return whether both formats put the same elements of ``shape`` at the same offsets.

    This is equality for one shape: NCHW and NHWC agree when C = 1 or H = W = 1, and nChw16c agrees
    with both when moreover C is a multiple of 16.

    >>> from stridewise.formats.dialects import parse
    >>> same_bytes(parse("NCHW"), parse("NHWC"), (1, 3, 1, 1))
    True
    >>> same_bytes(parse("NCHW"), parse("nChw16c"), (1, 3, 1, 1))
    False
    """
    if set(f.axes) != set(g.axes):
        return False
    in_g = tuple(shape[f.axes.index(axis)] for axis in g.axes)
    if 0 in shape:
        return True
    return _walk(f, shape) == _walk(g, in_g)
