"""The solver against brute force, and against the integer program of the whole problem."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewise.errors import PlanError
from stridewise.planner.solver import eliminate
from stridewise.planner.solver.eliminate import Contradiction, minimize
from stridewise.planner.solver.integer import minimize_tables
from stridewise.planner.solver.solve import Choice, Problem, solve
from stridewise.planner.solver.table import Minimum, Table

FORMATS = ("p", "q", "r")
COSTS = st.integers(0, 9).map(float)
METHODS = ("eliminate", "milp")


def brute_force(problem: Problem) -> float | None:
    """Return the least cost over all picks, all formats of given tensors and all sets of reorders.

    None if nothing works.
    """
    best: float | None = None
    names = list(problem.nodes)
    ways = [[(tensor, fmt) for fmt in sorted(fs)] for tensor, fs in problem.given.items()]
    for came, *picks in product(product(*ways), *(problem.nodes[name] for name in names)):
        made = set(came) | {s for choice in picks for s in choice.makes}
        needed = [(s,) for choice in picks for s in choice.needs]
        needed += [tuple((t, f) for f in sorted(fs)) for t, fs in problem.demanded.items()]
        # Only reorders from what is made can be used, and one step is all there is.
        useful = [key for key in problem.reorders if (key[0], key[1]) in made]
        for count in range(len(useful) + 1):
            for used in combinations(useful, count):
                there = made | {(tensor, target) for tensor, _, target in used}
                if all(any(s in there for s in options) for options in needed):
                    cost = sum(choice.cost for choice in picks)
                    cost += sum(problem.reorders[key] for key in used)
                    best = cost if best is None else min(best, cost)
    return best


class Net:
    """A random problem in the making; every choice is hypothesis's."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.formats = st.frozensets(st.sampled_from(FORMATS), min_size=1)
        self.given = {"x": frozenset("p")}
        self.nodes: dict[str, tuple[Choice, ...]] = {}
        if draw(st.booleans()):
            self.given = {"x": draw(self.formats), "y": draw(self.formats)}
        self.tensors = list(self.given)

    def stored(self, tensors: list[str]) -> frozenset[tuple[str, str]]:
        """Return each tensor in a format, rarely in several."""
        several = st.one_of(*[st.sampled_from(FORMATS).map(frozenset)] * 3, self.formats)
        return frozenset((t, f) for t in tensors for f in self.draw(several))

    def node(self, most_reads: int) -> None:
        number = len(self.nodes)
        reads = st.lists(st.sampled_from(self.tensors), min_size=1, max_size=most_reads)
        chosen = list(dict.fromkeys(self.draw(reads)))
        makes = [f"t{number}", f"u{number}"][: self.draw(st.sampled_from([1, 1, 1, 2]))]
        self.nodes[f"n{number}"] = tuple(
            Choice(self.draw(COSTS), self.stored(chosen), self.stored(makes))
            for _ in range(self.draw(st.integers(1, 3)))
        )
        self.tensors += makes

    def problem(self, reorders: dict[tuple[str, str, str], float]) -> Problem:
        demanded = {self.tensors[-1]: self.draw(self.formats)}
        if self.draw(st.booleans()):
            demanded[self.draw(st.sampled_from(self.tensors))] = self.draw(self.formats)
        return Problem(self.nodes, reorders, self.given, demanded)

    def pairs(self) -> list[tuple[str, str, str]]:
        return [(t, f, g) for t in self.tensors for f in FORMATS for g in FORMATS if f != g]


@st.composite
def problems(draw: Any) -> Problem:
    """Return problems that brute force can take: up to three nodes, few reorders."""
    net = Net(draw)
    for _ in range(draw(st.integers(1, 3))):
        net.node(2)
    return net.problem(draw(st.dictionaries(st.sampled_from(net.pairs()), COSTS, max_size=6)))


@st.composite
def tangles(draw: Any) -> Problem:
    """Return larger problems, full of tensors that several nodes read."""
    net = Net(draw)
    for _ in range(draw(st.integers(4, 12))):
        net.node(4)
    costs = draw(st.lists(COSTS, min_size=len(net.pairs()), max_size=len(net.pairs())))
    return net.problem(dict(zip(net.pairs(), costs, strict=True)))


def check(problem: Problem, found: Any, best: float) -> None:
    """Compare a solution with the least cost, and look whether it is one."""
    assert found.cost == pytest.approx(best)
    assert found.lower_bound == pytest.approx(best)
    assert found.lower_bound <= found.cost
    assert found.gap <= 1e-9
    picks = [problem.nodes[name][found.picks[name]] for name in problem.nodes]
    cost = sum(choice.cost for choice in picks) + sum(map(problem.reorders.get, found.reorders))
    assert found.cost == pytest.approx(cost)
    assert {tensor: found.given[tensor] in fs for tensor, fs in problem.given.items()} == (
        dict.fromkeys(problem.given, True)
    )
    made = set(found.given.items()) | {stored for choice in picks for stored in choice.makes}
    assert all((tensor, source) in made for tensor, source, _ in found.reorders)
    there = made | {(tensor, target) for tensor, _, target in found.reorders}
    assert all(choice.needs <= there for choice in picks)
    assert found.demanded.keys() == problem.demanded.keys()
    assert all(fmt in problem.demanded[tensor] for tensor, fmt in found.demanded.items())
    assert set(found.demanded.items()) <= there


