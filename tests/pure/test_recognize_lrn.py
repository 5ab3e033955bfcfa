"""Local response normalizations that PyTorch writes as several nodes."""

from __future__ import annotations

import dataclasses

import pytest
from tests.networks import Net

from stridewise.graph import Graph, Node
from stridewise.passes.recognize_lrn import recognize_lrn

from .pass_graphs import local_response, rewritten


def recognized(graph: Graph) -> tuple[Node, ...]:
    """Recognize, compare the results, and return the nodes."""
    return rewritten(recognize_lrn, graph).nodes


@pytest.mark.parametrize("shape", [(2, 7, 3, 4), (1, 3, 5, 1), (2, 4, 1, 2)])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_it_becomes_one_node(shape, size):
    b = Net("g")
    (node,) = recognized(b.build([local_response(b, b.input("x", shape), size)]))
    found = [node.float_attr(name) for name in ("alpha", "beta", "bias")]
    assert (node.op, node.int_attr("size"), found) == ("lrn", size, [0.5, 0.75, 2.0])


@pytest.mark.parametrize(
    "changes",
    [
        {"count_include_pad": 0},
        {"kernel": (3, 1, 2), "pads": (1, 0, 0, 1, 0, 1)},
        {"kernel": (2, 1, 1), "pads": (0, 0, 0, 1, 0, 0)},
        {"pads": (2, 0, 0, 0, 0, 0)},
        {"kernel": (1, 3, 1), "pads": (0, 1, 0, 0, 1, 0)},
    ],
)
def test_other_windows_stay(changes):
    b = Net("g")
    nodes = recognized(b.build([local_response(b, b.input("x", (2, 4, 3, 5)), **changes)]))
    assert "lrn" not in [node.op for node in nodes]


@pytest.mark.parametrize("shape", [(2, 7, 5), (1, 3, 2, 2, 2)])
def test_other_ranks_stay(shape):
    b = Net("g")
    nodes = recognized(b.build([local_response(b, b.input("x", shape))]))
    assert "lrn" not in [node.op for node in nodes]


def test_steps_that_others_read_stay():
    b = Net("g")
    graph = b.build([local_response(b, b.input("x", (2, 4, 3, 5)))])
    for node in graph.nodes[:-1]:
        shown = dataclasses.replace(graph, outputs=(*graph.outputs, *node.outputs))
        assert len(recognized(shown)) == len(graph.nodes), node.op


def test_another_dividend_stays():
    b = Net("g")
    graph = b.build([local_response(b, b.input("x", (2, 4, 3, 5)))])
    *nodes, last = graph.nodes
    other = dataclasses.replace(last, inputs=(nodes[0].outputs[0], last.inputs[1]))
    changed = dataclasses.replace(graph, nodes=(*nodes, other))
    assert len(recognized(changed)) == len(graph.nodes)
