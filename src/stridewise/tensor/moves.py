"""A reorder as loop nests: the source and the destination of every element.

The offset in a format is a sum of one contribution per axis, so each axis is analyzed separately.
An axis on which both sides advance regularly is one loop. An axis on which one side is irregular (a
block ends, or the axis is flattened) is divided into pieces. Nests are the products of the pieces.
The result is plain data. :mod:`stridewise.runtime.reorder.reorder` and the native core execute it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import lcm, prod

import numpy as np
from numpy.typing import NDArray

from stridewise.classes import dataclass
from stridewise.formats import Format, Fuse, Loop, algebra

__all__ = ["Move", "Moves", "Nest", "Side", "Tail", "moves", "zeros"]

Offsets = NDArray[np.int64]

# Longest period that is searched for if the blocks of two formats do not divide each other (16,
# 24).
_LONGEST_PERIOD = 256


@dataclass(frozen=True, slots=True)
class Side:
    """The source or the destination of a reorder.

    Attributes:
        fmt: the format.
        shape: the canonical shape, in the order of ``fmt.axes``.
        loops: the walk through memory, with the strides of the array.
    """

    fmt: Format
    shape: tuple[int, ...]
    loops: tuple[Loop, ...]

    @classmethod
    def of(cls, fmt: Format, shape: Sequence[int], strides: Sequence[int] | None = None) -> Side:
        """Return the side of an array.

        Args:
            fmt: the format.
            shape: the canonical shape.
            strides: the stride of each loop, in elements. Default: those of a dense array.
        """
        walk = algebra.loops(fmt, shape)
        if strides is not None:
            walk = tuple(
                loop._replace(stride=stride) for loop, stride in zip(walk, strides, strict=True)
            )
        return cls(fmt, tuple(shape), walk)


@dataclass(frozen=True, slots=True)
class Move:
    """A loop: its extent, and its strides in source, destination and scales, in elements."""

    extent: int
    src: int
    dst: int
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Tail:
    """Zeros that follow each run of a loop that has stride 1 in the destination."""

    run: int
    zeros: int


@dataclass(frozen=True, slots=True)
class Nest:
    """Elements that one loop nest moves. Offsets are in elements.

    Attributes:
        src: start in the source; None if the nest writes zeros.
        dst: start in the destination.
        scale: start in the scales.
        loops: the loops, in no particular order.
        shared: the loops that all nests of elements have in common.
        tail: zeros after the loop with stride 1 in the destination, if any.
    """

    src: int | None
    dst: int
    scale: int
    loops: tuple[Move, ...]
    shared: frozenset[Move] = frozenset()
    tail: Tail | None = None


@dataclass(frozen=True, slots=True)
class Moves:
    """All loop nests of a reorder.

    Attributes:
        nests: the nests in execution order.
        fill: whether the whole destination, gaps included, must be zeroed first.
    """

    nests: tuple[Nest, ...]
    fill: bool


@dataclass(frozen=True, slots=True)
class _Piece:
    """Part of an axis on which both sides advance regularly."""

    src: int
    dst: int
    start: int
    loops: tuple[Move, ...]
    tail: Tail | None = None


@dataclass(frozen=True, slots=True)
class _Table:
    """Offsets of the indices of an axis, or of axes that are flattened together."""

    src: Offsets
    dst: Offsets
    scale: Offsets

    def __len__(self) -> int:
        return len(self.dst)

    def part(self, first: int, last: int, step: int = 1) -> _Table:
        chosen = slice(first, last, step)
        return _Table(self.src[chosen], self.dst[chosen], self.scale[chosen])

    @property
    def rows(self) -> NDArray[np.int64]:
        return np.stack([self.src, self.dst, self.scale])


def _regular(table: _Table) -> list[_Piece]:
    """Divide a table into pieces of regular loops. The number of pieces may not be minimal."""
    count = len(table)
    if count == 0:
        return []
    base = (int(table.src[0]), int(table.dst[0]), int(table.scale[0]))
    if count == 1:
        return [_Piece(*base, ())]
    delta = np.diff(table.rows)
    run = _run_length(delta)
    if run == count:
        return [_Piece(*base, (Move(count, *map(int, delta[:, 0])),))]
    if run > 1:
        whole = count // run * run
        found = [
            _Piece(piece.src, piece.dst, piece.start, (*piece.loops, inner))
            for piece in _regular(table.part(0, whole, run))
            for inner in (Move(run, *map(int, delta[:, 0])),)
        ]
        return found + _regular(table.part(whole, count))
    return _periodic(table, delta)


def _run_length(delta: NDArray[np.int64]) -> int:
    """Return the largest length at which all runs advance like the first; 1 if there is none."""
    other = np.flatnonzero((delta != delta[:, :1]).any(axis=0)) + 1
    return int(np.gcd.reduce(other)) if len(other) else delta.shape[1] + 1


def _periodic(table: _Table, delta: NDArray[np.int64]) -> list[_Piece]:
    """Return a loop around one period if the steps of a table are periodic, else single pieces."""
    count = len(table)
    for period in range(2, min(count // 2, _LONGEST_PERIOD) + 1):
        if (delta[:, period:] == delta[:, :-period]).all():
            rounds = count // period
            step = table.rows[:, period] - table.rows[:, 0]
            outer = Move(rounds, *map(int, step))
            found = [
                _Piece(piece.src, piece.dst, piece.start, (outer, *piece.loops))
                for piece in _regular(table.part(0, period))
            ]
            return found + _regular(table.part(rounds * period, count))
    half = max(1, count // 2)
    return _regular(table.part(0, half)) + _regular(table.part(half, count))


def _parts(loops: Sequence[Loop], axis: str, indices: Offsets) -> Offsets:
    total = np.zeros(len(indices), np.int64)
    for loop in loops:
        if loop.axis == axis:
            total += indices // loop.step % max(loop.extent, 1) * loop.stride
    return total


def _groups(fmts: Sequence[Format], axes: Sequence[str]) -> list[tuple[str, ...]]:
    """Group the axes: axes that steps of either format combine are in one group."""
    groups = [{axis} for axis in axes]
    for taken in (axes for fmt in fmts for axes in algebra.sources(fmt).values()):
        joined = {axis for group in groups if group & taken for axis in group}
        groups = [group for group in groups if not group & taken] + [joined]
    return [tuple(axis for axis in axes if axis in group) for group in groups]


def _walked(side: Side, grid: Mapping[str, Offsets]) -> Offsets:
    """Return the offsets of indices of canonical axes after the steps of the format."""
    total = np.zeros(len(next(iter(grid.values()))), np.int64)
    for axis, indices in algebra.walked_index(side.fmt, grid, side.shape).items():
        total += _parts(side.loops, axis, indices)
    return total


def _joint_pieces(group: tuple[str, ...], src: Side, dst: Side, scale: str | None) -> list[_Piece]:
    """Return the pieces of axes that one side flattens. This enumerates every index."""
    extents = [dst.shape[dst.fmt.axes.index(axis)] for axis in group]
    flat = np.indices(extents).reshape(len(group), -1).astype(np.int64)
    grid = dict(zip(group, flat, strict=True))
    steps = grid[scale] if scale in group else np.zeros(flat.shape[1], np.int64)
    return _regular(_Table(_walked(src, grid), _walked(dst, grid), steps))


def _axis_pieces(axis: str, extent: int, src: Side, dst: Side, scale: str | None) -> list[_Piece]:
    """Return the pieces of an axis: one repeated period of its blocks, and the remainder."""
    blocks = [block for side in (src, dst) for block in side.fmt.blocks if block.axis == axis]
    products = [
        prod(block.size for block in side.fmt.blocks if block.axis == axis) for side in (src, dst)
    ]
    if not blocks:
        from_stride, to_stride = (
            next(loop.stride for loop in side.loops if loop.axis == axis) for side in (src, dst)
        )
        return [_Piece(0, 0, 0, (Move(extent, from_stride, to_stride, int(axis == scale)),))]
    period = lcm(*products)

    def table(first: int, last: int) -> _Table:
        indices = np.arange(first, last, dtype=np.int64)
        steps = indices if axis == scale else np.zeros(last - first, np.int64)
        return _Table(_parts(src.loops, axis, indices), _parts(dst.loops, axis, indices), steps)

    rounds = extent // period
    found: list[_Piece] = []
    if rounds:
        found = _regular(table(0, period))
    if rounds > 1:
        step = table(period, period + 1).rows[:, 0]
        outer = Move(rounds, *map(int, step))
        found = [_Piece(p.src, p.dst, p.start, (outer, *p.loops)) for p in found]
    return found + _regular(table(rounds * period, extent))


def _padding(axis: str, first: int, last: int, dst: Side) -> list[_Piece]:
    indices = np.arange(first, last, dtype=np.int64)
    none = np.zeros(last - first, np.int64)
    return _regular(_Table(none, _parts(dst.loops, axis, indices), none))


def _with_tail(pieces: list[_Piece], padding: list[_Piece]) -> list[_Piece] | None:
    """Return the pieces with the padding as a tail of the last one; None if it does not follow."""
    if len(padding) != 1 or not pieces:
        return None
    last, zeros = pieces[-1], padding[0]
    run = prod(loop.extent for loop in last.loops)
    count = prod(loop.extent for loop in zeros.loops)
    loops = [loop for loop in (*last.loops, *zeros.loops) if loop.extent > 1]
    contiguous = all(loop.dst == 1 for loop in loops) and len(last.loops) <= 1
    if not contiguous or zeros.dst != last.dst + run:
        return None
    # A single element has no loop, so the position of the next one is unknown.
    loop = last.loops[0] if last.loops else Move(1, 0, 1)
    tail = Tail(run, count)
    return [*pieces[:-1], _Piece(last.src, last.dst, last.start, (loop,), tail)]


def moves(src: Side, dst: Side, scale: str | None = None) -> Moves:
    """Return the nests that copy every element of ``src`` to its place in ``dst``.

    Args:
        src: the source.
        dst: the destination, with the same axes and extents.
        scale: the axis along which scales vary; None for one scale or none.
    """
    extents = dict(zip(dst.fmt.axes, dst.shape, strict=True))
    if 0 in dst.shape:
        return Moves((), fill=False)
    groups = _groups((src.fmt, dst.fmt), dst.fmt.axes)
    joint = [group for group in groups if _is_stepped(group, src.fmt, dst.fmt)]
    pieces = {
        group: _joint_pieces(group, src, dst, scale)
        if group in joint
        else _axis_pieces(group[0], extents[group[0]], src, dst, scale)
        for group in groups
    }
    if algebra.element_count(dst.fmt, dst.shape) == prod(dst.shape):
        return Moves(tuple(_nests(list(pieces.values()))), fill=False)
    size = prod(loop.extent for loop in dst.loops)
    gaps = algebra.element_count(dst.fmt, dst.shape) != size
    if gaps or joint:
        return Moves(tuple(_nests(list(pieces.values()))), fill=True)
    return _padded(dst, extents, pieces)


def zeros(dst: Side) -> Moves:
    """Return the nest that zeroes all elements of a destination that is not dense."""
    loops = tuple(Move(loop.extent, 0, loop.stride) for loop in dst.loops if loop.extent > 1)
    return Moves((Nest(None, 0, 0, loops),), fill=False)


def _is_stepped(axes: Sequence[str], *fmts: Format) -> bool:
    """Return whether a step of a format is applied to one of the axes."""
    return any(
        axis in (step.axes if isinstance(step, Fuse) else (step.axis,))
        for fmt in fmts
        for step in fmt.steps
        for axis in axes
    )


def _padded(
    dst: Side, extents: Mapping[str, int], pieces: dict[tuple[str, ...], list[_Piece]]
) -> Moves:
    """Return the nests of elements and the nests that zero the padding."""
    padded = dict(zip(dst.fmt.axes, algebra.padded_shape(dst.fmt, dst.shape), strict=True))
    ragged = [axis for axis in dst.fmt.axes if padded[axis] > extents[axis]]
    padding = {axis: _padding(axis, extents[axis], padded[axis], dst) for axis in ragged}
    # The axis that is innermost in memory comes last, so that its zeros extend runs of elements.
    unit = min(dst.loops, key=lambda loop: (loop.stride, loop.extent == 1)).axis
    ragged.sort(key=lambda axis: axis == unit)
    zeros: list[Nest] = []
    for position, axis in enumerate(ragged):
        if axis == unit:
            merged = _with_tail(pieces[(axis,)], padding[axis])
            if merged is not None:
                pieces[(axis,)] = merged
                continue
        box: list[list[_Piece]] = [padding[axis]]
        for group, own in pieces.items():
            if group == (axis,):
                continue
            before = group[0] in ragged[:position]
            whole = own if before else [_Piece(0, 0, 0, _all_of(dst, group))]
            box.append(whole)
        zeros.extend(_zero_nests(box))
    return Moves((*zeros, *_nests(list(pieces.values()))), fill=False)


def _all_of(dst: Side, group: tuple[str, ...]) -> tuple[Move, ...]:
    """Return the loops over all indices of axes that no step changes, padding included."""
    return tuple(Move(loop.extent, 0, loop.stride) for loop in dst.loops if loop.axis in group)


def _zero_nests(box: list[list[_Piece]]) -> list[Nest]:
    found: list[Nest] = []
    for chosen in product(*box):
        loops = tuple(loop for piece in chosen for loop in piece.loops if loop.extent > 1)
        found.append(Nest(None, sum(piece.dst for piece in chosen), 0, loops))
    return found


def _nests(pieces: list[list[_Piece]]) -> list[Nest]:
    shared = frozenset(
        loop for own in pieces if len(own) == 1 for loop in own[0].loops if loop.extent > 1
    )
    found: list[Nest] = []
    for chosen in product(*pieces):
        tails = [piece.tail for piece in chosen if piece.tail is not None]
        loops = tuple(
            loop for piece in chosen for loop in piece.loops if loop.extent > 1 or piece.tail
        )
        found.append(
            Nest(
                sum(piece.src for piece in chosen),
                sum(piece.dst for piece in chosen),
                sum(piece.start for piece in chosen),
                loops,
                shared,
                tails[0] if tails else None,
            )
        )
    return found
