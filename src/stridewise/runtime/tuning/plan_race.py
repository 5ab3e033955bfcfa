"""The plan race: models run in turn, for times of whole runs and of single steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import inf
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.classes import dataclass
from stridewise.errors import ExecutionError
from stridewise.ops.geometry import storage_shape
from stridewise.program import KernelStep
from stridewise.runtime.execution.executor import CallSignature, CompiledModel
from stridewise.runtime.execution.inputs import made_up
from stridewise.runtime.tuning.disturbance import Stopwatch
from stridewise.runtime.tuning.timing import median, undisturbed
from stridewise.targets.kernels import HOST, KernelSpec

__all__ = ["Observed", "Outcome", "Runs", "failure", "run_in_turn"]

_ROUNDS, _LEAST_ROUNDS, _BUDGET_S = 9, 2, 6.0
_LOST = 1.1
"""Models that took this many times the fastest one are not run again."""
_LONG_NS = 200_000_000
"""Runs of this time leave the caches in the same state, independent of the state before, and timing
their steps adds little. Hardly one of them is undisturbed from its begin to its end, but most of
their steps are in one of two runs."""

Observed = dict[tuple[KernelSpec, str], float]
"""Nanoseconds that an implementation of a kernel took inside a model."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Times of the runs of one model in nanoseconds.

    Attributes:
        whole: of each run.
        steps: of each step of the runs whose steps were timed; those of long runs are as many as
            there are runs.
    """

    whole: list[float] = field(default_factory=list[float])
    steps: list[Sequence[float]] = field(default_factory=list[Sequence[float]])

    @property
    def undisturbed(self) -> float:
        """The undisturbed time of a run."""
        if min(self.whole) < _LONG_NS:
            return undisturbed(self.whole)
        between = (taken - sum(run) for taken, run in zip(self.whole, self.steps, strict=True))
        return sum(map(undisturbed, zip(*self.steps, strict=True))) + min(between)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a plan race.

    Attributes:
        times: undisturbed nanoseconds of a run, by label.
        observed: median over all places of the undisturbed time that each kernel took there.
        is_disturbed: whether other work on the machine took a relevant part of the time.
        runs: times of all runs, by label.
    """

    times: Mapping[str, float]
    observed: Observed
    is_disturbed: bool
    runs: Mapping[str, Runs] = field(default_factory=dict[str, Runs])


def _made_up_inputs(signature: CallSignature) -> list[NDArray[Any]]:
    rng = np.random.default_rng(0)
    found: list[NDArray[Any]] = []
    for name, fmt in signature.input_formats.items():
        value = signature.graph.values[name]
        found.append(made_up(value, storage_shape(value, fmt), rng))
    return found


def failure(model: CompiledModel) -> str:
    """Return why a model fails on made-up inputs; "" where it does not.

    Only fallback kernels check the values of their operands, such as indices.
    """
    if not any(isinstance(s, KernelStep) and s.spec.kind == HOST for s in model.program.steps):
        return ""
    try:
        model.run_program(_made_up_inputs(model.call_signature))
    except ExecutionError as error:
        return str(error)
    return ""


def _observe(
    model: CompiledModel, samples: Sequence[Sequence[float]], into: dict[Any, Any]
) -> None:
    split = model.program.split
    share = split.lanes / split.parts  # of one part, for which the kernel is
    for index, step in enumerate(model.program.steps):
        if isinstance(step, KernelStep):
            taken = share * undisturbed([sample[index] for sample in samples])
            into.setdefault((step.spec, step.implementation), []).append(taken)


def _timed(run: Callable[[], object]) -> int:
    start = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - start


def _turn(model: CompiledModel, inputs: Sequence[Any], runs: Runs) -> None:
    """Add the times of one run and of its steps to those of earlier turns."""
    if not runs.whole or runs.whole[-1] >= _LONG_NS:
        steps: list[list[int]] = []
        taken = _timed(lambda: steps.extend(model.step_times(inputs, 1)))
        if taken >= _LONG_NS:
            runs.whole.append(taken)
            runs.steps.extend(steps)
            return
    else:
        model.run_program(inputs)
    runs.whole.append(_timed(lambda: model.run_program(inputs)))
    runs.steps.extend(model.step_times(inputs, 1))


def _contenders(runs: Mapping[str, Runs], least: int) -> list[str]:
    """Return the models to run next, those that may be the fastest or ran too seldom.

    Of several, those that ran least: the least of more times is less.
    """
    fastest = min((min(item.whole) for item in runs.values() if item.whole), default=inf)
    found = {
        label: len(item.whole)
        for label, item in runs.items()
        if len(item.whole) < least or min(item.whole) <= _LOST * fastest
    }
    return [label for label, count in found.items() if count == min(found.values())]


def run_in_turn(
    models: Mapping[str, CompiledModel],
    until: float | None = None,
    ran: Mapping[str, Runs] = MappingProxyType({}),
    *,
    rounds: tuple[int, int] = (_LEAST_ROUNDS, _ROUNDS),
) -> Outcome:
    """Run models in turn, a few times each; those that lose run less often.

    A turn is one run that brings the caches into the state that the model itself leaves, one that
    is timed as a whole, and one whose steps are timed. Where runs are long, one does for all, but
    the first run of a model, in which the system maps its memory, does not count.

    Args:
        models: what runs, by label.
        until: time of ``time.monotonic`` after which no turn begins.
        ran: times of models that ran before, by label.
        rounds: runs of a model before it may lose, and number of turns at most.
    """
    # Plans may take their inputs in different formats.
    inputs = {label: _made_up_inputs(model.call_signature) for label, model in models.items()}
    known = {label: ran.get(label, Runs()) for label in models}
    runs = {label: Runs([*item.whole], [*item.steps]) for label, item in known.items()}
    threads = max((model.call_signature.threads for model in models.values()), default=1)
    for label in (name for name in models if name not in ran):
        models[label].run_program(inputs[label])
    begin, watch = time.monotonic(), Stopwatch(threads)
    for turn in range(rounds[1]):
        now = time.monotonic()
        is_over = turn >= 1 and until is not None and now >= until
        if is_over or (turn >= rounds[0] and now - begin > _BUDGET_S):
            break
        for label in _contenders(runs, rounds[0]):
            _turn(models[label], inputs[label], runs[label])
    is_disturbed = watch.is_disturbed
    places: dict[tuple[KernelSpec, str], list[float]] = {}
    for label, item in runs.items():
        _observe(models[label], item.steps, places)
    return Outcome(
        {label: item.undisturbed for label, item in runs.items()},
        {kernel: median(times) for kernel, times in places.items()},
        is_disturbed,
        runs,
    )
