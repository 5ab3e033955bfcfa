"""The cheapest plan of the same graph, over the same candidates, under restrictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TypeVar

from stridewise.errors import PlanError, describe
from stridewise.planner.plan import Pin, PlanData
from stridewise.planner.problem.formulation import FREE, Only
from stridewise.planner.questions.lookup import offers
from stridewise.planner.solver.choice import comparison, decisions, of_kind, reorders

__all__ = ["P", "allowed", "narrowed", "restricted", "under", "uniform"]

P = TypeVar("P", bound=PlanData)
"""A plan, as plain data or with what it can be asked; the answer is of the same class."""


def narrowed(plan: PlanData, only: Only, pins: Iterable[Pin]) -> dict[str, tuple[int, ...]]:
    """Return which candidates are left to nodes when tensors are pinned, too.

    A node whose pins contradict each other has none left.
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
    """Return which candidates the pins leave to the nodes that produce pinned tensors."""
    return narrowed(plan, FREE, plan.pins)


def restricted(plan: P, name: str, only: Only) -> P:
    """Return the cheapest plan over some candidates; PlanError where there is none."""
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
    )


def under(plan: P, pins: tuple[Pin, ...]) -> P:
    """Return the cheapest plan with these pins and no others; PlanError where there is none."""
    pinned = dataclasses.replace(plan, pins=pins)
    name = f"what if {', '.join(map(str, pins))}" if pins else "planned"
    return restricted(pinned, name, allowed(pinned))


def uniform(plan: P, kind: str) -> P:
    """Return the cheapest plan with all tensors in one kind of format.

    Raises:
        PlanError: the target has no such kind, or the graph cannot do without others.
    """
    kinds = [known.name for known in plan.target.kinds]
    if kind not in kinds:
        where = f"target {plan.target.name}"
        raise PlanError(describe(where, expected=f"one of {', '.join(kinds)}", found=repr(kind)))
    free = dataclasses.replace(plan, pins=())
    return restricted(free, f"all {kind}", of_kind(plan.terms, plan.target, kind))
