"""Exact minimization of a sum of tables by elimination of variables.

Each variable has a few values. A *table* gives a cost to every combination of values of the
variables in its scope; forbidden combinations cost infinity. The result is the cheapest combination
of all variables. There are three exact reductions, cheapest first:

- **Elimination.** All tables of a variable are added, and the minimum over its values is a table
  over its neighbors; the minimizing value is stored. With up to two neighbors these are the
  reductions R0, RI and RII of partitioned boolean quadratic programming (Scholz and Eckstein, LCTES
  2002), with any number they are bucket elimination (Dechter, Artificial Intelligence 113, 1999).
  Variables with the smallest tables go first, so chains, trees and series-parallel graphs take time
  in proportion to their length, and components and articulation points need no search.
- **Dead ends.** A value that another one beats for all values of the neighbors is dropped (Desmet
  et al., Nature 356, 1992; Goldstein, Biophysical Journal 66, 1994).
- **Integer programming** for components whose tables would grow too large for elimination.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stridewise.classes import dataclass
from stridewise.planner.solver.integer import minimize_tables
from stridewise.planner.solver.table import Array, Minimum, Table

__all__ = ["Contradiction", "minimize"]

_TINY = 1 << 6
"""Limit of entries of tables that elimination makes before values are dropped."""

_SMALL = 1 << 10
"""Limit of entries of tables once no more values can be dropped."""

_LARGE = 1 << 20
"""Limit of entries of the largest table as a last resort before integer programming ..."""

_TOTAL = 1 << 24
"""... and of all tables of a component together, which take about a second."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """No combination has a finite cost.

    Attributes:
        variables: variables without a remaining value. The first one is certain.
    """

    variables: tuple[int, ...]


class _ContradictionError(Exception):
    """Ends the search if there is no solution."""

    def __init__(self, *variables: int) -> None:
        super().__init__(variables)
        self.variables = variables


class _Step(NamedTuple):
    """An eliminated variable: its best value, indexed by the values of its neighbors."""

    variable: int
    scope: tuple[int, ...]
    grid: tuple[NDArray[np.intp], ...]
    best: NDArray[np.intp]


class _Elimination:
    """The remaining variables and tables, and the steps to recover eliminated variables."""

    def __init__(self, sizes: Sequence[int], tables: Sequence[Table]) -> None:
        self.sizes = list(sizes)
        self.values = [np.arange(size, dtype=np.intp) for size in sizes]
        """The remaining original values of each variable."""
        self.tables: list[dict[tuple[int, ...], Array]] = [{} for _ in sizes]
        """The tables of each variable, by scope in ascending order."""
        self.near: list[set[int]] = [set() for _ in sizes]
        self.alive = [True] * len(self.sizes)
        self.heap: list[tuple[int, int]] = []
        """Heap of variables by the table size of their elimination; some entries are outdated."""
        self.stale: deque[int] = deque()
        """Variables with a new table, whose values may have become removable."""
        self.is_stale = [False] * len(self.sizes)
        self.trail: list[_Step] = []
        self.slack = 0.0
        for table in tables:
            order = sorted(range(len(table.scope)), key=table.scope.__getitem__)
            self.add(tuple(table.scope[axis] for axis in order), table.costs.transpose(order))

    def add(self, scope: tuple[int, ...], costs: Array) -> None:
        """Add a table with an ascending scope."""
        if not scope:
            return
        known = self.tables[scope[0]].get(scope)
        total = costs if known is None else known + costs
        self._touch(scope)
        for variable in scope:
            self.tables[variable][scope] = total
            if len(scope) > 1:
                self.near[variable].update(scope)
                self.near[variable].discard(variable)

    def _touch(self, scope: tuple[int, ...]) -> None:
        for variable in scope:
            if not self.is_stale[variable]:
                self.is_stale[variable] = True
                self.stale.append(variable)

    def weight(self, variable: int) -> int:
        """Return the number of entries of the intermediate table of an elimination."""
        if self.sizes[variable] == 1:
            return 0  # its tables lose an axis and are not joined
        return self.sizes[variable] * prod([self.sizes[other] for other in self.near[variable]])

    def _take_out(self, variable: int) -> dict[tuple[int, ...], Array]:
        tables = self.tables[variable]
        for scope in tables:
            for other in scope:
                if other != variable:
                    del self.tables[other][scope]
        for other in self.near[variable]:
            self.near[other].discard(variable)
        self.tables[variable] = {}
        self.alive[variable] = False
        return tables

    def fix(self, variable: int) -> None:
        """Remove a variable with a single value: its tables lose that axis."""
        rest = tuple[int, ...]()
        for scope, costs in self._take_out(variable).items():
            axis = scope.index(variable)
            rest = scope[:axis] + scope[axis + 1 :]
            left = costs.reshape(costs.shape[:axis] + costs.shape[axis + 1 :])
            if np.isinf(left.min()):
                raise _ContradictionError(variable, *rest)
            self.add(rest, left)
        self.trail.append(_Step(variable, (), (), self.values[variable][0]))

    def eliminate(self, variable: int) -> None:
        """Eliminate a variable and add a table over its neighbors."""
        if self.sizes[variable] == 1:
            self.fix(variable)
            return
        scope = tuple(sorted(self.near[variable]))
        axes = {other: axis for axis, other in enumerate((*scope, variable))}
        total: Array | float = 0.0
        for own, costs in self._take_out(variable).items():
            shape = [1] * len(axes)
            for other, extent in zip(own, costs.shape, strict=True):
                shape[axes[other]] = extent
            if own[-1] != variable:
                costs = np.moveaxis(costs, own.index(variable), -1)  # noqa: PLW2901
            total = total + costs.reshape(shape)
        joint = np.broadcast_to(
            total, (*(self.sizes[other] for other in scope), self.sizes[variable])
        )
        best = joint.min(-1)
        if np.isinf(best.min()):
            raise _ContradictionError(variable, *scope)
        grid = tuple([self.values[other] for other in scope])
        self.trail.append(_Step(variable, scope, grid, self.values[variable][joint.argmin(-1)]))
        self.add(scope, best)

    def push(self, variables: Iterable[int]) -> None:
        """Update the heap for variables whose tables may have changed their size."""
        for variable in variables:
            heapq.heappush(self.heap, (self.weight(variable), variable))

    def sweep(self, limit: float) -> None:
        """Eliminate variables, smallest tables first, while tables do not exceed the limit."""
        while self.heap:
            weight, variable = heapq.heappop(self.heap)
            if not self.alive[variable] or weight != self.weight(variable):
                continue
            if weight > limit:
                heapq.heappush(self.heap, (weight, variable))
                return
            touched = sorted(self.near[variable])
            self.eliminate(variable)
            self.push(touched)

    def keep(self, variable: int, values: NDArray[np.bool_]) -> None:
        """Drop all but some values of a variable."""
        if not values.any():
            raise _ContradictionError(variable)
        self.values[variable] = self.values[variable][values]
        self.sizes[variable] = int(values.sum())
        for scope, costs in list(self.tables[variable].items()):
            left = costs.compress(values, scope.index(variable))
            self._touch(scope)
            for other in scope:
                self.tables[other][scope] = left

    def prune(self, variable: int) -> bool:
        """Drop values that are impossible, or that another value beats in all combinations.

        ``worse[a, b]`` is the most by which value a can cost more than b, summed over the tables.
        If b is impossible, the difference is minus infinity or NaN, which fmax ignores.
        """
        size = self.sizes[variable]
        worse = np.zeros((size, size))
        possible = np.ones(size, np.bool_)
        for scope, costs in self.tables[variable].items():
            rows = costs.swapaxes(0, scope.index(variable)).reshape(size, -1)
            possible &= rows.min(1) < np.inf
            worse += np.fmax.reduce(rows[:, None] - rows, axis=2, initial=-np.inf)
        for b in range(size):
            rivals = possible & (worse[:, b] <= 0.0)
            rivals[b] = False
            possible[b] &= not rivals.any()
        if possible.all():
            return False
        self.keep(variable, possible)
        return True

    def reduce(self, limit: int) -> None:
        """Eliminate variables and drop values until neither is possible."""
        self.sweep(limit)
        while self.stale:
            variable = self.stale.popleft()
            self.is_stale[variable] = False
            if self.alive[variable] and self.prune(variable):
                self.push((variable, *sorted(self.near[variable])))
                self.sweep(limit)

    def components(self, variables: Sequence[int]) -> list[list[int]]:
        """Divide variables into groups without common tables."""
        seen: set[int] = set()
        found: list[list[int]] = []
        for start in variables:
            if start in seen:
                continue
            seen.add(start)
            group = [start]
            for variable in group:
                fresh = sorted(self.near[variable] - seen)
                seen.update(fresh)
                group += fresh
            found.append(sorted(group))
        return found

    def affordable(self, group: Sequence[int]) -> bool:
        """Return whether elimination of a component stays within its limits, by a symbolic run."""
        near = {variable: set(self.near[variable]) for variable in group}

        def weight(variable: int) -> int:
            return prod([self.sizes[variable], *(self.sizes[other] for other in near[variable])])

        heap = [(weight(variable), variable) for variable in group]
        heapq.heapify(heap)
        total = 0
        while heap:
            entries, variable = heapq.heappop(heap)
            if variable not in near or entries != weight(variable):
                continue
            total += entries
            if entries > _LARGE or total > _TOTAL:
                return False
            neighbors = near.pop(variable)
            for other in neighbors:
                near[other] |= neighbors
                near[other] -= {other, variable}
            for other in neighbors:
                heapq.heappush(heap, (weight(other), other))
        return True

    def program(self, group: Sequence[int], time_limit: float) -> None:
        """Solve a component by integer programming."""
        number = {variable: index for index, variable in enumerate(group)}
        scopes = {scope: costs for v in group for scope, costs in self.tables[v].items()}
        tables = [
            Table(tuple(number[variable] for variable in scope), costs)
            for scope, costs in scopes.items()
        ]
        found = minimize_tables([self.sizes[v] for v in group], tables, time_limit)
        if found is None:
            raise _ContradictionError(*group)
        self.slack += found.slack
        for variable, value in zip(group, found.values, strict=True):
            self.keep(variable, np.arange(self.sizes[variable]) == value)

    def run(self, time_limit: float) -> None:
        """Eliminate all variables."""
        self.push(range(len(self.sizes)))
        with np.errstate(invalid="ignore"):
            for limit in (_TINY, _SMALL):
                self.reduce(limit)
        for group in self.components([v for v, alive in enumerate(self.alive) if alive]):
            if not self.affordable(group):
                self.program(group, time_limit)
            self.heap.clear()
            self.push(group)
            self.sweep(float("inf"))

    def read(self) -> tuple[int, ...]:
        """Return the values of all variables, in reverse order of elimination."""
        chosen = [0] * len(self.sizes)
        for variable, scope, grid, best in reversed(self.trail):
            at = [
                int(values.searchsorted(chosen[other]))
                for other, values in zip(scope, grid, strict=True)
            ]
            chosen[variable] = int(best[tuple(at)])
        return tuple(chosen)


def minimize(
    sizes: Sequence[int], tables: Sequence[Table], time_limit: float = 60.0
) -> Minimum | Contradiction:
    """Return the combination of values with the least sum of tables.

    The choice among equal minima is deterministic. Sums are floating-point sums, so minima that
    differ by rounding are equivalent.

    Args:
        sizes: number of values of each variable, at least 1.
        tables: costs of combinations.
        time_limit: seconds for each integer program, if one is needed.

    Raises:
        PlanError: no combination was found within the time limit.
    """
    search = _Elimination(sizes, tables)
    try:
        search.run(time_limit)
    except _ContradictionError as error:
        return Contradiction(error.variables)
    return Minimum(search.read(), search.slack)
