"""The graph in the solver's terms, and the solver's answer in the graph's.

A plan keeps its :class:`Terms`, so that other questions about the same graph (what if a tensor were
stored otherwise, what if a node were computed otherwise) are solved again over the same candidates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from stridewise.formats import Format
from stridewise.graph import Graph, Node
from stridewise.planner.problem.candidates import Candidate, Candidates
from stridewise.planner.problem.error_budget import ErrorBudget
from stridewise.planner.problem.io_formats import Boundary
from stridewise.planner.solver.budget import Errors, solve_within
from stridewise.planner.solver.solve import Choice, Problem, Solution, solve
from stridewise.targets.kernels import KernelOption
from stridewise.tensor import Storage

__all__ = ["FREE", "Only", "Terms"]

Only = Mapping[str, tuple[int, ...]]
"""For some nodes, which of their candidates may be chosen; nodes that are absent choose freely."""


def _held(option: KernelOption | None) -> str:
    return "" if option is None or not option.held else f" held, {option.held}"


FREE: Only = MappingProxyType({})
"""Every node chooses freely."""


class Terms:
    """A derived graph with all that there is to choose from.

    Attributes:
        graph: the derived graph.
        candidates: every way to compute its nodes, every reorder, and what they cost.
        edge: the formats in which the caller gives inputs and takes outputs.
        budget: the limit on the predicted error; None for no limit.
    """

    def __init__(
        self,
        graph: Graph,
        candidates: Candidates,
        edge: Boundary,
        budget: ErrorBudget | None = None,
    ) -> None:
        """Keep them; the problem is built when it is first solved."""
        self.graph, self.candidates, self.edge, self.budget = graph, candidates, edge, budget

    def __repr__(self) -> str:
        return f"Terms({self.graph.name!r})"

    def __reduce__(self) -> tuple[type[Terms], tuple[Any, ...]]:
        return Terms, (self.graph, self.candidates, self.edge, self.budget)

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """The node that defines each result."""
        return self.graph.producers()

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The position of each node in the graph."""
        return {node.name: position for position, node in enumerate(self.graph.nodes)}

    @cached_property
    def problem(self) -> Problem:
        """The problem in which every node chooses freely."""
        return Problem(
            {node.name: self._choices(node) for node in self.graph.nodes},
            {stored: cost.cost_ns for stored, cost in self.candidates.reorders.items()},
            self._acceptable(self.edge.inputs),
            {
                name: keys
                for name, keys in self._acceptable(self.edge.outputs).items()
                if not self.graph.is_packed(name)
            },
        )

    def _acceptable(self, formats: Mapping[str, tuple[Format, ...]]) -> dict[str, frozenset[str]]:
        key = self.candidates.storages.key
        return {name: frozenset(key(name, fmt) for fmt in group) for name, group in formats.items()}

    def _choices(self, node: Node) -> tuple[Choice, ...]:
        return tuple(
            Choice(
                candidate.cost_ns,
                self._stored(node.inputs, candidate.option.needs, _held(candidate.option.ahead)),
                self._stored(node.outputs, candidate.option.makes, _held(candidate.option)),
            )
            for candidate in self.candidates.nodes[node.name]
        )

    def _stored(
        self, names: tuple[str, ...], ways: tuple[Storage | None, ...], held: str
    ) -> frozenset[tuple[str, str]]:
        """Return tensors and the names of their storages.

        The first one of a node whose reader computes it as well has a name of its own, from which
        there are no reorders: so both nodes choose the same kernel, or neither does.
        """
        key = self.candidates.storages.key
        return frozenset(
            (name, key(name, stored) + (held if index == 0 else ""))
            for index, (name, stored) in enumerate(zip(names, ways, strict=True))
            if stored is not None
        )

    @cached_property
    def errors(self) -> Errors | None:
        """The errors of all choices and reorders in parts of the budget; None without one."""
        return self.budget and self.budget.errors(self.graph, self.candidates)

    def solve(self, only: Only = FREE, *, time_limit: float = 0.0) -> Solution:
        """Return the cheapest solution; its picks are indices of all candidates of a node.

        Args:
            only: nodes that may not choose freely.
            time_limit: seconds to close the gap that an error budget may leave.

        Raises:
            PlanError: no combination of what is left computes the graph, or none within the budget.
        """
        free, errors = self.problem.nodes, self.errors
        kept = {name: tuple(free[name][index] for index in group) for name, group in only.items()}
        problem = dataclasses.replace(self.problem, nodes={**free, **kept})
        if errors is None:
            found = solve(problem)
        else:
            every = errors.choices
            left = {name: tuple(every[name][i] for i in group) for name, group in only.items()}
            limited = Errors({**every, **left}, errors.moves)
            found = solve_within(problem, limited, time_limit)
        picks = {
            name: only[name][index] if name in only else index
            for name, index in found.picks.items()
        }
        return dataclasses.replace(found, picks=picks)

    def chosen(self, solution: Solution) -> dict[str, Candidate]:
        """Return the candidate of each node that a solution picks."""
        nodes = self.candidates.nodes
        return {name: nodes[name][index] for name, index in solution.picks.items()}

    def inputs(self, solution: Solution) -> Mapping[str, Format]:
        """Return the format in which the caller gives each input."""
        return self._picked(self.edge.inputs, solution.given)

    def outputs(self, solution: Solution) -> Mapping[str, Format]:
        """Return the format in which the caller gets each output."""
        return self._picked(self.edge.outputs, solution.demanded)

    def _picked(
        self, formats: Mapping[str, tuple[Format, ...]], keys: Mapping[str, str]
    ) -> Mapping[str, Format]:
        """Return which of the acceptable formats was chosen, the first of those of equal bytes."""
        key = self.candidates.storages.key
        return MappingProxyType(
            {
                name: next(fmt for fmt in group if keys.get(name, key(name, fmt)) == key(name, fmt))
                for name, group in formats.items()
            }
        )
