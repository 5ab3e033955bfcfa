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
from math import gcd, prod

from stridewise.tensor.moves import Move, Moves, Nest

__all__ = ["Group", "Tile", "groups"]

# Bytes that a tile aims to touch in one piece on either side. Below 256 the hardware's prefetchers
# and the pages of DRAM are badly used, far above it the tile leaves the first-level cache.
_STRETCH = 512
# Bytes of a row that is converted before it is transposed, where that costs the destination
# nothing. On weights of 3x3 kernels pieces of a quarter took up to 1.17 times as long, and of twice
# as much up to 1.1 times.
_PIECE = 2048
_PAGE = 4096
_LINE = 64
# How much less of the rounds may be full where tiles then end at cache lines.
_RAGGED = 0.1
# Widest element that the transposition moves as one.
_WIDEST = 16
# Elements that are converted together.
_LANES = 8
# Runs a tile at most, however short they are.
_MOST_RUNS = 512
# Elements of a run at most, so that threads can share what is contiguous on both sides.
_LONGEST_RUN = 8192
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
        for tile, common in _tiles(_Job.of(nest, (src_itemsize, dst_itemsize))):
            if several and nest.src is not None and _rounds(common) >= _FEW_ROUNDS:
                together.setdefault(common, []).append(tile)
            else:
                found.append(Group((*common, *tile.loops), (replace(tile, loops=()),)))
    return (*found, *(Group(loops, tuple(tiles)) for loops, tiles in together.items()))


def _rounds(loops: Sequence[Move]) -> int:
    return prod(loop.extent for loop in loops)


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


