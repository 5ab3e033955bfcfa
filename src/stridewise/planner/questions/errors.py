"""The predicted error of a plan, and what each node contributes to it."""

from __future__ import annotations

from math import fsum, sqrt

from stridewise.planner.plan import PlanData

__all__ = ["find_contributions", "find_predicted_error"]


def _squares(plan: PlanData) -> dict[str, float]:
    budget = plan.terms.budget
    if budget is None:
        return {}
    found: dict[str, float] = {}
    for node, decision in zip(plan.graph.nodes, plan.decisions, strict=True):
        found[node.name] = budget.of_option(node, decision.chosen.option)
    for step in plan.reorders:
        error = budget.of_move(step.tensor, step.source, step.target)
        producer = plan.terms.producers.get(step.tensor)
        name = step.tensor if producer is None else producer.name
        found[name] = found.get(name, 0.0) + error
    return found


def find_contributions(plan: PlanData) -> dict[str, float]:
    """Return the predicted relative error of the outputs that each node causes alone.

    Reorders belong to the node that makes their tensor, those of inputs to the input. Nodes without
    any error are left out; so are all nodes of plans without an error budget.
    """
    return {name: sqrt(square) for name, square in _squares(plan).items() if square}


def find_predicted_error(plan: PlanData) -> float:
    """Return the predicted relative error of the outputs; 0 for plans without an error budget."""
    return sqrt(fsum(_squares(plan).values()))
