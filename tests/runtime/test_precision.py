"""bfloat16: whatever a plan stores in it, results are those of float32 but for its rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests.networks import networks
from tests.simplified import simplify

import stridewise as sw
from stridewise import zoo
from stridewise.dtypes import dtype_of
from stridewise.graph import Graph
from stridewise.planner import derive
from stridewise.planning import Plan, make_plan
from stridewise.program import Written
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.machine.machine import this_machine
from stridewise.targets.kernels import HOST, KernelSpec
from stridewise.targets.onednn.precision import PRIMITIVES
from stridewise.targets.onednn.target import onednn_cpu

from .graphs import CASES, KINDS, ForcingOracle, inputs_of
from .test_execute import padding

BF16 = dtype_of("bfloat16")
F32 = np.float32
BOUNDS = {"resnet18": 2e-2, "mobilenet_v2": 2e-2, "densenet121": 2e-2, "shufflenet_v2": 2e-2,
          "squeezenet1_1": 2e-2, "convnext_tiny": 2e-2, "efficientnet_b0": 2e-2, "unet": 2e-2}  # fmt: skip
"""Largest norm of the difference to float32, over the norm of the float32 result, of networks."""


class HalfOracle(ForcingOracle):
    """Kernels on bfloat16 tensors of one storage kind are cheap, all others are dear."""

    def _cost(self, spec: KernelSpec) -> Any:
        found = super()._cost(spec)
        if spec.kind in (HOST, "reorder") or not isinstance(found, tuple):
            return found
        source = spec.memory("src") or spec.memory("src0")
        half = source is not None and source.dtype == "bf16"
        (cost,) = found
        return found if half else (type(cost)(cost.cost_ns + 1e6, "", "model"),)


def half_plan(graph: Graph, kind: str, *, simplified: bool = True) -> Plan:
    """Plan a graph so that as much as possible is stored in bfloat16, in one kind of format."""
    machine = this_machine(2)
    graph = simplify(graph, check=True).graph if simplified else graph
    target = onednn_cpu(machine, dtype="bfloat16")
    return make_plan(derive(graph), target, machine, HalfOracle(kind))


def check(graph: Graph, model: CompiledModel) -> None:
    """Check every stored tensor beside what its node makes of its operands, and all padding."""
    feeds = inputs_of(graph)
    found = sw.verify(model, inputs=feeds)
    wrong = [row for row in found.rows if row.verdict == "differs"]
    assert not wrong, "\n".join(map(str, wrong))

    def spare_lanes(written: Written, stored: np.ndarray[Any, Any]) -> None:
        assert not np.isnan(stored.astype(F32)).any(), f"{written.value} is not written everywhere"
        where = f"{written.value} in {written.desc.storage.format}"
        assert (stored[padding(written)] == 0).all(), f"spare lanes of {where}"

    plain = model.run(feeds)
    traced = model.trace(feeds, spare_lanes)
    for name, wanted in plain.items():
        assert wanted.dtype == graph.values[name].dtype.numpy
        np.testing.assert_array_equal(traced[name], wanted)


@pytest.mark.parametrize("kind", KINDS)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors])
@given(graph=networks())
def test_random_networks_are_right_in_bfloat16(graph: Graph, kind: str) -> None:
    check(graph, CompiledModel(half_plan(graph, kind)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_every_operator_is_right_in_bfloat16(case: str, kind: str) -> None:
    graph = CASES[case]()
    check(graph, CompiledModel(half_plan(graph, kind)))


def test_the_cases_run_every_primitive_of_the_library_in_bfloat16() -> None:
    ran: set[str] = set()
    for make in CASES.values():
        for kind in KINDS:
            for decision in half_plan(make(), kind).decisions:
                for call in decision.chosen.option.calls:
                    if all(m.dtype == "bf16" for r, m in call.spec.memories if r in ("src", "dst")):
                        ran.add(call.spec.kind)
    assert ran >= PRIMITIVES, sorted(PRIMITIVES - ran)


@pytest.mark.parametrize("name", BOUNDS)
def test_networks_stay_near_float32(name: str) -> None:
    graph = zoo.build(name, size=64)
    feeds = inputs_of(graph)
    expected = sw.compile(graph, tune="model", threads=2).run(feeds)
    for plan in (
        sw.plan(graph, tune="model", threads=2, dtype="bfloat16"),
        half_plan(graph, KINDS[1]),
    ):
        halves = sum(
            plan.storage(v).dtype == BF16 for node in plan.graph.nodes for v in node.outputs
        )
        assert halves > len(plan.graph.nodes) // 10
        for output, found in CompiledModel(plan).run(feeds).items():
            wanted = expected[output].astype(np.float64)
            assert found.dtype == F32
            assert np.linalg.norm(found - wanted) <= BOUNDS[name] * np.linalg.norm(wanted)


def test_weights_take_half_the_memory() -> None:
    graph = zoo.build("resnet18", size=64)
    whole, half = (
        CompiledModel(
            make_plan(
                derive(simplify(graph).graph),
                onednn_cpu(this_machine(2), "exact", dtype),
                this_machine(2),
                HalfOracle("channels-last"),
            )
        )
        for dtype in ("float32", "bfloat16")
    )
    assert half.weights.own_nbytes < 0.55 * whole.weights.own_nbytes
