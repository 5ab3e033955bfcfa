"""Clusters of foreign nodes: convex, maximal, in order, on random graphs."""

from collections.abc import Sequence
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from stridewise.frontends.onnx.fallback.cluster import Part, partition

Edges = list[list[int]]


@st.composite
def graphs(draw: st.DrawFn, most: int = 14) -> tuple[Edges, set[int]]:
    """A graph whose nodes read earlier ones, and its foreign nodes."""
    count = draw(st.integers(1, most))
    before = [
        draw(st.lists(st.integers(0, node - 1), unique=True, max_size=3)) if node else []
        for node in range(count)
    ]
    return before, draw(st.sets(st.integers(0, count - 1)))


def owners(parts: Sequence[Part]) -> dict[int, int]:
    return {node: index for index, part in enumerate(parts) for node in part.nodes}


def runs_in_order(before: Edges, groups: Sequence[Sequence[int]]) -> bool:
    """Whether an order of the groups exists: brute force, by taking away what is ready."""
    left = [set(group) for group in groups]
    done: set[int] = set()
    while left:
        ready = [g for g in left if all(s in done or s in g for node in g for s in before[node])]
        if not ready:
            return False
        for group in ready:
            done |= group
            left.remove(group)
    return True


def neighbors(before: Edges, one: Part, other: Part) -> bool:
    a, b = set(one.nodes), set(other.nodes)
    return any((n in a and s in b) or (n in b and s in a) for n, r in enumerate(before) for s in r)


def behind(before: Edges, start: set[int]) -> set[int]:
    found = set(start)
    for node, sources in enumerate(before):
        if found.intersection(sources):
            found.add(node)
    return found


@given(graphs())
def test_parts_cover_the_graph_in_an_order_that_runs(graph: tuple[Edges, set[int]]) -> None:
    before, foreign = graph
    parts = partition(before, foreign)
    of = owners(parts)
    assert sorted(node for part in parts for node in part.nodes) == list(range(len(before)))
    assert all(of[source] <= of[node] for node, sources in enumerate(before) for source in sources)
    assert {node for part in parts if part.kind == "fallback" for node in part.nodes} == foreign
    assert all(len(part.nodes) == 1 for part in parts if part.kind == "native")


@given(graphs())
def test_clusters_are_maximal(graph: tuple[Edges, set[int]]) -> None:
    before, foreign = graph
    parts = partition(before, foreign)
    clusters = [part for part in parts if part.kind == "fallback"]
    for one, other in combinations(clusters, 2):
        if neighbors(before, one, other):
            rest = [part.nodes for part in parts if part not in (one, other)]
            assert not runs_in_order(before, [*rest, one.nodes + other.nodes])


@given(graphs())
def test_all_foreign_graphs_have_one_cluster_a_component(graph: tuple[Edges, set[int]]) -> None:
    before, _ = graph
    parts = partition(before, set(range(len(before))))
    for one, other in combinations(parts, 2):
        assert not neighbors(before, one, other)


@given(graphs(), st.data())
def test_inseparable_nodes_take_along_what_lies_between(
    graph: tuple[Edges, set[int]], data: st.DataObject
) -> None:
    before, foreign = graph
    edges = [(source, node) for node, sources in enumerate(before) for source in sources]
    pairs = data.draw(st.lists(st.sampled_from(edges), max_size=3)) if edges else []
    parts = partition(before, foreign, pairs)
    of = owners(parts)
    assert all(of[one] == of[other] for one, other in pairs)
    assert all(of[source] <= of[node] for node, sources in enumerate(before) for source in sources)
    taken = {node for part in parts if part.kind == "fallback" for node in part.nodes}
    ends = {node for pair in pairs for node in pair}
    assert foreign | ends <= taken
    for node in taken - foreign - ends:
        group = set(parts[of[node]].nodes)
        assert any(node in behind(before, {end}) for end in group & (ends | foreign))


@given(graphs(), st.data())
def test_the_tail_runs_last(graph: tuple[Edges, set[int]], data: st.DataObject) -> None:
    before, foreign = graph
    starts = data.draw(st.sets(st.integers(0, len(before) - 1), min_size=1, max_size=3))
    tail = behind(before, starts)
    parts = partition(before, foreign, (), tail)
    assert parts[-1].kind == "tail"
    assert [part.kind for part in parts].count("tail") == 1
    assert tail <= set(parts[-1].nodes) <= tail | foreign
    of = owners(parts)
    assert all(of[source] <= of[node] for node, sources in enumerate(before) for source in sources)
    for part in parts[:-1]:
        # What only the tail reads, and could run in it, does.
        if part.kind == "fallback":
            readers = {of[n] for n, sources in enumerate(before) if set(part.nodes) & set(sources)}
            assert readers - {of[part.nodes[0]]} != {len(parts) - 1}


def test_a_cluster_does_not_close_around_a_native_node() -> None:
    #  0 -> 1 -> 2 and 0 -> 2: with 1 native, 0 and 2 are apart.
    parts = partition([[], [0], [0, 1]], {0, 2})
    assert [part.nodes for part in parts] == [(0,), (1,), (2,)]


def test_large_graphs_are_partitioned_quickly() -> None:
    count = 4000
    before = [[node - 1] if node else [] for node in range(count)]
    assert len(partition(before, set(range(count)))) == 1
    alternating = partition(before, set(range(0, count, 2)))
    assert len(alternating) == count
