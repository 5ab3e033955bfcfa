"""The cheapest plan gives way to a uniform one that runs faster, and only then."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from stridewise.graph import Graph
from stridewise.planner import Plan, derive, make_plans
from stridewise.planner.targets import onednn_cpu
from stridewise.runtime import contest
from stridewise.runtime.cache import CostCache
from stridewise.runtime.executor import CompiledModel
from stridewise.runtime.machine import this_machine
from stridewise.runtime.reference import run_reference

from .graphs import THREADS, ForcingOracle, Net, error

MACHINE = this_machine(THREADS)


def graph() -> Graph:
    b = Net(1, 32, 9, 9)
    pooled = b.op("max_pool", [b.conv(b.x, 32)], {"kernel": (2, 2)})
    return b.build([b.op("relu", [b.conv(pooled, 32)])])


def plans() -> tuple[Plan, ...]:
    """Return plans of which the blocked one is the cheapest and the others are not far."""
    target = onednn_cpu(MACHINE)
    return make_plans(derive(graph()), target, MACHINE, ForcingOracle("blocked", far=1.05))


class Clock:
    """Stands in for running: says how long each plan takes, and counts how often it is asked."""

    def __init__(self, **times: float) -> None:
        self.times = {name.replace("_", " "): time for name, time in times.items()}
        self.asked = 0

    def __call__(self, models: Mapping[str, CompiledModel]) -> dict[str, float]:
        self.asked += 1
        return {name: self.times.get(name, 1e9) for name in models}


@pytest.mark.parametrize(
    ("uniform_ns", "winner"), [(50.0, "all plain"), (97.0, "all plain"), (99.0, "planned")]
)
def test_a_uniform_plan_wins_only_by_a_clear_margin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uniform_ns: float, winner: str
) -> None:
    monkeypatch.setattr(contest, "_run", Clock(planned=100.0, all_plain=uniform_ns))
    model = contest.fastest(plans(), CostCache(MACHINE, tmp_path))
    assert model.plan.name == winner
    measured = {item.name: item.measured_ns for item in model.plan.compare()}
    assert measured["planned"] == 100.0
    assert measured["all plain"] == uniform_ns
    assert ", used" in model.plan.explain()
    x = np.random.default_rng(0).standard_normal((1, 32, 9, 9), np.float32)
    expected = run_reference(graph(), {graph().inputs[0]: x})[graph().outputs[0]]
    assert error(model(x), expected) < 1e-5


def test_the_outcome_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(planned=100.0, all_plain=50.0)
    monkeypatch.setattr(contest, "_run", clock)
    found = [contest.fastest(plans(), CostCache(MACHINE, tmp_path)).plan for _ in range(2)]
    assert clock.asked == 1
    assert found[0].name == found[1].name == "all plain"
    assert found[0].compare() == found[1].compare()


def test_plans_that_promise_much_less_do_not_run(tmp_path: Path) -> None:
    target = onednn_cpu(MACHINE)
    every = make_plans(derive(graph()), target, MACHINE, ForcingOracle("blocked", far=100.0))
    model = contest.fastest(every, CostCache(MACHINE, tmp_path))
    measured = {item.name: item.measured_ns for item in model.plan.compare()}
    assert measured["all plain"] is None


def test_running_times_every_contestant() -> None:
    models = {plan.name: CompiledModel(plan) for plan in plans()[:2]}
    times = contest._run(models)
    assert set(times) == set(models)
    assert all(time > 0 for time in times.values())
