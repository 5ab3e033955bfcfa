"""From a plan, its program and its profile to the data of the report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from itertools import accumulate
from typing import Protocol

from stridewise.errors import FormatError
from stridewise.formats import Block as FormatBlock
from stridewise.formats import Format
from stridewise.formats.picture import svg
from stridewise.graph import Node, Refusal
from stridewise.ops.geometry import user_format
from stridewise.planner.candidates import Candidate
from stridewise.planner.plan import Decision, Plan, Reorder
from stridewise.report.data import (
    Arena,
    Bar,
    Block,
    Choice,
    Edge,
    FormatUse,
    Group,
    Move,
    Port,
    RefusalRow,
    RegretRow,
    Report,
    Vertex,
)
from stridewise.report.fold import repeats, stretches
from stridewise.runtime.executor import Profile
from stridewise.runtime.program import ArenaBlock, CopyStep, Program
from stridewise.runtime.schedule import copy_labels, output_labels, reorder_label
from stridewise.tensor import TensorDesc

__all__ = ["MOST_BOXES", "Regret", "collect"]

MOST_BOXES = 900
"""Boxes of a folded drawing; browsers lay out and move that many without a wait."""

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LABEL_OPS = 4


class Regret(Protocol):
    """What the report needs to know of the price of another format of one tensor."""

    @property
    def tensor(self) -> str:
        """The value."""
        ...

    @property
    def format(self) -> Format:
        """The format that it does not have."""
        ...

    @property
    def total_ns(self) -> float:
        """What the whole plan would cost more."""
        ...

    @property
    def kernel_ns(self) -> float:
        """The part of it in kernels."""
        ...

    @property
    def reorder_ns(self) -> float:
        """The part of it in reorders."""
        ...


def _clean(text: str) -> str:
    """Return text as files in UTF-8 and documents in XML can hold it."""
    return _UNPRINTABLE.sub("\ufffd", text)


# --- formats --------------------------------------------------------------------------------------


def _picture(fmt: Format) -> str:
    """Return the picture of a small tensor in a format, "" where none is small enough."""
    blocks: dict[str, int] = {}
    for digit in fmt.digits:
        if isinstance(digit, FormatBlock):
            blocks[digit.axis] = blocks.get(digit.axis, 1) * digit.size
    usual = {"N": 1, "C": 5, "a": 1 if len(fmt.axes) > 2 else 2, "b": 5}
    for spatial in (3, 2, 1):
        # A quarter more than a block shows what padding there is.
        shape = tuple(
            blocks[axis] + max(blocks[axis] // 4, 1) if axis in blocks else usual.get(axis, spatial)
            for axis in fmt.axes
        )
        try:
            return svg(fmt, shape)
        except FormatError:
            continue
    return ""


class _Formats:
    """Every stored tensor's format, and the number under which the page knows it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._sizes: dict[str, list[int]] = {}
        self.known: dict[str, Format] = {}

    def meet(self, value: str, fmt: Format) -> None:
        """Count a stored tensor."""
        self.known.setdefault(str(fmt), fmt)
        self._sizes.setdefault(str(fmt), []).append(self.nbytes(value, fmt))

    def nbytes(self, value: str, fmt: Format) -> int:
        found = self._plan.graph.values[value]
        return TensorDesc(found.shape, found.dtype, user_format(found), fmt).nbytes

    def meet_all(self) -> None:
        graph = self._plan.graph
        for name in graph.inputs:
            self.meet(name, user_format(graph.values[name]))
        for node, decision in zip(graph.nodes, self._plan.decisions, strict=True):
            for name, fmt in zip(node.outputs, decision.chosen.option.outputs, strict=True):
                self.meet(name, fmt)
        for reorder in self._plan.reorders:
            self.meet(reorder.tensor, reorder.target)
        used = tuple(self.known)
        for decision in self._plan.decisions:
            for candidate in (decision.chosen, *decision.rejected):
                for fmt in (*candidate.option.inputs, *candidate.option.outputs):
                    if fmt is not None:
                        self.known.setdefault(str(fmt), fmt)
        order = sorted(used, key=lambda name: -sum(self._sizes[name]))
        rest = [name for name in self.known if name not in self._sizes]
        self._index = {name: index for index, name in enumerate((*order, *rest))}

    def index(self, fmt: Format) -> int:
        return self._index.setdefault(str(fmt), len(self._index))

    def uses(self) -> tuple[FormatUse, ...]:
        return tuple(
            FormatUse(name, len(self._sizes.get(name, ())), sum(self._sizes.get(name, ())))
            for name in self._index
        )

    def pictures(self) -> tuple[str, ...]:
        return tuple(
            _picture(self.known[name]) if name in self._sizes else "" for name in self._index
        )


