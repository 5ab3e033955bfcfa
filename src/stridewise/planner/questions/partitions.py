"""The runtimes of the parts of a plan, and the cost of the borders to ONNX Runtime and NumPy."""

from __future__ import annotations

from collections.abc import Iterator

from stridewise.classes import dataclass
from stridewise.graph import Segment, Support
from stridewise.ops.capability import graph_capability
from stridewise.ops.fallback import OP
from stridewise.planner.plan import PlanData, Reorder
from stridewise.planner.problem.fallback_kernel import is_host
from stridewise.targets.kernels import HOST

__all__ = ["Hosted", "Partition", "find_hosted", "find_partitions"]


def _at_border(reorders: int, reorder_ns: float, place: str) -> str:
    """Return the text of the cost of a border; "" for none."""
    if not reorders:
        return ""
    noun = "reorder" if reorders == 1 else "reorders"
    return f" ({reorders} {noun} at {place}, {reorder_ns / 1e3:.1f} us)"


@dataclass(frozen=True, slots=True)
class Partition:
    """Consecutive nodes that run in one runtime.

    Attributes:
        support: ``native``, ``fallback`` in the program, or ``tail`` after it.
        nodes: their names; for other runtimes the names of the model's nodes.
        operators: their operators.
        reasons: the distinct reasons why they are not native.
        reorders: number of reorders of inputs and outputs, for other runtimes.
        reorder_ns: predicted time of these.
    """

    support: Support
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    reasons: tuple[str, ...]
    reorders: int
    reorder_ns: float

    def __str__(self) -> str:
        text = str(Segment(self.support, self.nodes, self.operators, self.reasons))
        return text + _at_border(self.reorders, self.reorder_ns, "its border")


@dataclass(frozen=True, slots=True)
class Hosted:
    """Nodes of one operator that run the NumPy fallback for one reason.

    Attributes:
        operator: the operator.
        nodes: their names.
        reason: why the target has no kernel for them.
        reorders: number of reorders of their inputs and outputs. NumPy computes in the user's axis
            order.
        reorder_ns: predicted time of these.
    """

    operator: str
    nodes: tuple[str, ...]
    reason: str
    reorders: int
    reorder_ns: float

    def __str__(self) -> str:
        more = f" and {len(self.nodes) - 1} more" if self.nodes[1:] else ""
        place = "their borders" if more else "its border"
        text = f"{self.operator} {self.nodes[0]}{more}: {self.reason}"
        return text + _at_border(self.reorders, self.reorder_ns, place)


def _borders(plan: PlanData) -> Iterator[frozenset[str]]:
    """Yield the tensors that each part of another runtime reads or writes."""
    for node in plan.graph.nodes:
        if node.op == OP:
            yield frozenset((*node.inputs, *node.outputs))
    if plan.graph.tail is not None:
        yield frozenset(plan.graph.tail.inputs)


def find_partitions(plan: PlanData) -> tuple[Partition, ...]:
    """Return the partitions in execution order."""
    borders = _borders(plan)
    found: list[Partition] = []
    for segment in graph_capability(plan.graph).segments:
        border = frozenset[str]() if segment.support == "native" else next(borders)
        crossing = [reorder for reorder in plan.reorders if reorder.tensor in border]
        cost = sum(reorder.cost_ns for reorder in crossing)
        found.append(
            Partition(
                segment.support, segment.nodes, segment.operators, segment.reasons,
                len(crossing), float(cost),
            )
        )  # fmt: skip
    return tuple(found)


def _moved_for(plan: PlanData) -> dict[str, list[Reorder]]:
    """Return the reorders of inputs and outputs of each NumPy fallback node."""
    key = plan.storages.key
    to: dict[tuple[str, str], Reorder] = {}
    since: dict[tuple[str, str], list[Reorder]] = {}
    for reorder in plan.reorders:
        to[reorder.tensor, key(reorder.tensor, reorder.target)] = reorder
        since.setdefault((reorder.tensor, key(reorder.tensor, reorder.source)), []).append(reorder)
    found: dict[str, list[Reorder]] = {}
    for node, decision in zip(plan.graph.nodes, plan.decisions, strict=True):
        option = decision.chosen.option
        if node.op == OP or not is_host(option):
            continue
        crossing = found[node.name] = []
        for name, need in zip(node.inputs, option.needs, strict=True):
            if need is not None and (name, key(name, need)) in to:
                crossing.append(to[name, key(name, need)])
        for name, made in zip(node.outputs, option.makes, strict=True):
            crossing.extend(since.get((name, key(name, made)), ()))
    return found


def find_hosted(plan: PlanData) -> tuple[Hosted, ...]:
    """Return the nodes that run the NumPy fallback, grouped by operator and reason."""
    moved = _moved_for(plan)
    ops = {node.name: node.op for node in plan.graph.nodes}
    groups: dict[tuple[str, str], list[str]] = {}
    for refusal in plan.refusals:
        if refusal.rule == HOST and refusal.subject in moved:
            groups.setdefault((ops[refusal.subject], refusal.reason), []).append(refusal.subject)
    found: list[Hosted] = []
    for (operator, reason), nodes in groups.items():
        # Two nodes may read the result of one reorder.
        crossing = dict.fromkeys(reorder for name in nodes for reorder in moved[name])
        cost = float(sum(reorder.cost_ns for reorder in crossing))
        found.append(Hosted(operator, tuple(nodes), reason, len(crossing), cost))
    return tuple(found)
