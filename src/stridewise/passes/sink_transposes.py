"""Move transposes down through operators that work in any order of axes, until they cancel.

Exporters of channels-last frameworks write a transpose before and behind every convolution. Each
value is seen here as the transpose of another one, and nothing is transposed before an operator
needs it. Behind a transpose a channels-first convolution is a channels-last one, so the two around
it cancel, and its neighbors can be fused and folded.

A transpose is left in its place where sinking it would make more transposes than there were.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from math import prod
from types import MappingProxyType

from stridewise.classes import dataclass
from stridewise.graph import Constant, Graph, Node, Refusal, TensorType, Value
from stridewise.graph.names import fresh_name
from stridewise.graph.rewrite import Rewriter
from stridewise.ops import OPS, infer
from stridewise.ops.data_format import inverse
from stridewise.ops.registry import Permuted, permute

__all__ = ["sink_transposes"]

Perm = tuple[int, ...]

_EQUALS = ("elementwise", "same")
"""Origin rules of operators whose operands all have the same axes."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A value of the graph, as the transpose of one of the graph that is being built.

    Attributes:
        source: that value.
        perm: the transpose; None where the two are the same.
        group: which transposes it stems from, an index into ``_Sinking.groups``.
    """

    source: str
    perm: Perm | None = None
    group: int = -1


class _Sinking:
    """One walk through a graph from its inputs to its outputs, and the graph that it makes."""

    def __init__(self, graph: Graph, pinned: frozenset[str]) -> None:
        self.graph, self.pinned = graph, pinned
        self.values: dict[str, Value] = {}
        self.constants: dict[str, Constant] = {}
        self.nodes: list[Node] = []
        self.seen: dict[str, _Seen] = {}
        self.refusals: list[Refusal] = []
        self.taken = set(graph.values)
        self.taken_nodes = {node.name for node in graph.nodes}
        self.producers = graph.producers()
        self.groups: list[int] = []
        self.members: dict[str, int] = {}
        self.made: dict[str, int] = {}
        self.renamed: dict[str, str] = {}
        self.turned: dict[tuple[str, Perm], str] = {}
        for name in graph.sources:
            self.values[name] = graph.values[name]
            self.seen[name] = _Seen(name)
        self.constants |= graph.constants

    # --- groups of transposes that became each other ------------------------------------------

    def root(self, group: int) -> int:
        while group >= 0 and self.groups[group] != group:
            self.groups[group] = self.groups[self.groups[group]]
            group = self.groups[group]
        return group

    def united(self, groups: list[int]) -> int:
        roots = sorted({self.root(group) for group in groups if group >= 0})
        for other in roots[1:]:
            self.groups[other] = roots[0]
        return roots[0] if roots else -1

    def growing(self) -> frozenset[str]:
        """Return the transposes that have become more by being sunk."""
        before = Counter(self.root(group) for group in self.members.values())
        after = Counter(self.root(group) for group in self.made.values())
        return frozenset(
            name
            for name, group in self.members.items()
            if after[self.root(group)] > before[self.root(group)]
        )

    # --- building -----------------------------------------------------------------------------

    def fresh(self, hint: str, taken: set[str]) -> str:
        name = fresh_name(hint, taken.__contains__)
        taken.add(name)
        return name

    def emit(self, node: Node) -> None:
        types = tuple(self.values[name].type if name else None for name in node.inputs)
        for name, type_ in zip(node.outputs, infer(node, types), strict=True):
            self.values[name] = Value(name, type_)
        self.nodes.append(node)

    def needed(self, name: str) -> str:
        """Return the name of a value as it was, transposed if that has not been done yet."""
        seen = self.seen[name]
        if seen.perm is None:
            return seen.source
        if name not in self.made:
            producer = self.producers.get(name)
            own = producer is not None and producer.op == "transpose"
            hint = producer.name if producer is not None else name
            title = hint if own else self.fresh(f"{hint}.transpose", self.taken_nodes)
            self.emit(Node(title, "transpose", (seen.source,), (name,), (("perm", seen.perm),)))
            self.made[name] = seen.group
        return name

    def keep(self, node: Node) -> None:
        """Take over a node as it is."""
        inputs = tuple(self.needed(name) if name else "" for name in node.inputs)
        self.emit(dataclasses.replace(node, inputs=inputs))
        for name in node.outputs:
            self.seen[name] = _Seen(name)

    def transpose(self, node: Node) -> None:
        """See the result of a transpose as one of what its operand is a transpose of."""
        before, perm = self.seen[node.inputs[0]], node.ints_attr("perm")
        self.groups.append(len(self.groups))
        self.members[node.name] = len(self.groups) - 1
        group = self.united([before.group, len(self.groups) - 1])
        if before.perm is not None:
            perm = tuple(before.perm[axis] for axis in perm)
        whole = None if perm == tuple(range(len(perm))) else perm
        self.seen[node.outputs[0]] = _Seen(before.source, whole, group)
        if whole is None:
            self.renamed.setdefault(before.source, node.outputs[0])

    # --- sinking ------------------------------------------------------------------------------

    def operand(self, node: Node, name: str, perm: Perm) -> str | None:
        """Return the value whose transpose is the operand, None where there is none."""
        seen = self.seen[name]
        if seen.perm is not None:
            return seen.source
        if prod(self.values[seen.source].shape) == 1 and OPS[node.op].origin == "elementwise":
            return seen.source
        constant = self.constants.get(seen.source)
        if constant is None and not self.is_row(seen.source, perm):
            return None
        if (seen.source, perm) not in self.turned:
            self.turned[seen.source, perm] = (
                self.turned_row(seen.source, perm)
                if constant is None
                else self.turned_constant(seen.source, constant, perm)
            )
        return self.turned[seen.source, perm]

    def is_row(self, name: str, perm: Perm) -> bool:
        """Return whether a reshape gives a row, which another one gives along another axis."""
        producer, shape = self.producers.get(name), self.values[name].shape
        is_reshaped = producer is not None and producer.op == "reshape"
        return is_reshaped and len(shape) == len(perm) and sum(n > 1 for n in shape) <= 1

    def turned_row(self, name: str, perm: Perm) -> str:
        turned = self.fresh(f"{name}.transposed", self.taken)
        title = self.fresh(f"{self.producers[name].name}.row", self.taken_nodes)
        shape = tuple(self.values[name].shape[axis] for axis in inverse(perm))
        self.emit(Node(title, "reshape", (name,), (turned,), (("shape", shape),)))
        return turned

    def turned_constant(self, name: str, constant: Constant, perm: Perm) -> str:
        data = constant.array.reshape((1,) * (len(perm) - len(constant.shape)) + constant.shape)
        data = data.transpose(inverse(perm))
        turned = self.fresh(f"{name}.transposed", self.taken)
        self.constants[turned] = Constant(data)
        self.values[turned] = Value(turned, TensorType(constant.dtype, data.shape))
        return turned

    def perm(self, node: Node, tied: tuple[str, ...]) -> Perm | str:
        """Return the transpose that all tied operands have, or why it cannot be moved."""
        perms = {seen.perm for seen in map(self.seen.__getitem__, tied)} - {None}
        (perm, *others) = perms
        if len(node.outputs) > 1:
            return "it has several results"
        if perm is None or others:
            return "its operands are transposed in different ways"
        if any(post.operand is not None for post in node.post_ops):
            return "it has fused operands"
        if OPS[node.op].origin not in _EQUALS and node.inputs.count(tied[0]) > 1:
            return "it reads its operand in two roles"
        ranks = {len(self.graph.values[name].shape) for name in tied}
        if len(tied) > 1 and max(ranks) > len(perm):
            return "its result has more axes than the transpose"
        return perm

    def sunk(self, node: Node, tied: tuple[str, ...]) -> str:
        """Put a node before the transposes of its operands; return why not, or ""."""
        perm = self.perm(node, tied)
        if isinstance(perm, str):
            return perm
        lead = next(self.seen[name] for name in tied if self.seen[name].perm is not None)
        moved = permute(node, self.values[lead.source].shape, perm)
        if not isinstance(moved, Permuted):
            return moved
        operands: dict[str, str] = {}
        for name in tied:
            found = self.operand(node, name, perm)
            if found is None:
                return f"its operand {name!r} is not transposed"
            operands[name] = found
        rest = {name: self.needed(name) for name in node.inputs if name and name not in operands}
        inputs = tuple(operands.get(name) or rest.get(name, "") for name in node.inputs)
        (result,) = node.outputs
        whole = None if moved.perm == tuple(range(len(moved.perm))) else moved.perm
        stored = result if whole is None else self.fresh(f"{result}.transposed", self.taken)
        attrs = tuple(sorted(moved.attrs.items()))
        self.emit(dataclasses.replace(node, inputs=inputs, outputs=(stored,), attrs=attrs))
        self.seen[result] = _Seen(
            stored, whole, self.united([self.seen[name].group for name in tied])
        )
        return ""

    def visit(self, node: Node) -> None:
        if node.op == "transpose" and node.name not in self.pinned:
            self.transpose(node)
            return
        tied = tuple(name for name in node.inputs[:1] if name)
        if OPS[node.op].origin in _EQUALS:
            tied = tuple(dict.fromkeys(name for name in node.inputs if name))
        turned = [name for name in tied if self.seen[name].perm is not None]
        reason = self.sunk(node, tied) if turned else ""
        if turned and not reason:
            return
        for name in turned:
            producer = self.producers[name]
            what = "it stops" if producer.op == "transpose" else "the transpose behind it stops"
            why = f"{what} at {node.op} {node.name!r}: {reason}"
            self.refusals.append(Refusal("sink_transposes", producer.name, why))
        self.keep(node)

    def finish(self) -> Graph:
        final: dict[str, str] = {}
        fixed = {*self.graph.sources, *self.graph.sinks, *self.constants}
        for name in self.graph.sinks:
            source = self.needed(name)
            if source == name:
                continue
            if source in fixed or source in final:
                title = self.fresh(self.producers[name].name, self.taken_nodes)
                self.emit(Node(title, "identity", (source,), (name,)))
            else:
                final[source] = name
        for source, name in self.renamed.items():
            if source not in fixed and source not in final and source not in self.graph.values:
                final[source] = name
        return self.with_names(final)

    def with_names(self, final: dict[str, str]) -> Graph:
        nodes = tuple(
            dataclasses.replace(
                node,
                inputs=tuple(final.get(name, name) for name in node.inputs),
                outputs=tuple(final.get(name, name) for name in node.outputs),
            )
            for node in self.nodes
        )
        values = {
            final.get(name, name): dataclasses.replace(value, name=final.get(name, name))
            for name, value in self.values.items()
        }
        graph = dataclasses.replace(
            self.graph,
            nodes=nodes,
            values=MappingProxyType(values),
            constants=MappingProxyType(self.constants),
        )
        return Rewriter(graph).finish()


def sink_transposes(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with transposes as far down as they go, and fewer of them or as many."""
    if not any(node.op == "transpose" for node in graph.nodes):
        return graph, ()
    pinned: frozenset[str] = frozenset()
    while True:
        sinking = _Sinking(graph, pinned)
        for node in graph.nodes:
            sinking.visit(node)
        result = sinking.finish()
        growing = sinking.growing()
        if not growing:
            reason = "it would have to be done more often further down"
            stay = tuple(Refusal("sink_transposes", name, reason) for name in sorted(pinned))
            return result, (*sinking.refusals, *stay)
        pinned |= growing