def _part_size(extent: int, wanted: int, nbytes: int = _LINE) -> int:
    """Return how much of a loop a tile takes: about what is wanted, with a large remainder.

    Sizes that make whole cache lines of pieces of so many bytes are worth a smaller one.
    """
    if extent <= 2 * wanted:
        return extent
    unit, whole = max(1, wanted // 4), _LINE // gcd(_LINE, nbytes)
    sizes = [max(1, wanted + unit * k) for k in (0, 1, 2, 3, 4, -1, -2)]
    sizes += [size for size in (wanted // whole * whole, wanted // whole * whole + whole) if size]

    def worth(size: int) -> float:
        return extent / (-(-extent // size) * size) - _RAGGED * (size % whole != 0)

    return max(sizes, key=worth)


@dataclass(slots=True)
class _Cut:
    """Loops that are being distributed to a tile and the loops around it."""

    remaining: list[Move]
    parts: list[tuple[Move, int]]

    def take(self, loop: Move, wanted: int, nbytes: int = _LINE) -> Move:
        """Move a loop, or about the part of it that is wanted, into the tile, and return that."""
        return self.split(loop, _part_size(loop.extent, wanted, nbytes))

    def split(self, loop: Move, size: int) -> Move:
        """Move a loop, or so much of it, into the tile, and return that part."""
        self.remaining.remove(loop)
        part = replace(loop, extent=size)
        if size < loop.extent:
            self.parts.append((loop, size))
        return part


def _stretch(
    cut: _Cut,
    side: str,
    width: int,
    wanted: int,
    *,
    itemsize: int = _LINE,
    reserved: Sequence[Move] = (),
) -> list[Move]:
    """Take loops that continue one another on a side until the stretch is long enough.

    Columns leave alone what rows begin with, and, once there are some of them, what is reserved.
    """
    found: list[Move] = []
    length = 1
    while length < wanted:
        loop = next((o for o in cut.remaining if getattr(o, side) == length * width), None)
        if loop is None or (side == "src" and loop.dst == width):
            break
        if loop in reserved and length >= _LANES:
            break
        part = cut.take(loop, max(1, wanted // length), length * width * itemsize)
        found.append(part)
        length *= part.extent
        if part.extent < loop.extent:
            break
    return found


def _sides(cut: _Cut, width: int, itemsizes: tuple[int, int]) -> tuple[list[Move], list[Move]]:
    """Return the loops of columns, which come first where both want the same ones, and of rows."""
    wanted = [max(1, _STRETCH // (width * itemsize)) for itemsize in itemsizes]
    reserved = _first_rows(cut, width, itemsizes[1])
    columns = _stretch(cut, "src", width, wanted[0], reserved=reserved)
    return columns, _stretch(cut, "dst", width, wanted[1], itemsize=itemsizes[1])


def _continued(
    cut: _Cut, columns: Sequence[Move], rows: Sequence[Move], width: int, wanted: int
) -> list[Move]:
    """Take of the loop that continues a tile on both sides as much as makes its rows long."""
    across = width * prod(loop.extent for loop in columns)
    whole = across * prod(loop.extent for loop in rows)
    for loop in cut.remaining:
        if (loop.src, loop.dst) == (across, whole):
            return [cut.take(loop, wanted // across)] if wanted >= 2 * across else []
    return []


def _first_rows(cut: _Cut, width: int, itemsize: int) -> list[Move]:
    """Return the loops without which the rows of a tile would not fill a vector."""
    found: list[Move] = []
    length = width
    while length * itemsize < _WIDEST:
        loop = next((loop for loop in cut.remaining if loop.dst == length), None)
        if loop is None:
            break
        found.append(loop)
        length *= loop.extent
    return found


def _longer_side(loops: Sequence[Move], width: int, itemsizes: tuple[int, int]) -> str:
    """Return the side that a tile touches in the longer pieces, to be followed by the loops around.

    It is the source only where its pieces are long enough for the hardware to foresee them. Such
    are the weights of 3x3 kernels on their way to blocks of 16x16, a tile of which reads 576 bytes
    in one piece and writes 512.
    """
    nbytes: list[int] = []
    for side, itemsize in zip(("src", "dst"), itemsizes, strict=True):
        length = width
        for loop in sorted(loops, key=lambda loop: getattr(loop, side)):
            if getattr(loop, side) != length:
                break
            length *= loop.extent
        nbytes.append(length * itemsize)
    return "src" if nbytes[0] > max(nbytes[1], _STRETCH) else "dst"


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


@dataclass(frozen=True, slots=True)
class _Job:
    """A nest whose loops are to be cut into tiles.

    Attributes:
        nest: the nest.
        loops: its loops, merged, without ``unit``.
        unit: the loop that is contiguous on both sides, if any.
        behind: the loop that zeros follow, if any; it is then not among the others.
        itemsizes: bytes of an element of the source and of the destination.
    """

    nest: Nest
    loops: tuple[Move, ...]
    unit: Move | None
    behind: Move | None
    itemsizes: tuple[int, int]

    @classmethod
    def of(cls, nest: Nest, itemsizes: tuple[int, int]) -> _Job:
        loops, behind = list(nest.loops), None
        if nest.tail is not None:
            run = nest.tail.run
            behind = next(loop for loop in loops if loop.dst == 1 and loop.extent == run)
            loops.remove(behind)
        loops = _merged(loops)
        candidates = loops if behind is None else [behind]
        both = (o for o in candidates if o.dst == 1 and (o.src == 1 or nest.src is None))
        unit = next(both, None)
        if unit is not None and behind is None:
            loops.remove(unit)
        return cls(nest, tuple(loops), unit, behind, itemsizes)

    @property
    def width(self) -> int:
        return self.unit.extent if self.unit else 1

    @property
    def zeros(self) -> int:
        return self.nest.tail.zeros if self.nest.tail else 0

    @property
    def is_runs(self) -> bool:
        """Whether there is nothing to transpose, or runs are too long to be moved as elements."""
        nbytes = self.width * self.itemsizes[1]
        narrow = nbytes <= _WIDEST and nbytes & (nbytes - 1) == 0 and not self.zeros
        if self.itemsizes[0] != self.itemsizes[1] and self.width % _LANES == 0:
            narrow = False  # vectors of them are converted in place
        return self.nest.src is None or (self.unit is not None and not narrow)

    def shifted(self, rounds: Move, unit: Move) -> _Job:
        """Return what is left of the runs after some rounds of shorter ones."""
        nest = self.nest
        moved = replace(
            nest,
            src=None if nest.src is None else nest.src + rounds.src * rounds.extent,
            dst=nest.dst + rounds.dst * rounds.extent,
            scale=nest.scale + rounds.scale * rounds.extent,
        )
        return replace(self, nest=moved, unit=unit)


Placed = tuple[Tile, tuple[Move, ...]]
"""A tile, and the loops around it that other nests may have, too."""


def _tiles(job: _Job) -> list[Placed]:
    if not job.is_runs:
        return _transposing(job)
    if job.unit is None or job.zeros or job.unit.extent <= _LONGEST_RUN:
        return _run_tiles(job)
    # What is contiguous on both sides is cut, so that threads can share it.
    size = _LONGEST_RUN
    count, rest = divmod(job.unit.extent, size)
    unit = job.unit
    rounds = Move(count, unit.src * size, unit.dst * size, unit.scale * size)
    short = replace(job, loops=(*job.loops, rounds), unit=replace(unit, extent=size))
    tiles = _run_tiles(short)
    return tiles + (_run_tiles(job.shifted(rounds, replace(unit, extent=rest))) if rest else [])


def _transposing(job: _Job) -> list[Placed]:
    loops, width = list(job.loops), job.width
    if job.unit is not None and job.unit.scale:
        # Scales that vary inside of what is moved together are rare: single elements will do.
        loops, width = [*loops, job.unit], 1
    cut = _Cut(loops, [])
    if job.behind is not None:
        rows = [job.behind]
        columns = _stretch(cut, "src", width, _STRETCH // (width * job.itemsizes[0]))
    else:
        columns, rows = _sides(cut, width, job.itemsizes)
    if job.itemsizes[0] > job.itemsizes[1]:
        columns += _continued(cut, columns, rows, width, _PIECE // job.itemsizes[0])
    side = _longer_side([*columns, *rows], width, job.itemsizes)
    tiles: list[Placed] = []
    for around in _around(job, cut, side):
        table = _table(around.bounded(columns), "dst")
        one_by_one = width == 1 and [scale for _, scale in table] == list(range(len(table)))
        if one_by_one:
            table = tuple((at, 0) for at, _ in table)
        tile = around.tile(
            width, _table(around.bounded(rows), "src"), table, zeros=job.zeros, step=int(one_by_one)
        )
        tiles.append((tile, around.common))
    return tiles


def _run_loops(job: _Job) -> list[tuple[Move, int]]:
    """Return the loops of a tile of runs, and how much of each is wanted for both sides."""
    itemsize, most = min(job.itemsizes), _MOST_RUNS
    if job.itemsizes[0] != job.itemsizes[1]:
        most *= 2  # narrower ones are collected before they are written
    sizes = dict.fromkeys(job.loops, 1)
    for side in ("src", "dst"):
        length = job.width * itemsize
        for loop in sorted(job.loops, key=lambda loop: getattr(loop, side)):
            if length >= 2 * _STRETCH or getattr(loop, side) * itemsize >= _PAGE:
                break
            size = max(sizes[loop], _part_size(loop.extent, 2 * _STRETCH // length))
            if prod(sizes.values()) // sizes[loop] * size > most:
                break
            sizes[loop] = size
            length *= size
            if size < loop.extent:
                break
    return [(loop, size) for loop, size in sizes.items() if size > 1]


def _run_tiles(job: _Job) -> list[Placed]:
    cut = _Cut(list(job.loops), [])
    taken = [cut.split(loop, size) for loop, size in _run_loops(job)]
    tiles: list[Placed] = []
    for around in _around(job, cut):
        pairs = _pairs(around.bounded(taken))
        tile = around.tile(
            job.width,
            tuple((src, scale) for src, _, scale in pairs),
            tuple((dst, scale) for _, dst, scale in pairs),
            is_runs=True,
            zeros=job.zeros,
            step=job.unit.scale if job.unit else 0,
        )
        tiles.append((tile, around.common))
    return tiles


@dataclass(frozen=True, slots=True)
class _Around:
    """What stands around a tile, full or one that a loop leaves over.

    Attributes:
        common: loops of axes that all nests share, in the order of the destination.
        own: the other loops, in that order, and last those that stay near, see :func:`_near`.
        bounds: extents of cut loops that are left over, by their strides.
        src: where the tile starts in the source.
        dst: where it starts in the destination.
        scale: where it starts among the scales.
    """

    common: tuple[Move, ...]
    own: tuple[Move, ...]
    bounds: dict[tuple[int, int], int]
    src: int | None
    dst: int
    scale: int

    def bounded(self, loops: Sequence[Move]) -> list[Move]:
        """Return the loops of a tile as far as they go here."""
        return [
            replace(loop, extent=min(loop.extent, self.bounds.get(_strides(loop), loop.extent)))
            for loop in loops
        ]

    def tile(
        self,
        width: int,
        rows: tuple[tuple[int, int], ...],
        columns: tuple[tuple[int, int], ...],
        *,
        is_runs: bool = False,
        zeros: int,
        step: int,
    ) -> Tile:
        return Tile(
            self.src, self.dst, self.scale, self.own, width, rows, columns, is_runs, zeros, step
        )


def _strides(loop: Move) -> tuple[int, int]:
    return (loop.src, loop.dst)


def _near(loop: Move, itemsizes: tuple[int, int]) -> tuple[Move, Move]:
    """Split a loop in two, the inner of which stays within a stretch of memory on some side.

    Where a tile is smaller than a stretch, these rounds should come together.
    """
    steps = [loop.src * itemsizes[0], loop.dst * itemsizes[1]]
    wanted = max((_STRETCH // step for step in steps if 0 < step < _STRETCH), default=1)
    size = next(size for size in range(min(wanted, loop.extent), 0, -1) if loop.extent % size == 0)
    outer = Move(loop.extent // size, loop.src * size, loop.dst * size, loop.scale * size)
    return outer, replace(loop, extent=size)


def _around(job: _Job, cut: _Cut, side: str = "dst") -> list[_Around]:
    """Return what stands around the full tile, and around those that cut loops leave over.

    The loops are in the order of a side.
    """
    shared = {_strides(loop) for loop in job.nest.shared}
    found: list[_Around] = []
    choices = [(True, False) if loop.extent % size else (True,) for loop, size in cut.parts]
    for chosen in product(*choices):
        loops = [(loop, _strides(loop) in shared) for loop in cut.remaining]
        bounds: dict[tuple[int, int], int] = {}
        src, dst, scale = job.nest.src, job.nest.dst, job.nest.scale
        for is_full, (loop, size) in zip(chosen, cut.parts, strict=True):
            count = loop.extent // size
            stepped = Move(count, loop.src * size, loop.dst * size, loop.scale * size)
            if is_full:
                loops.append((stepped, _strides(loop) in shared))
                continue
            bounds[_strides(loop)] = loop.extent - count * size
            src = None if src is None else src + stepped.src * count
            dst += stepped.dst * count
            scale += stepped.scale * count
        common, own = _ordered(loops, job.itemsizes, side)
        found.append(_Around(common, own, bounds, src, dst, scale))
    return found


def _ordered(
    loops: Sequence[tuple[Move, bool]], itemsizes: tuple[int, int], side: str
) -> tuple[tuple[Move, ...], tuple[Move, ...]]:
    """Return the loops that are common and those that are not, outermost first."""

    def outermost(loop: Move) -> tuple[int, int]:
        return (-loop.dst, -loop.src) if side == "dst" else (-loop.src, -loop.dst)

    near: list[Move] = []
    far: list[tuple[Move, bool]] = []
    for loop, is_common in loops:
        outer, inner = _near(loop, itemsizes)
        near += [inner] if inner.extent > 1 else []
        far += [(outer, is_common)] if outer.extent > 1 else []
    far.sort(key=lambda pair: outermost(pair[0]))
    common = tuple(loop for loop, is_common in far if is_common)
    own = tuple(loop for loop, is_common in far if not is_common)
    return common, (*own, *sorted(near, key=outermost))
