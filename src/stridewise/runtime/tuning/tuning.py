"""Tuning: plans are run, their costs corrected, and the graph is planned again.

Costs are measured for isolated kernels. In a model the caches hold other data. So the cheapest plan
and the uniform plans close to it are run. The time of each kernel in them replaces its isolated
time, kernels that did not run are scaled like those of the same kind that did, and the graph is
planned again until the plan stays the same. Of all plans that ran, the measured times select one;
so no uniform plan is faster. The cost cache keeps the outcome for each model and machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence, Set

from stridewise.planning import Plan
from stridewise.runtime.binding.weights import WeightStore
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.plan_race import Outcome, Runs, failure, run_in_turn
from stridewise.targets.cost import Corrected, KernelOracle
from stridewise.targets.kernels import KernelSpec

__all__ = ["MakePlans", "choices", "remembered", "tuned"]

MakePlans = Callable[[KernelOracle], Sequence[Plan]]
"""A strategy: plans a graph by the costs of an oracle, first the cheapest plan, then the uniform
ones."""

_NEAR = 1.25
"""Uniform plans that cost more than this many times the cheapest do not run."""
_MARGIN = 0.98
"""Times that differ by less than this factor differ by noise."""
_CORRECTIONS = 3
_OTHER_COSTS = (
    "measured times selected this plan; its costs are those of isolated kernels, and those of the "
    "plans that it is compared with are corrected in place"
)
PLANNED, UNCORRECTED = "planned", "planned alone"


def choices(plan: Plan) -> list[object]:
    """Return the choices of a plan: kernels and formats, without their costs."""
    found: list[object] = [
        (
            decision.node,
            decision.chosen.option,
            [cost.implementation for cost in decision.chosen.costs],
        )
        for decision in plan.decisions
    ]
    return [*found, *((r.tensor, r.source, r.target, r.implementation) for r in plan.reorders)]


def _digest(plans: Sequence[Plan]) -> str:
    """Return the key of a model's record: nodes and types, kernels and formats, not weights."""
    digest = hashlib.sha256()
    graph = plans[0].graph
    for node in graph.nodes:
        types = [str(graph.values[name].type) for name in (*node.inputs, *node.outputs) if name]
        digest.update(repr((node.op, node.inputs, node.outputs, node.attrs, types)).encode())
    for plan in plans:
        for decision in plan.decisions:
            calls = [str(call.spec) for call in decision.chosen.option.calls]
            digest.update(repr((decision.chosen.algorithm, calls)).encode())
        digest.update(repr([(r.tensor, str(r.target)) for r in plan.reorders]).encode())
    # Formats and kernels that were not offered, by constraints of the caller or without a kernel.
    digest.update("\n".join(map(str, plans[0].refusals)).encode())
    return digest.hexdigest()


class _Record:
    """The record of one model in the cost cache: times of plans, and of kernels in place."""

    def __init__(self, cache: CostCache, digest: str) -> None:
        self._cache = cache
        self._times, self._kernels = f"tuned {digest}", f"in place {digest}"

    def read(self, labels: Set[str]) -> tuple[dict[str, float], dict[str, float]] | None:
        known = self._cache.find((self._times, self._kernels))
        times = dict(known.get(self._times, ()))
        # Other versions may have had other plans.
        if PLANNED not in times or not labels >= times.keys() or self._kernels not in known:
            return None
        return times, dict(known[self._kernels])

    def write(
        self, times: Mapping[str, float], kernels: Mapping[str, float], *, is_provisional: bool
    ) -> None:
        self._cache.store(
            {self._times: tuple(times.items()), self._kernels: tuple(kernels.items())},
            is_provisional=is_provisional,
        )


def _labels(plans: Sequence[Plan]) -> set[str]:
    """Return the labels that plans which ran may have."""
    return {PLANNED, UNCORRECTED, *(plan.name for plan in plans)}


def _name(spec: KernelSpec, implementation: str) -> str:
    return f"{implementation} | {spec}"


def _corrected(make: MakePlans, oracle: KernelOracle, kernels: Mapping[str, float]) -> list[Plan]:
    """Return the plans by corrected costs; implementations named as in the record."""

    def observed(spec: KernelSpec, implementation: str) -> float | None:
        return kernels.get(_name(spec, implementation))

    return list(make(Corrected(oracle, observed)))


def _near(plans: Sequence[Plan]) -> list[Plan]:
    """Return the uniform plans to run, each different."""
    cheapest = plans[0]
    found = [cheapest]
    for plan in plans[1:]:
        known = [choices(other) for other in found]
        if plan.cost_ns <= _NEAR * cheapest.cost_ns and choices(plan) not in known:
            found.append(plan)
    return found[1:]


def _winner(times: Mapping[str, float], plans: Mapping[str, Plan]) -> str:
    """Return which plan is used: the one with fewest reorders among those as fast as the fastest.

    If a plan with more reorders is cheaper by its costs and not by measured times, the difference
    is an error of the costs.
    """
    fastest = min(times.values())
    equal = [label for label, taken in times.items() if _MARGIN * taken <= fastest]
    return min(equal, key=lambda label: (len(plans[label].reorders), label != PLANNED))


def _noted(plan: Plan) -> Plan:
    return dataclasses.replace(plan, notes=(*plan.notes, _OTHER_COSTS))


