"""How much memory a plan needs, and whether it may have it, before anything is allocated."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from stridewise.dtypes import dtype_of
from stridewise.graph.graph import data_of
from stridewise.ops.demand import MemoryDemand, check_demand, memory_demand
from stridewise.ops.effort import nbytes
from stridewise.ops.fallback import foreign_nbytes
from stridewise.ops.geometry import storage_shape
from stridewise.planning import Plan
from stridewise.program import KernelStep
from stridewise.runtime.lowering.lower import lower
from stridewise.targets.kernels import HOST, KernelSpec

__all__ = ["is_far_below", "plan_demand", "within_limit"]


_PADDING = 16
"""Formats pad channels to blocks of at most so many, so that no plan needs more than this times
what the graph does."""


class _Unmade:
    """Kernels that are not created: their scratchpads and layouts do not count here."""

    def scratch(self, spec: KernelSpec, implementation: str) -> int:
        del spec, implementation
        return 0

    def layout(self, spec: KernelSpec, implementation: str, role: str) -> str:
        del spec, implementation, role
        return ""


def plan_demand(plan: Plan, streams: int = 1) -> MemoryDemand:
    """Return what a plan needs in the formats that it chose; scratchpads come on top.

    What NumPy allocates for a fallback kernel is taken to be as much as its operands and results.

    Args:
        plan: what is to run.
        streams: how often at the same time.
    """
    program = lower(plan, _Unmade())
    values = plan.graph.values
    packed = 0
    for constant in (*program.constants, *program.parameters):
        memory = constant.spec.memory(constant.role) if constant.spec is not None else None
        if memory is None:
            packed += nbytes((values[constant.value].type,))
        else:
            packed += dtype_of(memory.dtype).itemsize * prod(memory.dims)
    boundary = sum(
        values[name].dtype.itemsize * prod(storage_shape(values[name], fmt))
        for formats in (plan.input_formats, plan.output_formats)
        for name, fmt in formats.items()
    )
    weights = sum(
        nbytes((values[name].type,)) for _, known in data_of(plan.graph) for name in known
    )
    weights += foreign_nbytes(plan.graph)
    packed += sum(nbytes((values[name].type,)) for name in program.states)
    host = max(
        (
            step.spec.nbytes
            for step in program.steps
            if isinstance(step, KernelStep) and step.spec.kind == HOST
        ),
        default=0,
    )
    return MemoryDemand(weights, packed, streams * (program.arena_nbytes + boundary + host))


def is_far_below(plan: Plan, limit: int, streams: int = 1) -> bool:
    """Return whether a plan is within a limit, whatever formats it chose; False if unknown."""
    return _PADDING * streams * memory_demand(plan.graph).total <= limit


def within_limit(plans: Sequence[Plan], limit: int | None, streams: int = 1) -> Sequence[Plan]:
    """Return the plans that need no more than ``limit`` bytes.

    Args:
        plans: the chosen one, then others that may take its place.
        limit: None for no limit.
        streams: how many runs there may be at the same time.

    Raises:
        MemoryLimitError: the first plan needs more; the message has the estimate.
    """
    if limit is None:
        return plans
    if is_far_below(plans[0], limit, streams):
        return plans
    demands = [plan_demand(plan, streams) for plan in plans]
    check_demand(f"plan of {plans[0].graph.name!r}", demands[0], limit)
    return tuple(plan for plan, needed in zip(plans, demands, strict=True) if needed.total <= limit)
