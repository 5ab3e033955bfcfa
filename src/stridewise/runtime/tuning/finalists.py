"""The choice among plans that keep an error budget: the joint one, and those of one precision.

By the same costs no plan of one precision is cheaper than the joint one. But costs may be
predicted, and kernels take other times inside a model. So plans of similar costs run in turn, and
the fastest is used. The cost cache keeps the times.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import replace

from stridewise.planning import Plan
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.plan_race import run_in_turn
from stridewise.runtime.tuning.tuning import choices

__all__ = ["digest_of", "fastest"]

_NEAR = 1.5
"""Plans that cost more than this many times the cheapest do not run: predictions err by less."""
_SAME = 0.97
"""Times that differ by less than this factor differ by noise."""
_RACE_S = 2.0


def digest_of(plan: Plan) -> str:
    """Return a digest of the kernels and formats of a plan."""
    return hashlib.sha256(repr(choices(plan)).encode()).hexdigest()


def _near(plans: Mapping[str, Plan]) -> dict[str, Plan]:
    """Return the plans that may be the fastest, each different, the cheapest first."""
    ranked = sorted(plans.items(), key=lambda item: item[1].cost_ns)
    found: dict[str, Plan] = {}
    for label, plan in ranked:
        known = [choices(other) for other in found.values()]
        if plan.cost_ns <= _NEAR * ranked[0][1].cost_ns and choices(plan) not in known:
            found[label] = plan
    return found


def fastest(plans: Mapping[str, Plan], costs: CostCache | None, *, may_run: bool) -> Plan:
    """Return the fastest plan: by measured times where they are known, else by costs.

    Args:
        plans: each within the error budget, by its precision; the first one is preferred among
            plans of the same time.
        costs: keeps measured times; None to decide by costs alone.
        may_run: whether plans whose times are unknown may run.
    """
    near = _near(plans)
    cheapest = next(iter(near.values()))
    if costs is None or len(near) == 1:
        return cheapest
    digests = [f"{label} {digest_of(plan)}" for label, plan in near.items()]
    key = f"precision {hashlib.sha256(repr(sorted(digests)).encode()).hexdigest()}"
    times = dict(costs.find((key,)).get(key, ()))
    if times.keys() != near.keys():
        if not may_run:
            return cheapest
        models = {label: load(lower_plan(plan)) for label, plan in near.items()}
        outcome = run_in_turn(models, time.monotonic() + _RACE_S)
        if outcome.is_disturbed:
            return cheapest
        times = dict(outcome.times)
        costs.store({key: tuple(times.items())})
    least = min(times.values())
    label = next(name for name in plans if name in times and _SAME * times[name] <= least)
    others = tuple(
        replace(
            plan.comparisons[0],
            name=f"dtype {name}",
            cost_ns=plan.cost_ns,
            measured_ns=times[name],
        )
        for name, plan in near.items()
    )
    return replace(near[label], comparisons=(*near[label].comparisons, *others))