@settings(max_examples=300)
@given(problems())
def test_the_solver_finds_what_brute_force_finds(problem):
    best = brute_force(problem)
    if best is None:
        for method in METHODS:
            with pytest.raises(PlanError, match=r"expected .*found .*; relax the constraints"):
                solve(problem, method=method)
        return
    for method in METHODS:
        check(problem, solve(problem, method=method), best)


def both(problem: Problem) -> None:
    try:
        plain = solve(problem, method="milp")
    except PlanError:
        with pytest.raises(PlanError):
            solve(problem)
        return
    found = solve(problem)
    check(problem, found, plain.cost)
    assert found == solve(problem)


@settings(max_examples=100)
@given(tangles())
def test_the_solver_finds_what_the_integer_program_finds(problem):
    both(problem)


@settings(max_examples=60)
@given(tangles(), st.sampled_from([(0, 0), (0, 1 << 20), (8, 0), (8, 64)]))
def test_every_way_through_the_solver_finds_the_same(problem, limits):
    # Limits decide what is eliminated, pruned, or left to an integer program.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eliminate, "_SMALL", limits[0])
        patch.setattr(eliminate, "_TINY", limits[0])
        patch.setattr(eliminate, "_LARGE", limits[1])
        both(problem)


@st.composite
def sums(draw: Any) -> tuple[list[int], list[Table]]:
    """Return variables and tables over up to three of them, some combinations forbidden."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    costs = st.one_of(*[COSTS] * 6, st.just(np.inf))
    tables = []
    for _ in range(draw(st.integers(0, 8))):
        some = st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=3, unique=True)
        scope = tuple(draw(some))
        shape = [sizes[variable] for variable in scope]
        count = int(np.prod(shape))
        cells = draw(st.lists(costs, min_size=count, max_size=count))
        tables.append(Table(scope, np.array(cells).reshape(shape)))
    return sizes, tables


@settings(max_examples=300)
@given(sums(), st.sampled_from([(1 << 10, 0), (0, 1 << 20), (0, 0), (4, 0)]))
def test_the_minimum_of_a_sum_of_tables_is_found(problem, limits):
    sizes, tables = problem

    def total(values: tuple[int, ...]) -> float:
        return sum(float(t.costs[tuple(values[v] for v in t.scope)]) for t in tables)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eliminate, "_SMALL", limits[0])
        patch.setattr(eliminate, "_TINY", limits[0])
        patch.setattr(eliminate, "_LARGE", limits[1])
        found = minimize(sizes, tables)
    best = min(map(total, product(*map(range, sizes))))
    if best == np.inf:
        assert isinstance(found, Contradiction)
        assert all(0 <= variable < len(sizes) for variable in found.variables)
        return
    assert isinstance(found, Minimum)
    assert total(found.values) == pytest.approx(best)
    assert found.slack <= 1e-9 * max(best, 1.0)


def need(*stored: str) -> frozenset[tuple[str, str]]:
    return frozenset((text[0], text[1]) for text in stored)


def test_a_reorder_is_paid_once_however_many_use_it():
    consumer = (Choice(1, need("xq"), need("aq")), Choice(4, need("xp"), need("ap")))
    other = (Choice(1, need("xq"), need("bq")), Choice(4, need("xp"), need("bp")))
    nodes = {"a": consumer, "b": other}
    problem = Problem(nodes, {("x", "p", "q"): 5.0}, {"x": frozenset("p")}, {})
    found = solve(problem)
    assert found.cost == 7
    assert found.reorders == (("x", "p", "q"),)
    # Alone, neither is worth it.
    assert solve(Problem({"a": consumer}, problem.reorders, problem.given, {})).reorders == ()


def test_reorders_do_not_feed_reorders():
    problem = Problem(
        {"a": (Choice(0, need("xr"), need("ar")),)},
        {("x", "p", "q"): 1.0, ("x", "q", "r"): 1.0},
        {"x": frozenset("p")},
        {},
    )
    with pytest.raises(PlanError):
        solve(problem)


def test_a_tensor_that_is_demanded_as_it_is_given_costs_nothing():
    problem = Problem(
        {"a": (Choice(2, need("xp"), need("ap")),)},
        {},
        {"x": frozenset("p")},
        {"x": frozenset("pq")},
    )
    assert solve(problem).cost == 2


def test_a_problem_without_nodes_is_solved_for_nothing():
    assert solve(Problem({}, {}, {"x": frozenset("p")}, {"x": frozenset("p")})).cost == 0


def test_a_given_tensor_comes_in_the_format_that_suits_best():
    nodes = {
        "a": (Choice(1, need("xq"), need("aq")), Choice(1, need("xp"), need("ap"))),
        "b": (Choice(1, need("xq"), need("bq")),),
    }
    reorders = {("x", "p", "q"): 5.0, ("x", "r", "q"): 5.0}
    found = solve(Problem(nodes, reorders, {"x": frozenset("pqr")}, {"a": frozenset("q")}))
    assert (found.cost, found.given, found.reorders) == (2, {"x": "q"}, ())
    # It is in one of them, not in all.
    found = solve(Problem(nodes, reorders, {"x": frozenset("pr")}, {"a": frozenset("p")}))
    assert (found.cost, found.given) == (7, {"x": "p"})
    assert found.reorders == (("x", "p", "q"),)


def test_a_demand_is_met_without_a_reorder_where_that_is_possible():
    nodes = {"a": (Choice(1, need("xp"), need("ap")),), "b": (Choice(1, need("ar"), need("br")),)}
    reorders = {("a", "p", "q"): 1.0, ("a", "p", "r"): 2.0}
    given = {"x": frozenset("p")}
    found = solve(Problem(nodes, reorders, given, {"a": frozenset("pqr")}))
    assert (found.demanded, found.cost) == ({"a": "p"}, 4)
    # The reorder that node b needs anyhow serves, though another one is cheaper.
    found = solve(Problem(nodes, reorders, given, {"a": frozenset("qr")}))
    assert (found.demanded, found.cost) == ({"a": "r"}, 4)


def test_equal_problems_have_equal_solutions_whatever_the_order_of_their_sets():
    code = """
