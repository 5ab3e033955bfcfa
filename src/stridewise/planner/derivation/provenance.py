"""The reason why the meaning of a tensor is known or unknown; computed in ``derive.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Literal

from stridewise.classes import dataclass
from stridewise.graph import Graph, Refusal

__all__ = ["Derived", "Direction", "Provenance"]

Direction = Literal["", "up", "down", "aside"]
"""Direction to an anchor or obstacle: none, towards the inputs, towards the outputs, or mixed."""

_SHOWN = 4
"""Number of nodes of a path that its text names. The others are counted."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """The reason why the meaning of one value is known or unknown.

    Attributes:
        anchor: the node that named the axes, or the declared input; "" if the meaning is unknown.
        declared: whether the anchor is an input with a declared origin.
        distance: number of nodes between the value and its anchor or obstacle.
        last: the nearest of these nodes.
        before: the provenance of the value on the other side of ``last``.
        direction: the direction of all these nodes.
        reason: for ND values, the obstacle.
    """

    anchor: str = ""
    declared: bool = False
    distance: int = 0
    last: str = ""
    before: Provenance | None = field(default=None, compare=False, repr=False)
    direction: Direction = ""
    reason: str = ""

    def through(self, node: str, direction: Direction) -> Provenance:
        """Return the provenance of a value that a node relates to a value of this provenance."""
        whole = direction if self.direction in ("", direction) else "aside"
        distance = self.distance + 1
        return Provenance(self.anchor, self.declared, distance, node, self, whole, self.reason)

    def _backward(self) -> Iterator[str]:
        step: Provenance | None = self
        while step is not None and step.distance:
            yield step.last
            step = step.before

    @property
    def path(self) -> tuple[str, ...]:
        """The nodes on the path of the names, from the anchor on; computed on demand."""
        return tuple(self._backward())[::-1]

    @property
    def source(self) -> str:
        """The text of the anchor in messages."""
        return f"the declared origin of {self.anchor!r}" if self.declared else repr(self.anchor)

    def _through(self) -> str:
        shown = [node for node, _ in zip(self._backward(), range(_SHOWN), strict=False)][::-1]
        hidden = self.distance - len(shown)
        more = f"{hidden} more, then " if hidden else ""
        return f" through {more}{', '.join(shown)}" if shown else ""

    def __str__(self) -> str:
        if not self.anchor:
            where = {"": "", "up": ", further up", "down": ", further down", "aside": ", reached"}
            return f"ND: {self.reason}{where[self.direction]}{self._through()}"
        return f"{'declared for' if self.declared else 'from'} {self.anchor}{self._through()}"


_Step = tuple[str, bool, int, str, int | None, Direction, str]
"""A provenance with the place of the one before it in a list; None for none."""


def _place(found: Provenance, steps: list[_Step], places: dict[int, int]) -> int:
    """Return the place of a provenance in a list, to which it and those before it are added.

    Args:
        found: the provenance.
        steps: the list; each provenance is behind the one before it.
        places: the places of those that are in it, by ``id``.
    """
    path: list[Provenance] = []
    step: Provenance | None = found
    while step is not None and id(step) not in places:
        path.append(step)
        step = step.before
    for step in reversed(path):
        before = None if step.before is None else places[id(step.before)]
        places[id(step)] = len(steps)
        steps.append(
            (step.anchor, step.declared, step.distance, step.last, before, step.direction,
             step.reason)
        )  # fmt: skip
    return places[id(found)]


@dataclass(frozen=True, slots=True)
class Derived:
    """A graph with derived Origins.

    Attributes:
        graph: the graph with the same nodes; its values have an Origin if it is known.
        provenance: the reason for every value that is not a constant.
        conflicts: the disagreements of anchors, each with both anchors.
    """

    graph: Graph
    provenance: Mapping[str, Provenance]
    conflicts: tuple[Refusal, ...]

    def __getstate__(self) -> tuple[Graph, dict[str, int], list[_Step], tuple[Refusal, ...]]:
        """Return the content without nesting: paths are longer than Python pickles levels."""
        steps: list[_Step] = []
        places: dict[int, int] = {}
        found = {name: _place(item, steps, places) for name, item in self.provenance.items()}
        return self.graph, found, steps, self.conflicts

    def __setstate__(
        self, state: tuple[Graph, dict[str, int], list[_Step], tuple[Refusal, ...]]
    ) -> None:
        graph, names, steps, conflicts = state
        made: list[Provenance] = []
        for anchor, declared, distance, last, before, direction, reason in steps:
            earlier = None if before is None else made[before]
            made.append(Provenance(anchor, declared, distance, last, earlier, direction, reason))
        found = MappingProxyType({name: made[at] for name, at in names.items()})
        fields = {"graph": graph, "provenance": found, "conflicts": conflicts}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def explain(self) -> str:
        """Return a text of all values with Origin and provenance, and of the conflicts."""
        lines = ["what every tensor means:"]
        for name, found in self.provenance.items():
            origin = self.graph.values[name].origin
            meaning = "" if origin is None else f"{origin} "
            lines.append(f"  {name}: {meaning}{found}")
        lines += [f"  conflict about {item.subject}: {item.reason}" for item in self.conflicts]
        return "\n".join(lines) + "\n"
