"""The content of the page as plain, printable data without HTML.

Vertices, formats and steps are referred to by their index, as names of untrusted models may be
anything. Times are in nanoseconds and sizes in bytes, as everywhere.
"""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from typing import Any, Literal, cast

from stridewise.graph import Refusal
from stridewise.planner.plan import Comparison
from stridewise.planner.questions.moves import Move
from stridewise.planner.questions.partitions import Hosted, Partition
from stridewise.profile import Memory
from stridewise.report.training import Training

__all__ = [
    "Arena",
    "Block",
    "Choice",
    "Edge",
    "FormatUse",
    "Group",
    "Port",
    "RegretRow",
    "Report",
    "Vertex",
    "cleaned",
    "to_json",
]


@dataclass(frozen=True, slots=True)
class FormatUse:
    """A storage format that the plan uses.

    Attributes:
        name: its name.
        tensors: how many stored tensors have it.
        nbytes: how large they are together.
    """

    name: str
    tensors: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Port:
    """An input or an output of a vertex.

    Attributes:
        name: the value.
        type: dtype and logical shape, in the user's order of axes.
        origin: the meaning of the axes; "" if it is unknown.
        provenance: the reason of the origin, or why there is none.
        format: index of its storage format; None for constants, which are packed.
        nbytes: bytes in storage, padding included; 0 for constants.
    """

    name: str
    type: str
    origin: str
    provenance: str
    format: int | None
    nbytes: int


@dataclass(frozen=True, slots=True)
class Choice:
    """A candidate of a node.

    Attributes:
        algorithm: its name in the plan.
        implementation: the library's names of its kernels.
        inputs: index of the format of each input; None for constants.
        outputs: index of the format of each output.
        cost_ns: cost of the node alone, without reorders.
        source: source of the cost: measured, cached, model.
        chosen: whether the plan uses it.
    """

    algorithm: str
    implementation: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    cost_ns: float
    source: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class RegretRow:
    """The additional cost of another format of a tensor: in total, kernels, reorders."""

    tensor: str
    format: str
    total_ns: float
    kernel_ns: float
    reorder_ns: float


