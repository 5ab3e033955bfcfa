"""Integer programs for HiGHS: for tables that are too large to eliminate, and for whole problems.

A program over tables is the local polytope (Wainwright and Jordan, Foundations and Trends in
Machine Learning 1, 2008): a column for every value of a variable and for every combination of
finite cost of a table; the combinations with a value sum to that value. The relaxation is tight, so
little branching is needed.

The program of a whole problem follows its definition. The planner does not need it; tests compare
both methods:

- ``x[n,k]`` in {0,1}: node n uses choice k, exactly one per node; likewise for the formats of a
  given tensor;
- ``conv[t,g,f]`` in {0,1}: tensor t is reordered from g to f, paid once for all consumers;
- ``made[t,f]``: sum of ``x`` over the choices that make t in f; ``conv[t,g,f] <= made[t,g]``;
- for each consumer n and format f of t: sum of ``x`` over its choices that need (t, f) is at most
  ``made[t,f] + sum over g of conv[t,g,f]``;
- a demanded tensor exists in one of its acceptable formats;
- minimize the cost of choices and reorders.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.classes import dataclass
from stridewise.errors import PlanError
from stridewise.planner.solver.problem import Move, Problem, Solution, Stored
from stridewise.planner.solver.table import Minimum, Table

__all__ = ["Picked", "minimize_tables", "solve_program"]


@dataclass(slots=True)
class _Program:
    """Columns in [0, 1] with costs, and rows with bounds, under construction."""

    costs: list[float] = field(default_factory=list[float])
    integral: list[bool] = field(default_factory=list[bool])
    entries: list[Mapping[int, float]] = field(default_factory=list[Mapping[int, float]])
    lower: list[float] = field(default_factory=list[float])
    upper: list[float] = field(default_factory=list[float])

    def column(self, cost: float, *, integral: bool = True) -> int:
        self.costs.append(cost)
        self.integral.append(integral)
        return len(self.costs) - 1

    def row(self, entries: Mapping[int, float], lower: float, upper: float) -> None:
        self.entries.append(entries)
        self.lower.append(lower)
        self.upper.append(upper)

    def one_of(self, columns: Sequence[int]) -> None:
        self.row(dict.fromkeys(columns, 1.0), 1.0, 1.0)

    def run(
        self, time_limit: float, start: Collection[int] | None = None
    ) -> tuple[NDArray[np.bool_], float] | None:
        """Return the columns that are 1, and the lower bound; None if the program is infeasible.

        Args:
            time_limit: in seconds.
            start: the columns that are 1 in a solution to start from.

        Raises:
            PlanError: no solution was found within the time limit.
        """
        import highspy  # noqa: PLC0415 (the import takes 0.1 s, and few plans need it)

        model = highspy.HighsLp()
        count, kinds = len(self.costs), highspy.HighsVarType
        model.num_col_, model.num_row_ = count, len(self.entries)
        model.col_cost_ = np.array(self.costs)
        model.col_lower_, model.col_upper_ = np.zeros(count), np.ones(count)
        model.integrality_ = [kinds.kInteger if i else kinds.kContinuous for i in self.integral]
        model.row_lower_, model.row_upper_ = np.array(self.lower), np.array(self.upper)
        matrix = model.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.start_ = np.cumsum([0, *(len(row) for row in self.entries)])
        matrix.index_ = np.array([c for row in self.entries for c in row], np.int32)
        matrix.value_ = np.array([v for row in self.entries for v in row.values()])
        highs = _silent_highs()
        highs.setOptionValue("threads", 1)
        highs.setOptionValue("mip_rel_gap", 0.0)
        highs.setOptionValue("mip_abs_gap", 0.0)
        highs.setOptionValue("time_limit", time_limit)
        highs.passModel(model)
        if start is not None:
            known = highspy.HighsSolution()
            known.col_value = [float(column in start) for column in range(count)]
            highs.setSolution(known)
        highs.run()
        info, status = highs.getInfo(), highs.getModelStatus()
        if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            return np.asarray(highs.getSolution().col_value) > 0.5, float(info.mip_dual_bound)
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        raise PlanError.at(
            "plan",
            expected="a combination of kernels",
            found=f"none in {time_limit:g} seconds ({status})",
            fix="allow more time",
        )


def _silent_highs() -> Any:
    """Return a solver that prints nothing, not even when it is made (HiGHS 1.16)."""
    import highspy  # noqa: PLC0415 (as above)

    class Silent(highspy.Highs):
        # What makes a solver calls this after options have their defaults.
        def enableCallbacks(self) -> None:  # noqa: N802 (its name)
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()

    made = Silent()
    made.setOptionValue("output_flag", False)
    return made


def minimize_tables(
    sizes: Sequence[int], tables: Sequence[Table], time_limit: float
) -> Minimum | None:
    """Return the combination with the least sum of tables; None if there is none.

    Args:
        sizes: number of values of each variable.
        tables: costs of combinations; scopes in any order.
        time_limit: seconds after which the best combination so far is returned, with its slack.

    Raises:
        PlanError: no combination was found within the time limit.
    """
    program = _Program()
    values = [[program.column(0.0) for _ in range(size)] for size in sizes]
    for columns in values:
        program.one_of(columns)
    for table in tables:
        # One row per value: the combinations with the value sum to it.
        sums = [{column: -1.0} for variable in table.scope for column in values[variable]]
        starts = np.cumsum([0, *table.costs.shape])
        for position in np.argwhere(np.isfinite(table.costs)):
            column = program.column(float(table.costs[tuple(position)]), integral=False)
            for axis, value in enumerate(position):
                sums[starts[axis] + value][column] = 1.0
        for row in sums:
            program.row(row, 0.0, 0.0)
    found = program.run(time_limit)
    if found is None:
        return None
    picked, bound = found
    chosen = tuple(int(np.argmax(picked[columns])) for columns in values)
    cost = sum(float(t.costs[tuple(chosen[variable] for variable in t.scope)]) for t in tables)
    return Minimum(chosen, max(0.0, cost - bound))


@dataclass(frozen=True, slots=True)
class Picked:
    """The solution of the program of a whole problem.

    Attributes:
        picks: the index of the choice of each node.
        given: the format of each given tensor.
        slack: upper bound of the distance from the optimum.
    """

    picks: dict[str, int]
    given: dict[str, str]
    slack: float


class _Whole:
    """The program of a whole problem, by its definition."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.program = _Program()
        column = self.program.column
        self.choices = {
            node: [column(choice.cost) for choice in choices]
            for node, choices in problem.nodes.items()
        }
        self.formats = {
            tensor: {fmt: column(0.0) for fmt in sorted(formats)}
            for tensor, formats in problem.given.items()
        }
        self.moves: dict[Move, int] = {key: column(c) for key, c in problem.reorders.items()}
        self.made: dict[Stored, list[int]] = {}
        self.there: dict[Stored, list[int]] = {}
        self._find_makers()
        self._write()

    def columns(self, solution: Solution) -> frozenset[int]:
        """Return the columns that are 1 in a solution."""
        found = [self.choices[node][index] for node, index in solution.picks.items()]
        found += [self.formats[tensor][fmt] for tensor, fmt in solution.given.items()]
        return frozenset((*found, *(self.moves[move] for move in solution.reorders)))

    def _find_makers(self) -> None:
        for node, choices in self.problem.nodes.items():
            for used, choice in zip(self.choices[node], choices, strict=True):
                for stored in choice.makes:
                    self.made.setdefault(stored, []).append(used)
        for tensor, formats in self.formats.items():
            for fmt, used in formats.items():
                self.made.setdefault((tensor, fmt), []).append(used)
        self.there = {stored: list(columns) for stored, columns in self.made.items()}
        for (tensor, _, target), used in self.moves.items():
            self.there.setdefault((tensor, target), []).append(used)

    def _write(self) -> None:
        infinity, program = float("inf"), self.program
        for columns in self.choices.values():
            program.one_of(columns)
        for formats in self.formats.values():
            program.one_of(tuple(formats.values()))
        for node, choices in self.problem.nodes.items():
            needed: dict[Stored, list[int]] = {}
            for used, choice in zip(self.choices[node], choices, strict=True):
                for stored in sorted(choice.needs):
                    needed.setdefault(stored, []).append(used)
            for stored, users in needed.items():
                entries = dict.fromkeys(self.there.get(stored, ()), 1.0)
                for used in users:
                    entries[used] = entries.get(used, 0.0) - 1.0
                program.row(entries, 0.0, infinity)
        for (tensor, source, _), used in self.moves.items():
            entries = dict.fromkeys(self.made.get((tensor, source), ()), 1.0)
            program.row({**entries, used: -1.0}, 0.0, infinity)
        for tensor, formats in self.problem.demanded.items():
            columns = [c for fmt in sorted(formats) for c in self.there.get((tensor, fmt), ())]
            program.row(dict.fromkeys(columns, 1.0), 1.0, infinity)


