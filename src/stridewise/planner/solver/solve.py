"""The exact solver: one kernel per node, one or more formats per tensor, with the least cost.

A problem is converted to a sum of tables (``tables.py``), whose minimum is found by exact
elimination (``eliminate.py``). An integer program (``integer.py``) is used if tables would become
too large. It can also solve the whole problem for comparison.
"""

from __future__ import annotations

from typing import Literal

from stridewise.errors import PlanError
from stridewise.planner.solver.integer import solve_program
from stridewise.planner.solver.problem import Choice, Move, Problem, Solution
from stridewise.planner.solver.tables import RELAX, Formats, Tables

__all__ = ["Choice", "Method", "Problem", "Solution", "finish", "solve"]

Method = Literal["eliminate", "milp"]


def finish(
    problem: Problem, formats: Formats, picks: dict[str, int], given: dict[str, str], slack: float
) -> Solution:
    """Return the solution with reorders, formats of demanded tensors, and the total cost."""
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
    """Solve a problem exactly, or approximately with a known gap if the time limit is reached.

    The solution is deterministic. Elimination alone proves it optimal up to the rounding of sums.
    If an integer program is used, the bound is that of HiGHS.

    Args:
        problem: the problem.
        time_limit: seconds after which an integer program returns its best solution so far.
        method: ``"eliminate"``, or ``"milp"`` for the integer program of the whole problem.

    Raises:
        PlanError: a node has no choice, no combination satisfies all needs, or none was found
            within the time limit.
    """
    for node, choices in problem.nodes.items():
        if not choices:
            raise PlanError.at(f"node {node!r}", expected="a kernel", found="none")
    formats = Formats(problem)
    if method == "eliminate":
        return finish(problem, formats, *Tables(problem, formats).solve(time_limit))
    found = solve_program(problem, time_limit)
    if found is None:
        expected = "a combination of kernels"
        raise PlanError.at("plan", expected=expected, found="none", fix=RELAX)
    return finish(problem, formats, found.picks, found.given, found.slack)
