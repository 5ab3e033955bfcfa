"""Expectations of plans: what holds is silent, what does not is named."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stridewise as sw
from stridewise.errors import InputError, PlanAssertionError, PlanError
from stridewise.planning import Plan
from stridewise.targets.cost import KernelCost

from .plans import F32, Oracle, cheap, net, planned, random_costs, residual
from .test_explain import moving


def blocked(oracle: Any = None) -> Plan:
    b, x = net()
    w = b.constant(np.ones((32, 32, 1, 1), F32), "w")
    graph = b.build([b.op("conv", [x, w], name="c", output="y")])
    return planned(graph, oracle or cheap("blocked"))


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_what_is_so_is_accepted_and_a_bit_less_is_not(seed: int):
    plan = planned(moving(), random_costs(seed))
    moved = sum(move.nbytes for move in plan.moves)
    formats = {
        name: plan.storage(name).storage.format
        for node in plan.graph.nodes
        for name in node.outputs
    }
    sw.assert_plan(
        plan,
        max_reorders=len(plan.reorders),
        max_moved_nbytes=moved,
        no_fallback=True,
        formats=formats,
        max_cost_ns=plan.cost_ns,
    )
    less: list[dict[str, Any]] = [
        {"max_moved_nbytes": moved - 1},
        {"max_cost_ns": plan.cost_ns * 0.999},
    ]
    if plan.reorders:
        less.append({"max_reorders": len(plan.reorders) - 1})
    for expected in less:
        with pytest.raises(PlanAssertionError):
            sw.assert_plan(plan, **expected)


def test_everything_that_does_not_hold_is_named_at_once():
    plan = dataclasses.replace(blocked(), lower_bound_ns=1.5)
    with pytest.raises(PlanAssertionError) as caught:
        sw.assert_plan(
            plan,
            max_reorders=1,
            max_moved_nbytes=5000,
            formats={"c": "nhwc", "y": "blocked", "x": "plain", "z": "plain"},
            max_gap=0.25,
            max_cost_ns=2.0,
        )
    assert (
        str(caught.value).splitlines()
        == [
            "plan of 'g': 6 unmet expectations",
            "  reorders: expected at most 1, found 2: x (NCHW -> nChw16c), y (nChw16c -> NCHW)",
            "  bytes moved: expected at most 5000, found 9216: reorder x (4608), reorder y (4608)",
            "  tensor 'y': expected NHWC, found nChw16c",
            "  plan of 'g': expected the name of a tensor or node, found 'z'; known: x, y, c",
            "  gap: expected at most 25.00%, found 50.00%",
            "  cost: expected at most 2.0 ns, found 3.0 ns",
        ]
        or str(caught.value).count("\n") == 6
    )
    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value, PlanError)


def test_a_gap_is_not_accepted_silently():
    plan = dataclasses.replace(blocked(), lower_bound_ns=1.5)
    with pytest.raises(PlanAssertionError) as caught:
        sw.assert_plan(plan)
    assert str(caught.value) == (
        "plan of 'g': 1 unmet expectation\n  gap: expected at most 0.00%, found 50.00%"
    )
    sw.assert_plan(plan, max_gap=0.5)
    sw.assert_plan(plan, max_gap=None)


def test_naive_loops_are_a_fallback():
    def price(spec: Any) -> Any:
        return (KernelCost(1.0, "ref:any" if spec.kind != "concat" else "jit", "model"),)

    plan = blocked(Oracle(price))
    sw.assert_plan(plan)
    sw.assert_plan(plan, no_fallback=False)
    with pytest.raises(PlanAssertionError) as caught:
        sw.assert_plan(plan, no_fallback=True)
    assert "node 'c': expected an optimized kernel, found ref:any" in str(caught.value)


@pytest.mark.parametrize("wrong", ["model.onnx", None, 3])
def test_only_plans_and_models_have_plans(wrong: Any):
    with pytest.raises(InputError, match="assert_plan: expected a plan or a compiled model, found"):
        sw.assert_plan(wrong)


def test_a_plan_without_expectations_holds():
    sw.assert_plan(planned(residual(), random_costs(1)))
