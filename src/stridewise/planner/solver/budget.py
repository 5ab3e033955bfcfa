"""The cheapest solution among those whose errors sum to no more than a limit.

Choices and reorders have a cost and an error. The error enters as a price: the exact solver
minimizes cost plus price times error. Each price gives a solution on the lower convex hull of cost
over error, and a lower bound of the cost of all solutions within the limit (Lagrangian relaxation).
The search goes along the hull to the edge that crosses the limit (Handler and Zang, Networks 10,
1980). At the price of this edge, the solutions at both ends cost the same, and so do mixtures: with
a slightly lower price for some nodes, as many as the limit allows. If the best solution is still
not close to the bound, an integer program with the limit as one more row closes the gap.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from stridewise.classes import dataclass
from stridewise.errors import PlanError
from stridewise.planner.solver.integer import solve_program
from stridewise.planner.solver.problem import Move, Problem, Solution
from stridewise.planner.solver.solve import finish, solve
from stridewise.planner.solver.tables import Formats

__all__ = ["Errors", "solve_within"]

_ROUNDS = 40
_SAME = 1e-9
"""Relative difference below which two costs are equal."""
_MIX = 1e-4
"""By how much prices of a mixture differ from that of the edge, relative."""
_CLOSE = 5e-3
"""Gap below which no integer program is solved; how far it gets depends on the time it has."""


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of a problem, in parts of the limit: 1 is all that is allowed.

    Attributes:
        choices: the error of each choice of each node.
        moves: the error of reorders; those that are absent have none.
    """

    choices: Mapping[str, tuple[float, ...]]
    moves: Mapping[Move, float]

    def of(self, solution: Solution) -> float:
        """Return the error of a solution."""
        total = sum(self.choices[node][index] for node, index in solution.picks.items())
        return total + sum(self.moves.get(move, 0.0) for move in solution.reorders)


class _Priced:
    """Solutions of one problem for different prices of errors."""

    def __init__(self, problem: Problem, errors: Errors) -> None:
        self.problem, self.errors = problem, errors
        self._makers = {
            tensor: node
            for node, choices in problem.nodes.items()
            for choice in choices
            for tensor, _ in choice.makes
        }

    def cost(self, found: Solution) -> float:
        """Return the cost without the price of errors."""
        nodes, moves = self.problem.nodes, self.problem.reorders
        total = sum(nodes[node][index].cost for node, index in found.picks.items())
        return total + sum(moves[move] for move in found.reorders)

    def solve(
        self, price: float, weight: float = 1.0, cheaper: Collection[str] = ()
    ) -> tuple[Solution, float]:
        """Return the solution for a price, and the lower bound that it gives.

        Args:
            price: of errors.
            weight: of costs.
            cheaper: nodes whose errors have a slightly lower price; there is no bound then.
        """

        def priced(node: str | None) -> float:
            return price * (1 - _MIX) if node in cheaper else price

        nodes = {
            node: tuple(
                replace(choice, cost=weight * choice.cost + priced(node) * error)
                for choice, error in zip(choices, self.errors.choices[node], strict=True)
            )
            for node, choices in self.problem.nodes.items()
        }
        moves = {
            move: weight * cost
            + priced(self._makers.get(move[0])) * self.errors.moves.get(move, 0.0)
            for move, cost in self.problem.reorders.items()
        }
        found = solve(replace(self.problem, nodes=nodes, reorders=moves))
        return replace(found, cost=self.cost(found)), found.lower_bound - price

    def mixed(self, price: float, known: Solution) -> Solution:
        """Return the cheapest of a solution within the limit and of mixtures at a price.

        Nodes get the lower price from the first on, and from the last on, as many as bisection
        finds.
        """
        names = list(self.problem.nodes)
        for order in (names, names[::-1]):
            low, high = 0, len(order)
            while low < high:
                middle = (low + high + 1) // 2
                cheaper = frozenset(order[:middle])
                found, _ = self.solve(price * (1 + _MIX / 2), cheaper=cheaper)
                if self.errors.of(found) <= 1:
                    low, known = middle, min(known, found, key=lambda item: item.cost)
                else:
                    high = middle - 1
        return known


def solve_within(problem: Problem, errors: Errors, time_limit: float = 10.0) -> Solution:
    """Return the cheapest solution with an error of at most 1, with a lower bound.

    Args:
        problem: costs.
        errors: of the same choices and reorders.
        time_limit: seconds for the integer program; 0 to do without it.

    Raises:
        PlanError: every solution has a greater error, or there is none.
    """
    priced = _Priced(problem, errors)
    above, bound = priced.solve(0.0)
    if errors.of(above) <= 1:
        return replace(above, lower_bound=bound)
    # Costs still decide between solutions of the same error.
    scale = 1e-9 / (above.cost or 1.0)
    within, _ = priced.solve(1.0, scale)
    least = errors.of(within)
    if least > 1:
        expected = "a plan within the error budget"
        found = f"{least**0.5:.3g} times the budget at the least"
        raise PlanError.at("max_error", expected=expected, found=found, fix="allow more")
    price = 0.0
    for _ in range(_ROUNDS):
        price = (within.cost - above.cost) / (errors.of(above) - errors.of(within))
        if price <= 0:
            break
        found, lower = priced.solve(price)
        bound = max(bound, lower)
        line = above.cost + price * errors.of(above)
        if found.cost + price * errors.of(found) >= line * (1 - _SAME):
            break
        above, within = (found, within) if errors.of(found) > 1 else (above, found)
    if within.cost - bound > _SAME * within.cost:
        within = priced.mixed(price, within)
    within = replace(within, lower_bound=min(bound, within.cost))
    if within.gap <= _CLOSE or not time_limit:
        return within
    return _refined(problem, errors, within, time_limit)


def _refined(problem: Problem, errors: Errors, known: Solution, time_limit: float) -> Solution:
    """Return the better one of a known solution and that of the integer program."""
    try:
        found = solve_program(problem, time_limit, errors.choices, errors.moves, known)
    except PlanError:  # nothing within the time limit
        return known
    if found is None:
        return known
    other = finish(problem, Formats(problem), found.picks, found.given, found.slack)
    # Rounding of the program may leave an error just above the limit.
    best = other if other.cost < known.cost and errors.of(other) <= 1 else known
    bound = min(best.cost, max(known.lower_bound, other.lower_bound))
    return replace(best, lower_bound=bound)
