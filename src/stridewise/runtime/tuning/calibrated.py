"""Plans by calibrated costs: predicted ones, of which those that matter most are measured."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

from stridewise.errors import ExecutionError
from stridewise.planning import Plan
from stridewise.runtime.binding.primitives import create
from stridewise.runtime.tuning.doubts import doubts
from stridewise.runtime.tuning.oracle import CalibratedOracle
from stridewise.runtime.tuning.tuning import MakePlans, remembered
from stridewise.targets.cost import Progress
from stridewise.targets.kernels import KernelSpec

__all__ = ["calibrated"]

_ROUNDS = 3
_CALIBRATED_S = 0.1
"""How long kernels are measured on a calibrated machine, so that the first answer comes soon."""


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
    plans = make(oracle)
    if oracle.is_kept:
        return plans[0]
    if not oracle.deviations:
        return remembered(make, oracle, oracle.times.cache, plans)
    if oracle.is_calibrated:
        until = min(until, time.monotonic() + _CALIBRATED_S)
    for _ in range(_ROUNDS):
        wanted = doubts(plans, oracle.deviations) if time.monotonic() < until else []
        if not wanted:
            break
        oracle.times.measure(wanted, progress, until)
        plans = make(oracle)
    while absent := list(_absent(plans[0], oracle.deviations)):
        oracle.refuse(absent)
        plans = make(oracle)
    oracle.keep()
    return plans[0]


def _absent(plan: Plan, predicted: Collection[KernelSpec]) -> Iterator[tuple[KernelSpec, str]]:
    """Yield the kernels of a plan whose predicted implementation the library does not have."""
    used = [
        (call.spec, cost.implementation)
        for decision in plan.decisions
        for call, cost in zip(decision.chosen.option.calls, decision.chosen.costs, strict=True)
    ]
    for move in plan.reorders:
        value = plan.graph.values[move.tensor]
        spec = plan.target.reorder_spec(value, move.source, move.target)
        used.append((spec, move.implementation))
    for spec, name in dict.fromkeys(used):
        if spec in predicted and name:
            try:
                create(spec, name, plan.machine.threads)
            except ExecutionError:
                yield spec, name
