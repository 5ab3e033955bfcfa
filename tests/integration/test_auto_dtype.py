"""dtype="auto": plans within an error budget, and what they say of precision."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests.integration.models import relative_error, run_reference
from tests.networks import networks

import stridewise as sw
from stridewise.compiler import import_model, simplified_graph
from stridewise.dtypes import dtype_of
from stridewise.frontends.registry import open_model
from stridewise.graph import Graph
from stridewise.job import Job
from stridewise.options import Options
from stridewise.planner import derive
from stridewise.planner.problem.error_budget import ErrorBudget
from stridewise.runtime.tuning import accuracy, finalists, gates
from stridewise.runtime.tuning.accuracy import Error, Reference
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.gates import gated
from stridewise.runtime.tuning.plan_race import Outcome
from stridewise.runtime.tuning.tuning import choices

from .commands import Run, fails, own_cache, run

__all__ = ["own_cache", "run"]

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32
MACHINE = sw.plan(sw.zoo.build("squeezenet1_1", size=32), tune="model", threads=1).machine
needs_bfloat16 = pytest.mark.skipif(
    not MACHINE.has_avx512,
    reason="kernels on bfloat16 tensors need AVX-512, so plans have nothing to choose",
)
needs_products = pytest.mark.skipif(
    not MACHINE.has_bfloat16,
    reason="without products of bfloat16, a plan in float32 costs as much",
)
BUDGETS = (1e-5, 1e-3, 3e-3, 1e-2)
KEPT = (
    *(("resnet18", budget) for budget in (1e-3, 1e-2)),
    *(("mobilenet_v2", budget) for budget in (1e-5, 1e-3, 3e-3)),
)
"""Networks and their budgets: each budget, and 1e-3 of either network."""

FOUND: dict[tuple[str, str], dict[str, float]] = {}


def network(seed: int = 0) -> Graph:
    """Return convolutions with a residual addition, a clip, pooling and a product."""
    random, b = np.random.default_rng(seed), sw.GraphBuilder("network")

    def conv(x: str, outputs: int, kernel: int) -> str:
        fan = b.type(x).shape[1] * kernel * kernel
        w = random.standard_normal((outputs, fan)).astype(F32) * F32(fan**-0.5)
        w = b.constant(w.reshape(outputs, -1, kernel, kernel), "w")
        bias = b.constant(random.standard_normal(outputs).astype(F32), "b")
        return b.op("conv", [x, w, bias], {"pads": (kernel // 2,) * 4})

    x = b.input("x", (1, 3, 24, 24))
    y = b.op("relu", [conv(x, 32, 3)])
    z = b.op("clip", [conv(y, 32, 3)], {"alpha": 0.0, "beta": 6.0})
    z = b.op("relu", [b.op("add", [conv(z, 32, 1), y])])
    z = b.op("max_pool", [z], {"kernel": (2, 2), "strides": (2, 2)})
    z = b.op("avg_pool", [conv(z, 64, 3)], {"kernel": (12, 12)})
    z = b.op("reshape", [z], {"shape": (1, 64)})
    w = b.constant(random.standard_normal((64, 10)).astype(F32), "w")
    return b.build([b.op("matmul", [z, w], output="y")])


def simplified(graph: Graph) -> Graph:
    return simplified_graph(graph, Options()).graph


def sample(seed: int) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).standard_normal((1, 3, 24, 24)).astype(F32)}


def auto(graph: Graph, max_error: float, **options: Any) -> sw.CompiledModel:
    options = {"tune": "model", **options}
    return cast(
        "sw.CompiledModel",
        sw.compile(graph, dtype="auto", max_error=max_error, threads=1, **options),
    )


@pytest.fixture
def found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find ranges and sensitivities of a network once for all budgets, as the cost cache does."""

    def kept(
        self: Reference, what: str, find: Callable[[], Mapping[str, float]]
    ) -> dict[str, float]:
        key = what, self.key
        if key not in FOUND:
            FOUND[key] = dict(find())
        return dict(FOUND[key])

    monkeypatch.setattr(Reference, "_kept", kept)


