"""What the page shows, as data: plain, printable, without any HTML.

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
        origin: what the axes mean; "" where nobody knows.
        provenance: how that became known, or why it did not.
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
        algorithm: what the plan calls it.
        implementation: the library's names of its kernels.
        inputs: index of the format of each input; None for constants.
        outputs: index of the format of each output.
        cost_ns: the node alone, without reorders.
        source: where the cost comes from: measured, cached, model.
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
    """What another format of a tensor would cost in total, in its kernels and in reorders."""

    tensor: str
    format: str
    total_ns: float
    kernel_ns: float
    reorder_ns: float


@dataclass(frozen=True, slots=True)
class Vertex:
    """A box of the drawing: a node, a reorder, or an input or output of the graph.

    Attributes:
        kind: which of these.
        name: the node, or the value.
        op: the operator; for others, the kind.
        fused: operators that its kernel applies to each result, with their operands.
        attrs: attributes of the node as text.
        inputs: what it reads.
        outputs: what it makes.
        format: index of the format of what it makes.
        works: whether any kernel, fill or copy runs for it.
        predicted_ns: predicted time.
        measured_ns: measured time, copies for it included; None where nothing was run.
        choices: all candidates, the chosen one first.
        refusals: what was not done about it.
        regrets: what other formats of its results would cost.
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
    """A stored tensor on its way from one vertex to another; all by index."""

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
        offset: where it begins.
        nbytes: its size.
        first: the first step that needs it.
        last: the last one.
        names: the tensors in it, or the node whose scratchpad it is.
        format: index of the format of the first tensor; None for scratchpads.
        vertex: index of the vertex that it belongs to; None where there is none.
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
        steps: what each step is for.
        blocks: what lies where, and when.
    """

    nbytes: int
    lower_bound_nbytes: int
    steps: tuple[str, ...]
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Mover:
    """How many steps of one way to run the graph only move bytes, and of which kind they are."""

    name: str
    steps: int
    kinds: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """How many nodes of an operator move no byte, of all its nodes that compute nothing."""

    op: str
    free: int
    total: int


@dataclass(frozen=True, slots=True)
class Report:
    """All that the page shows.

    Attributes:
        name: the graph.
        version: of Stridewise.
        plan: name of the plan.
        target: what it was planned for.
        machine: what the costs hold for.
        cost_ns: predicted time of a run.
        lower_bound_ns: no plan over the same candidates is faster.
        gap: how far the plan may be from that, as a part of its cost.
        measured_ns: measured time of all steps; None where nothing was run.
        runs: how many runs that is the median of.
        unattributed_ns: the part of it that belongs to no vertex.
        bars: costs of this plan and of the plans that it is compared with.
        moves: steps that only move bytes.
        views: nodes whose result is bytes that are there already.
        movers: how many such steps this plan and others take.
        placed: concats, slices, ... that are views, beside all of them.
        savings: what other formats of inputs and outputs would save.
        parts: what runs natively and what in another runtime, in order; empty where all is native.
        hosted: what of the native nodes NumPy computes.
        formats: in use, those of most bytes first.
        pictures: of each format, SVG, or "" where there is none; no part of the JSON.
        vertices: in the order of execution.
        edges: between them.
        groups: what is drawn folded.
        arena: None where the plan was not lowered.
        memory: what a compiled model occupies; None where none was made.
        refusals: what was not done, and why.
        conflicts: tensors about whose axes two nodes disagree.
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
