"""Two nodes in one kernel: when that is on offer, and that both choose it or neither does."""

from __future__ import annotations

import numpy as np
import pytest
from tests.simplified import simplify

from stridewise.graph import Graph
from stridewise.ops import GraphBuilder
from stridewise.planner import derive
from stridewise.planning import Plan, make_plan
from stridewise.targets.kernels import KernelSpec
from stridewise.targets.onednn.target import onednn_cpu

from .plans import F32, KINDS, MACHINE, Oracle, conv, kind_of, net, planned, random_costs


def halved(window: int = 2, stride: int = 2, pads: int = 0, readers: int = 1, act: str = "relu"):
    b, x = net(1, 32, 12, 12)
    y = b.op(act, [conv(b, x)])
    attrs = {"kernel": (window,) * 2, "strides": (stride,) * 2, "pads": (pads,) * 4}
    outputs = [b.op("max_pool", [y], attrs)]
    outputs += [b.op("sigmoid", [y])] * (readers - 1)
    return b.build(outputs)


def inverted(window: int = 3, stride: int = 1, middle: int = 64, **changes: object) -> Graph:
    b, x = net(1, 16, 12, 12)
    y = b.op("relu", [conv(b, x, middle, 1)])
    if changes.pop("is_output", False):
        return b.build([depthwise(b, y, window, stride, **changes), y])
    return b.build([b.op("relu", [depthwise(b, y, window, stride, **changes)])])


def depthwise(b: GraphBuilder, x: str, window: int, stride: int, **changes: object) -> str:
    channels = b.type(x).shape[1]
    groups = int(str(changes.get("groups", channels)))
    shape = (channels, channels // groups, window, window)
    w = b.constant(np.ones(shape, F32), "d")
    attrs = {"groups": groups, "strides": (stride,) * 2, "pads": (window // 2,) * 4, **changes}
    return b.op("conv", [x, w], attrs)


def together(cost: float, kind: str = "blocked") -> Oracle:
    """Make kernels of two nodes cost so much, others 10, those of other kinds of storage more."""

    def price(spec: KernelSpec) -> float:
        if spec.kind == "reorder":
            return 1.0
        joint = spec.kind == "expand_depthwise" or "pool" in dict(spec.params)
        return (cost if joint else 10.0) + (0.0 if kind_of(spec) == kind else 100.0)

    return Oracle(price)


def joined(plan: Plan) -> list[str]:
    return [item.node for item in plan.decisions if item.chosen.option.ahead is not None]


def offered(plan: Plan) -> list[str]:
    last = [group for group in plan.candidates.nodes.values() if group[0].option.calls][-1]
    return [item.algorithm for item in last if item.option.ahead is not None]


PAIRS = [
    halved(),
    inverted(),
    inverted(5, 2),
    inverted(7),
    inverted(dilations=(2, 2)),
    inverted(strides=(1, 2)),
]


@pytest.mark.parametrize("graph", PAIRS)
@pytest.mark.parametrize("kind", KINDS[1:])
def test_both_nodes_are_computed_at_once_where_that_is_cheaper(graph, kind):
    plan = planned(graph, together(15.0, kind))
    (node,) = joined(plan)
    first = plan.decision(plan.terms.producers[plan.graph.nodes[-1].inputs[0]].name).chosen
    assert plan.decision(node).chosen.algorithm.endswith(f"{kind}")
    assert first.algorithm == f"by its reader, {kind}"
    assert (first.cost_ns, first.implementation) == (0.0, "its reader's kernel")
    # Two reorders, to the kind of storage and back.
    assert plan.cost_ns == pytest.approx(17.0)
    assert plan.views == ()
    assert "by its reader" in plan.explain()


@pytest.mark.parametrize("graph", [halved(), inverted()])
def test_neither_is_where_that_costs_more(graph):
    plan = planned(graph, together(25.0))
    assert joined(plan) == []
    assert not any(item.chosen.option.held for item in plan.decisions)
    assert plan.cost_ns == pytest.approx(22.0)


@pytest.mark.parametrize("seed", range(40))
def test_no_plan_has_one_without_the_other(seed):
    for graph in (halved(), inverted(), inverted(3, 2, 48)):
        plan = planned(graph, random_costs(seed))
        held = {n for item in plan.decisions if item.chosen.option.held for n in [item.node]}
        ahead = {
            plan.terms.producers[plan.graph.nodes[plan.terms.positions[name]].inputs[0]].name
            for name in joined(plan)
        }
        assert held == ahead


@pytest.mark.parametrize(
    "graph",
    [
        halved(window=3),
        halved(stride=1),
        halved(pads=1),
        halved(readers=2),
        inverted(pads=(3, 0, 0, 3)),
        inverted(groups=64 // 2),
        inverted(is_output=True),
    ],
    ids=str,
)
def test_other_pairs_are_not_on_offer(graph):
    plan = planned(graph, together(1.0))
    assert offered(plan) == []


def test_equal_nodes_before_other_readers_have_other_options():
    b, x = net(1, 32, 12, 12)
    halves = [b.op("relu", [conv(b, x)]) for _ in range(3)]
    attrs = {"kernel": (2, 2), "strides": (2, 2)}
    outputs = [b.op("max_pool", [halves[0]], attrs), b.op("avg_pool", [halves[1]], attrs)]
    plan = planned(b.build([*outputs, depthwise(b, halves[2], 3, 1)]), together(1.0))
    held = {
        name: [item.option.held for item in group if item.option.held]
        for name, group in plan.candidates.nodes.items()
    }
    # Before a depthwise convolution only one of 1x1 is an expansion.
    assert [bool(held[node.name]) for node in plan.graph.nodes[:3]] == [True, False, False]


def test_exact_plans_pool_no_winograd_tiles_and_still_join_expansions():
    target = onednn_cpu(MACHINE, "exact")
    for graph, count in ((halved(), 0), (inverted(), 1)):
        plan = make_plan(derive(simplify(graph).graph), target, MACHINE, together(1.0))
        assert len(joined(plan)) == count


def test_each_operator_for_itself_joins_nothing():
    plan = planned(inverted(), together(1.0))
    alone = next(c for c in plan.compare() if c.name == "each operator for itself")
    # Both kernels, and reorders around either.
    assert alone.cost_ns >= 20.0


def test_a_pinned_tensor_between_keeps_both_choices():
    plan = planned(inverted(), together(1.0))
    between = plan.graph.nodes[0].outputs[0]
    pinned = plan.what_if({between: "channels-last"})
    kinds = {item.chosen.algorithm.rpartition(", ")[2] for item in pinned.decisions}
    assert kinds == {"channels-last"}
    assert joined(pinned)
