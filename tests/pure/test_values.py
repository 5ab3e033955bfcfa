"""The kinds of values of a graph: constants, parameters and states, and updates."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simplified import simplify

import stridewise as sw
from stridewise.errors import GraphError
from stridewise.graph import Graph, from_text
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.passes.freeze_parameters import freeze_parameters
from stridewise.runtime.simulation.reference import run_reference

F32 = np.float32


def mutable_graph() -> Graph:
    b = sw.GraphBuilder("mutable")
    x = b.input("x", (2, 3))
    w = b.parameter(np.arange(9, dtype=F32).reshape(3, 3), "w")
    rate = b.parameter(F32([0.5]), "rate")
    total = b.state(np.zeros((2, 3), F32), "total")
    unused = b.state(F32([1]), "kept")
    y = b.mul(b.op("matmul", [x, w]), rate)
    b.update(total, b.add(total, y))
    return b.build([b.add(y, unused)])


def test_the_text_says_what_kind_values_have_and_comes_back():
    graph = mutable_graph()
    verify(graph, infer)
    text = str(graph)
    assert "  param %rate: f32[1] = [0.5]\n" in text
    assert "  state %total: f32[2,3] = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]\n" in text
    assert "  update %total = %add\n" in text
    again = from_text(text, graph.parameters)
    assert str(again) == text
    assert again == graph


def test_inference_freezes_what_no_update_writes():
    graph = mutable_graph()
    frozen, _ = freeze_parameters(graph)
    assert set(frozen.constants) == {"w", "rate", "kept"}
    assert set(frozen.states) == {"total"}
    assert not frozen.parameters
    kept, _ = freeze_parameters(graph, keep_parameters=True)
    assert set(kept.parameters) == {"w", "rate"}
    assert set(kept.constants) == {"kept"}


def test_an_updated_parameter_is_not_frozen():
    b = sw.GraphBuilder("step")
    w = b.parameter(F32([1]), "w")
    b.update(w, b.relu(b.add(w, b.input("x", (1,)))))
    frozen, _ = freeze_parameters(b.build([]))
    assert set(frozen.parameters) == {"w"}
    assert not frozen.constants


def test_simplifying_keeps_updates_and_drops_parameters_that_nothing_reads():
    b = sw.GraphBuilder("dead")
    x = b.input("x", (4,))
    b.relu(b.parameter(np.ones(4, F32), "dead"))
    s = b.state(np.zeros(4, F32), "s")
    b.update(s, b.op("identity", [b.add(x, s)]))
    graph = b.build([b.relu(x)])
    found = simplify(graph, check=True).graph
    assert not found.parameters
    assert set(found.updates) == {"s"}
    inputs = {"x": np.arange(-2, 2, dtype=F32)}
    before, after = run_reference(graph, inputs), run_reference(found, inputs)
    for old, new in zip(before.values(), after.values(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("updates", "message"),
    [
        ({"x": "x"}, "expected a parameter or a state"),
        ({"total": "nothing"}, "expected a defined value"),
        ({"total": "rate"}, "expected a value of type f32"),
    ],
)
def test_wrong_updates_are_refused(updates, message):
    graph = dataclasses.replace(mutable_graph(), updates=MappingProxyType(updates))
    with pytest.raises(GraphError, match=message):
        verify(graph)


def test_a_name_has_one_kind():
    graph = mutable_graph()
    with pytest.raises(GraphError, match="a name of two kinds"):
        verify(dataclasses.replace(graph, states=graph.parameters))


def test_the_builder_refuses_wrong_updates():
    b = sw.GraphBuilder("wrong")
    x, s = b.input("x", (2,)), b.state(np.zeros(2, F32), "s")
    with pytest.raises(GraphError, match="expected a state or a parameter"):
        b.update(x, s)
    with pytest.raises(GraphError, match="expected a value of type"):
        b.update(s, b.input("y", (3,)))
    b.update(s, x)
    with pytest.raises(GraphError, match="expected one update"):
        b.update(s, x)


@given(st.dictionaries(st.text(min_size=1, max_size=4), st.integers(0, 3), max_size=4))
@settings(max_examples=60)
def test_any_states_survive_the_round_trip(states):
    b = sw.GraphBuilder("any")
    x = b.input("the input", (1,))
    for name, count in states.items():
        state = b.state(np.zeros((count, 1), F32), name)
        b.update(state, b.add(state, x))
    graph = b.build([x])
    assert from_text(str(graph)) == graph
