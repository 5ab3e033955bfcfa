"""Conversion of solutions to decisions and reorders; candidates of one kind of format."""

from __future__ import annotations

from stridewise.graph import Node
from stridewise.ops.geometry import stored
from stridewise.planner.plan import Comparison, Decision, Reorder
from stridewise.planner.problem.candidates import Candidate
from stridewise.planner.problem.formulation import Only, Terms
from stridewise.planner.solver.solve import Solution
from stridewise.targets.target import Target

__all__ = ["comparison", "decisions", "of_kind", "of_own_types", "reorders"]


def _is_uniform(terms: Terms, target: Target, node: Node, candidate: Candidate, kind: str) -> bool:
    """Return whether all outputs of a candidate have one kind of format."""
    key = terms.candidates.storages.key
    for name, made in zip(node.outputs, candidate.option.makes, strict=True):
        wanted = target.storages(terms.graph.values[name]).get(kind)
        if wanted is not None and key(name, made) != key(name, wanted):
            return False
    return True


def of_kind(terms: Terms, target: Target, kind: str) -> Only:
    """Return the candidates of one kind of format. Nodes without any are unrestricted.

    Args:
        terms: the formulation of the planning problem.
        target: the target, which defines the kinds.
        kind: the name of the kind.
    """
    found: dict[str, tuple[int, ...]] = {}
    for node in terms.graph.nodes:
        kept = tuple(
            index
            for index, candidate in enumerate(terms.candidates.nodes[node.name])
            if _is_uniform(terms, target, node, candidate, kind)
        )
        if kept:
            found[node.name] = kept
    return found


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
