"""Boxes and copies in stored tensors, by strides alone: what kernels of many operators need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stridewise.classes import dataclass
from stridewise.formats import Format, algebra
from stridewise.graph import Value
from stridewise.ops.geometry import (
    canonical_shape,
    user_format,
)
from stridewise.targets.kernels import Arg, Call, KernelContext, KernelSpec, MemorySpec, Operand

__all__ = ["Walk", "copy_call", "region", "same_place", "walks"]


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

    Where the axes mean different things, or are unknown, only the user's own order is offered.
    """
    if x.origin is None or x.origin != y.origin:
        yield _positional(x), _positional(y)
        return
    results = context.formats(y.name)
    for kind, fmt in context.formats(x.name).items():
        if kind in results:
            yield _named(x, x.origin, fmt), _named(y, x.origin, results[kind])