# --- vertices and edges ---------------------------------------------------------------------------


class _Drawing:
    """Vertices in the order of execution, and the stored tensors that run between them."""

    def __init__(
        self,
        plan: Plan,
        formats: _Formats,
        measured: Mapping[str, float] | None,
        regrets: Iterable[Regret],
    ) -> None:
        self.plan, self.formats, self.measured = plan, formats, measured
        self.vertices: list[Vertex] = []
        self.edges: list[Edge] = []
        self.attributed: set[str] = set()
        self.vertex_of_value: dict[str, int] = {}
        self._where: dict[tuple[str, str], tuple[int, Format]] = {}
        self._pending: dict[tuple[str, str], Reorder] = {
            self._key(item.tensor, item.target): item for item in plan.reorders
        }
        self._refusals: dict[str, list[RefusalRow]] = {}
        for item in (*plan.refusals, *plan.derived.conflicts):
            self._refusals.setdefault(item.subject, []).append(_refusal(item))
        self._regrets: dict[str, list[RegretRow]] = {}
        for item in regrets:
            row = RegretRow(
                _clean(item.tensor), str(item.format),
                item.total_ns, item.kernel_ns, item.reorder_ns,
            )  # fmt: skip
            self._regrets.setdefault(item.tensor, []).append(row)

    def draw(self) -> None:
        graph = self.plan.graph
        for name in graph.inputs:
            self._input(name)
        for node, decision in zip(graph.nodes, self.plan.decisions, strict=True):
            self._node(node, decision)
        for name in graph.outputs:
            self._output(name)

    def _key(self, value: str, fmt: Format) -> tuple[str, str]:
        return value, self.plan.storages.key(value, fmt)

    def _add(self, vertex: Vertex, reads: Sequence[tuple[str, Format]]) -> int:
        """Add a vertex behind what it reads."""
        sources = [(name, *self._stored(name, fmt)) for name, fmt in reads]
        index = len(self.vertices)
        self.vertices.append(vertex)
        for name, source, fmt in sources:
            self.edges.append(Edge(source, index, _clean(name), self.formats.index(fmt)))
        return index

    def _stored(self, value: str, fmt: Format) -> tuple[int, Format]:
        """Return the vertex that makes a value in a format, reordering it first if planned."""
        key = self._key(value, fmt)
        if key not in self._where:
            self._where[key] = self._reorder(self._pending[key])
        return self._where[key]

    def _time(self, *labels: str) -> float | None:
        if self.measured is None:
            return None
        self.attributed.update(labels)
        return sum(self.measured.get(label, 0.0) for label in labels)

    def _port(self, name: str, fmt: Format | None) -> Port:
        value = self.plan.graph.values[name]
        why = self.plan.derived.provenance.get(name)
        nbytes = 0 if fmt is None else self.formats.nbytes(name, fmt)
        return Port(
            _clean(name),
            str(value.type),
            "" if value.origin is None else str(value.origin),
            "" if why is None else _clean(str(why)),
            None if fmt is None else self.formats.index(fmt),
            nbytes,
        )

    def _input(self, name: str) -> None:
        fmt = user_format(self.plan.graph.values[name])
        port = self._port(name, fmt)
        vertex = Vertex(
            "input", _clean(name), "input", (), (), (), (port,), port.format, False, 0.0, None,
            refusals=self._about(name), regrets=tuple(self._regrets.get(name, ())),
        )  # fmt: skip
        self._where[self._key(name, fmt)] = self._add(vertex, ()), fmt
        self.vertex_of_value[name] = len(self.vertices) - 1

    def _output(self, name: str) -> None:
        fmt = user_format(self.plan.graph.values[name])
        port = self._port(name, fmt)
        measured = self._time(*output_labels(name))
        vertex = Vertex(
            "output", _clean(name), "output", (), (), (port,), (), port.format,
            bool(measured), 0.0, measured,
        )  # fmt: skip
        self._add(vertex, () if name in self.plan.graph.constants else ((name, fmt),))

    def _reorder(self, reorder: Reorder) -> tuple[int, Format]:
        name = reorder.tensor
        before, after = (self._port(name, fmt) for fmt in (reorder.source, reorder.target))
        kernel = reorder.implementation or "library's choice"
        vertex = Vertex(
            "reorder", _clean(name), "reorder", (), (("kernel", kernel),),
            (before,), (after,), after.format, True, reorder.cost_ns,
            self._time(reorder_label(reorder)),
        )  # fmt: skip
        return self._add(vertex, ((name, reorder.source),)), reorder.target

    def _node(self, node: Node, decision: Decision) -> None:
        chosen, constants = decision.chosen, self.plan.graph.constants
        option = chosen.option
        pairs = [pair for pair in zip(node.inputs, option.inputs, strict=True) if pair[0]]
        reads = [(name, fmt) for name, fmt in pairs if fmt is not None and name not in constants]
        outputs = tuple(map(self._port, node.outputs, option.outputs))
        candidates = (chosen, *sorted(decision.rejected, key=lambda item: item.cost_ns))
        vertex = Vertex(
            "node",
            _clean(node.name),
            node.op,
            tuple(_clean(_fused(node, index)) for index in range(len(node.post_ops))),
            tuple((key, _clean(str(value))) for key, value in node.attrs),
            tuple(self._port(name, fmt) for name, fmt in pairs),
            outputs,
            outputs[0].format if outputs else None,
            bool(option.calls or option.fill),
            chosen.cost_ns,
            self._time(node.name, *copy_labels(node)),
            tuple(self._choice(candidate, candidate is chosen) for candidate in candidates),
            tuple(row for name in (node.name, *node.outputs) for row in self._about(name)),
            tuple(row for name in node.outputs for row in self._regrets.get(name, ())),
        )
        index = self._add(vertex, reads)
        for name, fmt in zip(node.outputs, option.outputs, strict=True):
            self._where[self._key(name, fmt)] = index, fmt
            self.vertex_of_value[name] = index

    def _about(self, subject: str) -> tuple[RefusalRow, ...]:
        return tuple(self._refusals.get(subject, ()))

    def _choice(self, candidate: Candidate, chosen: bool) -> Choice:
        number, option = self.formats.index, candidate.option
        return Choice(
            candidate.algorithm,
            candidate.implementation,
            tuple(None if fmt is None else number(fmt) for fmt in option.inputs),
            tuple(map(number, option.outputs)),
            candidate.cost_ns,
            ", ".join(dict.fromkeys(cost.source for cost in candidate.costs)) or "free",
            chosen,
        )


