"""The reason why the meaning of a tensor is known or unknown; computed in ``derive.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
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

    def explain(self) -> str:
        """Return a text of all values with Origin and provenance, and of the conflicts."""
        lines = ["what every tensor means:"]
        for name, found in self.provenance.items():
            origin = self.graph.values[name].origin
            meaning = "" if origin is None else f"{origin} "
            lines.append(f"  {name}: {meaning}{found}")
        lines += [f"  conflict about {item.subject}: {item.reason}" for item in self.conflicts]
        return "\n".join(lines) + "\n"
