"""The choice among plans that keep an error budget: the joint one, and those of one precision.

By the same costs no plan of one precision is cheaper than the joint one. But costs may be
predicted, and kernels take other times inside a model. So all of these plans run in turn, whatever
they should cost, and the fastest is used. The cost cache keeps the times; those that other work on
the machine disturbed expire, as costs do.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import replace

from stridewise.errors import PlanError
from stridewise.planner.problem.candidates import Candidate
from stridewise.planner.problem.formulation import Terms
from stridewise.planner.questions.restrict import restricted
from stridewise.planning import Plan
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.oracle import INTEGERS
from stridewise.runtime.tuning.plan_race import Outcome, run_in_turn
from stridewise.runtime.tuning.tuning import choices

__all__ = ["digest_of", "fastest", "in_integers"]

_SAME = 0.985
"""Times that differ by less than this factor differ by noise."""
_RACE_S, _LEAST_ROUNDS, _ROUNDS, _RACES = 2.0, 8, 40, 3
"""Time for a race, runs of each plan before it may lose, turns at most, and races at most: while
other work disturbs one, another one adds runs."""


def digest_of(plan: Plan) -> str:
    """Return a digest of the kernels and formats of a plan."""
    return hashlib.sha256(repr(choices(plan)).encode()).hexdigest()


def in_integers(plan: Plan) -> Plan | None:
    """Return the cheapest plan in which nodes compute with integers wherever they can.

    It has no error budget. None where no node can, or no plan has all of these kernels.

    Args:
        plan: of a graph whose tensors are offered grids.
    """
    known = plan.terms
    only = {
        node: tuple(at for at, item in enumerate(items) if _takes_integers(item))
        for node, items in known.candidates.nodes.items()
    }
    only = {node: kept for node, kept in only.items() if kept}
    if not only:
        return None
    terms = Terms(known.graph, known.candidates, known.edge)
    try:
        return restricted(replace(plan, terms=terms, pins=()), "all integers", only)
    except PlanError:
        return None


def _takes_integers(candidate: Candidate) -> bool:
    return any(
        memory.dtype in INTEGERS
        for call in candidate.option.calls
        for _, memory in call.spec.memories
    )


def _different(plans: Mapping[str, Plan]) -> dict[str, Plan]:
    """Return the plans, the cheapest first, without those that decide the same as one of them."""
    found: dict[str, Plan] = {}
    for label, plan in sorted(plans.items(), key=lambda item: item[1].cost_ns):
        if choices(plan) not in [choices(other) for other in found.values()]:
            found[label] = plan
    return found


def _raced(models: Mapping[str, CompiledModel]) -> Outcome:
    outcome = Outcome({}, {}, is_disturbed=True)
    for _ in range(_RACES):
        until = time.monotonic() + _RACE_S
        outcome = run_in_turn(models, until, outcome.runs, rounds=(_LEAST_ROUNDS, _ROUNDS))
        if not outcome.is_disturbed:
            break
    return outcome


def fastest(plans: Mapping[str, Plan], costs: CostCache | None, *, may_run: bool) -> Plan:
    """Return the fastest plan: by measured times where they are known, else by costs.

    Args:
        plans: each within the error budget, by its precision; the first one is preferred among
            plans of the same time.
        costs: keeps measured times; None to decide by costs alone.
        may_run: whether plans whose times are unknown may run.
    """
    rivals = _different(plans)
    cheapest = next(iter(rivals.values()))
    if costs is None or len(rivals) == 1:
        return cheapest
    digests = [f"{label} {digest_of(plan)}" for label, plan in rivals.items()]
    key = f"precision {hashlib.sha256(repr(sorted(digests)).encode()).hexdigest()}"
    times = dict(costs.find((key,)).get(key, ()))
    if times.keys() != rivals.keys():
        if not may_run:
            return cheapest
        models = {label: load(lower_plan(plan)) for label, plan in rivals.items()}
        outcome = _raced(models)
        # Least times of plans that run in turn say more than costs, also on a busy machine.
        times = dict(outcome.times)
        costs.store({key: tuple(times.items())}, is_provisional=outcome.is_disturbed)
    least = min(times.values())
    label = next(name for name in plans if name in times and _SAME * times[name] <= least)
    others = tuple(
        replace(
            plan.comparisons[0],
            name=f"dtype {name}",
            cost_ns=plan.cost_ns,
            measured_ns=times[name],
        )
        for name, plan in rivals.items()
    )
    return replace(rivals[label], comparisons=(*rivals[label].comparisons, *others))
