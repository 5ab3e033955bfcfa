"""What the report says about a plan of training: its phases, memory against time, and losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stridewise.planner.plan import PlanData, Point
from stridewise.report.loss_curve import curve, loss_curve

__all__ = ["Training", "find_training"]

PHASES = ("forward", "again", "backward", "update")


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """The time of one operator in each phase, side by side.

    Attributes:
        op: the operator.
        nodes: number of nodes in each phase: forward, forward again, backward, update.
        times_ns: their time, measured where the step was profiled, else predicted.
    """

    op: str
    nodes: tuple[int, ...]
    times_ns: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Training:
    """A plan of training.

    Attributes:
        rows: operators, those of most time first.
        total: of all operators.
        points: time against memory, the least memory first.
        nbytes: memory of this plan, if it is known.
        losses: of the steps so far.
    """

    rows: tuple[PhaseRow, ...]
    total: PhaseRow
    points: tuple[Point, ...]
    nbytes: int | None
    losses: tuple[float, ...]

    @property
    def front_picture(self) -> str:
        """Memory across and time up, as SVG; "" for a single point."""
        if len(self.points) < 2:
            return ""
        fast = self.points[-1]
        dots = [(point.nbytes / 1e6, point.cost_ns / 1e6) for point in self.points]
        used = next((dot for dot, p in zip(dots, self.points, strict=True)
                     if p.nbytes == self.nbytes), None)  # fmt: skip
        title = f"ms a step, from {fast.cost_ns / 1e6:.4g} to {dots[0][1]:.4g}"
        axis = f"MB, from {dots[0][0]:.4g} to {dots[-1][0]:.4g}"
        return curve(dots, title, axis, mark=used, dots=True)

    @property
    def loss_picture(self) -> str:
        """The losses as SVG; "" before the first step."""
        return loss_curve(self.losses) if self.losses else ""


def _phases(plan: PlanData) -> dict[str, int]:
    """Return the phase of each node, as an index of :data:`PHASES`."""
    graph, found, needed = plan.graph, dict[str, int](), set(plan.graph.outputs)
    new = set(graph.updates.values())
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
            found[node.name] = 0
        elif node.name in plan.repeats:
            found[node.name] = 1
        else:
            found[node.name] = 3 if new.intersection(node.outputs) else 2
    return found


def find_training(
    plan: PlanData,
    measured: Mapping[str, float] | None,
    nbytes: int | None,
    losses: Sequence[float],
) -> Training | None:
    """Return what the report says about training; None of a plan of something else.

    Args:
        plan: the plan.
        measured: nanoseconds of nodes by name, where they were measured.
        nbytes: memory of the compiled model.
        losses: of the steps so far.
    """
    if plan.points is None:
        return None
    phases, counts, times = _phases(plan), dict[str, list[int]](), dict[str, list[float]]()
    for node, decision in zip(plan.graph.nodes, plan.decisions, strict=True):
        phase = phases[node.name]
        counts.setdefault(node.op, [0] * len(PHASES))[phase] += 1
        ns = (measured or {}).get(node.name, decision.chosen.cost_ns)
        times.setdefault(node.op, [0.0] * len(PHASES))[phase] += ns
    rows = [PhaseRow(op, tuple(counts[op]), tuple(times[op])) for op in counts]
    rows.sort(key=lambda row: -sum(row.times_ns))
    total = PhaseRow(
        "total",
        tuple(map(sum, zip(*(row.nodes for row in rows), strict=True))),
        tuple(map(sum, zip(*(row.times_ns for row in rows), strict=True))),
    )
    return Training(tuple(rows), total, plan.points(), nbytes, tuple(losses))
