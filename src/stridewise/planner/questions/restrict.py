"""The cheapest plan of the same graph and candidates under restrictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TypeVar

from stridewise.errors import PlanError
from stridewise.planner.choice import comparison, decisions, of_kind, reorders
from stridewise.planner.plan import Pin, PlanData
from stridewise.planner.problem.formulation import FREE, Only
from stridewise.planner.questions.lookup import offers

__all__ = ["P", "allowed", "narrowed", "restricted", "under", "uniform"]

P = TypeVar("P", bound=PlanData)
"""A plan: plain data, or a class with queries. Functions return the class that they get."""


def narrowed(plan: PlanData, only: Only, pins: Iterable[Pin]) -> dict[str, tuple[int, ...]]:
    """Return the remaining candidates of nodes if some tensors are pinned, too.

    A node with contradictory pins has no candidates.

    Args:
        plan: the plan.
        only: allowed candidates of nodes; other nodes are not restricted.
        pins: tensors with a given format.
    """
    found = dict(only)
    for pin in pins:
        producer = plan.terms.producers.get(pin.tensor)
        if producer is not None:
            key = plan.storages.key(pin.tensor, pin.storage)
            makers = offers(plan, pin.tensor)[key].makers
            left = found.get(producer.name, makers)
            found[producer.name] = tuple(index for index in makers if index in left)
    return found


def allowed(plan: PlanData) -> Only:
    """Return the candidates that the pins of a plan leave to producers of pinned tensors."""
    return narrowed(plan, FREE, plan.pins)


def restricted(plan: P, name: str, only: Only) -> P:
    """Return the cheapest plan over some candidates; PlanError if there is none.

    Args:
        plan: a plan of the graph.
        name: the name of the new plan.
        only: allowed candidates of nodes; other nodes are not restricted.
    """
    solution = plan.terms.solve(only)
    steps = reorders(plan.terms, solution)
    others = tuple(item for item in plan.comparisons if item.name != name)
    return dataclasses.replace(
        plan,
        name=name,
        decisions=decisions(plan.terms, solution),
        reorders=steps,
        cost_ns=solution.cost,
        lower_bound_ns=solution.lower_bound,
        comparisons=(comparison(name, solution.cost, steps), *others),
        input_formats=plan.terms.inputs(solution),
        output_formats=plan.terms.outputs(solution),
        points=None,
    )


def under(plan: P, pins: tuple[Pin, ...]) -> P:
    """Return the cheapest plan with exactly these pins; PlanError if there is none."""
    pinned = dataclasses.replace(plan, pins=pins)
    name = f"what if {', '.join(map(str, pins))}" if pins else "planned"
    return restricted(pinned, name, allowed(pinned))


def uniform(plan: P, kind: str) -> P:
    """Return the cheapest plan with all tensors in one kind of format.

    Raises:
        PlanError: the target does not have the kind, or no such plan exists.
    """
    kinds = [known.name for known in plan.target.kinds]
    if kind not in kinds:
        where = f"target {plan.target.name}"
        raise PlanError.at(where, expected=f"one of {', '.join(kinds)}", found=repr(kind))
    free = dataclasses.replace(plan, pins=())
    return restricted(free, f"all {kind}", of_kind(plan.terms, plan.target, kind))
