"""Derivation: what the axes of every tensor mean.

Axis names start at *anchors*, operators that name axes by their definition, and flow forward and
backward through operators that keep or permute axes, to a fixpoint. Where an operator changes
what axes are, the flow is interrupted and the far side is ND: a result, not a failure. Two anchors
that disagree about one tensor are a conflict; it is reported and the tensor is ND.

Extents and strides are never looked at, and Storage is never touched.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from stridewise.formats import Format, parse
from stridewise.graph import Graph, Node, Refusal
from stridewise.ops import OPS
from stridewise.ops.registry import OriginRule

__all__ = ["Derived", "Provenance", "derive"]

_DATA = {2: parse("NC"), 3: parse("NCW"), 4: parse("NCHW"), 5: parse("NCDHW")}
_WEIGHTS = {3: parse("OIW"), 4: parse("OIHW"), 5: parse("OIDHW")}


@dataclass(frozen=True, slots=True)
class Provenance:
    """How the meaning of one value became known, or why it did not.

    Attributes:
        anchor: the node that named the axes; "" where nothing did.
        path: the nodes that the names flowed through, from the anchor on.
        reason: for ND values, what kept the names away.
    """

    anchor: str = ""
    path: tuple[str, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        if not self.anchor:
            return f"ND: {self.reason}"
        through = f" through {', '.join(self.path)}" if self.path else ""
        return f"from {self.anchor}{through}"


@dataclass(frozen=True, slots=True)
class Derived:
    """A graph whose values know what their axes mean.

    Attributes:
        graph: the same nodes; values have their Origin.
        provenance: why, for every value that is not a constant.
        conflicts: values about which two anchors disagree.
    """

    graph: Graph
    provenance: Mapping[str, Provenance]
    conflicts: tuple[Refusal, ...]


def _permuted(origin: Format, perm: tuple[int, ...]) -> Format:
    return Format(origin.axes, tuple(origin.order[axis] for axis in perm))


def _rule(node: Node) -> OriginRule:
    """Return how names flow through a node, its attributes considered."""
    rule = OPS[node.op].origin
    if rule == "keepdims":
        return "same" if node.int_attr("keepdims", 1) else "interrupt"
    return rule


class _Flow:
    """The fixpoint: origins found so far, and values whose news has to be passed on."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.origins: dict[str, Format] = {}
        self.provenance: dict[str, Provenance] = {}
        self.conflicts: dict[str, Refusal] = {}
        self.pending: deque[str] = deque()
        self.touching: dict[str, list[Node]] = {name: [] for name in graph.values}
        for node in graph.nodes:
            for name in dict.fromkeys((*node.inputs, *node.outputs)):
                if name:
                    self.touching[name].append(node)

    def learn(self, name: str, origin: Format, provenance: Provenance) -> None:
        if not name or name in self.graph.constants:
            return
        if len(self.graph.values[name].shape) != origin.rank:
            return
        known = self.origins.get(name)
        if known is None:
            self.origins[name] = origin
            self.provenance[name] = provenance
            self.pending.append(name)
        elif known != origin and name not in self.conflicts:
            first = self.provenance[name].anchor
            self.conflicts[name] = Refusal(
                "derive",
                name,
                f"{first!r} makes it {known}, {provenance.anchor!r} makes it {origin}",
            )

    def anchors(self) -> None:
        for node in self.graph.nodes:
            if OPS[node.op].origin != "anchor":
                continue
            for name in (node.inputs[0], *node.outputs):
                origin = _DATA.get(len(self.graph.values[name].shape))
                if origin is not None:
                    self.learn(name, origin, Provenance(node.name))

    def linked(self, node: Node, name: str) -> Iterator[tuple[str, Format]]:
        """Yield the values of a node that get axes from ``name``, with their origins."""
        origin = self.origins[name]
        rule = _rule(node)
        tied = {post.operand for post in node.post_ops if post.operand is not None}
        group = [node.outputs[0], *(node.inputs[index] for index in tied)]
        if rule == "permute":
            perm = node.ints_attr("perm")
            if name == node.inputs[0]:
                yield node.outputs[0], _permuted(origin, perm)
            else:
                inverse = tuple(perm.index(axis) for axis in range(len(perm)))
                yield node.inputs[0], _permuted(origin, inverse)
            return
        if rule in ("elementwise", "same"):
            group = [*node.outputs, *node.inputs]
        if name in group:
            for other in group:
                if other and other != name:
                    yield other, origin

    def run(self) -> None:
        self.anchors()
        while self.pending:
            name = self.pending.popleft()
            source = self.provenance[name]
            for node in self.touching[name]:
                path = (*source.path, node.name) if node.name != source.anchor else source.path
                for other, origin in self.linked(node, name):
                    self.learn(other, origin, Provenance(source.anchor, path))


def _why_unknown(name: str, producers: Mapping[str, Node]) -> str:
    node = producers.get(name)
    if node is not None and _rule(node) == "interrupt":
        return f"{node.op} {node.name!r} interrupts"
    return "no operator around it names axes"


def derive(graph: Graph) -> Derived:
    """Return the graph with the Origin of every value that has one.

    Weights of convolutions are OIHW (OIW, OIDHW), whatever the data format.
    """
    flow = _Flow(graph)
    flow.run()
    producers = graph.producers()
    values = dict(graph.values)
    provenance: dict[str, Provenance] = {}
    for name, value in graph.values.items():
        if name in graph.constants:
            continue
        origin = None if name in flow.conflicts else flow.origins.get(name)
        values[name] = dataclasses.replace(value, origin=origin)
        if origin is not None:
            provenance[name] = flow.provenance[name]
        elif name in flow.conflicts:
            provenance[name] = Provenance(reason=flow.conflicts[name].reason)
        else:
            provenance[name] = Provenance(reason=_why_unknown(name, producers))
    for node in graph.nodes:
        if node.op == "conv" and node.inputs[1] in graph.constants:
            weights = values[node.inputs[1]]
            origin = _WEIGHTS.get(len(weights.shape))
            values[weights.name] = dataclasses.replace(weights, origin=origin)
    derived = dataclasses.replace(graph, values=MappingProxyType(values))
    return Derived(derived, MappingProxyType(provenance), tuple(flow.conflicts.values()))
