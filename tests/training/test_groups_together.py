"""Narrow groups that the library computes together: forward and both gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.bfloat16_plans import check
from tests.runtime.graphs import ForcingOracle, error, inputs_of
from tests.simplified import simplify
from tests.training.test_gradient_kernels import anchored

import stridewise as sw
from stridewise.graph import Graph
from stridewise.planner import derive
from stridewise.planning import Plan, make_plan
from stridewise.program import KernelStep
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.kernels import KernelSpec
from stridewise.targets.onednn.groups import together
from stridewise.targets.onednn.target import onednn_cpu
from stridewise.targets.target import Precision

MACHINE = this_machine(2)
LANES = 16 if MACHINE.has_avx512 else 8
KINDS = {"fitted_convolution", "fitted_deconvolution", "conv_weight_gradient"}


class TogetherOracle(ForcingOracle):
    """Kernels that compute groups together are cheap, those of one group at a time are dear."""

    def __init__(self, source: str) -> None:
        super().__init__("blocked")
        self.source = source

    def _cost(self, spec: KernelSpec) -> Any:
        found = super()._cost(spec)
        if spec.kind not in KINDS or not isinstance(found, tuple):
            return found
        source = spec.memory("src")
        is_wanted = together(spec) > 1 and source is not None and source.dtype == self.source
        return found if is_wanted else (replace(found[0], cost_ns=1e6 + found[0].cost_ns),)


def plan_of(graph: Graph, dtype: Precision) -> Plan:
    source = "bf16" if dtype == "bfloat16" else "f32"
    target = onednn_cpu(MACHINE, "exact", dtype)
    derived = derive(simplify(graph, check=True).graph)
    return make_plan(derived, target, MACHINE, TogetherOracle(source))


@st.composite
def layers(draw: st.DrawFn) -> Graph:
    """Return the gradients of a convolution with groups that fill no vectors by themselves."""
    count = draw(st.sampled_from([2, 4]))
    narrow = LANES // count
    inputs, outputs = (narrow * draw(st.sampled_from([1, 3])) for _ in range(2))
    groups = count * draw(st.integers(1, 3))
    numbers = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(2))  # noqa: E731
    window, strides, dilations = numbers(1, 4), numbers(1, 2), numbers(1, 2)
    pads = tuple(draw(st.integers(0, 2)) for _ in range(4))
    reach = [d * (taps - 1) + 1 for taps, d in zip(window, dilations, strict=True)]
    size = tuple(n + extra for n, extra in zip(reach, numbers(0, 6), strict=True))
    b = sw.GraphBuilder("conv")
    x = anchored(b, "x", (draw(st.integers(1, 3)), groups * inputs, *size))
    w = b.input("w", (groups * outputs, inputs, *window))
    attrs = {"dilations": dilations, "groups": groups, "pads": pads, "strides": strides}
    y = b.op("conv", [x, w], attrs, output="y")
    dy = anchored(b, "dy", b.type(y).shape)
    axes = tuple(range(4))
    loss = b.op("reduce_sum", [b.mul(y, dy)], {"axes": axes, "keepdims": 0}, output="loss")
    return sw.grad(b.build([loss]), loss, [x, w])


@settings(max_examples=40, deadline=None)
@given(layers())
def test_any_window(graph: Graph):
    feeds = inputs_of(graph)
    model = load(lower_plan(plan_of(graph, "float32")))
    steps = [s for s in model.program.steps if isinstance(s, KernelStep) and s.spec.kind in KINDS]
    assert {s.spec.kind for s in steps if together(s.spec) > 1} == KINDS
    found = model.trace(feeds, lambda _written, _stored: None)  # the arena is NaN before
    for name, wanted in list(run_reference(graph, feeds).items())[1:]:
        assert error(found[name], wanted) <= 1e-5, name


@pytest.mark.skipif(not MACHINE.has_avx512, reason="the library has bfloat16 with AVX-512 only")
@settings(max_examples=15, deadline=None)
@given(layers())
def test_bfloat16(graph: Graph):
    check(graph, load(lower_plan(plan_of(graph, "bfloat16"))))


def test_two_trainings_have_the_same_bits():
    b = sw.GraphBuilder("conv", training=True)
    shape = (4, 128, 20, 20)
    y = b.relu(b.conv2d(b.input("x", shape), 128, 3, padding=1, groups=512 // LANES))
    graph = b.build([b.dense(b.flatten(b.global_avg_pool(y)), 3)])
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    first, second = (
        sw.Trainer(graph, optimizer=sw.SGD(lr=0.1), tune="model", threads=2) for _ in range(2)
    )
    specs = [s.spec for s in first.model.program.steps if isinstance(s, KernelStep)]
    assert any(together(spec) > 1 for spec in specs)
    for _ in range(3):
        assert first.step(x, np.arange(4) % 3) == second.step(x, np.arange(4) % 3)
