"""Division of loop nests into cache-sized tiles, which the native core executes.

A reorder is fast if it accesses long contiguous stretches on both sides. The innermost loops of
each nest form a tile. If different loops are contiguous on the two sides, the tile is a small
matrix transposition: its *columns* are contiguous in the source and its *rows* in the destination.
If one loop is contiguous on both sides, the tile consists of *runs*. The remaining loops are outer
loops in the order of the destination.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import gcd, prod

from stridewise.classes import dataclass
from stridewise.tensor.moves import Move, Moves, Nest

__all__ = ["Group", "Tile", "groups"]

# Target length in bytes of a contiguous stretch on either side of a tile. Below 256 bytes, hardware
# prefetchers and DRAM pages are used poorly. Far above, the tile does not fit the first-level
# cache.
_STRETCH = 512
# Bytes of a row that is converted before it is transposed, if the destination allows it at no cost.
# On weights of 3x3 kernels, a quarter of it took up to 1.17 times as long, twice as much up to 1.1.
_PIECE = 2048
_PAGE = 4096
_LINE = 64
# Largest share of full tiles that is given up so that tiles end at cache lines.
_RAGGED = 0.1
# Bytes of the widest element that a transposition moves as a unit.
_WIDEST = 16
# Elements that are converted by one vector instruction.
_LANES = 8
# Largest number of runs in a tile.
_MOST_RUNS = 512
# Largest number of elements of a run. Longer runs are split so that threads can share them.
_LONGEST_RUN = 8192
# Smallest number of iterations of the common loops that keeps all threads busy.
_FEW_ROUNDS = 16


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile and the loops around it that it does not share. Counts and offsets are in elements.

    Attributes:
        src: start in the source; None if the tile writes zeros.
        dst: start in the destination.
        scale: start in the scales.
        loops: the loops, outermost first.
        width: consecutive elements that are moved as a unit.
        rows: offsets in source and scales of units that are adjacent in the destination.
        columns: offsets in destination and scales of units that are adjacent in the source.
        is_runs: whether rows and columns are pairs instead, one for each run of ``width``.
        zeros: elements to zero after the rows of each column, or after each run.
        step: stride of the scales along a run, or along the columns if it is 1 there. In the second
            case ``columns`` have no offsets of scales.
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
    """Tiles that share their outermost loops, so that they access the same cache lines together."""

    loops: tuple[Move, ...]
    tiles: tuple[Tile, ...]


def groups(moves: Moves, src_itemsize: int, dst_itemsize: int) -> tuple[Group, ...]:
    """Return the tiles of all nests, grouped by shared loops.

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
    """Merge loops that continue each other in source, destination and scales."""
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
    """Return the part of a loop for a tile: close to ``wanted``, with a large remainder.

    Sizes at which pieces of ``nbytes`` fill whole cache lines may have a smaller remainder.
    """
    if extent <= 2 * wanted:
        return extent
    unit, whole = max(1, wanted // 4), _LINE // gcd(_LINE, nbytes)
    sizes = [max(1, wanted + unit * k) for k in (0, 1, 2, 3, 4, -1, -2)]
    sizes += [wanted // whole * whole, wanted // whole * whole + whole]

    def worth(size: int) -> float:
        return extent / (-(-extent // size) * size) - _RAGGED * (size % whole != 0)

    return max((size for size in sizes if 0 < size <= extent), key=worth)


@dataclass(slots=True)
class _Cut:
    """The division of loops into a tile and the loops around it, under construction."""

    remaining: list[Move]
    parts: list[tuple[Move, int]]

    def take(self, loop: Move, wanted: int, nbytes: int = _LINE) -> Move:
        """Move a loop, or a part close to ``wanted``, into the tile, and return that part."""
        return self.split(loop, _part_size(loop.extent, wanted, nbytes))

    def split(self, loop: Move, size: int) -> Move:
        """Move ``size`` iterations of a loop into the tile, and return that part."""
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
    """Take loops that continue each other on a side until the stretch is long enough.

    Columns exclude the first loop of rows and, from ``_LANES`` elements on, reserved loops.
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
    """Return the loops of columns and of rows. Columns have precedence for loops that fit both."""
    wanted = [max(1, _STRETCH // (width * itemsize)) for itemsize in itemsizes]
    reserved = _first_rows(cut, width, itemsizes[1])
    columns = _stretch(cut, "src", width, wanted[0], reserved=reserved)
    return columns, _stretch(cut, "dst", width, wanted[1], itemsize=itemsizes[1])


def _continued(
    cut: _Cut, columns: Sequence[Move], rows: Sequence[Move], width: int, wanted: int
) -> list[Move]:
    """Take enough of the loop that continues a tile on both sides to make its rows long."""
    across = width * prod(loop.extent for loop in columns)
    whole = across * prod(loop.extent for loop in rows)
    for loop in cut.remaining:
        if (loop.src, loop.dst) == (across, whole):
            return [cut.take(loop, wanted // across)] if wanted >= 2 * across else []
    return []


def _first_rows(cut: _Cut, width: int, itemsize: int) -> list[Move]:
    """Return the loops that the rows of a tile need to fill a vector."""
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
    """Return the side whose order the outer loops follow: the one with longer contiguous pieces.

    It is the source only if its pieces are long enough for the hardware prefetcher. An example are
    weights of 3x3 kernels that are reordered to blocks of 16x16: a tile reads pieces of 576 bytes
    and writes pieces of 512.
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
    """Return offsets on a side and in the scales; the first loop is innermost."""
    found = [(0, 0)]
    for loop in reversed(loops):
        counts, step, scale = range(loop.extent), getattr(loop, side), loop.scale
        found = [(at + i * step, of + i * scale) for at, of in found for i in counts]
    return tuple(found)


def _pairs(loops: Sequence[Move]) -> tuple[tuple[int, int, int], ...]:
    """Return offsets in source, destination and scales, in the order of the destination."""
    found = [(0, 0, 0)]
    for loop in sorted(loops, key=lambda loop: -loop.dst):
        counts, src, dst, scale = range(loop.extent), loop.src, loop.dst, loop.scale
        found = [
            (at + i * src, to + i * dst, of + i * scale) for at, to, of in found for i in counts
        ]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Job:
    """A nest that is to be divided into tiles.

    Attributes:
        nest: the nest.
        loops: its loops, merged, without ``unit``.
        unit: the loop that is contiguous on both sides, if any.
        behind: the loop that is followed by zeros, if any; ``loops`` does not contain it.
        itemsizes: bytes of an element in source and destination.
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
        """Whether the tile consists of runs: no transposition, or runs longer than an element.

        Single elements that are apart on both sides are runs, too: each side has its own offsets.
        """
        nbytes = self.width * self.itemsizes[1]
        narrow = nbytes <= _WIDEST and nbytes & (nbytes - 1) == 0 and not self.zeros
        if self.itemsizes[0] != self.itemsizes[1] and self.width % _LANES == 0:
            narrow = False  # whole vectors are converted without a transposition
        if self.nest.src is None or self.unit is not None:
            return self.nest.src is None or not narrow
        return self.behind is None and all(1 not in (loop.src, loop.dst) for loop in self.loops)

    def shifted(self, rounds: Move, unit: Move) -> _Job:
        """Return the rest of the runs after ``rounds`` of shorter ones."""
        nest = self.nest
        moved = replace(
            nest,
            src=None if nest.src is None else nest.src + rounds.src * rounds.extent,
            dst=nest.dst + rounds.dst * rounds.extent,
            scale=nest.scale + rounds.scale * rounds.extent,
        )
        return replace(self, nest=moved, unit=unit)


Placed = tuple[Tile, tuple[Move, ...]]
"""A tile, and the loops around it that it may share with other nests."""


def _tiles(job: _Job) -> list[Placed]:
    if not job.is_runs:
        return _transposing(job)
    if job.unit is None or job.zeros or job.unit.extent <= _LONGEST_RUN:
        return _run_tiles(job)
    # A long run is cut so that threads can share it.
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
        # Scales that vary inside a unit are rare, so single elements are fast enough.
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
    """Return the loops of a tile of runs, and the part of each that belongs to the tile."""
    itemsize, most = min(job.itemsizes), _MOST_RUNS
    if job.itemsizes[0] != job.itemsizes[1]:
        most *= 2  # the narrower side is collected before it is written
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
    """The loops around a full tile or a remainder tile.

    Attributes:
        common: loops of axes that all nests share, in the order of the destination.
        own: the other loops in that order, followed by the inner loops of :func:`_near`.
        bounds: extents of the remainders of cut loops, by their strides.
        src: start of the tile in the source.
        dst: start of the tile in the destination.
        scale: start of the tile in the scales.
    """

    common: tuple[Move, ...]
    own: tuple[Move, ...]
    bounds: dict[tuple[int, int], int]
    src: int | None
    dst: int
    scale: int

    def bounded(self, loops: Sequence[Move]) -> list[Move]:
        """Return the loops of a tile with the extents of the remainder."""
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
    """Split a loop in two so that the inner part stays within one stretch on one of the sides.

    If a tile is smaller than a stretch, the iterations of the inner part should be consecutive.
    """
    steps = [loop.src * itemsizes[0], loop.dst * itemsizes[1]]
    wanted = max((_STRETCH // step for step in steps if 0 < step < _STRETCH), default=1)
    size = next(size for size in range(min(wanted, loop.extent), 0, -1) if loop.extent % size == 0)
    outer = Move(loop.extent // size, loop.src * size, loop.dst * size, loop.scale * size)
    return outer, replace(loop, extent=size)


def _around(job: _Job, cut: _Cut, side: str = "dst") -> list[_Around]:
    """Return the loops around the full tile and around the remainder tiles of cut loops.

    The loops are in the order of ``side``.
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
    """Return the common loops and the other loops, outermost first."""

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
