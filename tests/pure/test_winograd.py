"""Winograd kernels as candidates: which convolutions have them, and the memory of their weights."""

from __future__ import annotations

from itertools import product
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simplified import simplify

from stridewise.errors import PlanError
from stridewise.graph import Graph, Refusal
from stridewise.ops import GraphBuilder
from stridewise.ops.activation import default_parameters
from stridewise.planner import derive
from stridewise.planner.problem.candidates import Candidate
from stridewise.planner.problem.weight_limit import granted
from stridewise.planner.questions.winograd_weights import check_weight_limit
from stridewise.planning import Plan, make_plans
from stridewise.targets.cost import Roofline
from stridewise.targets.kernels import Call, KernelOption, KernelSpec, MemorySpec
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.activation import ELTWISE, eltwise_steps
from stridewise.targets.onednn.target import onednn_cpu
from stridewise.targets.target import Accuracy

F32 = np.float32
ISAS = {"AVX2": 8, "AVX512_CORE": 16}


def convolution(
    channels: int = 32, outputs: int = 64, side: int = 12, window: int = 3, post: str = "",
    **attrs: Any,
) -> Graph:  # fmt: skip
    b = GraphBuilder()
    x = b.input("x", (1, channels, side, side))
    w = np.zeros((outputs, channels // attrs.get("groups", 1), window, window), F32)
    attrs.setdefault("pads", (window // 2,) * 4)
    y = b.op("conv", [x, b.constant(w, "w")], attrs, name="conv")
    return b.build([b.op(post, [y]) if post else y])


def planned(
    graph: Graph, isa: str = "AVX2", accuracy: Accuracy = "fast", limit: int | None = None
) -> Plan:
    machine = Machine("some CPU", isa, 2, "oneDNN 3.2.0")
    target = onednn_cpu(machine, accuracy)
    oracle = Roofline(1e11, 4e10, target.efficiency)
    derived = derive(simplify(graph).graph)
    return make_plans(derived, target, machine, oracle, weight_limit=limit)[0]


def algorithms(plan: Plan) -> set[str]:
    decision = plan.decisions[0]
    found = (decision.chosen, *decision.rejected)
    return {c.algorithm for c in found if c.algorithm.startswith("winograd")}


@pytest.mark.parametrize("isa", ISAS)
def test_there_are_three_tiles_in_two_formats(isa):
    plan = planned(convolution(), isa)
    tiles, formats = ("F(2x2)", "F(4x4)", "F(6x6)"), ("channels-last", "blocked")
    assert algorithms(plan) == {f"winograd {t}, {f}" for t, f in product(tiles, formats)}
    lanes = ISAS[isa]
    for candidate in (plan.decisions[0].chosen, *plan.decisions[0].rejected):
        if candidate.option.approximate:
            params = dict(candidate.option.calls[0].spec.params)
            assert params["lanes"] == lanes
            assert candidate.option.calls[0].spec.transformed_nbytes == (
                4 * (int(str(params["tile"])) + 2) ** 2 * 32 * 64
            )


def test_flops_are_those_that_are_left():
    plan = planned(convolution(side=16))
    direct = 2 * 9 * 32 * 64 * 16 * 16
    found = {
        candidate.algorithm: candidate.option.calls[0].spec.flops
        for candidate in (plan.decisions[0].chosen, *plan.decisions[0].rejected)
    }
    assert found["direct, blocked"] == direct
    assert found["winograd F(2x2), blocked"] == pytest.approx(direct / 2.25)
    assert found["winograd F(4x4), blocked"] == pytest.approx(direct / 4)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"strides": (3, 3)}, "with strides of 1 its window is 1x1, for which there are no tiles"),
        ({"strides": (2, 2)}, "winograd F(5x5): too many multiplications, for padding of channels"),
        ({"strides": (2, 2), "window": 7, "groups": 8}, "it has strides, and groups or a dilation"),
        ({"groups": 8}, "its groups fill no whole vectors of channels"),
        ({"channels": 1, "outputs": 1}, "winograd F(2x2): too many multiplications, for padding"),
        ({"side": 1}, "winograd F(4x4): too many multiplications, for padding of"),
    ],
)
def test_other_convolutions_are_refused_with_the_reason(change, reason):
    plan = planned(convolution(**change))
    found = [r.reason for r in plan.refusals if r.rule == "winograd"]
    assert any(text.startswith(reason) for text in found), found


def test_other_windows_are_not_in_question():
    plan = planned(convolution(window=1))
    assert not algorithms(plan)
    assert not [r for r in plan.refusals if r.rule == "winograd"]


@pytest.mark.parametrize("op", list(ELTWISE))
def test_every_post_op_is_known_or_refused(op):
    plan = planned(convolution(post=op))
    refused = [r.reason for r in plan.refusals if r.rule == "winograd"]
    spec = plan.decisions[0].chosen.option.calls[0].spec
    wanted = [algorithm for algorithm, *_ in eltwise_steps(op, *default_parameters(op))]
    if algorithms(plan):
        assert len(algorithms(plan)) == 6
        assert [post.algorithm for post in spec.post_ops] == wanted
    else:
        assert any(f"there is no post-op {algorithm}" in refused for algorithm in wanted)


