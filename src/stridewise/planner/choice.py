"""Conversion of solutions to decisions and reorders; candidates of one kind of format."""

from __future__ import annotations

from collections.abc import Sequence

from stridewise.ops.geometry import stored
from stridewise.planner.plan import Comparison, Decision, Reorder
from stridewise.planner.problem.candidates import Candidate
from stridewise.planner.problem.formulation import Only, Terms
from stridewise.planner.solver.solve import Solution
from stridewise.targets.target import Target

__all__ = ["comparison", "decisions", "of_kind", "of_own_types", "reorders"]


def of_kind(terms: Terms, target: Target, kind: str) -> Only:
    """Return the candidates of one kind of format. Nodes without any are unrestricted.

    Args:
        terms: the formulation of the planning problem.
        target: the target, which defines the kinds.
        kind: the name of the kind.
    """
    found: dict[str, tuple[int, ...]] = {}
    key = terms.candidates.storages.key
    for node in terms.graph.nodes:
        storages = [target.storages(terms.graph.values[name]).get(kind) for name in node.outputs]
        wanted = [
            (at, name, key(name, stored))
            for at, (name, stored) in enumerate(zip(node.outputs, storages, strict=True))
            if stored is not None
        ]
        kept = tuple(
            index
            for index, candidate in enumerate(terms.candidates.nodes[node.name])
            if _makes(terms, candidate, wanted)
        )
        if kept:
            found[node.name] = kept
    return found


def _makes(terms: Terms, candidate: Candidate, wanted: Sequence[tuple[int, str, str]]) -> bool:
    """Return whether outputs of a candidate (index, name, storage) are stored as wanted."""
    key, makes = terms.candidates.storages.key, candidate.option.makes
    return all(key(name, makes[at]) == storage for at, name, storage in wanted)


def of_own_types(terms: Terms) -> Only:
    """Return the candidates that take and give tensors in their own element types."""
    found: dict[str, tuple[int, ...]] = {}
    for name, candidates in terms.candidates.nodes.items():
        kept = tuple(
            index
            for index, candidate in enumerate(candidates)
            if all(
                stored is None or stored.dtype is None
                for stored in (*candidate.option.needs, *candidate.option.makes)
            )
        )
        if kept:
            found[name] = kept
    return found


def reorders(terms: Terms, solution: Solution) -> tuple[Reorder, ...]:
    """Return the reorders of a solution, in the order of tensors in the graph."""
    storages = terms.candidates.storages
    places = {name: place for place, name in enumerate(terms.graph.values)}
    found: list[Reorder] = []
    for name, source, goal in sorted(
        solution.reorders, key=lambda key: (places[key[0]], key[1], key[2])
    ):
        before, after = storages.storage(name, source), storages.storage(name, goal)
        cost = terms.candidates.reorders[name, source, goal]
        nbytes = stored(terms.graph.values[name], after).nbytes
        found.append(Reorder(name, before, after, nbytes, cost.cost_ns, cost.implementation))
    return tuple(found)


def decisions(terms: Terms, solution: Solution) -> tuple[Decision, ...]:
    """Return the decision of a solution for each node, in graph order."""
    chosen = terms.chosen(solution)
    found: list[Decision] = []
    for node in terms.graph.nodes:
        own = chosen[node.name]
        others = tuple(c for c in terms.candidates.nodes[node.name] if c is not own)
        found.append(Decision(node.name, own, others))
    return tuple(found)


def comparison(name: str, cost_ns: float, steps: tuple[Reorder, ...]) -> Comparison:
    """Return the costs of a plan for a comparison.

    Args:
        name: the name of the plan.
        cost_ns: its cost in nanoseconds.
        steps: its reorders.
    """
    return Comparison(name, cost_ns, len(steps), sum(step.nbytes for step in steps), None)