@cache
def drawn(name: str) -> tuple[Graph, sw.CompiledModel]:
    """A network in small, and what it computes without any rounding."""
    graph = sw.zoo.build(name, size=32)
    return graph, sw.compile(graph, accuracy="exact", tune="model", threads=1)


# --- sensitivities --------------------------------------------------------------------------------


def test_gates_round_what_they_are_named_after():
    graph = simplified(network())
    opened = gated(graph)
    gates = opened.inputs[1:]
    convs = [node for node in graph.nodes if node.op == "conv"]
    assert sum(gate.startswith("round weights") for gate in gates) == len(convs) + 1
    shut = {name: np.zeros(1, F32) for name in gates}
    (right,) = run_reference(graph, sample(1)).values()
    (found,) = run_reference(opened, {**sample(1), **shut}).values()
    assert relative_error(found, right) < 1e-6
    rounded = sample(1)["x"].astype(dtype_of("bfloat16").numpy).astype(F32)
    (right,) = run_reference(graph, {"x": rounded}).values()
    (found,) = run_reference(opened, {**sample(1), **shut, "round x": np.ones(1, F32)}).values()
    assert relative_error(found, right) < 1e-6


def test_sensitivities_are_those_of_the_reference():
    derived = derive(simplified(network()))
    graph, machine = derived.graph, Options(threads=1).machine
    budget = Reference(derived, machine, [sample(1)]).budget(1e-2)
    right = run_reference(graph, sample(1))["y"]
    rounded = sample(1)["x"].astype(dtype_of("bfloat16").numpy).astype(F32)
    expected = relative_error(run_reference(graph, {"x": rounded})["y"], right)
    assert budget.tensors["x"] == pytest.approx(expected, rel=0.01)
    assert set(budget.weights) == {n.name for n in graph.nodes if n.op in ("conv", "matmul")}
    assert all(0 < error < 0.02 for error in (*budget.tensors.values(), *budget.weights.values()))


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=networks())
def test_sensitivities_do_not_depend_on_where_runs_begin(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
):
    derived, machine = derive(simplified(graph)), Options(threads=1).machine
    budgets: list[ErrorBudget] = []
    for nodes in (1, 1000):
        monkeypatch.setattr(gates, "_LEAST_NODES", nodes)
        budgets.append(Reference(derived, machine).budget(1e-2))
    early, whole = budgets
    assert early.tensors == pytest.approx(whole.tensors, rel=1e-2, abs=1e-6)
    assert early.weights == pytest.approx(whole.weights, rel=1e-2, abs=1e-6)


# --- plans ----------------------------------------------------------------------------------------


def test_a_budget_whose_square_is_no_number_is_kept() -> None:
    b = sw.GraphBuilder("small")
    graph = b.build([b.relu(b.conv2d(b.input("x", (1, 3, 8, 8)), 4, 3))])
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(F32)
    model = sw.compile(graph, dtype="auto", max_error=1e-300, tune="model", threads=1)
    np.testing.assert_allclose(model(x), sw.compile(graph, tune="model", threads=1)(x), rtol=1e-4)


@pytest.mark.usefixtures("found_once")
@pytest.mark.parametrize(("name", "max_error"), KEPT)
def test_the_error_on_other_data_keeps_the_budget(name: str, max_error: float) -> None:
    graph, exact = drawn(name)
    model = auto(graph, max_error)
    errors, norms = 0.0, 0.0
    for seed in range(100, 104):
        x = np.random.default_rng(seed).standard_normal((1, 3, 32, 32)).astype(F32)
        errors += float(np.square(np.asarray(model(x)) - np.asarray(exact(x))).sum())
        norms += float(np.square(np.asarray(exact(x))).sum())
    assert (errors / norms) ** 0.5 <= max_error
    assert model.plan.predicted_error <= max_error
    assert "measured on 2 samples" in model.plan.notes[-1]


@needs_products
def test_a_greater_budget_is_never_slower_and_never_beaten_by_one_precision() -> None:
    graph = network()
    costs = [auto(graph, budget).plan.cost_ns for budget in BUDGETS]
    assert costs == sorted(costs, reverse=True)
    whole, half = (
        sw.plan(graph, dtype=dtype, tune="model", threads=1).cost_ns
        for dtype in ("float32", "bfloat16")
    )
    free = auto(graph, 0.5).plan.cost_ns
    assert free == pytest.approx(half)
    assert all(half * 0.999 <= cost <= whole * 1.001 for cost in costs)
    assert half < whole


