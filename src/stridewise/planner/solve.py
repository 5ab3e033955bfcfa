"""The exact choice: one kernel a node, one or more formats a tensor, the fewest milliseconds.

This module knows no graphs. Tensors and formats are names; a *choice* needs some tensors in some
formats and makes others. The integer program (solved by HiGHS):

- ``x[n,k]`` in {0,1}: node n uses choice k; exactly one a node;
- ``conv[t,g,f]`` in {0,1}: tensor t is reordered from g to f, paid once however many use it;
- ``made[t,f]``: sum of ``x`` over the choices that make t in f; ``conv[t,g,f] <= made[t,g]``;
- for each consumer n and format f of t: sum of ``x`` over its choices that need (t, f) is at most
  ``made[t,f] + sum over g of conv[t,g,f]``;
- a demanded tensor is there in one of the formats that are acceptable;
- minimize the cost of choices and reorders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from stridewise.errors import PlanError, describe

if TYPE_CHECKING:
    import highspy

__all__ = ["Choice", "Problem", "Solution", "solve"]

Stored = tuple[str, str]
"""A tensor and a format that it is stored in."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to compute a node.

    Attributes:
        cost: in any unit, not negative.
        needs: inputs with the formats that they must be in.
        makes: outputs with the formats that they come in.
    """

    cost: float
    needs: frozenset[Stored]
    makes: frozenset[Stored]


@dataclass(frozen=True, slots=True)
class Problem:
    """What to decide.

    Attributes:
        nodes: for each node, its choices.
        reorders: the cost of storing a tensor in another format: (tensor, from, to) to cost.
        given: tensors that exist before, in one format each.
        demanded: tensors that must exist afterwards, in one of the formats.
    """

    nodes: Mapping[str, tuple[Choice, ...]]
    reorders: Mapping[tuple[str, str, str], float]
    given: Mapping[str, str]
    demanded: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Solution:
    """A decision and its proof.

    Attributes:
        picks: the index of the chosen choice of each node.
        reorders: the reorders that are made.
        cost: what all of it costs.
        lower_bound: no solution is cheaper than this.
    """

    picks: Mapping[str, int]
    reorders: tuple[tuple[str, str, str], ...]
    cost: float
    lower_bound: float

    @property
    def gap(self) -> float:
        """How far the cost may be from the optimum, as a part of the cost."""
        return 0.0 if self.cost <= 0 else max(0.0, self.cost - self.lower_bound) / self.cost


@dataclass(slots=True)
class _Rows:
    """Constraints under construction: coefficients by column, and bounds."""

    entries: list[dict[int, float]] = field(default_factory=list[dict[int, float]])
    lower: list[float] = field(default_factory=list[float])
    upper: list[float] = field(default_factory=list[float])

    def add(self, entries: dict[int, float], lower: float, upper: float) -> None:
        self.entries.append(entries)
        self.lower.append(lower)
        self.upper.append(upper)


class _Program:
    """The integer program: columns are choices, then reorders."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.costs: list[float] = []
        self.choice_column: dict[tuple[str, int], int] = {}
        for node, choices in problem.nodes.items():
            for index, choice in enumerate(choices):
                self.choice_column[node, index] = len(self.costs)
                self.costs.append(choice.cost)
        self.reorder_column: dict[tuple[str, str, str], int] = {}
        for key, cost in problem.reorders.items():
            self.reorder_column[key] = len(self.costs)
            self.costs.append(cost)
        self.rows = _Rows()
        self._made = self._makers()
        self._reordered: dict[Stored, list[int]] = {}
        for (tensor, _, target), column in self.reorder_column.items():
            self._reordered.setdefault((tensor, target), []).append(column)
        self._build()

    def _makers(self) -> dict[Stored, list[int]]:
        found: dict[Stored, list[int]] = {}
        for node, choices in self.problem.nodes.items():
            for index, choice in enumerate(choices):
                for stored in choice.makes:
                    found.setdefault(stored, []).append(self.choice_column[node, index])
        return found

    def _have(self, stored: Stored) -> tuple[dict[int, float], float]:
        """Return the columns that make a tensor be there in a format, and a constant part."""
        columns = [*self._made.get(stored, ()), *self._reordered.get(stored, ())]
        return dict.fromkeys(columns, 1.0), float(self.problem.given.get(stored[0]) == stored[1])

    def _build(self) -> None:
        infinity = float("inf")
        for node, choices in self.problem.nodes.items():
            columns = [self.choice_column[node, index] for index in range(len(choices))]
            self.rows.add(dict.fromkeys(columns, 1.0), 1.0, 1.0)
            needed: dict[Stored, list[int]] = {}
            for column, choice in zip(columns, choices, strict=True):
                for stored in choice.needs:
                    needed.setdefault(stored, []).append(column)
            for stored, users in needed.items():
                entries, present = self._have(stored)
                for column in users:
                    entries[column] = entries.get(column, 0.0) - 1.0
                self.rows.add(entries, -present, infinity)
        for (tensor, source, _), column in self.reorder_column.items():
            made = dict.fromkeys(self._made.get((tensor, source), ()), 1.0)
            present = float(self.problem.given.get(tensor) == source)
            made[column] = -1.0
            self.rows.add(made, -present, infinity)
        for tensor, formats in self.problem.demanded.items():
            total: dict[int, float] = {}
            constant = 0.0
            for fmt in sorted(formats):
                entries, present = self._have((tensor, fmt))
                total.update(entries)
                constant += present
            self.rows.add(total, 1.0 - constant, infinity)


