"""What runs where in a plan, and what crossing the border to another runtime costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stridewise.graph import Segment, Support
from stridewise.ops.capability import graph_capability
from stridewise.ops.fallback import OP

if TYPE_CHECKING:
    from stridewise.planner.plan import Plan

__all__ = ["Partition", "find_partitions"]


@dataclass(frozen=True, slots=True)
class Partition:
    """Neighbors in the order of execution that run in one place.

    Attributes:
        support: ``native``, ``fallback`` in the program, or ``tail`` behind it.
        nodes: their names; those of the model, where another runtime computes them.
        operators: their operators.
        reasons: why they are not native, each reason once.
        reorders: how many reorders its inputs and outputs need, for other runtimes.
        reorder_ns: predicted time of these.
    """

    support: Support
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    reasons: tuple[str, ...]
    reorders: int
    reorder_ns: float

    def __str__(self) -> str:
        text = str(Segment(self.support, self.nodes, self.operators, self.reasons))
        if not self.reorders:
            return text
        noun = "reorder" if self.reorders == 1 else "reorders"
        return f"{text} ({self.reorders} {noun} at its border, {self.reorder_ns / 1e3:.1f} us)"


def _borders(plan: Plan) -> Iterator[frozenset[str]]:
    """Yield the tensors that each part of another runtime reads or gives."""
    for node in plan.graph.nodes:
        if node.op == OP:
            yield frozenset((*node.inputs, *node.outputs))
    if plan.graph.tail is not None:
        yield frozenset(plan.graph.tail.inputs)


def find_partitions(plan: Plan) -> tuple[Partition, ...]:
    """Return what runs where, in order."""
    borders = _borders(plan)
    found: list[Partition] = []
    for segment in graph_capability(plan.graph).segments:
        border = frozenset[str]() if segment.support == "native" else next(borders)
        crossing = [reorder for reorder in plan.reorders if reorder.tensor in border]
        cost = sum(reorder.cost_ns for reorder in crossing)
        found.append(
            Partition(
                segment.support, segment.nodes, segment.operators, segment.reasons,
                len(crossing), float(cost),
            )
        )  # fmt: skip
    return tuple(found)