@needs_bfloat16
def test_the_predicted_error_is_near_the_measured_one() -> None:
    graph = network()
    model = auto(graph, 1e-2)
    assert model.plan.error_contributions
    exact = sw.compile(graph, accuracy="exact", tune="model", threads=1)
    found, right = (
        np.stack([np.asarray(m(sample(s)["x"])) for s in (7, 8)]) for m in (model, exact)
    )
    error = relative_error(found, right)
    assert 0.3 * error <= model.plan.predicted_error <= 3 * error


@needs_bfloat16
def test_a_plan_that_breaks_the_budget_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Reference.budget

    def optimistic(self: Reference, limit: float) -> Any:
        found = honest(self, limit)
        for table in (found.tensors, found.weights):
            for name in table:
                table[name] *= 0.1  # pyright: ignore[reportIndexIssue]
        return found

    monkeypatch.setattr(Reference, "budget", optimistic)
    model = auto(network(), 1e-3)
    expected = float(model.plan.notes[-1].split(" measured on ")[1].split()[2])
    assert expected <= 1e-3
    assert model.plan.predicted_error < 1e-4


def test_an_impossible_budget_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:

    def error(_self: Reference, _plan: sw.Plan) -> Error:
        return Error(1e-9, 1e-9)

    monkeypatch.setattr(Reference, "error", error)
    with pytest.raises(sw.PlanError, match="max_error: expected a plan with a relative error"):
        auto(network(), 1e-12)


@pytest.mark.parametrize("max_error", [0.0, -1.0, float("nan"), float("inf")])
def test_budgets_that_are_no_errors(max_error: float) -> None:
    with pytest.raises(sw.InputError, match="max_error: expected a relative error above 0"):
        auto(network(), max_error)


def test_calibration_that_does_not_fit() -> None:
    for samples, message in (
        ([], "calibration: expected at least one sample"),
        ([{"y": sample(0)["x"]}], "calibration, sample 0: expected inputs x, found y"),
        ([{"x": sample(0)["x"][0]}], "input 'x': expected shape"),
        ([(sample(0)["x"],) * 2], r"calibration, sample 0: expected 1 arrays \(x\), found 2"),
        ([sample(0)["x"], sample(1)["x"] * np.nan], "sample 1, input 'x': expected finite"),
    ):
        with pytest.raises(sw.InputError, match=message):
            auto(network(), 1e-2, calibration=samples)


def test_calibration_without_names() -> None:
    named = [sample(seed) for seed in range(8)]
    plans = [
        auto(network(), 1e-2, calibration=samples).plan
        for samples in (named, [x["x"] for x in named], [(x["x"],) for x in named])
    ]
    assert plans[0].to_json() == plans[1].to_json() == plans[2].to_json()


# --- what plans say -------------------------------------------------------------------------------


@needs_bfloat16
def test_questions_speak_of_precision() -> None:
    plan = auto(network(), 3e-3).plan
    why = plan.why("conv.1")
    assert why.error is not None
    assert all(other.error is not None for other in why.alternatives)
    assert ", error " in str(why)
    assert "predicted relative error" in plan.explain()
    assert "error of the outputs" in plan.to_html()
    free = sw.plan(network(), dtype="bfloat16", tune="model", threads=1)
    assert "error" not in str(free.why("conv.1"))
    assert free.predicted_error == 0
    half = free.what_if({"conv.1": "bfloat16"})
    assert half.made(half.graph.nodes[half.terms.positions["conv.1"]].outputs[0]).dtype is not None
    whole = free.what_if({"conv.1": "float32"})
    assert whole.made(whole.graph.nodes[whole.terms.positions["conv.1"]].outputs[0]).dtype is None
    assert min(half.cost_ns, whole.cost_ns) == pytest.approx(free.cost_ns)


