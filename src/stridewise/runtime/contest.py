"""Running plans against each other: whole times for the contest, times of steps for correction."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.ops.geometry import storage_shape
from stridewise.ops.kernels import KernelSpec
from stridewise.planner.plan import Plan
from stridewise.runtime.executor import CompiledModel
from stridewise.runtime.inputs import made_up
from stridewise.runtime.program import KernelStep
from stridewise.runtime.timing import undisturbed

__all__ = ["Observed", "Outcome", "run_in_turn"]

_ROUNDS, _LEAST_ROUNDS, _BUDGET_S = 9, 3, 4.0

Observed = dict[tuple[KernelSpec, str], float]
"""Nanoseconds that an implementation of a kernel took inside a model."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What running several plans has shown.

    Attributes:
        times: undisturbed nanoseconds of a whole run, by label.
        observed: mean over all places of the undisturbed time that each kernel took there.
    """

    times: Mapping[str, float]
    observed: Observed


def _random_inputs(plan: Plan) -> list[NDArray[Any]]:
    rng = np.random.default_rng(0)
    found: list[NDArray[Any]] = []
    for name, fmt in plan.input_formats.items():
        value = plan.graph.values[name]
        found.append(made_up(value, storage_shape(value, fmt), rng))
    return found


def _observe(model: CompiledModel, samples: Sequence[Sequence[int]], into: dict[Any, Any]) -> None:
    for index, step in enumerate(model.program.steps):
        if isinstance(step, KernelStep):
            taken = undisturbed([sample[index] for sample in samples])
            into.setdefault((step.spec, step.implementation), []).append(taken)


def run_in_turn(models: Mapping[str, CompiledModel]) -> Outcome:
    """Run models in turn, a few times each.

    A turn is one run that brings the caches into the state that the model itself leaves, one that
    is timed as a whole, and one whose steps are timed.
    """
    inputs = _random_inputs(next(iter(models.values())).plan)
    whole: dict[str, list[int]] = {label: [] for label in models}
    steps: dict[str, list[list[int]]] = {label: [] for label in models}
    begin = time.perf_counter()
    for turn in range(_ROUNDS):
        if turn >= _LEAST_ROUNDS and time.perf_counter() - begin > _BUDGET_S:
            break
        for label, model in models.items():
            model(*inputs)
            start = time.perf_counter_ns()
            model(*inputs)
            whole[label].append(time.perf_counter_ns() - start)
            steps[label] += model.step_times(inputs, 1)
    places: dict[tuple[KernelSpec, str], list[float]] = {}
    for label, model in models.items():
        _observe(model, steps[label], places)
    return Outcome(
        {label: undisturbed(times) for label, times in whole.items()},
        {kernel: mean(times) for kernel, times in places.items()},
    )