def solve_program(
    problem: Problem,
    time_limit: float,
    choices: Mapping[str, Sequence[float]] | None = None,
    moves: Mapping[Move, float] | None = None,
    start: Solution | None = None,
) -> Picked | None:
    """Return the solution of the integer program of a whole problem; None if it is infeasible.

    Args:
        problem: the problem.
        time_limit: in seconds.
        choices: a second cost of each choice of each node, of which a solution may have 1 in total.
        moves: the same for reorders.
        start: a solution that satisfies all of this.

    Raises:
        PlanError: no solution was found within the time limit.
    """
    whole = _Whole(problem)
    if choices is not None:
        entries = {
            column: second
            for node, columns in whole.choices.items()
            for column, second in zip(columns, choices[node], strict=True)
        }
        entries |= {whole.moves[move]: second for move, second in (moves or {}).items()}
        used = {column: second for column, second in entries.items() if second}
        whole.program.row(used, 0.0, 1.0)
    if not whole.program.costs:
        return None if any(whole.program.lower) else Picked({}, {}, 0.0)
    found = whole.program.run(time_limit, None if start is None else whole.columns(start))
    if found is None:
        return None
    picked, bound = found
    return Picked(
        {node: int(np.argmax(picked[columns])) for node, columns in whole.choices.items()},
        {
            tensor: next(fmt for fmt, column in columns.items() if picked[column])
            for tensor, columns in whole.formats.items()
        },
        max(0.0, float(np.dot(picked, whole.program.costs)) - bound),
    )
