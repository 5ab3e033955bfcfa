"""The promise that a plan is never slower than the best uniform plan, kept by running both.

Costs are those of isolated kernels; in place, caches hold other things. So the cheapest plan is run
against the uniform plans whose costs come near it, and gives way where one is clearly faster. The
outcome is kept in the cost cache, so that it is decided once a model and machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.planner.plan import Plan
from stridewise.runtime.cache import CostCache
from stridewise.runtime.executor import CompiledModel

__all__ = ["fastest"]

_NEAR = 1.25
"""Plans that cost more than this many times the cheapest do not take part."""
_MARGIN = 0.98
"""A uniform plan wins below this part of the cheapest plan's time; above, it may be noise."""
_ROUNDS, _LEAST_ROUNDS, _WARM_UP, _BUDGET_S = 9, 3, 2, 4.0


def _contestants(plans: Sequence[Plan]) -> list[Plan]:
    """Return the plans worth running, the cheapest first, each different."""
    cheapest = plans[0]
    found: list[Plan] = []
    for plan in plans:
        chosen = [decision.chosen for decision in plan.decisions]
        known = [[decision.chosen for decision in other.decisions] for other in found]
        if plan.cost_ns <= _NEAR * cheapest.cost_ns and chosen not in known:
            found.append(plan)
    return found


def _key(plans: Sequence[Plan]) -> str:
    """Return what identifies a contest: nodes and types, kernels and formats, not the weights."""
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
    return f"contest {digest.hexdigest()}"


def _random_inputs(plan: Plan) -> list[NDArray[Any]]:
    rng = np.random.default_rng(0)
    shapes = [plan.graph.values[name].shape for name in plan.graph.inputs]
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def _run(models: Mapping[str, CompiledModel]) -> dict[str, float]:
    """Return the median nanoseconds of each model, all run in turn."""
    samples: dict[str, list[int]] = {name: [] for name in models}
    inputs = _random_inputs(next(iter(models.values())).plan)
    begin = time.perf_counter()
    for turn in range(_WARM_UP + _ROUNDS):
        enough = turn >= _WARM_UP + _LEAST_ROUNDS
        if enough and time.perf_counter() - begin > _BUDGET_S:
            break
        for name, model in models.items():
            start = time.perf_counter_ns()
            model(*inputs)
            if turn >= _WARM_UP:
                samples[name].append(time.perf_counter_ns() - start)
    return {name: float(median(times)) for name, times in samples.items()}


def _winner(times: Mapping[str, float], cheapest: str) -> str:
    best = min(times, key=lambda name: times[name])
    return best if times[best] < _MARGIN * times[cheapest] else cheapest


def fastest(plans: Sequence[Plan], cache: CostCache) -> CompiledModel:
    """Return the model of the plan that is fastest when run.

    Args:
        plans: the cheapest plan first, then uniform ones.
        cache: where outcomes are kept.

    Raises:
        ExecutionError: the library refuses a kernel that a plan counts on.
    """
    contestants = _contestants(plans)
    if len(contestants) == 1:
        return CompiledModel(plans[0])
    key = _key(contestants)
    times = dict(cache.load().get(key, ()))
    models: dict[str, CompiledModel] = {}
    if set(times) != {plan.name for plan in contestants}:
        models = {plan.name: CompiledModel(plan) for plan in contestants}
        times = _run(models)
        cache.store({key: tuple(times.items())})
    name = _winner(times, plans[0].name)
    comparisons = tuple(
        dataclasses.replace(item, measured_ns=times.get(item.name)) for item in plans[0].comparisons
    )
    plan = next(plan for plan in contestants if plan.name == name)
    plan = dataclasses.replace(plan, comparisons=comparisons)
    return models[name].with_plan(plan) if name in models else CompiledModel(plan)
