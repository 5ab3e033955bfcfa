"""Tuning: plans are run, costs corrected by times in place, and plans chosen by measured time."""

from __future__ import annotations

import dataclasses
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.graph import Graph, Refusal
from stridewise.planner import derive
from stridewise.planning import Plan, make_plans
from stridewise.program import KernelStep
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.simulation.reference import run_reference
from stridewise.runtime.tuning import plan_race, tuning
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.kernel_times import KernelTimes
from stridewise.runtime.tuning.oracle import MeasuringOracle
from stridewise.runtime.tuning.plan_race import Runs, run_in_turn
from stridewise.targets.cost import KernelOracle
from stridewise.targets.kernels import KernelSpec
from stridewise.targets.onednn.target import onednn_cpu

from .clock import Clock
from .graphs import THREADS, ForcingOracle, Net, error

MACHINE = this_machine(THREADS)
X = np.random.default_rng(0).standard_normal((1, 32, 9, 9), np.float32)


def graph() -> Graph:
    b = Net(1, 32, 9, 9)
    # With strides there is one kernel for each format.
    pooled = b.op("max_pool", [b.conv(b.x, 32, strides=(2, 2))], {"kernel": (2, 2)})
    return b.build([b.op("relu", [b.conv(pooled, 32, strides=(2, 2))])])


def plans(oracle: KernelOracle) -> tuple[Plan, ...]:
    return make_plans(derive(graph()), onednn_cpu(MACHINE), MACHINE, oracle)


def near(factor: float = 1.05) -> KernelOracle:
    """Return costs by which the blocked plan is the cheapest, and others are not far."""
    return ForcingOracle("blocked", far=factor)


def measuring(folder: Path) -> MeasuringOracle:
    return MeasuringOracle(KernelTimes(MACHINE, onednn_cpu(MACHINE), CostCache(MACHINE, folder)))


def storage(spec: KernelSpec) -> str:
    memory = spec.memory("dst")
    tag = memory.tag if memory is not None else ""
    return "blocked" if any(letter.isdigit() for letter in tag) else "other"


def nothing(_spec: KernelSpec) -> None:
    return None


def tuned(
    folder: Path, patch: pytest.MonkeyPatch, clock: Clock, oracle: KernelOracle
) -> CompiledModel:
    patch.setattr(tuning, "run_in_turn", clock)
    model = load(lower_plan(tuning.tuned(plans, oracle, CostCache(MACHINE, folder))))
    (name,) = graph().outputs
    expected = run_reference(graph(), {graph().inputs[0]: X})[name]
    assert error(model(X), expected) < 1e-5
    return model


@pytest.mark.parametrize(
    ("uniform_ns", "winner"), [(50.0, "all plain"), (101.0, "all plain"), (103.0, "planned")]
)
def test_of_plans_that_are_equally_fast_the_one_with_fewer_reorders_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uniform_ns: float, winner: str
) -> None:
    clock = Clock({"planned alone": 100.0, "all plain": uniform_ns}, nothing)
    model = tuned(tmp_path, monkeypatch, clock, near())
    assert model.plan.name == winner
    measured = {item.name: item.measured_ns for item in model.plan.compare()}
    assert measured["planned"] == 100.0
    assert measured["all plain"] == uniform_ns
    assert ", used" in model.plan.explain()


def test_the_outcome_is_remembered_by_compile_and_by_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock({"planned alone": 100.0, "all plain": 50.0}, nothing)
    first = tuned(tmp_path, monkeypatch, clock, near()).plan
    second = tuned(tmp_path, monkeypatch, clock, near()).plan
    third = tuning.remembered(plans, near(), CostCache(MACHINE, tmp_path))
    assert len(clock.asked) == 1
    assert first.name == second.name == third.name == "all plain"
    assert first.compare() == second.compare() == third.compare()


def test_without_a_record_the_plan_is_that_of_isolated_kernels(tmp_path: Path) -> None:
    plan = tuning.remembered(plans, near(), CostCache(MACHINE, tmp_path))
    assert plan.cost_ns == plans(near())[0].cost_ns
    assert {cost.source for d in plan.decisions for cost in d.chosen.costs} == {"model"}


