"""From loop nests to tiles that fit the caches: what the native core runs.

A move between two formats is fast when both sides are touched in long stretches. Of every nest
the innermost loops become a tile: *columns*, which are contiguous in the source, and *rows*, which
are contiguous in the destination, so that the tile is a small matrix transposition; or *runs*,
where the same loop is contiguous on both sides. What remains are outer loops, in the order of the
destination.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from stridewise.tensor.moves import Move, Moves, Nest

__all__ = ["Group", "Tile", "groups"]

# Bytes that a tile aims to touch in one piece on either side. Below 256 the hardware's prefetchers
# and the pages of DRAM are badly used, far above it the tile leaves the first-level cache.
_STRETCH = 512
# Widest element that the transposition moves as one.
_WIDEST = 16
# Runs a tile at most, however short they are.
_MOST_RUNS = 512
# Fewer rounds than this of common loops do not keep threads busy.
_FEW_ROUNDS = 16


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile and the loops around it that are its own. Counts and offsets are in elements.

    Attributes:
        src: where it starts; None where zeros are written.
        dst: where it starts.
        scale: where it starts among the scales.
        loops: outermost first.
        width: consecutive elements that are moved together.
        rows: offsets in source and scales of the things that are neighbors in the destination.
        columns: offsets in destination and scales of the things that are neighbors in the source.
        is_runs: whether rows and columns are instead pairs, one for each run of ``width``.
        zeros: elements to be zeroed behind each column's rows, or behind each run.
        step: how scales advance along a run, or along the columns if they do so one by one; the
            columns then have none of their own.
    """

    src: int | None
    dst: int
    scale: int
    loops: tuple[Move, ...]
    width: int
    rows: tuple[tuple[int, int], ...]
    columns: tuple[tuple[int, int], ...]
    is_runs: bool
    zeros: int = 0
    step: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Tiles that share their outermost loops, so that they meet the same cache lines in time."""

    loops: tuple[Move, ...]
    tiles: tuple[Tile, ...]


def groups(moves: Moves, src_itemsize: int, dst_itemsize: int) -> tuple[Group, ...]:
    """Return the tiles of all nests, those together that share loops.

    Args:
        moves: the nests.
        src_itemsize: bytes of an element of the source.
        dst_itemsize: bytes of an element of the destination.
    """
    found: list[Group] = []
    several = sum(nest.src is not None for nest in moves.nests) > 1
    together: dict[tuple[Move, ...], list[Tile]] = {}
    for nest in moves.nests:
        for tile, common in _tiles(nest, src_itemsize, dst_itemsize):
            if several and nest.src is not None and _rounds(common) >= _FEW_ROUNDS:
                together.setdefault(common, []).append(tile)
            else:
                found.append(Group((*common, *tile.loops), (replace(tile, loops=()),)))
    return (*found, *(Group(loops, tuple(tiles)) for loops, tiles in together.items()))


def _rounds(loops: Sequence[Move]) -> int:
    rounds = 1
    for loop in loops:
        rounds *= loop.extent
    return rounds


def _merged(loops: Sequence[Move]) -> list[Move]:
    """Return the loops, those made one that continue each other everywhere."""
    found = sorted(loops, key=lambda loop: (loop.dst, loop.src))
    changed = True
    while changed:
        changed = False
        for inner in found:
            span = Move(
                inner.extent, *(inner.extent * s for s in (inner.src, inner.dst, inner.scale))
            )
            outer = next(
                (
                    loop
                    for loop in found
                    if loop is not inner
                    and (loop.src, loop.dst, loop.scale) == (span.src, span.dst, span.scale)
                ),
                None,
            )
            if outer is not None:
                found.remove(outer)
                found[found.index(inner)] = replace(inner, extent=inner.extent * outer.extent)
                changed = True
                break
    return found


def _part_size(extent: int, wanted: int) -> int:
    """Return how much of a loop a tile takes: about what is wanted, with a large remainder."""
    if extent <= 2 * wanted:
        return extent
    unit = max(1, wanted // 4)
    sizes = [max(1, wanted + unit * k) for k in (0, 1, 2, 3, 4, -1, -2)]
    return max(sizes, key=lambda size: extent / (-(-extent // size) * size))


@dataclass(slots=True)
class _Cut:
    """Loops that are being distributed to a tile and the loops around it."""

    remaining: list[Move]
    parts: list[tuple[Move, int]]

    def take(self, loop: Move, wanted: int) -> Move:
        """Move a loop, or the part of it that is wanted, into the tile, and return that part."""
        self.remaining.remove(loop)
        size = _part_size(loop.extent, wanted)
        part = replace(loop, extent=size)
        if size < loop.extent:
            self.parts.append((loop, size))
        return part


def _stretch(cut: _Cut, side: str, width: int, wanted: int) -> list[Move]:
    """Take loops that continue one another on a side until the stretch is long enough.

    Columns are taken first and leave alone what rows begin with.
    """
    taken: list[Move] = []
    length = 1
    while length < wanted:
        loop = next((o for o in cut.remaining if getattr(o, side) == length * width), None)
        if loop is not None and side == "src" and loop.dst == width:
            break
        if loop is None:
            break
        part = cut.take(loop, max(1, wanted // length))
        taken.append(part)
        length *= part.extent
        if part.extent < loop.extent:
            break
    return taken


def _table(loops: Sequence[Move], side: str) -> tuple[tuple[int, int], ...]:
    """Return offsets on a side and among the scales, the first loop running fastest."""
    ranges = [range(loop.extent) for loop in reversed(loops)]
    back = list(reversed(loops))
    return tuple(
        (
            sum(i * getattr(loop, side) for i, loop in zip(index, back, strict=True)),
            sum(i * loop.scale for i, loop in zip(index, back, strict=True)),
        )
        for index in product(*ranges)
    )


def _pairs(loops: Sequence[Move]) -> tuple[tuple[int, int, int], ...]:
    """Return offsets in source, destination and scales in the order of the destination."""
    back = sorted(loops, key=lambda loop: -loop.dst)
    found: list[tuple[int, int, int]] = []
    for index in product(*(range(loop.extent) for loop in back)):
        at = list(zip(index, back, strict=True))
        found.append(
            (
                sum(i * loop.src for i, loop in at),
                sum(i * loop.dst for i, loop in at),
                sum(i * loop.scale for i, loop in at),
            )
        )
    return tuple(found)


def _tiles(nest: Nest, src_itemsize: int, dst_itemsize: int) -> list[tuple[Tile, tuple[Move, ...]]]:
    """Return the tiles of a nest, each with the loops that it may share with other nests."""
    tail = nest.tail
    zeros = tail.zeros if tail else 0
    if tail is None:
        loops = _merged(nest.loops)
    else:
        behind = next(loop for loop in nest.loops if loop.dst == 1 and loop.extent == tail.run)
        rest = list(nest.loops)
        rest.remove(behind)
        loops = [behind, *_merged(rest)]
    shared = {(loop.src, loop.dst) for loop in nest.shared}
    unit = next((o for o in loops if o.dst == 1 and (o.src == 1 or nest.src is None)), None)
    width = unit.extent if unit else 1
    narrow = width * dst_itemsize <= _WIDEST and width & (width - 1) == 0 and not zeros
    if nest.src is None or (unit is not None and not narrow) or (unit and zeros):
        return _run_tiles(nest, loops, unit, shared, dst_itemsize, zeros)
    if unit is not None:
        loops.remove(unit)
    return _transposing(nest, loops, unit, shared, (src_itemsize, dst_itemsize), zeros)


def _transposing(
    nest: Nest,
    loops: list[Move],
    unit: Move | None,
    shared: set[tuple[int, int]],
    itemsizes: tuple[int, int],
    zeros: int,
) -> list[tuple[Tile, tuple[Move, ...]]]:
    width = unit.extent if unit else 1
    if unit is not None and unit.scale:
        # Scales that vary inside of what is moved together are rare: single elements will do.
        loops = [*loops, unit]
        width = 1
    cut = _Cut(loops, [])
    if zeros:
        behind = loops.pop(0)
        rows = [behind]
    else:
        rows = []
    columns = _stretch(cut, "src", width, max(1, _STRETCH // (width * itemsizes[0])))
    rows = rows or _stretch(cut, "dst", width, max(1, _STRETCH // (width * itemsizes[1])))
    tiles: list[tuple[Tile, tuple[Move, ...]]] = []
    for around, bounds, base in _around(nest, cut, shared):
        table = _table(_bounded(columns, bounds), "dst")
        one_by_one = width == 1 and [scale for _, scale in table] == list(range(len(table)))
        if one_by_one:
            table = tuple((at, 0) for at, _ in table)
        tile = Tile(
            base[0],
            base[1],
            base[2],
            around[1],
            width,
            _table(_bounded(rows, bounds), "src"),
            table,
            is_runs=False,
            zeros=zeros,
            step=int(one_by_one),
        )
        tiles.append((tile, around[0]))
    return tiles


def _run_tiles(
    nest: Nest,
    loops: list[Move],
    unit: Move | None,
    shared: set[tuple[int, int]],
    itemsize: int,
    zeros: int,
) -> list[tuple[Tile, tuple[Move, ...]]]:
    loops = [loop for loop in loops if loop is not unit]
    width = unit.extent if unit else 1
    cut = _Cut(loops, [])
    taken: list[Move] = []
    for side in ("src", "dst"):
        length = width * itemsize
        for loop in sorted(cut.remaining, key=lambda loop: getattr(loop, side)):
            if length >= 2 * _STRETCH or getattr(loop, side) * itemsize >= 4096:
                break
            part = cut.take(loop, max(1, 2 * _STRETCH // length))
            if _rounds([*taken, part]) > _MOST_RUNS:
                cut.remaining.append(loop)
                cut.parts = [p for p in cut.parts if p[0] is not loop]
                break
            taken.append(part)
            length *= part.extent
            if part.extent < loop.extent:
                break
    tiles: list[tuple[Tile, tuple[Move, ...]]] = []
    for around, bounds, base in _around(nest, cut, shared):
        pairs = _pairs(_bounded(taken, bounds))
        tile = Tile(
            base[0],
            base[1],
            base[2],
            around[1],
            width,
            tuple((pair[0], pair[2]) for pair in pairs),
            tuple((pair[1], pair[2]) for pair in pairs),
            is_runs=True,
            zeros=zeros,
            step=unit.scale if unit else 0,
        )
        tiles.append((tile, around[0]))
    return tiles


Bounds = dict[tuple[int, int], int]
Around = tuple[tuple[Move, ...], tuple[Move, ...]]


def _bounded(loops: Sequence[Move], bounds: Bounds) -> list[Move]:
    return [
        replace(loop, extent=min(loop.extent, bounds.get((loop.src, loop.dst), loop.extent)))
        for loop in loops
    ]


def _around(
    nest: Nest, cut: _Cut, shared: set[tuple[int, int]]
) -> list[tuple[Around, Bounds, tuple[int | None, int, int]]]:
    """Return, for the full tile and for what loops leave over, the loops around and the base.

    The loops around are those that come from axes that all nests share, then the others.
    """
    found: list[tuple[Around, Bounds, tuple[int | None, int, int]]] = []
    choices = [(True, False) if loop.extent % size else (True,) for loop, size in cut.parts]
    for chosen in product(*choices):
        around = [(loop, (loop.src, loop.dst) in shared) for loop in cut.remaining]
        bounds: Bounds = {}
        src, dst, scale = nest.src, nest.dst, nest.scale
        for is_full, (loop, size) in zip(chosen, cut.parts, strict=True):
            count = loop.extent // size
            if is_full:
                stepped = Move(count, loop.src * size, loop.dst * size, loop.scale * size)
                around.append((stepped, (loop.src, loop.dst) in shared))
                continue
            bounds[(loop.src, loop.dst)] = loop.extent - count * size
            src = None if src is None else src + loop.src * size * count
            dst += loop.dst * size * count
            scale += loop.scale * size * count
        around.sort(key=lambda pair: (-pair[0].dst, -pair[0].src))
        common = tuple(loop for loop, is_common in around if is_common)
        own = tuple(loop for loop, is_common in around if not is_common)
        found.append(((common, own), bounds, (src, dst, scale)))
    return found
