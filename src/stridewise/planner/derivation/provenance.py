"""Why the meaning of a tensor is known, or what kept it away; found in ``derive.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from stridewise.graph import Graph, Refusal

__all__ = ["Derived", "Direction", "Provenance"]

Direction = Literal["", "up", "down", "aside"]
"""Where something lies: nowhere else, towards the graph's inputs, its outputs, or either way."""

_SHOWN = 4
"""Nodes of a path that its text names; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """How the meaning of one value became known, or why it did not.

    Attributes:
        anchor: the node that named the axes, or the declared input; "" where nothing did.
        declared: whether the anchor is an input whose origin the caller declared.
        distance: how many nodes lie between the value and its anchor, or what kept names away.
        last: the nearest of these nodes.
        before: the provenance of the value on the other side of it.
        direction: in which direction all these nodes lie.
        reason: for ND values, what kept the names away.
    """

    anchor: str = ""
    declared: bool = False
    distance: int = 0
    last: str = ""
    before: Provenance | None = field(default=None, compare=False, repr=False)
    direction: Direction = ""
    reason: str = ""

    def through(self, node: str, direction: Direction) -> Provenance:
        """Return the provenance of a value that a node ties to one of this provenance."""
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
        """The nodes that the names flowed through, from the anchor on; found on demand."""
        return tuple(self._backward())[::-1]

    @property
    def source(self) -> str:
        """The anchor, as messages name it."""
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
    """A graph whose values know what their axes mean.

    Attributes:
        graph: the same nodes; values have their Origin.
        provenance: why, for every value that is not a constant.
        conflicts: where anchors disagree, each with both of them.
    """

    graph: Graph
    provenance: Mapping[str, Provenance]
    conflicts: tuple[Refusal, ...]

    def explain(self) -> str:
        """Return every value with its Origin and why, and the conflicts, as text for people."""
        lines = ["what every tensor means:"]
        for name, found in self.provenance.items():
            origin = self.graph.values[name].origin
            meaning = "" if origin is None else f"{origin} "
            lines.append(f"  {name}: {meaning}{found}")
        lines += [f"  conflict about {item.subject}: {item.reason}" for item in self.conflicts]
        return "\n".join(lines) + "\n"