def test_exact_plans_have_no_such_candidates():
    plan = planned(convolution(), accuracy="exact")
    assert not algorithms(plan)
    reason = "winograd F(4x4), blocked: it rounds otherwise than the definition"
    assert Refusal("accuracy", "conv", reason) in plan.refusals
    assert plan.winograd_weights.nodes == 0
    assert "Winograd" not in plan.explain()


def test_a_limit_lets_smaller_tiles_through():
    graph = convolution()
    nbytes = [4 * window * 32 * 64 for window in (16, 36, 64)]
    tiles = ["F(2x2)", "F(4x4)", "F(6x6)"]
    for count, limit in enumerate((nbytes[0] - 1, *nbytes)):
        plan = planned(graph, limit=limit)
        assert {name.split()[1].rstrip(",") for name in algorithms(plan)} == set(tiles[:count])
        assert plan.winograd_weights.nbytes <= limit
    refused = [r for r in planned(graph, limit=0).refusals if r.rule == "weight_memory_limit"]
    assert len(refused) == 6
    text = "winograd F(4x4), blocked: transformed weights of 288.0 KiB"
    assert Refusal("weight_memory_limit", "conv", text) in refused


def test_plans_from_elsewhere_are_held_to_a_limit():
    plan = planned(convolution())
    check_weight_limit(plan, None, "plan")
    check_weight_limit(plan, plan.winograd_weights.nbytes, "plan")
    with pytest.raises(PlanError) as caught:
        check_weight_limit(plan, 1024, "plan 'x'")
    assert str(caught.value) == (
        "plan 'x': expected at most 1.0 KiB of transformed weights, found Winograd convolution in "
        "1 node: transformed weights take 288.0 KiB, plain ones 72.0 KiB; plan again with this "
        "weight_memory_limit, or give a higher one"
    )


def candidate(nbytes: int, cost: float) -> Candidate:
    kind = "winograd" if nbytes else "convolution"
    weights = (("weights", MemorySpec((nbytes // 4,), "a")),)
    spec = KernelSpec(kind, weights, transformed_nbytes=nbytes)
    option = KernelOption(kind, (), (), (Call(spec, ()),))
    return Candidate(option, (), cost)


GROUPS = st.lists(
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 20)),
    min_size=1,
    max_size=5,
)


@given(GROUPS, st.integers(0, 400))
def test_whatever_is_picked_of_what_is_granted_keeps_the_limit(groups, limit):
    nodes = {
        str(index): (candidate(0, direct), candidate(16 * size, two), candidate(36 * size, four))
        for index, (direct, two, four, size) in enumerate(groups)
    }
    found = granted(nodes, limit)
    picks = [
        [
            c.option.transformed_nbytes
            for c in group
            if c.option.transformed_nbytes <= found.get(name, 0)
        ]
        for name, group in nodes.items()
    ]
    assert all(sum(pick) <= limit for pick in product(*picks))
    cheaper = {
        name: max(
            (c.option.transformed_nbytes for c in group if c.cost_ns < group[0].cost_ns), default=0
        )
        for name, group in nodes.items()
    }
    if sum(cheaper.values()) <= limit:
        # Every node whose saving is positive gets a Winograd kernel.
        for name, group in nodes.items():
            kept = [c.cost_ns for c in group if c.option.transformed_nbytes <= found.get(name, 0)]
            assert min(kept, default=inf) == min(c.cost_ns for c in group)


@pytest.mark.parametrize(
    ("attrs", "window", "gain"),
    [
        ({"dilations": (2, 2), "pads": (2,) * 4}, (3, 3), 4),
        ({"groups": 2}, (3, 3), 4),
        ({"pads": (2,) * 4}, (5, 5), 25 / 9),
    ],
)
def test_flops_of_other_kinds(attrs, window, gain):
    plan = planned(convolution(side=16, window=window[0], **attrs))
    found = {
        candidate.algorithm: candidate.option.calls[0].spec.flops
        for candidate in (plan.decisions[0].chosen, *plan.decisions[0].rejected)
    }
    tile = "F(2x2)" if window == (5, 5) else "F(4x4)"
    ratio = found["direct, blocked"] / found[f"winograd {tile}, blocked"]
    assert ratio == pytest.approx(gain)


def test_tiles_of_all_phases_are_as_few_as_can_be():
    """65 rows of dilation 4 are phases of 17, 16, 16 and 16 results: 5 + 3 * 4 tiles."""
    plan = planned(convolution(side=65, pads=(4,) * 4, dilations=(4, 4)))
    flops = {
        candidate.option.calls[0].spec.flops
        for candidate in (plan.decisions[0].chosen, *plan.decisions[0].rejected)
        if "F(4x4)" in candidate.algorithm
    }
    assert flops == {2.0 * 17 * 17 * 36 * 32 * 64}


def test_small_groups_are_left_to_direct_convolution():
    """Where transforms take more than products do, by measurement on AVX2."""
    few = planned(convolution(256, 256, 56, groups=32))
    many = planned(convolution(256, 256, 56, groups=4))
    assert few.decisions[0].chosen.algorithm.startswith("direct")
    assert many.decisions[0].chosen.algorithm.startswith("winograd")
