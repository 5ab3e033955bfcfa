"""Tiles of a loop nest move each of its elements once, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from hypothesis import example, given, settings
from hypothesis import strategies as st

from stridewise.tensor.moves import Move, Moves, Nest
from stridewise.tensor.tiles import Tile, groups


def places(loops: Sequence[Move]) -> Iterator[tuple[int, int]]:
    """Yield the offsets in source and destination of each round."""
    for at in product(*(range(loop.extent) for loop in loops)):
        yield (
            sum(i * loop.src for i, loop in zip(at, loops, strict=True)),
            sum(i * loop.dst for i, loop in zip(at, loops, strict=True)),
        )


def moved(tile: Tile) -> Iterator[tuple[int, int]]:
    """Yield the elements of one round of a tile: where each comes from and goes to."""
    assert tile.src is not None
    width = range(tile.width)
    if tile.is_runs:
        for (row, column), w in product(zip(tile.rows, tile.columns, strict=True), width):
            yield tile.src + row[0] + w, tile.dst + column[0] + w
        return
    for (r, row), (c, column), w in product(enumerate(tile.rows), enumerate(tile.columns), width):
        yield tile.src + row[0] + c * tile.width + w, tile.dst + column[0] + r * tile.width + w


@st.composite
def nests(draw: st.DrawFn) -> Nest:
    """Dense destinations of sources with axes in any order, some of them apart from each other."""
    extents = draw(st.lists(st.integers(2, 70), min_size=1, max_size=3).filter(is_small))
    order = draw(st.permutations(range(len(extents))))
    src, dst = [0] * len(extents), [0] * len(extents)
    at = draw(st.integers(1, 2))
    for axis in order:
        src[axis], at = at, at * extents[axis] + draw(st.sampled_from([0, 0, 0, 1]))
    at = 1
    for axis, extent in enumerate(extents):
        dst[axis], at = at, at * extent
    loops = tuple(Move(*item, 0) for item in zip(extents, src, dst, strict=True))
    return Nest(0, 0, 0, loops, frozenset(loops), None)


def is_small(extents: Sequence[int]) -> bool:
    return prod(extents) <= 1500


COLUMNS = (Move(17, 30, 1, 0), Move(15, 2, 17, 0))
"""Every other pixel of an image, whose channels become the last axis."""


@settings(max_examples=150)
@example(Nest(0, 0, 0, COLUMNS, frozenset(COLUMNS), None), (4, 4))
@given(nest=nests(), sizes=st.tuples(*(st.sampled_from([1, 2, 4, 8]),) * 2))
def test_each_element_moves_once(nest: Nest, sizes: tuple[int, int]) -> None:
    found = Counter(
        (src + around[0], dst + around[1])
        for group in groups(Moves((nest,), fill=False), *sizes)
        for around in places(group.loops)
        for tile in group.tiles
        for inner in places(tile.loops)
        for src, dst in ((s + inner[0], d + inner[1]) for s, d in moved(tile))
    )
    wrong = found != Counter(places(nest.loops))
    assert not wrong  # the difference is long
