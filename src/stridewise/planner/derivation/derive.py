"""Derivation of the Origin of every tensor.

Axis names start at *anchors*: operators that define the meaning of axes, and inputs with a declared
origin. They propagate forward and backward through operators that keep or permute axes, one
operator per round, so that every tensor gets the names of its nearest anchor. An operator that
changes the meaning of axes interrupts the propagation; tensors beyond it are ND, which is a result
and not a failure. If anchors disagree, a conflict is reported. A tensor whose nearest anchors
disagree is ND. If the names of two anchors meet at a node, each anchor names the tensors on its
side. A declared origin that disagrees with any other anchor is an error.

The derivation does not use extents or strides and does not change the Storage.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from stridewise.classes import dataclass
from stridewise.errors import FormatError, InputError
from stridewise.formats import Format, parse
from stridewise.graph import Graph, Node, Refusal
from stridewise.ops import OPS
from stridewise.ops.data_format import data_format, inverse
from stridewise.ops.quantize import with_grids
from stridewise.ops.registry import OriginRule
from stridewise.planner.derivation.exactness import exact_values
from stridewise.planner.derivation.interruptions import interruptions
from stridewise.planner.derivation.provenance import Derived, Provenance

__all__ = ["Derived", "Origins", "Provenance", "derive"]

Origins = Mapping[str, str | Format]
"""Declared origins of some inputs: ``{"x": "NHWC"}``."""

_WEIGHTS = {len(axes): Format(tuple(axes), tuple(axes)) for axes in ("OIW", "OIHW", "OIDHW")}


_NO_ANCHOR = Provenance(reason="no operator around it names axes")


def _rule(node: Node) -> OriginRule:
    """Return the origin rule of a node, which may depend on its attributes."""
    rule = OPS[node.op].origin
    if rule == "keepdims":
        return "same" if node.int_attr("keepdims", 1) else "interrupt"
    return rule


@dataclass(frozen=True, slots=True)
class _Claim:
    """The Origin that an anchor gives a value, and the path of the names."""

    origin: Format
    provenance: Provenance

    def __str__(self) -> str:
        return f"{self.provenance.source} makes it {self.origin}"


@dataclass(frozen=True, slots=True)
class _Tie:
    """A value whose axes a node relates to the axes of other values.

    Attributes:
        name: the value.
        perm: permutation of its axes to the order that all ties of the node share; None for the
            identity.
    """

    name: str
    perm: tuple[int, ...] | None = None

    def shared(self, origin: Format) -> Format:
        if self.perm is None:
            return origin
        return Format(origin.axes, tuple(origin.order[axis] for axis in self.perm))

    def own(self, shared: Format) -> Format:
        if self.perm is None:
            return shared
        return Format(shared.axes, tuple(shared.order[axis] for axis in inverse(self.perm)))


def _tied(graph: Graph, node: Node) -> tuple[_Tie, ...]:
    """Return the values whose axes a node relates to each other, without constants."""
    rule = _rule(node)
    perms: dict[str, tuple[int, ...] | None] = {node.outputs[0]: None}
    if rule == "permute":
        perms[node.inputs[0]] = node.ints_attr("perm")
    elif rule in ("elementwise", "same"):
        perms |= dict.fromkeys((*node.outputs, *node.inputs))
    elif rule == "data":
        perms |= {node.inputs[0]: None}
    else:
        fused = (post.operand for post in node.post_ops if post.operand is not None)
        perms |= {node.inputs[index]: None for index in fused}
    rank = len(graph.values[node.outputs[0]].shape)
    return tuple(
        _Tie(name, perm)
        for name, perm in perms.items()
        if name and not graph.is_packed(name) and len(graph.values[name].shape) == rank
    )


class _Flow:
    """The names found so far, and the values whose nearest anchors disagree (``torn``)."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.known: dict[str, _Claim] = {}
        self.torn: dict[str, Refusal] = {}
        self.conflicts: list[Refusal] = []
        self.met: set[str] = set()
        self.ties = {node.name: _tied(graph, node) for node in graph.nodes}
        self.touching: dict[str, list[Node]] = {name: [] for name in graph.values}
        for node in graph.nodes:
            for tie in self.ties[node.name]:
                self.touching[tie.name].append(node)

    def anchors(self) -> Iterator[tuple[str, _Claim]]:
        for node in self.graph.nodes:
            rule, names = OPS[node.op].origin, node.inputs
            if rule == "anchor":
                names = (node.inputs[0], *node.outputs)
            elif rule != "sources":
                continue
            for name in dict.fromkeys(names):
                origin = data_format(node, len(self.graph.values[name].shape))
                if origin is not None and not self.graph.is_packed(name):
                    yield name, _Claim(origin, Provenance(node.name))

    def conflict(self, name: str, reason: str, claims: Iterable[_Claim]) -> Refusal:
        """Record that anchors disagree about a value.

        Raises:
            FormatError: one of the anchors is a declared origin.
        """
        declared = [c.provenance.anchor for c in claims if c.provenance.declared]
        if declared:
            raise FormatError.at(
                "origins",
                expected=f"meanings of axes that agree about {name!r}",
                found=reason,
                fix=f"leave {declared[0]!r} out, or give what the operators say",
            )
        found = Refusal("derive", name, reason)
        self.conflicts.append(found)
        return found

    def run(self, claims: Iterable[tuple[str, _Claim]]) -> None:
        """Process the claims of one round, then those that follow, until none are left."""
        while claims:
            news = self.settle(claims)
            nodes = {node.name: node for name in news for node in self.touching[name]}
            claims = [claim for node in nodes.values() for claim in self.passed_on(node)]

    def settle(self, claims: Iterable[tuple[str, _Claim]]) -> frozenset[str]:
        """Name the values about which all claims of a round agree, and return them."""
        fresh: dict[str, _Claim] = {}
        for name, claim in claims:
            first = fresh.setdefault(name, claim)
            if name not in self.torn and first.origin != claim.origin:
                self.torn[name] = self.conflict(name, f"{first}, {claim}", (first, claim))
        news = {name: claim for name, claim in fresh.items() if name not in self.torn}
        self.known |= news
        return frozenset(news)

    def passed_on(self, node: Node) -> list[tuple[str, _Claim]]:
        """Return the claims of the named values of a node for its values without names."""
        ties = self.ties[node.name]
        said: dict[Format, _Claim] = {}
        for tie in ties:
            claim = self.known.get(tie.name)
            if claim is not None:
                said.setdefault(tie.shared(claim.origin), claim)
        open_ties = [tie for tie in ties if tie.name not in self.known]
        if len(said) > 1 and not open_ties:
            self.meet(node, said)
        return [
            (tie.name, _Claim(tie.own(shared), claim.provenance.through(node.name, "")))
            for tie in open_ties
            if tie.name not in self.torn
            for shared, claim in said.items()
        ]

    def meet(self, node: Node, said: Mapping[Format, _Claim]) -> None:
        """Record that the names of the values of a node disagree."""
        if node.name in self.met:
            return
        self.met.add(node.name)
        parts = [f"{claim.provenance.source} makes it {shared}" for shared, claim in said.items()]
        reason = f"{', '.join(parts)}; they meet at {node.op} {node.name!r}"
        self.conflict(node.outputs[0], reason, said.values())


