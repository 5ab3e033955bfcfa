"""Operators that move data leave their neighbors in the format that these like best."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from stridewise.graph import Attr, Graph
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.kernels import KernelOption

from .graphs import KINDS, Net, error, forced_plan, inputs_of

MOVES = {
    "edge": ("pad", {"pads": (0, 0, 1, 1, 0, 0, 2, 1), "mode": "edge"}),
    "reflect": ("pad", {"pads": (0, 0, 1, 1, 0, 0, 2, 1), "mode": "reflect"}),
    "wrap": ("pad", {"pads": (0, 0, 1, 1, 0, 0, 2, 1), "mode": "wrap"}),
    "depth_to_space": ("depth_to_space", {"block": 2}),
    "space_to_depth": ("space_to_depth", {"block": 2}),
    "backwards": (
        "slice",
        {"starts": (0, 0, 5, 0), "stops": (2, 64, -1, 4), "steps": (1, 1, -1, 2)},
    ),
    "tile": ("tile", {"repeats": (1, 1, 2, 2)}),
}


def between_convolutions(op: str, attrs: Mapping[str, Attr]) -> Graph:
    b = Net(2, 64, 6, 4)
    return b.build([b.named(b.op(op, [b.named(b.x)], attrs))])


def chosen(graph: Graph, kind: str, op: str) -> KernelOption:
    plan = forced_plan(graph, kind)
    (node,) = (node.name for node in plan.graph.nodes if node.op == op)
    (decision,) = (item for item in plan.decisions if item.node == node)
    return decision.chosen.option


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_format_goes_through(move: str, kind: str) -> None:
    op, attrs = MOVES[move]
    option = chosen(between_convolutions(op, attrs), kind, op)
    source, result = option.inputs[0], option.outputs[0]
    assert source == result
    assert source is not None
    assert source.is_blocked == (kind == "blocked")
    assert (str(source) == "NHWC") == (kind == "channels-last")


@pytest.mark.parametrize("kind", KINDS)
def test_a_border_longer_than_the_image_repeats_it(kind: str) -> None:
    b = Net(2, 24, 5)
    long = {"pads": (0, 0, 11, 0, 0, 8), "mode": "reflect"}
    graph = b.build([b.op("pad", [b.named(b.x)], long)])
    feeds = inputs_of(graph)
    (found,) = load(lower_plan(forced_plan(graph, kind))).run(feeds).values()
    (expected,) = run_reference(graph, feeds).values()
    assert error(found, expected) < 1e-5


def test_an_expanded_gate_stays_blocked() -> None:
    b = Net(2, 64, 6, 4)
    y = b.named(b.x)
    gate = b.op("sigmoid", [b.named(b.op("reduce_mean", [y], {"axes": (2, 3)}))])
    wide = b.op("expand", [gate], {"shape": (2, 64, 6, 4)})
    option = chosen(b.build([b.named(wide)]), "blocked", "expand")
    assert option.outputs[0].is_blocked
