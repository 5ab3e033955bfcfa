"""Transposes of merged axes become transposes of feature maps, and results stay."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.networks import Net
from tests.simplified import assert_same, simplify

from stridewise.graph import Graph
from stridewise.passes.part_axes import part_axes

Shape = tuple[int, ...]


def parted(graph: Graph) -> Graph:
    """The graph after the pass, which computes the same."""
    after, refusals = part_axes(graph)
    assert not refusals
    assert_same(graph, after)
    return after


def chain(source: Shape, *steps: tuple[str, Shape]) -> Graph:
    b = Net("g")
    x = b.op("relu", [b.input("x", source)])
    for op, numbers in steps:
        x = b.op(op, [x], {"perm" if op == "transpose" else "shape": numbers})
    return b.build([x])


def ops(graph: Graph) -> list[tuple[str, Shape]]:
    return [(node.op, graph.value(node.outputs[0]).shape) for node in graph.nodes[1:]]


@pytest.mark.parametrize("sides", [(5,), (4, 5), (4, 5, 6)])
def test_feature_maps_are_transposed_before_they_become_tokens(sides: Shape) -> None:
    tokens = prod(sides)
    graph = chain((2, 3, *sides), ("reshape", (2, 3, tokens)), ("transpose", (0, 2, 1)))
    merged = [("reshape", (2, 3, tokens)), ("transpose", (2, tokens, 3))]
    early = [("transpose", (2, *sides, 3)), ("reshape", (2, tokens, 3))]
    assert ops(parted(graph)) == (early if len(sides) > 1 else merged)


@pytest.mark.parametrize("sides", [(4, 5), (4, 5, 6)])
def test_feature_maps_are_transposed_after_they_were_tokens(sides: Shape) -> None:
    tokens = prod(sides)
    graph = chain((2, tokens, 3), ("transpose", (0, 2, 1)), ("reshape", (2, 3, *sides)))
    assert ops(parted(graph)) == [("reshape", (2, *sides, 3)), ("transpose", (2, 3, *sides))]


def test_tokens_that_others_read_are_transposed_as_they_are() -> None:
    b = Net("g")
    y = b.op("transpose", [b.input("x", (2, 20, 3))], {"perm": (0, 2, 1)})
    graph = b.build([b.op("reshape", [y], {"shape": (2, 3, 4, 5)}), b.op("abs", [y])])
    assert part_axes(graph)[0].nodes == graph.nodes


def test_inputs_are_transposed_as_tokens() -> None:
    b = Net("g")
    y = b.op("reshape", [b.input("x", (2, 3, 4, 5))], {"shape": (2, 3, 20)})
    graph = b.build([b.op("transpose", [y], {"perm": (0, 2, 1)})])
    assert part_axes(graph)[0].nodes == graph.nodes


def test_transposes_that_are_not_between_data_formats_stay() -> None:
    graph = chain((2, 3, 4, 5), ("reshape", (2, 3, 20)), ("transpose", (1, 0, 2)))
    assert part_axes(graph)[0].nodes == graph.nodes
    graph = chain((2, 3, 4, 5), ("reshape", (6, 20)), ("transpose", (1, 0)))
    assert part_axes(graph)[0].nodes == graph.nodes


def test_convolutions_between_tokens_need_no_transposes() -> None:
    b = Net("g")
    x = b.input("x", (1, 20, 3))
    for _ in range(2):
        y = b.op("transpose", [b.op("relu", [x])], {"perm": (0, 2, 1)})
        y = b.op("reshape", [y], {"shape": (1, 3, 4, 5)})
        y = b.conv(y, 3, 3, pads=(1, 1, 1, 1))
        y = b.op("reshape", [y], {"shape": (1, 3, 20)})
        x = b.op("transpose", [y], {"perm": (0, 2, 1)})
    after = simplify(b.build([b.op("relu", [x])])).graph
    assert "transpose" not in {node.op for node in after.nodes}


@st.composite
def _chains(draw: st.DrawFn) -> Graph:
    """A reshape that merges or splits axes, among them some of extent 1, beside a transpose."""
    rank = draw(st.integers(2, 6))
    whole = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    cuts = sorted(draw(st.sets(st.integers(1, rank - 1), max_size=rank - 1)))
    merged = tuple(prod(whole[a:b]) for a, b in pairwise([0, *cuts, rank]))
    turns = st.permutations(range(len(merged))).map(tuple)
    if draw(st.booleans()):
        return chain(whole, ("reshape", merged), ("transpose", draw(turns)))
    perm = draw(turns)
    source = tuple(merged[perm.index(axis)] for axis in range(len(perm)))
    return chain(source, ("transpose", perm), ("reshape", whole))


@given(_chains())
def test_any_chain_gives_the_same(graph: Graph) -> None:
    parted(graph)
