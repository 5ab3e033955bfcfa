"""Plans by calibrated costs: predicted ones, of which those that matter most are measured."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from math import inf

from stridewise.errors import ExecutionError
from stridewise.planning import Plan
from stridewise.runtime.binding.primitives import create
from stridewise.runtime.tuning.doubts import doubts, unknown
from stridewise.runtime.tuning.oracle import CalibratedOracle
from stridewise.runtime.tuning.tuning import MakePlans, remembered
from stridewise.targets.cost import Progress, is_reference
from stridewise.targets.kernels import HOST, KernelSpec

__all__ = ["calibrated", "unfit"]

_PREDICTED = ("calibrated", "model")
"""Sources of costs of kernels that were not created."""
_ROUNDS = 3
_CALIBRATED_S, _CALIBRATED_RUNS, _CALIBRATED_MOST_S = 0.08, 2.0, 0.3
"""How long kernels are measured on a calibrated machine, so that the first answer comes soon; or as
long as so many runs take, as a better plan saves more of these and kernels take longer, up to a
limit."""
_TIMES, _TOUCHED_PER_NS = 9.0, 0.5
"""How often a kernel in doubt runs at most, in all its implementations, and how many bytes of its
operands are filled in a nanosecond."""


def calibrated(
    make: MakePlans,
    oracle: CalibratedOracle,
    progress: Progress | None,
    until: float,
) -> Plan:
    """Return the cheapest plan by calibrated costs; an earlier tuning's plan where there is one.

    Kernels are measured, alone, if their predictions may have misled the plan. The costs are kept,
    so that the next call returns the same plan and measures nothing.

    Args:
        make: plans the graph by the costs of an oracle.
        oracle: measured and predicted costs.
        progress: called while kernels are measured.
        until: time of ``time.monotonic`` at which measuring stops.
    """
    plans, is_known = make(oracle), oracle.is_kept
    if not is_known:
        if not oracle.deviations:
            return remembered(make, oracle, oracle.times.cache, plans)
        plans = _measured(make, oracle, plans, progress, until)
    is_unusable = False
    while True:
        while oracle.refuse(unfit(plans[0])):
            plans, is_known = make(oracle), False
        if is_known or oracle.keep(replaces=is_unusable):
            return plans[0]
        # Another process was first: its costs decide, so that both have the same plan. Costs that
        # do not suffice for one, as in a damaged file, are replaced.
        plans = make(oracle)
        is_known = oracle.is_kept
        is_unusable = not is_known


def _measured(
    make: MakePlans,
    oracle: CalibratedOracle,
    plans: Sequence[Plan],
    progress: Progress | None,
    until: float,
) -> Sequence[Plan]:
    """Measure the kernels in doubt, and return the plans by the costs that are known then."""
    runs_s = 1e-9 * _CALIBRATED_RUNS * plans[0].cost_ns
    some = min(max(_CALIBRATED_S, runs_s), _CALIBRATED_MOST_S)
    longest = 1e9 * some if oracle.is_calibrated else inf
    for turn in range(_ROUNDS):
        wanted = _wanted(plans, oracle) if time.monotonic() < until else []
        wanted = [spec for spec in wanted if _taken_ns(spec, oracle) <= longest]
        if not wanted:
            break
        if turn == 0 and oracle.is_calibrated:  # finding what to measure does not count
            until = min(until, time.monotonic() + some)
        predicted = {spec: cost.cost_ns for spec, (cost,) in oracle.predicted(wanted).items()}
        oracle.times.measure(wanted, progress, until, predicted=predicted)
        plans = make(oracle)
    return plans


def _wanted(plans: Sequence[Plan], oracle: CalibratedOracle) -> list[KernelSpec]:
    """Return the kernels to measure, the most important one first."""
    first = unknown(plans[0], oracle.deviations) if oracle.is_calibrated else []
    return list(dict.fromkeys((*first, *doubts(plans, oracle.deviations))))


def _taken_ns(spec: KernelSpec, oracle: CalibratedOracle) -> float:
    """Return what measuring a kernel should take."""
    return _TIMES * oracle.times.estimate(spec) + spec.nbytes / _TOUCHED_PER_NS


def unfit(plan: Plan) -> Iterator[tuple[KernelSpec, str]]:
    """Yield kernels of a plan whose predicted implementation does not exist, or is a naive loop."""
    used = [
        (call.spec, cost.implementation)
        for decision in plan.decisions
        for call, cost in zip(decision.chosen.option.calls, decision.chosen.costs, strict=True)
        if call.spec.kind != HOST and cost.source in _PREDICTED
    ]
    for move in plan.reorders:
        value = plan.graph.values[move.tensor]
        spec = plan.target.reorder_spec(value, move.source, move.target)
        used.append((spec, move.implementation))
    for spec, name in dict.fromkeys(used):
        try:
            found = create(spec, name, plan.machine.threads).impl
        except ExecutionError:
            yield spec, name
        else:
            if is_reference(found):
                yield spec, ""
