"""The solver with a limit on a second cost, against brute force."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewise.errors import PlanError
from stridewise.planner.solver.budget import Errors, solve_within
from stridewise.planner.solver.problem import Problem
from stridewise.planner.solver.solve import solve

from .test_solve import problems

ERRORS = st.sampled_from([0.0, 0.0, 0.05, 0.2, 0.3, 0.7])


def brute_force(problem: Problem, errors: Errors) -> float | None:
    """Return the least cost with an error of at most 1; None if nothing works."""
    best: float | None = None
    indices = [range(len(choices)) for choices in problem.nodes.values()]
    ways = [[(tensor, fmt) for fmt in sorted(fs)] for tensor, fs in problem.given.items()]
    for came, *numbers in product(product(*ways), *indices):
        names = list(zip(problem.nodes, numbers, strict=True))
        picks = [problem.nodes[name][number] for name, number in names]
        made = set(came) | {s for choice in picks for s in choice.makes}
        needed = [(s,) for choice in picks for s in choice.needs]
        needed += [tuple((t, f) for f in sorted(fs)) for t, fs in problem.demanded.items()]
        useful = [key for key in problem.reorders if (key[0], key[1]) in made]
        for count in range(len(useful) + 1):
            for used in combinations(useful, count):
                there = made | {(tensor, target) for tensor, _, target in used}
                error = sum(errors.choices[name][number] for name, number in names)
                error += sum(errors.moves.get(key, 0.0) for key in used)
                if error <= 1 and all(any(s in there for s in options) for options in needed):
                    cost = sum(choice.cost for choice in picks)
                    cost += sum(problem.reorders[key] for key in used)
                    best = cost if best is None else min(best, cost)
    return best


@st.composite
def limited(draw: Any) -> tuple[Problem, Errors]:
    problem = draw(problems())
    choices = {name: tuple(draw(ERRORS) for _ in group) for name, group in problem.nodes.items()}
    return problem, Errors(choices, {move: draw(ERRORS) for move in problem.reorders})


@settings(max_examples=300)
@given(limited())
def test_the_limit_holds_and_nothing_cheaper_keeps_it(case):
    problem, errors = case
    best = brute_force(problem, errors)
    if best is None:
        with pytest.raises(PlanError):
            solve_within(problem, errors)
        return
    found = solve_within(problem, errors)
    assert errors.of(found) <= 1 + 1e-6
    assert best <= found.cost + 1e-9
    # A gap is never hidden, and small ones are not closed.
    assert found.lower_bound <= best + 1e-6
    assert found.cost <= best * (1 + 6e-3) + 1e-6


@given(problems())
def test_without_errors_the_solution_is_that_of_the_solver(problem):
    none = Errors({name: (0.0,) * len(group) for name, group in problem.nodes.items()}, {})
    try:
        expected = solve(problem)
    except PlanError:
        with pytest.raises(PlanError):
            solve_within(problem, none)
        return
    found = solve_within(problem, none)
    assert (found.picks, found.reorders) == (expected.picks, expected.reorders)
    assert found.cost == pytest.approx(expected.cost)
