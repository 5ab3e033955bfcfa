"""Shapes, boxes and copies in stored tensors: the arithmetic that several rooms share.

What a kernel *is* stands in ``kernels.py``; here is only what follows from formats and shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase

from stridewise.formats import Format, algebra, nd
from stridewise.formats.axes import POSITIONAL
from stridewise.graph import Value
from stridewise.ops.kernels import Arg, Call, KernelContext, KernelSpec, MemorySpec, Operand

__all__ = [
    "Walk",
    "block_lanes",
    "canonical_shape",
    "copy_call",
    "elementwise_formats",
    "positional",
    "region",
    "row_major",
    "same_place",
    "storage_shape",
    "user_format",
    "walks",
]


def block_lanes(context: KernelContext) -> int:
    """Return the lanes of a vector of the target, which are the channels of its blocks; else 0."""
    for fmt in context.formats(context.node.outputs[0]).values():
        if fmt.is_blocked:
            return fmt.blocks[-1].size
    return 0


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
    # No library has names for so many, and NumPy has no more than 64 axes.
    more = (*ascii_lowercase, *ascii_uppercase, *(f"x{index}" for index in range(rank)))
    axes = tuple(more[:rank])
    return Format(axes, axes)


def canonical_shape(value: Value, fmt: Format) -> tuple[int, ...]:
    """Return the shape of a value in the canonical order of ``fmt``'s axes."""
    if value.origin is None:
        return value.shape
    return tuple(value.shape[value.origin.order.index(axis)] for axis in fmt.axes)


def storage_shape(value: Value, fmt: Format) -> tuple[int, ...]:
    """Return the shape of the array that stores a value in a format."""
    return fmt.storage_shape(canonical_shape(value, fmt))


def region(
    fmt: Format,
    shape: tuple[int, ...],
    starts: tuple[int, ...],
    lengths: tuple[int, ...],
    steps: tuple[int, ...] | None = None,
) -> tuple[MemorySpec, int] | None:
    """Describe a box inside a stored tensor as a strided tensor over its digits.

    Args:
        fmt: how the whole tensor is stored.
        shape: its canonical shape.
        starts: the first index of the box, per canonical axis.
        lengths: its extents.
        steps: distance between its indices; 1 by default.

    Returns:
        The strided memory and its offset in elements, or None where the box cuts a block.
    """
    found = algebra.sub_tensor(fmt, shape, starts, lengths, steps)
    if found is None:
        return None
    walk, offset = found
    dims = tuple(loop.extent for loop in walk)
    return MemorySpec(dims, strides=tuple(loop.stride for loop in walk)), offset


def copy_call(
    source: tuple[MemorySpec, int], target: tuple[MemorySpec, int], src: Operand, dst: Operand
) -> Call:
    """Return the call that copies between two equally shaped strided memories."""
    spec = KernelSpec("reorder", (("src", source[0]), ("dst", target[0])))
    return Call(spec, (Arg("src", src, source[1]), Arg("dst", dst, target[1])))


def same_place(a: MemorySpec, b: MemorySpec) -> bool:
    """Return whether two equally shaped strided memories walk the same addresses."""
    if a.dims != b.dims or a.strides is None or b.strides is None:
        return False
    return all(
        extent == 1 or left == right
        for extent, left, right in zip(a.dims, a.strides, b.strides, strict=True)
    )


def row_major(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a dense row-major tensor."""
    strides: list[int] = []
    step = 1
    for extent in reversed(dims):
        strides.insert(0, step)
        step *= extent
    return tuple(strides)


def elementwise_formats(
    context: KernelContext, x: Value, y: Value
) -> Iterator[tuple[Format, Format, MemorySpec]]:
    """Yield the formats of a source and a result of the same shape, and the memory of both.

    Where their axes mean different things, only storage in the user's own order is the same walk.
    """
    if x.origin == y.origin:
        for fmt in context.formats(x.name).values():
            yield fmt, fmt, MemorySpec.of(fmt, canonical_shape(x, fmt))
    else:
        yield user_format(x), user_format(y), MemorySpec.plain(x.shape)


@dataclass(frozen=True, slots=True)
class Walk:
    """How boxes of a stored tensor are found.

    Attributes:
        fmt: the storage format, as plans name it.
        axes: the same order of bytes over the axes that boxes are given in.
        shape: the extents of those axes.
        order: the user's position of each of those axes.
    """

    fmt: Format
    axes: Format
    shape: tuple[int, ...]
    order: tuple[int, ...]

    def pick(self, per_axis: Sequence[int]) -> tuple[int, ...]:
        """Return numbers in the user's order in the order of the axes."""
        return tuple(per_axis[position] for position in self.order)

    def whole(self) -> tuple[MemorySpec, int]:
        """Return the box that is all of the tensor."""
        found = region(self.axes, self.shape, (0,) * len(self.shape), self.shape)
        if found is None:
            raise AssertionError("a whole tensor cuts no block")
        return found


def _positional(value: Value) -> Walk:
    """Return the walk of a value in the user's own order, axes by position."""
    positions = tuple(str(index) for index in range(len(value.shape)))
    order = tuple(range(len(value.shape)))
    return Walk(user_format(value), Format(positions, positions), value.shape, order)


def _named(value: Value, origin: Format, fmt: Format) -> Walk:
    order = tuple(origin.order.index(axis) for axis in fmt.axes)
    return Walk(fmt, fmt, canonical_shape(value, fmt), order)


def walks(context: KernelContext, x: Value, y: Value) -> Iterator[tuple[Walk, Walk]]:
    """Yield the storage formats in which two values of the same axes can be walked alike.

    Where the axes mean different things, or nobody knows, only the user's own order is offered.
    """
    if x.origin is None or x.origin != y.origin:
        yield _positional(x), _positional(y)
        return
    results = context.formats(y.name)
    for kind, fmt in context.formats(x.name).items():
        if kind in results:
            yield _named(x, x.origin, fmt), _named(y, x.origin, results[kind])