def _by_label(alone: Sequence[Plan], corrected: Sequence[Plan]) -> dict[str, Plan]:
    """Return the plans that may have run, by the labels of their times."""
    again = {plan.name: plan for plan in corrected}
    # If corrected costs lead to the same choices, the plan with corrected costs is shown.
    uniform = {
        plan.name: again[plan.name]
        if plan.name in again and choices(again[plan.name]) == choices(plan)
        else _noted(plan)
        for plan in alone[1:]
    }
    before = dataclasses.replace(_noted(alone[0]), name=UNCORRECTED)
    return {PLANNED: corrected[0], UNCORRECTED: before, **uniform}


def _used(plans: Mapping[str, Plan], times: Mapping[str, float]) -> Plan:
    """Return the plan that won, with all measured times in its comparisons."""
    comparisons = [
        dataclasses.replace(item, measured_ns=times.get(item.name))
        for item in plans[PLANNED].comparisons
    ]
    if UNCORRECTED in times:
        before = plans[UNCORRECTED].comparisons[0]
        comparisons.insert(
            1, dataclasses.replace(before, name=UNCORRECTED, measured_ns=times[UNCORRECTED])
        )
    plan = plans[_winner(times, plans)]
    return dataclasses.replace(plan, comparisons=tuple(comparisons))


def _recorded(
    make: MakePlans, oracle: KernelOracle, alone: Sequence[Plan], record: _Record
) -> Plan | None:
    """Return the plan that an earlier tuning selected; None if there is no record of one."""
    known = record.read(_labels(alone))
    if known is None:
        return None
    times, kernels = known
    return _used(_by_label(alone, _corrected(make, oracle, kernels)), times)


def remembered(
    make: MakePlans, oracle: KernelOracle, cache: CostCache, alone: Sequence[Plan] | None = None
) -> Plan:
    """Return the plan that :func:`tuned` selects, if the cache has its record.

    Otherwise the plan is the cheapest by the costs of isolated kernels. Nothing runs.

    Args:
        make: plans the graph by the costs of an oracle.
        oracle: the times of isolated kernels.
        cache: where outcomes are kept.
        alone: what ``make(oracle)`` returned, if that is known.
    """
    alone = make(oracle) if alone is None else alone
    return _recorded(make, oracle, alone, _Record(cache, _digest(alone))) or alone[0]


class _Tuning:
    """One model being tuned: the plans that run, and the times of their kernels."""

    def __init__(
        self,
        make: MakePlans,
        oracle: KernelOracle,
        alone: Sequence[Plan],
        cheapest: CompiledModel,
        weights: WeightStore,
        until: float | None,
    ) -> None:
        self._make, self._oracle, self._weights, self._until = make, oracle, weights, until
        self.models = {
            UNCORRECTED: cheapest,
            **{plan.name: load(lower_plan(plan), weights) for plan in _near(alone)},
        }
        self.kernels: dict[str, float] = {}
        self.corrected: list[Plan] = []
        self.is_disturbed = False
        self._runs: dict[str, Runs] = {}
        self.times = self._correct(alone[0])

    def _run(self, models: Mapping[str, CompiledModel]) -> Outcome:
        """Run models; earlier runs count as well."""
        outcome = run_in_turn(models, self._until, self._runs)
        self.is_disturbed |= outcome.is_disturbed
        self._runs |= outcome.runs
        return outcome

    def _correct(self, latest: Plan) -> Mapping[str, float]:
        """Run, correct and plan again until the plan stays; return the times of all plans."""
        outcome = self._run(self.models)
        observed = outcome.observed
        for _ in range(_CORRECTIONS):
            self.kernels = {_name(*kernel): cost for kernel, cost in observed.items()}
            self.corrected = _corrected(self._make, self._oracle, self.kernels)
            if choices(self.corrected[0]) == choices(latest):
                break
            latest = self.corrected[0]
            self.models[PLANNED] = load(lower_plan(latest), self._weights)
            self._runs.pop(PLANNED, None)
            observed |= self._run({PLANNED: self.models[PLANNED]}).observed
        if PLANNED in self.models:
            return self._run(self.models).times
        self.models[PLANNED] = self.models.pop(UNCORRECTED)
        times = dict(outcome.times)
        return {PLANNED: times.pop(UNCORRECTED), **times}


def tuned(
    make: MakePlans,
    oracle: KernelOracle,
    cache: CostCache,
    weights: WeightStore | None = None,
    until: float | None = None,
) -> Plan:
    """Return the plan that is fastest when run.

    Args:
        make: plans the graph by the costs of an oracle. It is an argument because tuning plans
            again with corrected costs.
        oracle: the times of isolated kernels.
        cache: stores the outcome.
        weights: packed constants of programs for other shapes, which the plans read if the layouts
            are the same.
        until: time of ``time.monotonic`` after which no more plans run.

    Raises:
        ExecutionError: the library refuses a kernel that a plan counts on.
    """
    alone = make(oracle)
    record = _Record(cache, _digest(alone))
    known = _recorded(make, oracle, alone, record)
    if known is not None:
        return known
    if until is not None and time.monotonic() >= until:
        note = "the time for tuning was over before plans ran; costs are those of isolated kernels"
        return dataclasses.replace(alone[0], notes=(*alone[0].notes, note))
    # Constants that several plans pack alike are packed once.
    rivals = weights.branch() if weights else WeightStore()
    cheapest = load(lower_plan(alone[0]), rivals)
    reason = failure(cheapest)
    if reason:
        note = f"costs are those of isolated kernels: made-up inputs do not run ({reason})"
        return dataclasses.replace(alone[0], notes=(*alone[0].notes, note))
    tuning = _Tuning(make, oracle, alone, cheapest, rivals, until)
    record.write(tuning.times, tuning.kernels, is_provisional=tuning.is_disturbed)
    return _used(_by_label(alone, tuning.corrected), tuning.times)