from tests.pure.test_scale import layered
from stridewise.planner.solver.solve import solve
found = solve(layered(60, [1, 2, 5], seed=3))
print(found.picks, found.reorders, found.given, found.demanded, found.cost)
"""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert "n59" in outputs.pop()


CONTRADICTORY = Problem(
    {
        "a": (Choice(0, need("xp"), need("ap")), Choice(0, need("xp"), need("aq"))),
        "b": (Choice(0, need("ap"), need("bp")),),
        "c": (Choice(0, need("aq"), need("cp")),),
    },
    {},
    {"x": frozenset("p")},
    {},
)
"""Every need can be met, but not all of them."""


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (
            Problem({}, {}, {"x": frozenset("p")}, {"x": frozenset("rq")}),
            "tensor 'x': expected one of the formats q, r, found p; relax the constraints",
        ),
        (
            Problem({}, {}, {}, {"x": frozenset("q")}),
            "tensor 'x': expected one of the formats q, found none; relax the constraints",
        ),
        (
            Problem({}, {}, {"x": frozenset()}, {}),
            "tensor 'x': expected a format that it is given in, found none",
        ),
        (
            Problem(
                {"a": (Choice(1, need("xq", "xr"), need("aq")),)},
                {("x", "p", "q"): 1.0},
                {"x": frozenset("p")},
                {},
            ),
            "node 'a', tensor 'x': expected one of the formats q, r, found p, q; "
            "relax the constraints",
        ),
        (
            CONTRADICTORY,
            "tensor 'a': expected a combination of kernels beside node 'a', found none; "
            "relax the constraints",
        ),
    ],
)
def test_what_cannot_be_solved_is_named(problem, message):
    with pytest.raises(PlanError) as caught:
        solve(problem)
    assert str(caught.value) == message
    with pytest.raises(PlanError) as caught:
        solve(problem, method="milp")
    assert str(caught.value) == (
        "plan: expected a combination of kernels, found none; relax the constraints"
    )


def test_an_integer_program_that_has_no_time_says_so():
    draw = np.random.default_rng(0)
    names = [f"t{number}" for number in range(60)]
    pairs = [(t, f, g) for t in names for f in FORMATS for g in FORMATS if f != g]
    nodes = {
        f"n{number}": tuple(
            Choice(
                float(draw.integers(1, 20)),
                frozenset((names[other], fmt) for other in draw.integers(0, number, 3)),
                frozenset([(names[number], fmt)]),
            )
            for fmt in FORMATS
        )
        for number in range(1, 60)
    }
    costs = {key: float(draw.integers(1, 9)) for key in pairs}
    problem = Problem(nodes, costs, {"t0": frozenset("p")}, {})
    with pytest.raises(PlanError, match=r"found none in 0 seconds \(.*\); allow more time"):
        solve(problem, time_limit=0.0, method="milp")


def test_a_node_without_choices_is_named():
    with pytest.raises(PlanError) as caught:
        solve(Problem({"lonely": ()}, {}, {}, {}))
    assert str(caught.value) == "node 'lonely': expected a kernel, found none"


def test_a_format_may_have_an_empty_name():
    problem = Problem(
        {"a": (Choice(1, frozenset(), frozenset({("y", "")})),)}, {}, {}, {"y": frozenset({""})}
    )
    for method in METHODS:
        assert solve(problem, method=method).demanded == {"y": ""}


def test_the_integer_program_prints_nothing(capfd):
    assert minimize_tables([2], [Table((0,), np.array([2.0, 1.0]))], 10.0) is not None
    assert capfd.readouterr() == ("", "")