@dataclass(frozen=True, slots=True)
class Vertex:
    """A box of the drawing: a node, a reorder, or an input or output of the graph.

    Attributes:
        kind: the kind of box.
        name: the node, or the value.
        op: the operator; for others, the kind.
        fused: operators that its kernel applies to each result, with their operands.
        attrs: attributes of the node as text.
        inputs: tensors that it reads.
        outputs: tensors that it writes.
        format: index of the format of its first output.
        works: whether any kernel, fill or copy runs for it.
        predicted_ns: predicted time.
        measured_ns: measured time, including copies for it; None if nothing was run.
        choices: all candidates, the chosen one first.
        refusals: refusals about it.
        regrets: costs of other formats of its results.
    """

    kind: Literal["input", "node", "reorder", "output"]
    name: str
    op: str
    fused: tuple[str, ...]
    attrs: tuple[tuple[str, str], ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    format: int | None
    works: bool
    predicted_ns: float
    measured_ns: float | None
    choices: tuple[Choice, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    regrets: tuple[RegretRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Edge:
    """A stored tensor that one vertex makes and another reads; all by index."""

    source: int
    target: int
    tensor: str
    format: int


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbors in the order of execution that are drawn as one box until it is unfolded.

    Attributes:
        first: index of its first vertex.
        length: vertices of one repetition.
        count: repetitions; 1 for a stretch of a large graph that does not repeat.
        label: operators of one repetition.
    """

    first: int
    length: int
    count: int
    label: str


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes of the arena during some steps.

    Attributes:
        offset: bytes from the start of the arena.
        nbytes: its size.
        first: first step that needs it.
        last: last step that needs it.
        names: its tensors, or the node of a scratchpad.
        format: index of the format of its largest tensor; None for scratchpads.
        vertex: index of its vertex; None if there is none.
    """

    offset: int
    nbytes: int
    first: int
    last: int
    names: tuple[str, ...]
    format: int | None
    vertex: int | None


@dataclass(frozen=True, slots=True)
class Arena:
    """The memory of one run.

    Attributes:
        nbytes: its size.
        lower_bound_nbytes: no arrangement of these tensors needs less.
        steps: node or tensor of each step.
        blocks: the parts of the arena and their lifetimes.
    """

    nbytes: int
    lower_bound_nbytes: int
    steps: tuple[str, ...]
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Mover:
    """Number of steps that only move bytes in one way to run the graph, in total and by kind."""

    name: str
    steps: int
    kinds: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """Nodes of an operator that move no byte, among its nodes that compute nothing."""

    op: str
    free: int
    total: int


@dataclass(frozen=True, slots=True)
class Report:
    """The whole content of the page.

    Attributes:
        name: the graph.
        version: of Stridewise.
        plan: name of the plan.
        target: name of the target.
        machine: the machine that the costs hold for.
        cost_ns: predicted time of a run.
        lower_bound_ns: lower bound for the same candidates.
        gap: largest possible distance from the optimum, relative to the cost.
        measured_ns: measured time of all steps; None if nothing was run.
        runs: number of runs; times are medians.
        unattributed_ns: measured time of steps that belong to no vertex.
        bars: costs of this plan and of the plans that it is compared with.
        moves: steps that only move bytes.
        views: nodes whose result shares the bytes of an operand.
        movers: number of such steps in this plan and in others.
        placed: number of concats, slices, ... that are views, and of all.
        savings: time that other formats of inputs and outputs would save.
        parts: native parts and parts of another runtime, in order; empty if all is native.
        hosted: native nodes that NumPy computes.
        formats: in use, those of most bytes first.
        pictures: SVG of each format, "" for none; not in the JSON.
        vertices: in the order of execution.
        edges: between them.
        groups: vertices that are drawn as one box.
        arena: None if the plan was not lowered.
        memory: memory of the compiled model; None without one.
        refusals: optimizations that were not done, with reasons.
        conflicts: tensors whose axes have two contradicting meanings.
        training: phases, memory and losses of a training step; None for other plans.
    """

    name: str
    version: str
    plan: str
    target: str
    machine: str
    cost_ns: float
    lower_bound_ns: float
    gap: float
    measured_ns: float | None
    runs: int
    unattributed_ns: float
    bars: tuple[Comparison, ...]
    moves: tuple[Move, ...]
    views: tuple[str, ...]
    movers: tuple[Mover, ...]
    placed: tuple[Placed, ...]
    savings: tuple[str, ...]
    parts: tuple[Partition, ...]
    hosted: tuple[Hosted, ...]
    formats: tuple[FormatUse, ...]
    pictures: tuple[str, ...]
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    groups: tuple[Group, ...]
    arena: Arena | None
    memory: Memory | None
    refusals: tuple[Refusal, ...]
    conflicts: tuple[Refusal, ...]
    training: Training | None = None


_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def cleaned(value: Any) -> Any:
    r"""Return a record whose texts all fit into UTF-8 and XML; names of models may be anything.

    >>> cleaned((1, Mover("a\0", 1, ())))
    (1, Mover(name='a\ufffd', steps=1, kinds=()))
    """
    if isinstance(value, str):
        return _UNPRINTABLE.sub("\ufffd", value)
    if isinstance(value, tuple):
        return tuple(map(cleaned, cast("tuple[Any, ...]", value)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value))
        return dataclasses.replace(value, **{key: cleaned(getattr(value, key)) for key in fields})
    return value


def _fields(item: Any) -> dict[str, Any]:
    return {
        field.name: getattr(item, field.name)
        for field in dataclasses.fields(item)
        if field.name != "pictures"
    }


def to_json(report: Report, indent: int | None = None) -> str:
    """Return a report as JSON, its fields by their names."""
    separators = (",", ":") if indent is None else None
    return json.dumps(report, default=_fields, indent=indent, separators=separators)
