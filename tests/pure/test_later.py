"""Sequences made when they are looked at, and plans that are such."""

from __future__ import annotations

import pytest
from tests.simplified import simplify

from stridewise.planner import derive
from stridewise.planner.later import Later
from stridewise.planner.problem.formulation import FREE, Only, Terms
from stridewise.planner.solver.solve import Solution
from stridewise.planning import make_plans

from .plans import MACHINE, TARGET, cheap, residual


def test_the_others_are_made_once_and_when_they_are_needed() -> None:
    calls: list[int] = []

    def others() -> list[int]:
        calls.append(0)
        return [2, 3]

    found = Later(1, others)
    assert found[0] == 1
    assert not calls
    assert list(found) == [1, 2, 3]
    assert (len(found), found[-1], found[1:], found[:1]) == (3, 3, (2, 3), (1,))
    assert found == (1, 2, 3) == found
    assert found == [1, 2, 3]
    assert found != (1, 2)
    assert found != 1
    assert hash(found) == hash((1, 2, 3))
    assert repr(found) == "(1, 2, 3)"
    assert len(calls) == 1
    with pytest.raises(IndexError):
        _ = found[3]


def test_uniform_plans_are_solved_when_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[Only] = []
    original = Terms.solve

    def solve(self: Terms, only: Only = FREE, *, time_limit: float = 0.0) -> Solution:
        solved.append(only)
        return original(self, only, time_limit=time_limit)

    monkeypatch.setattr(Terms, "solve", solve)
    plans = make_plans(derive(simplify(residual()).graph), TARGET, MACHINE, cheap("blocked"))
    plan = plans[0]
    assert len(solved) == 1
    names = [item.name for item in plan.compare()]
    assert names[0] == "planned"
    assert "all channels-last" in names
    assert names[-1] == "each operator for itself"
    many = len(solved)
    assert many > 1
    assert plan.compare() == tuple(plan.comparisons)
    assert "all plain" in plan.to_json()
    assert len(solved) == many
    assert plan.comparisons[0].cost_ns == plan.cost_ns
    assert [item.name for item in plans] == [name for name in names if "each" not in name]
    assert len(solved) == many
