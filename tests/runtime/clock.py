"""A clock for tests of tuning, which never depends on what else the machine is doing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stridewise.program import KernelStep
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.tuning.plan_race import Outcome, Runs
from stridewise.targets.kernels import KernelSpec

__all__ = ["Clock"]


class Clock:
    """Stands in for running: how long plans and kernels take; counts how often it is asked."""

    def __init__(
        self, times: Mapping[str, float], kernel: Callable[[KernelSpec], float | None]
    ) -> None:
        self.times, self.kernel = times, kernel
        self.asked: list[set[str]] = []

    def __call__(
        self,
        models: Mapping[str, CompiledModel],
        until: float | None = None,
        ran: Mapping[str, Runs] | None = None,
    ) -> Outcome:
        del until, ran
        self.asked.append(set(models))
        observed = {
            (step.spec, step.implementation): seen
            for model in models.values()
            for step in model.program.steps
            if isinstance(step, KernelStep) and (seen := self.kernel(step.spec)) is not None
        }
        return Outcome(
            {label: self.times.get(label, 1e9) for label in models}, observed, is_disturbed=False
        )
