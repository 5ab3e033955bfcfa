"""Differences between two plans of one graph or of two versions of it."""

from __future__ import annotations

from stridewise.classes import dataclass
from stridewise.planner.documents.document import NodeRecord, PlanRecord, ReorderRecord
from stridewise.planner.questions.why import difference, duration

__all__ = ["NodeChange", "PlanDiff", "diff"]


def _text(node: NodeRecord) -> str:
    sources = dict.fromkeys(fmt for fmt in node.input_formats if fmt is not None)
    results = dict.fromkeys(node.output_formats)
    formats = ", ".join(results)
    if sources and sources != results:
        formats = f"{', '.join(sources)} -> {formats}"
    names = ", ".join(name or "library's choice" for name in dict.fromkeys(node.implementations))
    return f"{node.algorithm} [{names or 'no work'}], {formats}, {duration(node.cost_ns)}"


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node that two plans compute differently.

    Attributes:
        node: its name.
        before: algorithm, implementations, formats and cost in the first plan.
        after: the same in the second.
    """

    node: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.node}:\n    - {self.before}\n    + {self.after}"


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """The differences between a first and a second plan.

    Attributes:
        changes: nodes of both plans with another algorithm, implementation or other formats.
        nodes_added: nodes that only the second plan has.
        nodes_removed: nodes that only the first plan has.
        reorders_added: reorders that only the second plan makes: (tensor, from, to).
        reorders_removed: reorders that only the first plan makes.
        facts: other differences in one line each: target, machine.
        before_ns: predicted time of the first plan.
        after_ns: predicted time of the second.
    """

    changes: tuple[NodeChange, ...]
    nodes_added: tuple[str, ...]
    nodes_removed: tuple[str, ...]
    reorders_added: tuple[tuple[str, str, str], ...]
    reorders_removed: tuple[tuple[str, str, str], ...]
    facts: tuple[str, ...]
    before_ns: float
    after_ns: float

    @property
    def delta_ns(self) -> float:
        """Predicted time of the second plan minus that of the first, in nanoseconds."""
        return difference(self.after_ns, self.before_ns)

    @property
    def is_empty(self) -> bool:
        """Whether both plans make the same decisions. Their costs may differ."""
        return not (
            self.changes
            or self.nodes_added
            or self.nodes_removed
            or self.reorders_added
            or self.reorders_removed
        )

    def __str__(self) -> str:
        lines = [f"other {fact}" for fact in self.facts]
        lines += [f"  {change}" for change in self.changes]
        lines += [f"  - node {name}" for name in self.nodes_removed]
        lines += [f"  + node {name}" for name in self.nodes_added]
        lines += [f"  - reorder {t}: {a} -> {b}" for t, a, b in self.reorders_removed]
        lines += [f"  + reorder {t}: {a} -> {b}" for t, a, b in self.reorders_added]
        if self.is_empty:
            lines.append("both plans decide the same")
        sign = "" if self.delta_ns < 0 else "+"
        lines.append(
            f"cost {duration(self.before_ns)} -> {duration(self.after_ns, like=self.before_ns)} "
            f"({sign}{duration(self.delta_ns)})"
        )
        return "\n".join(lines) + "\n"


def _differs(before: NodeRecord, after: NodeRecord) -> bool:
    return before.choice != after.choice or before.implementations != after.implementations


def _missing(
    these: tuple[ReorderRecord, ...], those: tuple[ReorderRecord, ...]
) -> tuple[tuple[str, str, str], ...]:
    """Return the reorders that only the first tuple contains."""
    known = {item.key for item in those}
    return tuple(item.key for item in these if item.key not in known)


def diff(before: PlanRecord, after: PlanRecord) -> PlanDiff:
    """Return the differences between two plans. Nodes are matched by name."""
    first = {node.name: node for node in before.nodes}
    second = {node.name: node for node in after.nodes}
    changes = tuple(
        NodeChange(name, _text(node), _text(second[name]))
        for name, node in first.items()
        if name in second and _differs(node, second[name])
    )
    facts = (
        ("graph", before.graph, after.graph),
        ("target", before.target, after.target),
        ("machine", str(before.machine), str(after.machine)),
    )
    return PlanDiff(
        changes,
        tuple(name for name in second if name not in first),
        tuple(name for name in first if name not in second),
        _missing(after.reorders, before.reorders),
        _missing(before.reorders, after.reorders),
        tuple(f"{what}: {a} -> {b}" for what, a, b in facts if a != b),
        before.cost_ns,
        after.cost_ns,
    )
