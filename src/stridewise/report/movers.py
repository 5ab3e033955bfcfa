"""The number of steps that only move bytes: in this plan, without planning, in other runtimes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from stridewise.planner.plan import PlanData
from stridewise.planner.problem.alone import each_for_itself
from stridewise.planner.questions.moves import find_moves, find_views, moves_of
from stridewise.report.data import Mover, Placed

__all__ = ["find_movers", "find_placed"]


def _mover(name: str, kinds: Mapping[str, int]) -> Mover:
    ordered = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    return Mover(name, sum(kinds.values()), tuple(ordered))


def _alone(plan: PlanData) -> Counter[str] | None:
    """Return the number of such steps if each operator takes its own cheapest formats."""
    found = each_for_itself(plan.graph, plan.candidates)
    if found is None:
        return None
    kinds = Counter({plan.target.reorder: found.reorders})
    for node in plan.graph.nodes:
        candidate = plan.candidates.nodes[node.name][found.picks[node.name]]
        if any(move.kind == "copy" for move in moves_of(node, candidate)):
            kinds[node.op] += 1
    return +kinds


def find_movers(plan: PlanData, others: Mapping[str, Mapping[str, int]]) -> tuple[Mover, ...]:
    """Return the number of steps that only move bytes, by operator.

    Args:
        plan: the plan.
        others: for other runtimes by name, the number of such steps of each kind.
    """
    ops = {node.name: node.op for node in plan.graph.nodes}
    own = Counter(
        plan.target.reorder if move.kind == "reorder" else ops[move.node_or_tensor]
        for move in find_moves(plan)
    )
    found = [_mover("this plan", own)]
    alone = _alone(plan)
    if alone is not None:
        found.append(_mover("each operator for itself", alone))
    return (*found, *(_mover(name, kinds) for name, kinds in others.items()))


def find_placed(plan: PlanData) -> tuple[Placed, ...]:
    """Return the number of nodes that move no byte, for each operator that may be a view."""
    ops = {node.name: node.op for node in plan.graph.nodes}
    free = Counter(ops[name] for name in find_views(plan))
    copied = Counter(ops[move.node_or_tensor] for move in find_moves(plan) if move.kind == "copy")
    return tuple(
        Placed(op, free[op], free[op] + copied[op])
        for op in dict.fromkeys(ops.values())
        if op in free or op in copied
    )
