"""Minimum cuts, and updates that are computed early."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import stridewise as sw
from stridewise.graph import Graph
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.passes.hoist_updates import hoist_updates
from stridewise.planner.recompute.cut import Network
from stridewise.training import loss_of, step_graph

COUNT = 6
EDGES = st.lists(
    st.tuples(st.integers(0, COUNT - 1), st.integers(0, COUNT - 1), st.integers(0, 9)),
    max_size=20,
)


@given(EDGES)
def test_cuts_are_minimal(edges: list[tuple[int, int, int]]):
    network = Network(COUNT)
    for begin, end, capacity in edges:
        network.add(begin, end, float(capacity))
    side = network.cut(0, COUNT - 1)

    def cost(inside: tuple[bool, ...]) -> int:
        return sum(amount for begin, end, amount in edges if inside[begin] and not inside[end])

    assert side[0]
    assert not side[-1]
    sides = [(True, *rest, False) for rest in product((False, True), repeat=COUNT - 2)]
    best = min(map(cost, sides))
    assert cost(tuple(side)) == best
    assert sum(side) == min(sum(inside) for inside in sides if cost(inside) == best)


def _step() -> Graph:
    b = sw.GraphBuilder("net", training=True)
    y = b.input("x", (2, 3))
    for _ in range(3):
        y = b.relu(b.dense(y, 3))
    graph = b.build([y])
    loss = loss_of("mean_squared_error")
    return step_graph(graph, tuple(graph.parameters), loss, sw.SGD(0.1, 0.9)).graph


def test_updates_stand_behind_gradients_and_behind_readers_of_old_values():
    before = _step()
    after, refusals = hoist_updates(before)
    verify(after, infer)
    assert not refusals
    assert sorted(node.name for node in after.nodes) == sorted(node.name for node in before.nodes)
    places = {name: place for place, node in enumerate(after.nodes) for name in node.outputs}
    names = list(after.parameters)
    assert places[after.updates[names[-1]]] < places[after.updates[names[0]]]
    for name, value in after.updates.items():
        readers = [p for p, node in enumerate(after.nodes) if name in node.inputs]
        assert max(readers, default=-1) <= places[value]


def test_graphs_without_updates_keep_their_order():
    b = sw.GraphBuilder("net")
    x = b.input("x", (2, 3))
    graph = b.build([b.relu(x), b.op("tanh", [b.constant(np.ones(3, np.float32))])])
    assert hoist_updates(graph)[0].nodes == graph.nodes