def test_sensitivities_are_measured_once(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job.of(
        open_model(network()),
        Options(dtype="auto", cache_dir=tmp_path, threads=1),
    )
    derived = derive(simplified_graph(import_model(job.source, job.options), job.options).graph)
    first = Reference(derived, job.options.machine, None, job.costs).budget(1e-2)
    monkeypatch.setattr(accuracy, "_compiled", None)
    second = Reference(derived, job.options.machine, None, job.costs).budget(1e-2)
    assert first == second


def test_sensitivities_take_no_time_from_measuring(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Reference.measure

    def slow(self: Reference) -> None:
        honest(self)
        time.sleep(1.5)  # more than all kernels may take

    monkeypatch.setattr(Reference, "measure", slow)
    plan = auto(network(), 1e-2, tune="auto", cache_dir=tmp_path).plan
    sources = {cost.source for decision in plan.decisions for cost in decision.chosen.costs}
    assert sources & {"measured", "cached"}


def test_the_fastest_finalist_is_kept(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"tune": "auto", "cache_dir": tmp_path}
    first = auto(network(), 1e-2, **options).plan
    times = {c.name: c.measured_ns for c in first.comparisons if c.name.startswith("dtype ")}
    assert {"dtype auto", "dtype float32"} == times.keys() or not times
    monkeypatch.setattr(finalists, "run_in_turn", None)
    monkeypatch.setattr(accuracy, "load", None)
    second = sw.plan(
        network(), dtype="auto", max_error=1e-2, threads=1, tune="auto", cache_dir=tmp_path
    )
    assert choices(second) == choices(first)
    assert second.notes == first.notes


def plans_of_two_types() -> dict[str, sw.Plan]:
    whole, half = (
        sw.plan(network(), dtype=dtype, tune="model", threads=1)
        for dtype in ("float32", "bfloat16")
    )
    return {"auto": dataclasses.replace(half, cost_ns=whole.cost_ns), "float32": whole}


@needs_products
@pytest.mark.parametrize("label", ["auto", "float32"])
@pytest.mark.parametrize("costs_less", [1.0, 4.0])
@pytest.mark.parametrize("is_disturbed", [False, True])
def test_measured_times_decide_between_plans_whatever_they_should_cost(
    label: str,
    costs_less: float,
    *,
    is_disturbed: bool,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans, costs = plans_of_two_types(), CostCache(Options(threads=1).machine, tmp_path)
    joint = plans["auto"]
    plans["auto"] = dataclasses.replace(joint, cost_ns=joint.cost_ns / costs_less)
    cheapest = finalists.fastest(plans, costs, may_run=False)
    assert cheapest in plans.values()

    races: list[float] = []

    def run_in_turn(
        models: dict[str, Any], until: float, _ran: Any, *, rounds: tuple[int, int]
    ) -> Outcome:
        races.append(until)
        assert 1 < rounds[0] <= rounds[1]
        times = {name: 1.0 if name == label else 2.0 for name in models}
        return Outcome(times, {}, is_disturbed=is_disturbed)

    monkeypatch.setattr(finalists, "run_in_turn", run_in_turn)
    for may_run in (True, False):  # the second time by what the cache keeps
        found = finalists.fastest(plans, costs, may_run=may_run)
        assert choices(found) == choices(plans[label])
        assert {c.name: c.measured_ns for c in found.comparisons}[f"dtype {label}"] == 1.0
    assert (costs.is_provisional, len(races) > 1) == (is_disturbed, is_disturbed)


@needs_bfloat16
def test_without_a_cost_cache_costs_decide() -> None:
    plans = plans_of_two_types()
    plans["auto"] = dataclasses.replace(plans["auto"], cost_ns=plans["auto"].cost_ns / 4)
    assert finalists.fastest(plans, None, may_run=True) is plans["auto"]


def test_the_command_line(run: Run, tmp_path: Any) -> None:
    path = tmp_path / "network.onnx"
    sw.save(network(), path)
    options = ("--tune", "model", "--threads", 1, "--dtype", "auto")
    shown = run("plan", path, *options, "--max-error", 0.003).out
    assert "at most 0.003 allowed" in shown
    run("run", path, *options, "--random")
    done = run("plan", path, *options, "--max-error", 0)
    fails(done, "max_error: expected a relative error above 0, found 0.0")
