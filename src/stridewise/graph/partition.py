"""Which part of a model runs where: the tail of a graph, and how much of a model is native.

A graph holds tensors of known shape. Results whose shapes depend on data, sequences and strings
belong to its *tail*, a foreign part that runs after the graph. :class:`Capability` reports what is
native before a model is compiled.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Literal

from stridewise.classes import dataclass
from stridewise.graph.foreign import ForeignPart

__all__ = ["Capability", "NodeSupport", "Segment", "Support", "Tail"]

Support = Literal["native", "constant", "fallback", "tail"]
"""Where a node runs: ``native`` in a kernel of the program; ``constant`` nowhere, as the import
computes it; ``fallback`` in a foreign part inside the program; ``tail`` in one after it."""


@dataclass(frozen=True, slots=True)
class Tail:
    """What another runtime computes after the graph.

    Attributes:
        part: computes ``outputs`` from ``inputs``; None if there are no nodes, and the tail only
            passes inputs of the call on as results.
        inputs: names of what it reads: inputs of the call, and outputs of the graph.
        outputs: names of its results.
        arguments: inputs of a call, in order; those that are no tensors are not in the graph.
        results: outputs of a call, in order.
        nodes: names of the nodes in it.
        operators: the operator of each node.
        reasons: why each node is in the tail.
    """

    part: ForeignPart | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeSupport:
    """Where one node of a model runs.

    Attributes:
        name: the node's name in the model, or that of its first result.
        operator: its operator, as the front end names it.
        support: where it runs.
        reason: why it is not native; "" if it is.
    """

    name: str
    operator: str
    support: Support
    reason: str = ""

    @property
    def is_native(self) -> bool:
        """Whether it needs no other runtime."""
        return self.support in ("native", "constant")


@dataclass(frozen=True, slots=True)
class Segment:
    """Neighbors in the order of execution that run in one place.

    Attributes:
        support: ``native``, ``fallback`` or ``tail``.
        nodes: their names, in order.
        operators: their operators.
        reasons: why they are not native, each reason once; empty for native ones.
    """

    support: Support
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.support == "native":
            return f"native: {_nodes(len(self.nodes))}"
        counts = Counter(self.operators)
        named = ", ".join(op if n == 1 else f"{n} {op}" for op, n in counts.items())
        text = "; ".join(self.reasons)
        return f"{self.support}: {_nodes(len(self.nodes))} ({named}): {text}"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


@dataclass(frozen=True, slots=True)
class Capability:
    """Which nodes of a model are native, why the others are not, and which nodes run together.

    Attributes:
        model: the model's name.
        nodes: one entry per node, in the model's order.
        segments: the parts, in order of execution; no segment has nodes computed at import.
    """

    model: str
    nodes: tuple[NodeSupport, ...]
    segments: tuple[Segment, ...]

    @property
    def is_native(self) -> bool:
        """Whether the whole model runs without another runtime."""
        return all(node.is_native for node in self.nodes)

    @property
    def foreign(self) -> tuple[NodeSupport, ...]:
        """The nodes that need another runtime."""
        return tuple(node for node in self.nodes if not node.is_native)

    def to_json(self) -> str:
        """Return all of it as JSON."""
        return json.dumps({**asdict(self), "is_native": self.is_native}, indent=2)

    def __str__(self) -> str:
        native = len(self.nodes) - len(self.foreign)
        lines = [f"{self.model!r}: {native} of {_nodes(len(self.nodes))} native"]
        lines += _table(self.foreign)
        if not self.is_native:
            lines.append("in order:")
            lines += [f"  {segment}" for segment in self.segments]
        return "\n".join(lines) + "\n"


def _table(nodes: Iterable[NodeSupport]) -> list[str]:
    rows = [(node.support, node.operator, node.name, node.reason) for node in nodes]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    return [
        "  " + "  ".join((*(row[i].ljust(widths[i]) for i in range(3)), row[3])) for row in rows
    ]