def _fused(node: Node, index: int) -> str:
    post = node.post_ops[index]
    return post.op if post.operand is None else f"{post.op} {node.inputs[post.operand]}"


def _refusal(item: Refusal) -> RefusalRow:
    return RefusalRow(_clean(item.rule), _clean(item.subject), _clean(item.reason))


# --- groups ---------------------------------------------------------------------------------------


def _groups(vertices: Sequence[Vertex], edges: Sequence[Edge]) -> tuple[Group, ...]:
    """Return what is drawn folded: repetitions, and stretches of what else is too much."""
    distances: dict[int, list[int]] = {index: [] for index in range(len(vertices))}
    for edge in edges:
        distances[edge.target].append(edge.target - edge.source)
    letters = [
        # Inputs and outputs are like nothing else, and so never part of a repetition.
        (vertex.kind, index)
        if vertex.kind in ("input", "output")
        else (vertex.op, tuple(name.partition(" ")[0] for name in vertex.fused), vertex.works,
              vertex.format, *(port.format for port in vertex.inputs), *distances[index])
        for index, vertex in enumerate(vertices)
    ]  # fmt: skip
    found = repeats(letters, _widths(len(vertices), edges))
    more = stretches(len(vertices), found, MOST_BOXES)
    return tuple(
        Group(first, length, count, _summary(vertices[first : first + length]))
        for first, length, count in sorted((*found, *more))
    )


