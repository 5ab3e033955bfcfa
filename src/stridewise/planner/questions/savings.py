"""Savings if the caller accepted other I/O formats."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from math import prod
from typing import Literal

from stridewise.classes import dataclass
from stridewise.errors import PlanError
from stridewise.formats import Format, is_dense
from stridewise.ops.geometry import canonical_shape
from stridewise.planner.plan import PlanData
from stridewise.planner.problem.formulation import Terms
from stridewise.planner.problem.io_formats import Boundary
from stridewise.planner.questions.restrict import allowed
from stridewise.planner.questions.why import duration
from stridewise.tensor import Spell

__all__ = ["Saving", "find_savings"]

_MOST = 32
"""Of how many inputs and outputs savings are sought: each format of each is planned."""

_NOISE = 1e-9
"""Relative differences of costs below this value are rounding errors."""


@dataclass(frozen=True, slots=True)
class Saving:
    """The saving if one more format of an input or output were acceptable.

    Attributes:
        tensor: the input or output.
        side: ``input`` or ``output``.
        format: the additional format.
        saved_ns: lower bound of the saving in nanoseconds. Reorders that no plan has needed so far
            have no known cost.
        spell: returns the target's name of a format.
    """

    tensor: str
    side: Literal["input", "output"]
    format: Format
    saved_ns: float
    spell: Spell = field(default=str, compare=False, repr=False)

    def __str__(self) -> str:
        verb = "giving" if self.side == "input" else "taking"
        name = self.spell(self.format)
        return f"{verb} {self.tensor!r} as {name} would save {duration(self.saved_ns)}"


def _others(plan: PlanData, name: str, known: tuple[Format, ...]) -> list[Format]:
    """Return the target's formats of a value that are not accepted yet and have no padding."""
    value, key = plan.graph.values[name], plan.storages.key
    keys = {key(name, fmt) for fmt in known}
    return [
        fmt
        for fmt in plan.target.formats(value).values()
        if key(name, fmt) not in keys and is_dense(fmt, canonical_shape(value, fmt))
    ]


def _cost(plan: PlanData, edge: Boundary) -> float:
    return Terms(plan.graph, plan.candidates, edge).solve(allowed(plan)).cost


def find_savings(plan: PlanData) -> tuple[Saving, ...]:
    """Return the positive savings of accepting another format of an input or output.

    If there are many, savings are sought for the largest of them.
    """
    edge = plan.terms.edge
    base = _cost(plan, edge)
    sides: tuple[tuple[Literal["input", "output"], str, Mapping[str, tuple[Format, ...]]], ...] = (
        ("input", "inputs", edge.inputs),
        ("output", "outputs", edge.outputs),
    )
    kept = {*plan.graph.stored, *plan.graph.updates.values()}
    names = {name for _, _, formats in sides for name in formats if not plan.graph.is_packed(name)}
    sizes = {name: prod(plan.graph.values[name].shape) for name in names - kept}
    asked = set(sorted(sizes, key=lambda name: (-sizes[name], name))[:_MOST])
    found: list[Saving] = []
    for side, attribute, formats in sides:
        for name, known in formats.items():
            if name not in asked:
                continue
            for fmt in _others(plan, name, known):
                wider = {**formats, name: (*known, fmt)}
                try:
                    saved = base - _cost(plan, dataclasses.replace(edge, **{attribute: wider}))
                except PlanError:  # no reader takes it, and there is no reorder
                    continue
                if saved > _NOISE * base:
                    found.append(Saving(name, side, fmt, saved, plan.target.spell))
    return tuple(found)
