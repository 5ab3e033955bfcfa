"""The exact choice: one kernel a node, one or more formats a tensor, the fewest nanoseconds.

A problem is put as a sum of tables over two sorts of variables, which ``eliminate.py`` minimizes:

- for each node, which choice it uses; for each tensor given in several formats, in which;
- for each tensor with several readers, the *set* of formats that it exists in.

A table over the maker of a tensor and its set holds the cost of the reorders from what is made to
the rest of the set, each paid once; a table over a reader and the set forbids what is not there.
Where there is one reader, the set is what that reader needs, and one table over maker and reader
is enough. Sets of formats are bit masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from stridewise.errors import PlanError, describe
from stridewise.planner.eliminate import Contradiction, Table, minimize
from stridewise.planner.integer import solve_program
from stridewise.planner.problem import Choice, Move, Problem, Solution

__all__ = ["Choice", "Method", "Problem", "Solution", "solve"]

Method = Literal["eliminate", "milp"]

_INFINITY = float("inf")

_RELAX = "relax the constraints"


@dataclass(frozen=True, slots=True)
class _Side:
    """A variable that makes or reads a tensor: a set of formats for each of its values."""

    variable: int
    sets: list[int]


class _Formats:
    """Names of formats as bits, in alphabetic order."""

    def __init__(self, problem: Problem) -> None:
        names = {
            fmt
            for choices in problem.nodes.values()
            for choice in choices
            for stored in (choice.needs, choice.makes)
            for _, fmt in stored
        }
        names.update(*problem.given.values(), *problem.demanded.values())
        for _, source, target in problem.reorders:
            names.add(source)
            names.add(target)
        self.names = sorted(names)
        self.bits = {name: 1 << index for index, name in enumerate(self.names)}

    def mask(self, names: Iterable[str]) -> int:
        found = 0
        for name in names:
            found |= self.bits[name]
        return found

    def split(self, mask: int) -> list[str]:
        return [name for name in self.names if self.bits[name] & mask]


class _Moves:
    """The reorders of one tensor: the cheapest way to add formats to those that are made."""

    def __init__(self, formats: _Formats) -> None:
        self._formats = formats
        self.sources: dict[int, list[tuple[float, int]]] = {}
        """For each format, what it can be made from, the cheapest first."""

    def best(self, made: int, target: int) -> tuple[float, int]:
        """Return the cost of one format, and what it is made from; 0 for nothing."""
        for cost, source in self.sources.get(target, ()):
            if source & made:
                return cost, source
        return _INFINITY, 0

    def add(self, made: int, wanted: int) -> float:
        """Return the cost of having all of ``wanted`` beside what is made."""
        missing = wanted & ~made
        total = 0.0
        while missing:
            target = missing & -missing
            missing ^= target
            total += self.best(made, target)[0]
        return total

    def any_of(self, made: int, there: int, demanded: int) -> tuple[float, int]:
        """Return the cost of having one of ``demanded``, and which it is."""
        if have := demanded & (made | there):
            first = demanded & made or have
            return 0.0, first & -first
        goals = [self._formats.bits[name] for name in self._formats.split(demanded)]
        return min(((self.best(made, goal)[0], goal) for goal in goals), default=(_INFINITY, 0))


def _worthwhile(choices: Sequence[Choice]) -> list[int]:
    """Return which choices are not the same as a cheaper one."""
    best: dict[tuple[frozenset[tuple[str, str]], frozenset[tuple[str, str]]], int] = {}
    for index, choice in enumerate(choices):
        key = choice.needs, choice.makes
        known = best.get(key)
        if known is None or choice.cost < choices[known].cost:
            best[key] = index
    return sorted(best.values())


def _moves(problem: Problem, formats: _Formats) -> dict[str, _Moves]:
    tensors = (*problem.given, *problem.demanded, *(tensor for tensor, _, _ in problem.reorders))
    found = {tensor: _Moves(formats) for tensor in tensors}
    for choices in problem.nodes.values():
        for choice in choices:
            for tensor, _ in choice.needs:
                if tensor not in found:
                    found[tensor] = _Moves(formats)
    for (tensor, source, target), cost in problem.reorders.items():
        sources = found[tensor].sources.setdefault(formats.bits[target], [])
        sources.append((cost, formats.bits[source]))
    for moves in found.values():
        for sources in moves.sources.values():
            sources.sort()
    return found


class _Tables:
    """A problem as tables."""

    def __init__(self, problem: Problem, formats: _Formats) -> None:
        self.problem, self.formats = problem, formats
        self.sizes: list[int] = []
        self.owners: list[str] = []
        """What each variable decides about, for messages."""
        self.tables: list[Table] = []
        self.makers: dict[str, list[_Side]] = {}
        self.readers: dict[str, list[_Side]] = {}
        self.kept: dict[str, tuple[int, list[int]]] = {}
        self.given: dict[str, tuple[int, list[str]]] = {}
        self.moves = _moves(problem, self.formats)
        for tensor in problem.given:
            self._add_given(tensor)
        for node in problem.nodes:
            self._add_node(node)
        for tensor in dict.fromkeys((*self.readers, *problem.demanded)):
            self._add_tensor(tensor)

    def _variable(self, owner: str, size: int) -> int:
        self.owners.append(owner)
        self.sizes.append(size)
        return len(self.sizes) - 1

    def _add_given(self, tensor: str) -> None:
        formats = sorted(self.problem.given[tensor])
        if not formats:
            raise PlanError(
                describe(
                    f"tensor {tensor!r}", expected="a format that it is given in", found="none"
                )
            )
        variable = self._variable(f"given tensor {tensor!r}", len(formats))
        self.given[tensor] = variable, formats
        sets = [self.formats.bits[fmt] for fmt in formats]
        self.makers.setdefault(tensor, []).append(_Side(variable, sets))

    def _add_node(self, node: str) -> None:
        choices = self.problem.nodes[node]
        kept = _worthwhile(choices)
        variable = self._variable(f"node {node!r}", len(kept))
        self.kept[node] = variable, kept
        self.tables.append(
            Table((variable,), np.array([choices[index].cost for index in kept], np.float64))
        )
        needs: dict[str, list[int]] = {}
        makes: dict[str, list[int]] = {}
        bits, blank = self.formats.bits, [0] * len(kept)
        for value, index in enumerate(kept):
            for found, stored in ((needs, choices[index].needs), (makes, choices[index].makes)):
                for tensor, fmt in stored:
                    found.setdefault(tensor, blank.copy())[value] |= bits[fmt]
        for found, sides in ((needs, self.readers), (makes, self.makers)):
            for tensor in sorted(found):
                sides.setdefault(tensor, []).append(_Side(variable, found[tensor]))

    def _add_tensor(self, tensor: str) -> None:
        makers, readers = self.makers.get(tensor, []), self.readers.get(tensor, [])
        self._check(tensor, makers, readers)
        if len(readers) == 1 and readers[0].variable not in {side.variable for side in makers}:
            self._add_table(tensor, makers, readers)
            return
        if not readers:
            self._add_table(tensor, makers, [])
            return
        sets = [0]
        for side in readers:
            sets = sorted({known | need for known in sets for need in side.sets})
        exists = _Side(self._variable(f"tensor {tensor!r}", len(sets)), sets)
        self._add_table(tensor, makers, [exists])
        for side in readers:
            costs = [[_INFINITY if need & ~known else 0.0 for known in sets] for need in side.sets]
            self.tables.append(Table((side.variable, exists.variable), np.array(costs)))

    def _add_table(self, tensor: str, makers: list[_Side], wanted: list[_Side]) -> None:
        """Add what it costs to get from what is made to what is wanted and demanded."""
        moves = self.moves[tensor]
        names = self.problem.demanded.get(tensor)
        demanded = None if names is None else self.formats.mask(names)
        known: dict[tuple[int, int], float] = {}

        def price(made: int, want: int) -> float:
            if (made, want) not in known:
                asked = 0.0 if demanded is None else moves.any_of(made, want, demanded)[0]
                known[made, want] = asked + moves.add(made, want)
            return known[made, want]

        goals = wanted[0].sets if wanted else [0]
        costs: list[float] = []
        for combination in product(*(side.sets for side in makers)):
            made = 0
            for one in combination:
                made |= one
            costs += [price(made, want) for want in goals]
        sides = [*makers, *wanted]
        shape = [len(side.sets) for side in sides]
        scope = tuple(side.variable for side in sides)
        self.tables.append(Table(scope, np.array(costs, np.float64).reshape(shape)))

    def _check(self, tensor: str, makers: list[_Side], readers: list[_Side]) -> None:
        """Refuse what no combination can mend, and say where it is."""
        made = 0
        for side in makers:
            for one in side.sets:
                made |= one
        moves = self.moves[tensor]
        possible = made
        for target in moves.sources:
            possible |= target if moves.best(made, target)[1] else 0
        found = ", ".join(self.formats.split(possible)) or "none"
        demanded = self.problem.demanded.get(tensor)
        if demanded is not None and not self.formats.mask(demanded) & possible:
            expected = f"one of the formats {', '.join(sorted(demanded)) or '(none)'}"
            raise PlanError(
                describe(f"tensor {tensor!r}", expected=expected, found=found, fix=_RELAX)
            )
        for side in readers:
            if all(need & ~possible for need in side.sets):
                sets = {", ".join(self.formats.split(need)) for need in side.sets}
                where = f"{self.owners[side.variable]}, tensor {tensor!r}"
                expected = f"one of the formats {' or '.join(sorted(sets))}"
                raise PlanError(describe(where, expected=expected, found=found, fix=_RELAX))

    def solve(self, time_limit: float) -> tuple[dict[str, int], dict[str, str], float]:
        """Return the choices of nodes, the formats of given tensors, and the slack."""
        found = minimize(self.sizes, self.tables, time_limit)
        if isinstance(found, Contradiction):
            first, *others = [self.owners[variable] for variable in found.variables]
            beside = f" beside {', '.join(others[:3])}" if others else ""
            raise PlanError(
                describe(
                    first,
                    expected=f"a combination of kernels{beside}",
                    found="none",
                    fix=_RELAX,
                )
            )
        picks = {node: kept[found.values[v]] for node, (v, kept) in self.kept.items()}
        given = {tensor: names[found.values[v]] for tensor, (v, names) in self.given.items()}
        return picks, given, found.slack


def _finish(
    problem: Problem, formats: _Formats, picks: dict[str, int], given: dict[str, str], slack: float
) -> Solution:
    """Add the reorders that choices need, how demands are met, and the cost of all."""
    moves = _moves(problem, formats)
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
        there, want = made.get(tensor, 0), needed.get(tensor, 0)
        _, goal = moves[tensor].any_of(there, want, formats.mask(names))
        needed[tensor] = want | goal
        met[tensor] = formats.split(goal)[0]
    used: set[Move] = set()
    for tensor, want in needed.items():
        there = made.get(tensor, 0)
        for target in formats.split(want & ~there):
            _, source = moves[tensor].best(there, formats.bits[target])
            used.add((tensor, formats.split(source)[0], target))
    reorders = tuple(move for move in problem.reorders if move in used)
    cost = sum(problem.nodes[node][index].cost for node, index in picks.items())
    cost += sum(problem.reorders[move] for move in reorders)
    return Solution(picks, reorders, given, met, cost, cost - slack)


def solve(problem: Problem, time_limit: float = 60.0, *, method: Method = "eliminate") -> Solution:
    """Solve a problem exactly, or as well as the time allows, with the gap said.

    The same problem has always the same solution. By elimination alone it is proved optimal up to
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
    formats = _Formats(problem)
    if method == "milp":
        found = solve_program(problem, time_limit)
        if found is None:
            raise PlanError(
                describe("plan", expected="a combination of kernels", found="none", fix=_RELAX)
            )
        return _finish(problem, formats, found.picks, found.given, found.slack)
    return _finish(problem, formats, *_Tables(problem, formats).solve(time_limit))