def _widths(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return how many results of earlier vertices are read at or after each vertex."""
    last: dict[int, int] = {}
    for edge in edges:
        last[edge.source] = max(last.get(edge.source, 0), edge.target)
    changes = [0] * (count + 1)
    for source, target in last.items():
        changes[source + 1] += 1
        changes[target + 1] -= 1
    return list(accumulate(changes[:count]))


def _summary(vertices: Sequence[Vertex]) -> str:
    labels = ["+".join((v.op, *(name.partition(" ")[0] for name in v.fused))) for v in vertices]
    more = f", … {len(labels) - _LABEL_OPS} more" if len(labels) > _LABEL_OPS else ""
    return ", ".join(labels[:_LABEL_OPS]) + more


# --- the rest -------------------------------------------------------------------------------------


def _arena(program: Program, drawing: _Drawing, formats: _Formats) -> Arena:
    by_node = {v.name: index for index, v in enumerate(drawing.vertices) if v.kind == "node"}

    def block(item: ArenaBlock) -> Block:
        span = (item.offset, item.nbytes, item.first, item.last)
        if not item.tensors:
            return Block(*span, (_clean(item.node),), None, by_node.get(_clean(item.node)))
        names = tuple(
            f"{_clean(tensor.value)} ({tensor.desc.storage.format})" for tensor in item.tensors
        )
        # The largest tensor of a family is what the others lie in.
        largest = max(item.tensors, key=lambda tensor: tensor.desc.nbytes)
        number = formats.index(largest.desc.storage.format)
        return Block(*span, names, number, drawing.vertex_of_value.get(largest.value))

    return Arena(
        program.arena_nbytes,
        program.lower_bound_nbytes,
        tuple(_clean(step.node) for step in program.steps),
        tuple(map(block, program.blocks)),
    )


def _moves(plan: Plan, program: Program | None) -> tuple[Move, ...]:
    """Return every step that only moves bytes: reorders, and copies where they are known."""
    found = [Move(_clean(reorder_label(r)), "reorder", r.nbytes) for r in plan.reorders]
    steps = () if program is None else program.steps
    copies = [step for step in steps if isinstance(step, CopyStep)]
    return (*found, *(Move(_clean(step.node), "copy", step.nbytes) for step in copies))


def _views(plan: Plan) -> tuple[str, ...]:
    """Return the nodes for which nothing runs."""
    return tuple(
        _clean(decision.node)
        for decision in plan.decisions
        if not decision.chosen.option.calls and decision.chosen.option.fill is None
    )


def _bars(plan: Plan) -> tuple[Bar, ...]:
    return tuple(
        Bar(item.name, item.cost_ns, item.reorders, item.measured_ns, item.name == plan.name)
        for item in plan.compare()
    )


def _measured(profile: Profile | None) -> dict[str, float] | None:
    if profile is None:
        return None
    found: dict[str, float] = {}
    for row in profile.rows:
        found[row.node] = found.get(row.node, 0.0) + row.measured_ns
    return found


def collect(
    plan: Plan,
    program: Program | None = None,
    profile: Profile | None = None,
    regrets: Iterable[Regret] = (),
) -> Report:
    """Return what the page shows.

    Args:
        plan: what was decided.
        program: the lowered plan, for the arena and the copies.
        profile: measured times of the program's steps.
        regrets: what other formats of tensors would cost.
    """
    measured = _measured(profile)
    formats = _Formats(plan)
    formats.meet_all()
    drawing = _Drawing(plan, formats, measured, regrets)
    drawing.draw()
    left = {key: ns for key, ns in (measured or {}).items() if key not in drawing.attributed}
    arena = None if program is None else _arena(program, drawing, formats)
    return Report(
        name=_clean(plan.graph.name),
        version=metadata.version("stridewise"),
        plan=plan.name,
        target=plan.target.name,
        machine=_clean(str(plan.machine)),
        cost_ns=plan.cost_ns,
        lower_bound_ns=plan.lower_bound_ns,
        gap=plan.gap,
        measured_ns=None if profile is None else profile.measured_ns,
        runs=0 if profile is None else profile.runs,
        unattributed_ns=sum(left.values()),
        bars=_bars(plan),
        moves=_moves(plan, program),
        views=_views(plan),
        formats=formats.uses(),
        pictures=formats.pictures(),
        vertices=tuple(drawing.vertices),
        edges=tuple(drawing.edges),
        groups=_groups(drawing.vertices, drawing.edges),
        arena=arena,
        refusals=tuple(map(_refusal, plan.refusals)),
        conflicts=tuple(map(_refusal, plan.derived.conflicts)),
    )
