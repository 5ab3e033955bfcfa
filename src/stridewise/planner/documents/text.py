"""A plan as text for people: what was decided, what it costs, what else there was."""

from __future__ import annotations

from collections import Counter

from stridewise.ops.capability import graph_capability
from stridewise.planner.plan import PlanData
from stridewise.planner.questions.errors import find_contributions, find_predicted_error
from stridewise.planner.questions.moves import find_moves, find_views
from stridewise.planner.questions.partitions import find_hosted, find_partitions
from stridewise.planner.questions.savings import find_savings
from stridewise.planner.questions.why import formats_of
from stridewise.planner.questions.winograd_weights import winograd_weights

__all__ = ["explain"]

_MICRO = 1e3
_MOST = 3
"""Nodes that the text names for their errors."""


def _count(number: int, noun: str) -> str:
    if number == 1:
        return f"{number} {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {plural}"


def _reorders(plan: PlanData, number: int) -> str:
    """Return a number of reorders by the target's word for them, a name of its own or not."""
    noun = plan.target.reorder
    return _count(number, noun) if noun == "reorder" else f"{number} {noun}"


def _node_lines(plan: PlanData) -> list[str]:
    lines: list[str] = []
    for node, decision in zip(plan.graph.nodes, plan.decisions, strict=True):
        chosen = decision.chosen
        post = "".join(f"+{post.op}" for post in node.post_ops)
        sources = ", ".join(dict.fromkeys(cost.source for cost in chosen.costs)) or "free"
        lines.append(
            f"{chosen.cost_ns / _MICRO:9.1f} us  {node.op + post:<28} "
            f"{formats_of(chosen, plan.target.spell):<18} {chosen.algorithm} "
            f"[{chosen.implementation}; {sources}]  {node.name}"
        )
    return lines


def _host_lines(plan: PlanData) -> list[str]:
    """Return which nodes run on the host, and what that costs at their borders."""
    return [f"on the host: {hosted}" for hosted in find_hosted(plan)]


def _reorder_lines(plan: PlanData) -> list[str]:
    noun, spell = plan.target.reorder, plan.target.spell
    lines: list[str] = []
    for r in plan.reorders:
        source, target = (stored.spelled(spell, brief=True) for stored in (r.source, r.target))
        lines.append(
            f"{r.cost_ns / _MICRO:9.1f} us  {noun} {r.tensor}: {source} -> {target}, "
            f"{r.nbytes} bytes [{r.implementation or 'library choice'}]"
        )
    return lines


def _view_lines(plan: PlanData) -> list[str]:
    """Return which nodes move no byte, beside those of their kind that do."""
    ops = {node.name: node.op for node in plan.graph.nodes}
    free = Counter(ops[name] for name in find_views(plan))
    moving = Counter(ops[move.node_or_tensor] for move in find_moves(plan) if move.kind == "copy")
    parts: list[str] = []
    for op in dict.fromkeys(op for op in ops.values() if op in free or op in moving):
        total = free[op] + moving[op]
        parts.append(_count(total, op) if not moving[op] else f"{free[op]} of {_count(total, op)}")
    if not parts:
        return []
    *most, last = parts
    subject = f"{', '.join(most)} and {last}" if most else last
    alone = sum(free.values()) == 1 and len(parts) == 1
    return [f"{subject} {'moves' if alone else 'move'} no byte"]


def _move_lines(plan: PlanData) -> list[str]:
    moves = find_moves(plan)
    kinds = Counter(move.kind for move in moves)
    if not moves:
        return ["no step only moves bytes"]
    parts = ", ".join(
        _reorders(plan, number) if kind == "reorder" else _count(number, kind)
        for kind, number in kinds.items()
    )
    nbytes = sum(move.nbytes for move in moves)
    cost = sum(move.cost_ns for move in moves) / _MICRO
    verb = "only moves" if len(moves) == 1 else "only move"
    return [f"{_count(len(moves), 'step')} {verb} bytes ({parts}): {nbytes} bytes, {cost:.1f} us"]


def _weight_lines(plan: PlanData) -> list[str]:
    weights = winograd_weights(plan)
    return [str(weights)] if weights.nodes else []


def _error_lines(plan: PlanData) -> list[str]:
    """Return the predicted error, and the nodes that cause most of it."""
    if plan.terms.budget is None:
        return []
    found = find_contributions(plan)
    most = sorted(found, key=lambda name: -found[name])[:_MOST]
    parts = ", ".join(f"{name} {found[name]:.1e}" for name in most)
    sources = f"from {_count(len(found), 'node')}" + (f", most from {parts}" if most else "")
    return [f"predicted relative error {find_predicted_error(plan):.1e}, {sources}"]


def _partition_lines(plan: PlanData) -> list[str]:
    """Return what runs where, unless all of it is native."""
    if graph_capability(plan.graph).is_native:
        return []
    parts = find_partitions(plan)
    lines = [f"  {part}" for part in parts]
    if any(part.support == "tail" for part in parts):
        lines.append("  the time of the tail is not part of the total")
    return [f"{_count(len(parts), 'partition')}:", *lines]


def explain(plan: PlanData) -> str:
    """Return the plan as text for people."""
    proof = "proved optimal" if plan.gap < 1e-9 else f"within {plan.gap:.2%} of the optimum"
    lines = [
        f"plan of {plan.graph.name!r} for {plan.target.name} ({plan.machine})",
        *([f"runs {plan.split}; what follows is one of them"] if plan.split.parts > 1 else ()),
        *(f"note: {note}" for note in plan.notes),
        *(f"given: {pin}" for pin in plan.pins),
        *_node_lines(plan),
        *_partition_lines(plan),
        *_host_lines(plan),
        f"{_reorders(plan, len(plan.reorders))} left" + (":" if plan.reorders else ""),
        *_reorder_lines(plan),
        *_view_lines(plan),
        *_move_lines(plan),
        *_weight_lines(plan),
        *_error_lines(plan),
        f"total {plan.cost_ns / 1e6:.3f} ms, lower bound {plan.lower_bound_ns / 1e6:.3f} ms: "
        f"{proof} for these candidates and costs",
    ]
    for other in plan.comparisons:
        ratio = other.cost_ns / plan.cost_ns if plan.cost_ns else 1.0
        measured = "" if other.measured_ns is None else f", {other.measured_ns / 1e6:.3f} ms run"
        used = ", used" if other.name == plan.name else ""
        lines.append(
            f"  {other.name:<24} {other.cost_ns / 1e6:9.3f} ms  {ratio:5.2f} x  "
            f"{_reorders(plan, other.reorders)} of {other.nbytes} bytes{measured}{used}"
        )
    lines += [f"{saving} (see {saving.side}_formats)" for saving in find_savings(plan)]
    lines += [f"conflict: {conflict}" for conflict in plan.derived.conflicts]
    return "\n".join(lines) + "\n"
