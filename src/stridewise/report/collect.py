"""From a plan, its program and its profile to the data of the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from itertools import accumulate

from stridewise.ops.capability import graph_capability
from stridewise.ops.geometry import way_of
from stridewise.planner.plan import PlanData
from stridewise.planner.questions.moves import Move, find_moves, find_views
from stridewise.planner.questions.partitions import find_hosted, find_partitions
from stridewise.planner.questions.savings import find_savings
from stridewise.planner.questions.what_if import Regret
from stridewise.profile import Memory, Profile
from stridewise.program import ArenaBlock, ArenaTensor, CopyStep, Program
from stridewise.report.data import Arena, Block, Edge, Group, Report, Vertex, cleaned
from stridewise.report.drawing import Drawing
from stridewise.report.fold import repeats, stretches
from stridewise.report.formats import Formats
from stridewise.report.movers import find_movers, find_placed
from stridewise.report.training import find_training
from stridewise.tensor import Storage

__all__ = ["MOST_BOXES", "collect"]

MOST_BOXES = 900
"""Boxes of a folded drawing; browsers lay out and move that many without a wait."""

_LABEL_OPS = 4


# --- groups ---------------------------------------------------------------------------------------


def _groups(vertices: Sequence[Vertex], edges: Sequence[Edge]) -> tuple[Group, ...]:
    """Return groups of vertices that are drawn folded: repetitions, then long stretches."""
    distances: dict[int, list[int]] = {index: [] for index in range(len(vertices))}
    for edge in edges:
        distances[edge.target].append(edge.target - edge.source)
    letters = [
        # Inputs and outputs differ from all other vertices and are never part of a repetition.
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


def _arena(program: Program, drawing: Drawing, formats: Formats) -> Arena:
    by_node = {v.name: index for index, v in enumerate(drawing.vertices) if v.kind == "node"}

    def way(tensor: ArenaTensor) -> Storage:
        return way_of(drawing.plan.graph.values[tensor.value], tensor.desc)

    def block(item: ArenaBlock) -> Block:
        span = (item.offset, item.nbytes, item.first, item.last)
        if not item.tensors:
            return Block(*span, (item.node,), None, by_node.get(item.node))
        names = tuple(f"{tensor.value} ({way(tensor)})" for tensor in item.tensors)
        # The largest tensor of a family contains the others.
        largest = max(item.tensors, key=lambda tensor: tensor.desc.nbytes)
        number = formats.index(way(largest))
        return Block(*span, names, number, drawing.vertex_of_value.get(largest.value))

    return Arena(
        program.arena_nbytes,
        program.lower_bound_nbytes,
        tuple(step.node for step in program.steps),
        tuple(map(block, program.blocks)),
    )


def _machine(plan: PlanData) -> str:
    """Return the machine, and the parts of the batch."""
    return f"{plan.machine}; {plan.split}" if plan.split.parts > 1 else str(plan.machine)


def _moves(plan: PlanData, program: Program | None) -> tuple[Move, ...]:
    """Return the steps that only move bytes; copies that lowering added have no predicted cost."""
    steps = () if program is None else program.steps
    copies = [step for step in steps if isinstance(step, CopyStep)]
    return (*find_moves(plan), *(Move(step.node, "copy", step.nbytes, 0.0) for step in copies))


def _measured(profile: Profile | None) -> dict[str, float] | None:
    if profile is None:
        return None
    found: dict[str, float] = {}
    for row in profile.rows:
        found[row.node] = found.get(row.node, 0.0) + row.measured_ns
    return found


def collect(
    plan: PlanData,
    program: Program | None = None,
    profile: Profile | None = None,
    regrets: Iterable[Regret] = (),
    others: Mapping[str, Mapping[str, int]] | None = None,
    memory: Memory | None = None,
    losses: Sequence[float] = (),
) -> Report:
    """Return the content of the page.

    Args:
        plan: the plan.
        program: the lowered plan, for the arena and the copies.
        profile: measured times of the program's steps.
        regrets: costs of other formats of tensors.
        others: for other runtimes by name, the number of steps of each kind that only move bytes.
        memory: memory of the compiled model.
        losses: of the training steps so far.
    """
    measured = _measured(profile)
    formats = Formats(plan)
    drawing = Drawing(plan, formats, measured, regrets)
    drawing.draw()
    left = {key: ns for key, ns in (measured or {}).items() if key not in drawing.attributed}
    arena = None if program is None else _arena(program, drawing, formats)
    report = Report(
        name=plan.graph.name,
        version=metadata.version("stridewise"),
        plan=plan.name,
        target=plan.target.name,
        machine=_machine(plan),
        cost_ns=plan.cost_ns,
        lower_bound_ns=plan.lower_bound_ns,
        gap=plan.gap,
        measured_ns=None if profile is None else profile.measured_ns,
        runs=0 if profile is None else profile.runs,
        unattributed_ns=sum(left.values()),
        bars=tuple(plan.comparisons),
        moves=_moves(plan, program),
        views=find_views(plan),
        movers=find_movers(plan, others or {}),
        placed=find_placed(plan),
        savings=tuple(str(saving) for saving in find_savings(plan)),
        parts=() if graph_capability(plan.graph).is_native else find_partitions(plan),
        hosted=find_hosted(plan),
        formats=formats.uses(),
        pictures=formats.pictures(),
        vertices=tuple(drawing.vertices),
        edges=tuple(drawing.edges),
        groups=_groups(drawing.vertices, drawing.edges),
        arena=arena,
        memory=memory,
        refusals=plan.refusals,
        conflicts=plan.derived.conflicts,
        training=find_training(plan, measured, memory and memory.used, losses),
    )
    return cleaned(report)
