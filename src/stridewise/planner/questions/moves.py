"""Steps of a plan that only move bytes, and nodes that need no step."""

from __future__ import annotations

from collections.abc import Iterator
from math import fsum, prod
from typing import Literal

from stridewise.classes import dataclass
from stridewise.dtypes import dtype_of
from stridewise.graph import Node
from stridewise.planner.plan import PlanData
from stridewise.planner.problem.candidates import Candidate
from stridewise.targets.kernels import KernelSpec

__all__ = ["Move", "find_moves", "find_views", "moves_of"]

_MOVING = frozenset(
    {"reorder", "concat", "shuffle"}
    # targets whose kernels have the names of operators
    | {"channel_shuffle", "identity", "pad", "reshape", "slice", "transpose"}
)
"""Kinds of kernels that only move or fill bytes."""


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a plan that only moves bytes.

    Attributes:
        node_or_tensor: the tensor of a reorder, the node of a copy or a fill.
        kind: ``"reorder"``: a tensor changes its format. ``"copy"``: a node (concat, slice,
            transpose, ...) that is not a view. ``"fill"``: the border of a pad.
        nbytes: bytes written.
        cost_ns: predicted time.
    """

    node_or_tensor: str
    kind: Literal["reorder", "copy", "fill"]
    nbytes: int
    cost_ns: float


def _written_nbytes(spec: KernelSpec) -> int:
    memory = spec.memory("dst")
    return 0 if memory is None else prod(memory.dims) * dtype_of(memory.dtype).itemsize


def moves_of(node: Node, chosen: Candidate) -> Iterator[Move]:
    """Yield the steps of a candidate if it only moves bytes."""
    option = chosen.option
    if any(call.spec.kind not in _MOVING for call in option.calls):
        return
    kernels = fsum(cost.cost_ns for cost in chosen.costs)
    if option.fill is not None:
        yield Move(node.name, "fill", 4 * option.fill.count, max(0.0, chosen.cost_ns - kernels))
    if option.calls:
        nbytes = sum(_written_nbytes(call.spec) for call in option.calls)
        yield Move(node.name, "copy", nbytes, kernels)


def find_moves(plan: PlanData) -> tuple[Move, ...]:
    """Return the reorders of a plan, then the nodes that only copy or fill, in graph order.

    Copies that lowering adds, such as those of outputs that share their bytes, are not decisions of
    a plan. ``CompiledModel.program`` contains them.
    """
    reorders = [Move(r.tensor, "reorder", r.nbytes, r.cost_ns) for r in plan.reorders]
    nodes = [
        move
        for node, decision in zip(plan.graph.nodes, plan.decisions, strict=True)
        for move in moves_of(node, decision.chosen)
    ]
    return (*reorders, *nodes)


def find_views(plan: PlanData) -> tuple[str, ...]:
    """Return the nodes without a step: views, and pieces that are produced in place."""
    return tuple(decision.node for decision in plan.decisions if decision.chosen.option.is_view)
