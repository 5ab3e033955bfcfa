"""The exact choice: one kernel a node, one or more formats a tensor, the fewest nanoseconds.

A problem becomes a sum of tables (``tables.py``), of which the minimum is found by exact
elimination (``eliminate.py``). An integer program (``integer.py``) helps where tables would grow
too large, and can solve the whole problem for comparison.
"""

from __future__ import annotations

from typing import Literal

from stridewise.errors import PlanError, describe
from stridewise.planner.solver.integer import solve_program
from stridewise.planner.solver.problem import Choice, Move, Problem, Solution
from stridewise.planner.solver.tables import RELAX, Formats, Tables

__all__ = ["Choice", "Method", "Problem", "Solution", "solve"]

Method = Literal["eliminate", "milp"]


def _finish(
    problem: Problem, formats: Formats, picks: dict[str, int], given: dict[str, str], slack: float
) -> Solution:
    """Add the reorders that choices need, how demands are met, and the cost of all."""
    made = {tensor: formats.bits[fmt] for tensor, fmt in given.items()}
    needed: dict[str, int] = {}
    for node, index in picks.items():
        choice = problem.nodes[node][index]
        for tensor, fmt in choice.makes:
            made[tensor] = made.get(tensor, 0) | formats.bits[fmt]
        for tensor, fmt in choice.needs:
            needed[tensor] = needed.get(tensor, 0) | formats.bits[fmt]
    met: dict[str, str] = {}
    for tensor, names in problem.demanded.items():
        want = needed.get(tensor, 0)
        _, goal = formats.moves(tensor).any_of(made.get(tensor, 0), want, formats.mask(names))
        needed[tensor] = want | goal
        met[tensor] = formats.text(goal)
    used: set[Move] = set()
    for tensor, want in needed.items():
        there = made.get(tensor, 0)
        for target in formats.split(want & ~there):
            _, source = formats.moves(tensor).best(there, formats.bits[target])
            used.add((tensor, formats.text(source), target))
    reorders = tuple(move for move in problem.reorders if move in used)
    cost = sum(problem.nodes[node][index].cost for node, index in picks.items())
    cost += sum(problem.reorders[move] for move in reorders)
    return Solution(picks, reorders, given, met, cost, cost - slack)


def solve(problem: Problem, time_limit: float = 60.0, *, method: Method = "eliminate") -> Solution:
    """Solve a problem exactly, or as well as the time allows, with the gap said.

    The same problem has always the same solution. By elimination alone it is proved optimal, up to
    the rounding of sums; where an integer program had to help, the bound is that of HiGHS.

    Args:
        problem: what to decide.
        time_limit: seconds after which an integer program gives the best solution so far.
        method: ``"eliminate"``, or ``"milp"`` for the integer program of the whole problem.

    Raises:
        PlanError: a node has no choice, or no combination satisfies all needs, or none was found
            in time.
    """
    for node, choices in problem.nodes.items():
        if not choices:
            raise PlanError(describe(f"node {node!r}", expected="a kernel", found="none"))
    formats = Formats(problem)
    if method == "eliminate":
        return _finish(problem, formats, *Tables(problem, formats).solve(time_limit))
    found = solve_program(problem, time_limit)
    if found is None:
        expected = "a combination of kernels"
        raise PlanError(describe("plan", expected=expected, found="none", fix=RELAX))
    return _finish(problem, formats, found.picks, found.given, found.slack)