def _nothing_to_do(problem: Problem) -> Solution:
    """Return the empty solution of a problem without nodes and reorders, if it is one."""
    for tensor, formats in problem.demanded.items():
        given = problem.given.get(tensor)
        if given not in formats:
            expected = f"one of the formats {', '.join(sorted(formats))}"
            raise PlanError(describe(f"tensor {tensor!r}", expected=expected, found=str(given)))
    return Solution({}, (), 0.0, 0.0)


def _model(program: _Program) -> highspy.HighsLp:
    """Return the integer program in the solver's terms: columns in [0, 1], rows sparse."""
    import highspy  # noqa: PLC0415 (a tenth of a second that only planning pays)

    columns, rows = len(program.costs), program.rows
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = columns, len(rows.entries)
    model.col_cost_ = np.array(program.costs)
    model.col_lower_, model.col_upper_ = np.zeros(columns), np.ones(columns)
    model.integrality_ = [highspy.HighsVarType.kInteger] * columns
    model.row_lower_, model.row_upper_ = np.array(rows.lower), np.array(rows.upper)
    starts = np.cumsum([0, *(len(entries) for entries in rows.entries)])
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = starts
    model.a_matrix_.index_ = np.array([c for entries in rows.entries for c in entries], np.int32)
    model.a_matrix_.value_ = np.array([v for entries in rows.entries for v in entries.values()])
    return model


def solve(problem: Problem, time_limit: float = 60.0) -> Solution:
    """Solve a problem exactly, or as well as the time allows, with the gap said.

    Args:
        problem: what to decide.
        time_limit: seconds after which the best solution so far is returned.

    Raises:
        PlanError: a node has no choice, or no combination satisfies all needs.
    """
    import highspy  # noqa: PLC0415 (a tenth of a second that only planning pays)

    for node, choices in problem.nodes.items():
        if not choices:
            raise PlanError(describe(f"node {node!r}", expected="a kernel", found="none"))
    program = _Program(problem)
    if not program.costs:
        return _nothing_to_do(problem)
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.setOptionValue("mip_abs_gap", 0.0)
    highs.setOptionValue("time_limit", time_limit)
    highs.passModel(_model(program))
    highs.run()
    status = highs.getModelStatus()
    info = highs.getInfo()
    if status not in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kTimeLimit) or (
        info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible
    ):
        raise PlanError(
            describe(
                "plan",
                expected="a combination of kernels",
                found=str(status),
                fix="relax the constraints",
            )
        )
    picked = np.asarray(highs.getSolution().col_value) > 0.5
    return Solution(
        {node: index for (node, index), column in program.choice_column.items() if picked[column]},
        tuple(key for key, column in program.reorder_column.items() if picked[column]),
        float(np.dot(picked, program.costs)),
        min(float(info.mip_dual_bound), float(np.dot(picked, program.costs))),
    )
