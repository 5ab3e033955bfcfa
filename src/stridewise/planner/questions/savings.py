"""What the caller's own formats cost: what accepting others would save."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

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

_NOISE = 1e-9
"""Costs that differ by less than this part of them differ by rounding."""


@dataclass(frozen=True, slots=True)
class Saving:
    """What one more acceptable format of an input or output would save.

    Attributes:
        tensor: the input or output.
        side: which of them.
        format: the format that would have to be acceptable, too.
        saved_ns: by how much the cheapest plan would be faster, at least: reorders that nothing
            has needed so far have no known cost.
        spell: says what the target calls a format.
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
    """Return the target's formats of a value that are not accepted yet and pad nothing."""
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
    """Return what accepting each other format of each input and output would save, if anything."""
    edge = plan.terms.edge
    base = _cost(plan, edge)
    sides: tuple[tuple[Literal["input", "output"], str, Mapping[str, tuple[Format, ...]]], ...] = (
        ("input", "inputs", edge.inputs),
        ("output", "outputs", edge.outputs),
    )
    found: list[Saving] = []
    for side, attribute, formats in sides:
        for name, known in formats.items():
            if name in plan.graph.constants:
                continue
            for fmt in _others(plan, name, known):
                wider = {**formats, name: (*known, fmt)}
                try:
                    saved = base - _cost(plan, dataclasses.replace(edge, **{attribute: wider}))
                except PlanError:  # no reader takes it, and nothing reorders it
                    continue
                if saved > _NOISE * base:
                    found.append(Saving(name, side, fmt, saved, plan.target.spell))
    return tuple(found)
