"""The solver against brute force."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewise.errors import PlanError
from stridewise.planner.solve import Choice, Problem, solve

FORMATS = ("p", "q", "r")
COSTS = st.integers(0, 9).map(float)


def brute_force(problem: Problem) -> float | None:
    """Return the least cost over all picks and all sets of reorders; None if nothing works."""
    best: float | None = None
    names = list(problem.nodes)
    for picks in product(*(problem.nodes[name] for name in names)):
        made = set(problem.given.items()) | {s for choice in picks for s in choice.makes}
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


@st.composite
def problems(draw: Any) -> Problem:
    """Return small chains and joins: every node makes one tensor from one or two before it."""
    tensors = ["x"]
    nodes: dict[str, tuple[Choice, ...]] = {}
    given_ = {"x": "p"}
    if draw(st.booleans()):
        tensors.append("y")
        given_["y"] = draw(st.sampled_from(FORMATS))
    for number in range(draw(st.integers(1, 3))):
        reads = draw(st.lists(st.sampled_from(tensors), min_size=1, max_size=2, unique=True))
        choices = []
        for _ in range(draw(st.integers(1, 3))):
            needs = frozenset((tensor, draw(st.sampled_from(FORMATS))) for tensor in reads)
            makes = frozenset([(f"t{number}", draw(st.sampled_from(FORMATS)))])
            choices.append(Choice(draw(COSTS), needs, makes))
        nodes[f"n{number}"] = tuple(choices)
        tensors.append(f"t{number}")
    pairs = [(t, f, g) for t in tensors for f in FORMATS for g in FORMATS if f != g]
    reorders = draw(st.dictionaries(st.sampled_from(pairs), COSTS, max_size=7))
    formats = st.frozensets(st.sampled_from(FORMATS), min_size=1)
    demanded = {tensors[-1]: draw(formats)}
    if draw(st.booleans()):
        demanded[draw(st.sampled_from(tensors))] = draw(formats)
    return Problem(nodes, reorders, given_, demanded)


@settings(max_examples=150)
@given(problems())
def test_the_solver_finds_what_brute_force_finds(problem):
    best = brute_force(problem)
    if best is None:
        with pytest.raises(PlanError, match="plan: expected a combination of kernels, found"):
            solve(problem)
        return
    found = solve(problem)
    assert found.cost == pytest.approx(best)
    assert found.lower_bound == pytest.approx(best)
    assert found.lower_bound <= found.cost
    assert found.gap <= 1e-9
    # The cost is that of the picks and reorders that it names, and these do what is asked for.
    picks = [problem.nodes[name][found.picks[name]] for name in problem.nodes]
    cost = sum(choice.cost for choice in picks) + sum(map(problem.reorders.get, found.reorders))
    assert found.cost == pytest.approx(cost)
    fixed = Problem(
        {name: (pick,) for name, pick in zip(problem.nodes, picks, strict=True)},
        {key: problem.reorders[key] for key in found.reorders},
        problem.given,
        problem.demanded,
    )
    assert brute_force(fixed) is not None


def need(*stored: str) -> frozenset[tuple[str, str]]:
    return frozenset((text[0], text[1]) for text in stored)


def test_a_reorder_is_paid_once_however_many_use_it():
    consumer = (Choice(1, need("xq"), need("aq")), Choice(4, need("xp"), need("ap")))
    other = (Choice(1, need("xq"), need("bq")), Choice(4, need("xp"), need("bp")))
    nodes = {"a": consumer, "b": other}
    problem = Problem(nodes, {("x", "p", "q"): 5.0}, {"x": "p"}, {})
    found = solve(problem)
    assert found.cost == 7
    assert found.reorders == (("x", "p", "q"),)
    # Alone, neither is worth it.
    assert solve(Problem({"a": consumer}, problem.reorders, problem.given, {})).reorders == ()


def test_reorders_do_not_feed_reorders():
    problem = Problem(
        {"a": (Choice(0, need("xr"), need("ar")),)},
        {("x", "p", "q"): 1.0, ("x", "q", "r"): 1.0},
        {"x": "p"},
        {},
    )
    with pytest.raises(PlanError):
        solve(problem)


def test_a_tensor_that_is_demanded_as_it_is_given_costs_nothing():
    problem = Problem(
        {"a": (Choice(2, need("xp"), need("ap")),)}, {}, {"x": "p"}, {"x": frozenset("pq")}
    )
    assert solve(problem).cost == 2


def test_a_problem_without_nodes_is_solved_for_nothing():
    assert solve(Problem({}, {}, {"x": "p"}, {"x": frozenset("p")})).cost == 0


def test_a_demand_that_nothing_meets_is_an_error_even_without_nodes():
    with pytest.raises(PlanError):
        solve(Problem({}, {}, {"x": "p"}, {"x": frozenset("q")}))


def test_a_node_without_choices_is_named():
    with pytest.raises(PlanError) as caught:
        solve(Problem({"lonely": ()}, {}, {}, {}))
    assert str(caught.value) == "node 'lonely': expected a kernel, found none"


def test_what_cannot_be_combined_is_an_error():
    problem = Problem({"a": (Choice(1, need("xq"), need("aq")),)}, {}, {"x": "p"}, {})
    with pytest.raises(PlanError) as caught:
        solve(problem)
    assert str(caught.value).endswith("; relax the constraints")
