"""A plan as a document: what ``to_json`` prints, files keep, and two plans are compared by.

``docs/plan-json.md`` describes the fields, and ``docs/plan.schema.json`` is their JSON Schema.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Literal

import numpy as np

from stridewise.classes import dataclass
from stridewise.formats import Format
from stridewise.graph import Graph, Node, Refusal
from stridewise.ops.capability import graph_capability
from stridewise.ops.geometry import user_format
from stridewise.planner.plan import Comparison, Decision, PlanData
from stridewise.planner.problem.candidates import Candidates
from stridewise.planner.questions.moves import Move, find_moves, find_views
from stridewise.planner.questions.partitions import Partition, find_partitions
from stridewise.planner.split import WHOLE, Split
from stridewise.records import dump, encode
from stridewise.targets.cost import KernelCost
from stridewise.targets.machine import Machine
from stridewise.targets.target import Precision, Target
from stridewise.tensor import Grid

__all__ = [
    "VERSION",
    "BiasRecord",
    "NodeRecord",
    "OfferRecord",
    "PlanRecord",
    "RejectedRecord",
    "ReorderRecord",
    "TensorRecord",
    "fingerprint",
    "kernel_texts",
    "signatures",
]

VERSION = 2
"""Of the schema. It changes when a field goes away or changes its meaning."""


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """A candidate that was not chosen: what it is called, and its cost, the node alone."""

    algorithm: str
    cost_ns: float


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node and what was decided for it; storages and kernels by their texts."""

    name: str
    op: str
    signature: str
    post_ops: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    input_formats: tuple[str | None, ...]
    output_formats: tuple[str, ...]
    algorithm: str
    kernels: tuple[str, ...]
    implementations: tuple[str, ...]
    cost_ns: float
    cost_sources: tuple[str, ...]
    rejected: tuple[RejectedRecord, ...]

    @property
    def choice(self) -> tuple[object, ...]:
        """What is compared with the candidates of a graph."""
        return self.algorithm, self.input_formats, self.output_formats, self.kernels


@dataclass(frozen=True, slots=True)
class ReorderRecord:
    """A reorder, its storages by name."""

    tensor: str
    source: str = field(metadata={"key": "from"})
    target: str = field(metadata={"key": "to"})
    nbytes: int
    cost_ns: float
    implementation: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Tensor, format before, format after."""
        return self.tensor, self.source, self.target


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """An input or output of the graph, in the user's order of axes, and as the caller hands it."""

    name: str
    type: str
    origin: str | None
    format: str

    def __str__(self) -> str:
        return f"{self.name}: {self.type}" + (f" @{self.origin}" if self.origin else "")


# --- the graph ----------------------------------------------------------------------------------


def _tensor(graph: Graph, name: str, fmt: Format | None = None) -> TensorRecord:
    value = graph.values[name]
    origin = None if value.origin is None else str(value.origin)
    return TensorRecord(name, str(value.type), origin, str(fmt or user_format(value)))


def _typed(graph: Graph, name: str) -> str:
    constant = "const " if graph.is_packed(name) else ""
    return f"{constant}{_tensor(graph, name)}" if name else "_"


def _signature(graph: Graph, node: Node) -> str:
    """Return what a node is: operator, attributes, post-ops and types; no weights."""
    sources = ", ".join(_typed(graph, name) for name in node.inputs)
    results = ", ".join(_typed(graph, name) for name in node.outputs)
    text = f"{node.op}({sources}) -> {results}"
    text += "".join(f" {key}={value!r}" for key, value in node.attrs)
    for post in node.post_ops:
        operand = "" if post.operand is None else f", {post.operand}"
        text += f" +{post.op}({post.alpha!r}, {post.beta!r}{operand})"
    return text


def signatures(graph: Graph) -> dict[str, str]:
    """Return what each input, node and output of a derived graph is, in this order."""
    inputs = {f"input {name!r}": str(_tensor(graph, name)) for name in graph.inputs}
    nodes = {f"node {node.name!r}": _signature(graph, node) for node in graph.nodes}
    outputs = {f"output {name!r}": str(_tensor(graph, name)) for name in graph.outputs}
    return {**inputs, **nodes, **outputs}


def fingerprint(graph: Graph) -> str:
    """Return a digest of structure, types and attributes of a derived graph, without weights."""
    digest = hashlib.sha256()
    for key, text in signatures(graph).items():
        digest.update(f"{key}\n{text}\n".encode())
    return digest.hexdigest()


# --- the plan -----------------------------------------------------------------------------------


def kernel_texts(graph: Graph, target: Target, candidates: Candidates) -> dict[str, KernelCost]:
    """Return the cost of every kernel that some candidate or reorder runs, by its text."""
    found: dict[str, KernelCost] = {}
    for group in candidates.nodes.values():
        for candidate in group:
            for call, cost in zip(candidate.option.calls, candidate.costs, strict=True):
                found[str(call.spec)] = cost
    form = candidates.storages.storage
    moves = {**candidates.user_reorders, **candidates.reorders}
    for (name, source, goal), cost in moves.items():
        spec = target.reorder_spec(graph.values[name], form(name, source), form(name, goal))
        found[str(spec)] = cost
    return dict(sorted(found.items()))