def _declared(graph: Graph, origins: Origins) -> Iterator[tuple[str, _Claim]]:
    for name, given in origins.items():
        if name not in graph.inputs:
            known = ", ".join(map(repr, graph.inputs))
            raise InputError.at("origins", expected=f"inputs, {known}", found=repr(name))
        origin = parse(given) if isinstance(given, str) else given
        type_ = graph.values[name].type
        # Values come from callers, whatever their declared types are.
        is_format = isinstance(origin, Format)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not (is_format and origin.is_plain and origin.rank == len(type_.shape)):
            raise FormatError.at(
                f"the declared origin of input {name!r}",
                expected=f"an order of {len(type_.shape)} axes without blocks, for {type_}",
                found=str(origin),
            )
        yield name, _Claim(origin, Provenance(name, declared=True))


def _with_weights(graph: Graph) -> Iterator[tuple[str, Format | None]]:
    """Yield constant weights, which are OIHW (OIW, OIDHW) for every data format."""
    for node in graph.nodes:
        if node.op == "conv" and graph.is_packed(node.inputs[1]):
            yield node.inputs[1], _WEIGHTS.get(len(graph.values[node.inputs[1]].shape))


def derive(graph: Graph, origins: Origins | None = None) -> Derived:
    """Return the graph with an Origin for every value whose axes have a known meaning.

    Args:
        graph: the graph. Existing Origins of its values are ignored.
        origins: declared origins of inputs, by name. They are anchors. Default: none.

    Raises:
        InputError: a declared origin is for no input of the graph.
        FormatError: a declared origin does not fit its input, has blocks, or contradicts operators.
        GraphError: an operator has a data format that does not fit its input.
    """
    flow = _Flow(graph)
    flow.run([*flow.anchors(), *_declared(graph, origins or {})])
    free = [name for name in graph.values if not graph.is_packed(name)]
    ties = {node: tuple(tie.name for tie in tied) for node, tied in flow.ties.items()}
    stops = interruptions(graph, ties, flow.touching, flow.known, flow.torn)
    provenance: dict[str, Provenance] = {}
    values = dict(graph.values)
    for name in free:
        claim = flow.known.get(name)
        values[name] = dataclasses.replace(values[name], origin=claim.origin if claim else None)
        provenance[name] = claim.provenance if claim else stops.get(name, _NO_ANCHOR)
    for name, origin in _with_weights(graph):
        values[name] = dataclasses.replace(values[name], origin=origin)
    for name in exact_values(graph):
        values[name] = dataclasses.replace(values[name], exact=True)
    derived = with_grids(dataclasses.replace(graph, values=MappingProxyType(values)))
    return Derived(derived, MappingProxyType(provenance), tuple(flow.conflicts))
