"""The graph of the page: vertices in the order of execution, and edges between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stridewise.graph import Node, Refusal
from stridewise.planner.plan import Decision, PlanData, Reorder
from stridewise.planner.problem.candidates import Candidate
from stridewise.planner.questions.errors import find_contributions
from stridewise.planner.questions.what_if import Regret
from stridewise.program import copy_labels, output_labels, reorder_label
from stridewise.report.data import Choice, Edge, Port, RegretRow, Vertex
from stridewise.report.formats import Formats
from stridewise.tensor import Storage

__all__ = ["Drawing"]


class Drawing:
    """Vertices in the order of execution, and the stored tensors between them."""

    def __init__(
        self,
        plan: PlanData,
        formats: Formats,
        measured: Mapping[str, float] | None,
        regrets: Iterable[Regret],
    ) -> None:
        self.plan, self.formats, self.measured = plan, formats, measured
        self.vertices: list[Vertex] = []
        self.edges: list[Edge] = []
        self.attributed: set[str] = set()
        self.vertex_of_value: dict[str, int] = {}
        self._where: dict[tuple[str, str], tuple[int, Storage]] = {}
        self._pending: dict[tuple[str, str], Reorder] = {
            self._key(item.tensor, item.target): item for item in plan.reorders
        }
        self._errors = find_contributions(plan)
        self._refusals: dict[str, list[Refusal]] = {}
        for item in (*plan.refusals, *plan.derived.conflicts):
            self._refusals.setdefault(item.subject, []).append(item)
        self._regrets: dict[str, list[RegretRow]] = {}
        for item in regrets:
            row = RegretRow(
                item.tensor, item.storage.spelled(plan.target.spell),
                item.total_ns, item.kernel_ns, item.reorder_ns,
            )  # fmt: skip
            self._regrets.setdefault(item.tensor, []).append(row)

    def draw(self) -> None:
        """Draw the whole graph."""
        graph = self.plan.graph
        for name in (*graph.inputs, *graph.stored):
            self._input(name)
        for node, decision in zip(graph.nodes, self.plan.decisions, strict=True):
            self._node(node, decision)
        for name in graph.sinks:
            self._output(name)

    def _key(self, value: str, way: Storage) -> tuple[str, str]:
        return value, self.plan.storages.key(value, way)

    def _add(self, vertex: Vertex, reads: Sequence[tuple[str, Storage]]) -> int:
        """Add a vertex and the edges to the tensors that it reads."""
        sources = [(name, *self._stored(name, way)) for name, way in reads]
        index = len(self.vertices)
        self.vertices.append(vertex)
        for name, source, way in sources:
            self.edges.append(Edge(source, index, name, self.formats.index(way)))
        return index

    def _stored(self, value: str, way: Storage) -> tuple[int, Storage]:
        """Return the vertex that makes a value in a format; add a planned reorder first."""
        key = self._key(value, way)
        if key not in self._where:
            self._where[key] = self._reorder(self._pending[key])
        return self._where[key]

    def _time(self, *labels: str) -> float | None:
        if self.measured is None:
            return None
        self.attributed.update(labels)
        return sum(self.measured.get(label, 0.0) for label in labels)

    def _port(self, name: str, way: Storage | None) -> Port:
        value = self.plan.graph.values[name]
        why = self.plan.derived.provenance.get(name)
        nbytes = 0 if way is None else self.formats.nbytes(name, way)
        return Port(
            name,
            str(value.type),
            "" if value.origin is None else str(value.origin),
            "" if why is None else str(why),
            None if way is None else self.formats.index(way),
            nbytes,
        )

    def _input(self, name: str) -> None:
        way = self.plan.made(name)
        port = self._port(name, way)
        vertex = Vertex(
            "input", name, "input", (), (), (), (port,), port.format, False, 0.0, None,
            refusals=self._about(name), regrets=tuple(self._regrets.get(name, ())),
        )  # fmt: skip
        self._where[self._key(name, way)] = self._add(vertex, ()), way
        self.vertex_of_value[name] = len(self.vertices) - 1

    def _error(self, node: str) -> tuple[tuple[str, str], ...]:
        """Return what rounding at a node does to the outputs, as an attribute."""
        error = self._errors.get(node)
        return () if error is None else (("error of the outputs", f"{error:.1e}"),)

    def _output(self, name: str) -> None:
        way = Storage(self.plan.output_formats[name])
        port = self._port(name, way)
        measured = self._time(*output_labels(name))
        vertex = Vertex(
            "output", name, "output", (), (), (port,), (), port.format,
            bool(measured), 0.0, measured,
        )  # fmt: skip
        self._add(vertex, () if self.plan.graph.is_packed(name) else ((name, way),))

    def _reorder(self, reorder: Reorder) -> tuple[int, Storage]:
        name = reorder.tensor
        before, after = (self._port(name, way) for way in (reorder.source, reorder.target))
        kernel = reorder.implementation or "library's choice"
        vertex = Vertex(
            "reorder", name, "reorder", (), (("kernel", kernel),),
            (before,), (after,), after.format, True, reorder.cost_ns,
            self._time(reorder_label(reorder)),
        )  # fmt: skip
        return self._add(vertex, ((name, reorder.source),)), reorder.target

    def _node(self, node: Node, decision: Decision) -> None:
        chosen, packed = decision.chosen, self.plan.graph.is_packed
        option = chosen.option
        pairs = [pair for pair in zip(node.inputs, option.needs, strict=True) if pair[0]]
        reads = [(name, way) for name, way in pairs if way is not None and not packed(name)]
        outputs = tuple(map(self._port, node.outputs, option.makes))
        candidates = (chosen, *sorted(decision.rejected, key=lambda item: item.cost_ns))
        vertex = Vertex(
            "node",
            node.name,
            node.op,
            tuple(_fused(node, index) for index in range(len(node.post_ops))),
            (*((key, str(value)) for key, value in node.attrs), *self._error(node.name)),
            tuple(self._port(name, way) for name, way in pairs),
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
        for name, way in zip(node.outputs, option.makes, strict=True):
            self._where[self._key(name, way)] = index, way
            self.vertex_of_value[name] = index

    def _about(self, subject: str) -> tuple[Refusal, ...]:
        return tuple(self._refusals.get(subject, ()))

    def _choice(self, candidate: Candidate, chosen: bool) -> Choice:
        number, option = self.formats.index, candidate.option
        return Choice(
            candidate.algorithm,
            candidate.implementation,
            tuple(None if way is None else number(way) for way in option.needs),
            tuple(map(number, option.makes)),
            candidate.cost_ns,
            ", ".join(dict.fromkeys(cost.source for cost in candidate.costs)) or "free",
            chosen,
        )


def _fused(node: Node, index: int) -> str:
    post = node.post_ops[index]
    return post.op if post.operand is None else f"{post.op} {node.inputs[post.operand]}"