def test_plans_that_promise_much_less_do_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock({"planned alone": 100.0}, nothing)
    model = tuned(tmp_path, monkeypatch, clock, near(100.0))
    assert clock.asked == [{"planned alone"}]
    measured = {item.name: item.measured_ns for item in model.plan.compare()}
    assert measured["all plain"] is None


def slow_when_blocked(spec: KernelSpec) -> float | None:
    return 1e6 if spec.kind == "convolution" and storage(spec) == "blocked" else 1.0


def test_kernels_that_are_slow_in_place_are_planned_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocked convolutions are cheap alone and slow in place; all plain ran beside them."""
    times = {"planned alone": 200.0, "all plain": 190.0, "planned": 100.0}
    clock = Clock(times, slow_when_blocked)
    before = plans(near())[0]
    assert any(d.chosen.option.outputs[0].is_blocked for d in before.decisions)
    model = tuned(tmp_path, monkeypatch, clock, near())
    assert model.plan.name == "planned"
    for decision in model.plan.decisions:
        assert not decision.chosen.option.outputs[0].is_blocked
    assert {"planned"} in clock.asked
    assert clock.asked[-1] >= {"planned", "planned alone"}
    measured = {item.name: item.measured_ns for item in model.plan.compare()}
    assert measured["planned"] == 100.0
    assert measured["planned alone"] == 200.0
    again = tuned(tmp_path, monkeypatch, Clock({}, nothing), near()).plan
    assert again.cost_ns == model.plan.cost_ns
    assert again.compare() == model.plan.compare()


def test_a_correction_that_made_it_worse_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock({"planned alone": 100.0, "planned": 110.0}, slow_when_blocked)
    model = tuned(tmp_path, monkeypatch, clock, near())
    assert model.plan.name == "planned alone"
    assert "note: measured times selected this plan; its costs are those of isolated" in str(
        model.plan
    )
    assert any(d.chosen.option.outputs[0].is_blocked for d in model.plan.decisions)
    assert tuning.remembered(plans, near(), CostCache(MACHINE, tmp_path)).name == "planned alone"


def test_a_plan_that_stays_costs_what_its_kernels_took_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock({"planned alone": 100.0}, lambda spec: spec.flops / 1e5 + 7.0)
    plan = tuned(tmp_path, monkeypatch, clock, near(100.0)).plan
    costs = [(call.spec, cost) for d in plan.decisions
             for call, cost in zip(d.chosen.option.calls, d.chosen.costs, strict=True)]  # fmt: skip
    assert {cost.source for _, cost in costs} == {"in place"}
    assert all(cost.cost_ns == spec.flops / 1e5 + 7.0 for spec, cost in costs)


def test_running_in_turn_times_every_model_and_every_kernel() -> None:
    models = {plan.name: load(lower_plan(plan)) for plan in plans(near())[:2]}
    outcome = run_in_turn(models)
    assert set(outcome.times) == set(models)
    assert all(time > 0 for time in outcome.times.values())
    kernels = {
        (step.spec, step.implementation)
        for model in models.values()
        for step in model.program.steps
        if isinstance(step, KernelStep)
    }
    assert set(outcome.observed) == kernels
    assert all(time > 0 for time in outcome.observed.values())


class Slow:
    """A model whose runs take seconds of a clock, the first one twice as long."""

    call_signature = SimpleNamespace(graph=None, input_formats={}, threads=1)
    program = SimpleNamespace(steps=(), split=SimpleNamespace(lanes=1, parts=1))

    def __init__(self, seconds: float, clock: list[float]) -> None:
        self.seconds, self.clock, self.runs = seconds, clock, 0

    def run_program(self, _inputs: Any) -> None:
        self.runs += 1
        self.clock[0] += self.seconds * (2 if self.runs == 1 else 1)

    def step_times(self, inputs: Any, _runs: int) -> list[list[int]]:
        self.run_program(inputs)
        return [[]]


def test_first_runs_do_not_count_and_losers_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    seconds = {"fast": 1.0, "near": 1.05, "slow": 1.5}
    models: Any = {name: Slow(each, clock) for name, each in seconds.items()}
    now = SimpleNamespace(monotonic=lambda: 0.0, perf_counter_ns=lambda: round(1e9 * clock[0]))
    monkeypatch.setattr(plan_race, "time", now)
    wanted = {name: 1e9 * each for name, each in seconds.items()}
    first = run_in_turn(models)
    assert first.times == pytest.approx(wanted)
    assert [model.runs for model in models.values()] == [1 + 9, 1 + 9, 1 + 2]
    again = run_in_turn(models, ran=first.runs)
    assert again.times == pytest.approx(wanted)
    assert [model.runs for model in models.values()] == [10 + 9, 10 + 9, 3 + 0]


def test_disturbances_of_single_steps_of_long_runs_do_not_count():
    """Each of two runs is disturbed in another step, and between steps in the first one."""
    long = Runs([1.9e9, 1.7e9], [[1.2e9, 0.6e9], [0.9e9, 0.8e9]])
    assert long.undisturbed == pytest.approx(0.9e9 + 0.6e9)
    short = Runs([1.9e6, 1.7e6], [[1.2e6, 0.6e6], [0.9e6, 0.9e6]])
    assert short.undisturbed == 1.7e6


NS = st.floats(1e8, 1e9)


@given(st.lists(st.tuples(st.lists(NS, min_size=3, max_size=3), NS), min_size=1, max_size=4))
def test_the_undisturbed_time_is_at_most_that_of_the_fastest_run(taken: Any) -> None:
    steps = [each for each, _ in taken]
    whole = [sum(each) + between for each, between in taken]
    found = Runs(whole, steps).undisturbed
    assert 4e8 * (1 - 1e-9) <= found <= min(whole) * (1 + 1e-9)


def test_a_model_that_ran_less_often_catches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    models: Any = {name: Slow(1.0, clock) for name in ("before", "new")}
    now = SimpleNamespace(monotonic=lambda: clock[0], perf_counter_ns=lambda: round(1e9 * clock[0]))
    monkeypatch.setattr(plan_race, "time", now)
    before = Runs([1e9] * 2, [()] * 2)
    outcome = run_in_turn(models, 3.0, {"before": before})
    assert {label: len(runs.whole) for label, runs in outcome.runs.items()} == {
        "before": 2,
        "new": 1,
    }
    assert len(before.whole) == 2  # what the caller gave stays


def test_a_measurement_in_a_slow_moment_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    specs = [d.chosen.option.calls[0].spec for d in plans(near())[0].decisions[:2]]
    oracle = measuring(tmp_path)
    times = {"a": iter([90.0, *[20.0] * 20]), "b": repeat(30.0), "slow": iter([500.0])}
    names = {specs[0]: ["a"], specs[1]: ["b", "slow"]}
    module = "stridewise.runtime.tuning.kernel_times"
    monkeypatch.setattr(f"{module}.create", lambda _spec, name, _threads: name)
    monkeypatch.setattr(f"{module}.implementations", lambda spec, _: names[spec])

    def measurement(name: str, **_: object) -> SimpleNamespace:
        return SimpleNamespace(nbytes=1, run=lambda **_: ([next(times[name])], 0.0))

    core = SimpleNamespace(Measurement=measurement, NativeError=RuntimeError, ARG_WEIGHTS=0)
    monkeypatch.setattr(f"{module}.load_core", lambda: core)
    found = oracle.costs(specs)
    costs = {spec: [(c.implementation, c.cost_ns) for c in found[spec]] for spec in specs}
    assert costs == {specs[0]: [("a", 20.0)], specs[1]: [("b", 30.0), ("slow", 500.0)]}


def test_naive_loops_that_take_seconds_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    spec = plans(near())[0].decisions[0].chosen.option.calls[0].spec
    long = dataclasses.replace(spec, flops=4e12)
    monkeypatch.setattr(
        "stridewise.runtime.tuning.kernel_times.implementations", lambda *_: ["ref:any"]
    )
    quick = measuring(tmp_path / "a").costs([spec])[spec]
    assert not isinstance(quick, Refusal)
    assert 0 < quick[0].cost_ns < 1e9
    monkeypatch.setattr("stridewise.runtime.tuning.kernel_times.create", pytest.fail)
    guess = measuring(tmp_path / "b").costs([long])[long]
    assert not isinstance(guess, Refusal)
    assert guess[0].cost_ns == 4e12