def _node_record(graph: Graph, node: Node, decision: Decision) -> NodeRecord:
    chosen = decision.chosen
    option = chosen.option
    return NodeRecord(
        node.name,
        node.op,
        _signature(graph, node),
        tuple(post.op for post in node.post_ops),
        node.inputs,
        node.outputs,
        tuple(None if stored is None else str(stored) for stored in option.needs),
        tuple(map(str, option.makes)),
        chosen.algorithm,
        tuple(str(call.spec) for call in option.calls),
        tuple(cost.implementation for cost in chosen.costs),
        chosen.cost_ns,
        tuple(cost.source for cost in chosen.costs),
        tuple(RejectedRecord(c.algorithm, c.cost_ns) for c in decision.rejected),
    )


@dataclass(frozen=True, slots=True)
class OfferRecord:
    """The grid that a tensor may be rounded to."""

    tensor: str
    dtype: Literal["s8", "u8"]
    scale: float
    zero_point: int = 0

    @property
    def grid(self) -> Grid:
        """The grid."""
        return Grid(self.dtype, (self.scale,), (self.zero_point,))


@dataclass(frozen=True, slots=True)
class BiasRecord:
    """The bias of rounded weights: float32 numbers in base64, little-endian."""

    weights: str
    numbers: str

    @classmethod
    def of(cls, weights: str, bias: tuple[float, ...]) -> BiasRecord:
        """Return the record of a bias."""
        return cls(weights, base64.b64encode(np.asarray(bias, "<f4").tobytes()).decode())

    @property
    def bias(self) -> tuple[float, ...]:
        """The numbers; empty if they are damaged."""
        try:
            found = np.frombuffer(base64.b64decode(self.numbers, validate=True), "<f4")
        except ValueError:
            return ()
        return tuple(map(float, found))


def _offers(graph: Graph) -> Iterator[OfferRecord]:
    for name, grid in graph.offers.items():
        dtype: Literal["s8", "u8"] = "s8" if grid.dtype == "s8" else "u8"
        yield OfferRecord(name, dtype, grid.scales[0], grid.zero_points[0])


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan without its graph; the fields are those of the document."""

    version: int
    graph: str
    fingerprint: str
    name: str = field(metadata={"key": "plan"})
    target: str
    machine: Machine
    cost_ns: float
    lower_bound_ns: float
    pins: Mapping[str, str]
    notes: tuple[str, ...]
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    nodes: tuple[NodeRecord, ...]
    reorders: tuple[ReorderRecord, ...]
    views: tuple[str, ...]
    moves: tuple[Move, ...]
    comparisons: tuple[Comparison, ...]
    refusals: tuple[Refusal, ...]
    conflicts: tuple[str, ...]
    kernels: Mapping[str, KernelCost]
    partitions: tuple[Partition, ...] = ()
    split: Split = WHOLE
    dtype: Precision = "model"
    offers: tuple[OfferRecord, ...] = ()
    biases: tuple[BiasRecord, ...] = ()

    @classmethod
    def of(cls, plan: PlanData) -> PlanRecord:
        """Return the record of a plan."""
        graph = plan.graph
        return cls(
            version=VERSION,
            graph=graph.name,
            fingerprint=fingerprint(graph),
            name=plan.name,
            target=plan.target.name,
            machine=plan.machine,
            cost_ns=plan.cost_ns,
            lower_bound_ns=plan.lower_bound_ns,
            pins={pin.tensor: str(pin.storage) for pin in plan.pins},
            notes=plan.notes,
            inputs=tuple(_tensor(graph, name, plan.input_formats[name]) for name in graph.inputs),
            outputs=tuple(
                _tensor(graph, name, plan.output_formats[name]) for name in graph.outputs
            ),
            nodes=tuple(
                _node_record(graph, node, decision)
                for node, decision in zip(graph.nodes, plan.decisions, strict=True)
            ),
            reorders=tuple(
                ReorderRecord(
                    r.tensor, str(r.source), str(r.target), r.nbytes, r.cost_ns, r.implementation
                )
                for r in plan.reorders
            ),
            views=find_views(plan),
            moves=find_moves(plan),
            comparisons=tuple(plan.comparisons),
            refusals=plan.refusals,
            conflicts=tuple(map(str, plan.derived.conflicts)),
            kernels=kernel_texts(graph, plan.target, plan.candidates),
            partitions=() if graph_capability(graph).is_native else find_partitions(plan),
            split=plan.split,
            dtype=plan.target.precision,
            offers=tuple(_offers(graph)),
            biases=tuple(
                BiasRecord.of(name, value.bias)
                for name, value in graph.values.items()
                if value.bias
            ),
        )

    @property
    def parts(self) -> dict[str, str]:
        """What each input, node and output of the graph is; see :func:`signatures`."""
        return {
            **{f"input {tensor.name!r}": str(tensor) for tensor in self.inputs},
            **{f"node {node.name!r}": node.signature for node in self.nodes},
            **{f"output {tensor.name!r}": str(tensor) for tensor in self.outputs},
        }

    def to_json(self) -> str:
        """Return the document as text."""
        return dump(encode(self))
