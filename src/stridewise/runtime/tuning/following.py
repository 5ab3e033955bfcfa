"""The oracle for further shapes of a model: estimates, with the implementations of the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stridewise.graph import Refusal
from stridewise.planner.questions.follow import likeness
from stridewise.planning import Plan
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.primitives import implementations
from stridewise.targets.cost import KernelCost, KernelOracle, Progress
from stridewise.targets.kernels import HOST, KernelSpec

__all__ = ["Following"]


class Following:
    """Prefers the implementation that a plan for another shape has for a similar kernel.

    Each implementation packs weights in its own way, so programs that share weights need the same.
    """

    def __init__(self, oracle: KernelOracle, leader: Plan) -> None:
        """Take costs from an oracle and implementations from a plan."""
        self._oracle, self._threads = oracle, leader.machine.threads
        self._wanted = {
            likeness(call.spec): cost.implementation
            for decision in leader.decisions
            for call, cost in zip(decision.chosen.option.calls, decision.chosen.costs, strict=True)
            if cost.implementation and call.spec.kind != HOST
        }

    def costs(
        self, specs: Sequence[KernelSpec], progress: Progress | None = None
    ) -> Mapping[KernelSpec, tuple[KernelCost, ...] | Refusal]:
        """Return the implementations of each kernel, cheapest first, or why there is none."""
        return {
            spec: known if isinstance(known, Refusal) else self._named(spec, known)
            for spec, known in self._oracle.costs(specs, progress).items()
        }

    def _named(self, spec: KernelSpec, known: tuple[KernelCost, ...]) -> tuple[KernelCost, ...]:
        wanted = self._wanted.get(likeness(spec))
        if wanted is None:
            return known
        try:
            there = implementations(spec, self._threads)
        except load_core().NativeError:
            return known
        return tuple(
            replace(cost, implementation=wanted) if wanted in there else cost for cost in known
        )
