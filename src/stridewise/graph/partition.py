"""What runs where: the tail of a graph, and how much of a model is native.

A graph holds tensors whose shapes are known. What a model has beyond that, results whose shapes
depend on data, sequences and strings, is in its *tail*: a model of another runtime, which runs
after the graph. :class:`Capability` is the account that people read before they compile.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from stridewise.graph.constant import Constant

__all__ = ["Capability", "NodeSupport", "ResultType", "Segment", "Support", "Tail"]

Support = Literal["native", "constant", "fallback", "tail"]
"""Where a node runs: in the program, nowhere as it is computed at import, in another runtime inside
of the program, or in that runtime behind it."""


@dataclass(frozen=True, slots=True)
class Tail:
    """What another runtime computes after the graph.

    Attributes:
        model: the serialized model, as bytes.
        inputs: names that it reads: inputs of the call, and outputs of the graph.
        outputs: names of what it gives.
        arguments: inputs of a call, in order; those that are no tensors are not in the graph.
        results: outputs of a call, in order.
        nodes: names of the nodes in it.
        operators: the operator of each of them.
        reasons: why each of them is there.
    """

    model: Constant
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResultType:
    """The type of a result as another runtime spells it.

    Attributes:
        text: like ``tensor(float)``, ``seq(tensor(int64))`` or ``optional(tensor(string))``.
        shape: of a tensor; None as an extent where it is not known, None as a whole for no tensor.
    """

    text: str
    shape: Sequence[int | None] | None


@dataclass(frozen=True, slots=True)
class NodeSupport:
    """Where one node of a model runs.

    Attributes:
        name: the node's name in the model, or that of its first result.
        operator: its operator, with the domain where that is not ONNX's own.
        support: where it runs.
        reason: why it is not native; "" where it is.
    """

    name: str
    operator: str
    support: Support
    reason: str = ""

    @property
    def is_native(self) -> bool:
        """Whether no other runtime is needed for it."""
        return self.support in ("native", "constant")


@dataclass(frozen=True, slots=True)
class Segment:
    """Neighbors in the order of execution that run in one place.

    Attributes:
        support: native, or which way of leaving it to another runtime.
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
    """Which nodes of a model are native, which are not and why, and what runs together.

    Attributes:
        model: the model's name.
        nodes: one entry a node, in the model's order.
        segments: what runs where, in order; nodes computed at import are in none.
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
