"""Conversion of a problem to a sum of tables for ``eliminate.py``.

There are two kinds of variables:

- for each node, its choice; for each given tensor with several formats, its format;
- for each tensor with several readers, the *set* of formats that it exists in.

A table over the producer of a tensor and its set has the cost of the reorders from the produced
format to the rest of the set, each paid once. A table over a reader and the set forbids formats
that are not in the set. If there is one reader, its need is the set, and one table over producer
and reader is sufficient. Sets of formats are bit masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np

from stridewise.classes import dataclass
from stridewise.errors import PlanError
from stridewise.planner.solver.eliminate import Contradiction, minimize
from stridewise.planner.solver.problem import Choice, Problem, Stored
from stridewise.planner.solver.table import Table

__all__ = ["RELAX", "Formats", "Moves", "Tables"]

RELAX = "relax the constraints"
"""The advice for a problem without a solution."""

_INFINITY = float("inf")


class Moves:
    """The reorders of one tensor: the cheapest way to add formats to the produced ones."""

    def __init__(self) -> None:
        """Start without any."""
        self.sources: dict[int, list[tuple[float, int]]] = {}
        """The source formats of each format, cheapest first."""

    def best(self, made: int, target: int) -> tuple[float, int]:
        """Return the cost of one format and its source; source 0 means that none is needed."""
        for cost, source in self.sources.get(target, ()):
            if source & made:
                return cost, source
        return _INFINITY, 0

    def add(self, made: int, wanted: int) -> float:
        """Return the cost of adding all of ``wanted`` to the produced formats."""
        missing = wanted & ~made
        total = 0.0
        while missing:
            target = missing & -missing
            missing ^= target
            total += self.best(made, target)[0]
        return total

    def any_of(self, made: int, there: int, demanded: int) -> tuple[float, int]:
        """Return the cost of providing one of ``demanded``, and that format; 0 if none is demanded.

        Args:
            made: formats in which the tensor is produced.
            there: formats to which it is reordered in any case.
            demanded: formats of which one is required.
        """
        have = demanded & made or demanded & there
        if have:
            return 0.0, have & -have
        best = _INFINITY, 0
        for target in self.sources:
            if target & demanded:
                best = min(best, (self.best(made, target)[0], target))
        return best

    def possible(self, made: int) -> int:
        """Return the produced formats and all formats that reorders can add."""
        found = made
        for target in self.sources:
            if self.best(made, target)[1]:
                found |= target
        return found


class Formats:
    """The formats of a problem as bits, in alphabetic order, and the reorders between them."""

    def __init__(self, problem: Problem) -> None:
        """Number the formats and sort the reorders by tensor."""
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
        self._none = Moves()
        self._moves: dict[str, Moves] = {}
        for (tensor, source, target), cost in problem.reorders.items():
            moves = self._moves.get(tensor)
            if moves is None:
                moves = self._moves[tensor] = Moves()
            sources = moves.sources.setdefault(self.bits[target], [])
            sources.append((cost, self.bits[source]))
        for moves in self._moves.values():
            for sources in moves.sources.values():
                sources.sort()

    def moves(self, tensor: str) -> Moves:
        """Return the reorders of a tensor."""
        return self._moves.get(tensor, self._none)

    def mask(self, names: Iterable[str]) -> int:
        """Return a set of formats as bits."""
        found = 0
        for name in names:
            found |= self.bits[name]
        return found

    def split(self, mask: int) -> list[str]:
        """Return the names of the formats of a set."""
        return [name for name in self.names if self.bits[name] & mask]

    def text(self, mask: int) -> str:
        """Return the names of the formats of a set, for messages."""
        # The format of a scalar has an empty name.
        return ", ".join(self.split(mask)) if mask else "none"


@dataclass(frozen=True, slots=True)
class _Side:
    """A variable that produces or reads a tensor: a set of formats for each of its values."""

    variable: int
    sets: list[int]


def _worthwhile(choices: Sequence[Choice]) -> list[int]:
    """Return the choices whose needs and outputs differ from those of every cheaper choice."""
    best: dict[tuple[frozenset[Stored], frozenset[Stored]], int] = {}
    for index, choice in enumerate(choices):
        key = choice.needs, choice.makes
        known = best.get(key)
        if known is None or choice.cost < choices[known].cost:
            best[key] = index
    return sorted(best.values())


class Tables:
    """The variables and tables of a problem.

    Raises:
        PlanError: a given tensor has no format, or a needed format cannot be produced.
    """

    def __init__(self, problem: Problem, formats: Formats) -> None:
        """Build the tables of all nodes and tensors."""
        self._problem, self._formats = problem, formats
        self._sizes: list[int] = []
        self._owners: list[str] = []
        """The node or tensor of each variable, for messages."""
        self._tables: list[Table] = []
        self._makers: dict[str, list[_Side]] = {}
        self._readers: dict[str, list[_Side]] = {}
        self._picks: dict[str, tuple[int, list[int]]] = {}
        self._given: dict[str, tuple[int, list[str]]] = {}
        for tensor in problem.given:
            self._add_given(tensor)
        for node in problem.nodes:
            self._add_node(node)
        for tensor in dict.fromkeys((*self._readers, *problem.demanded)):
            self._add_tensor(tensor)

    def solve(self, time_limit: float) -> tuple[dict[str, int], dict[str, str], float]:
        """Return the choice of each node, the format of each given tensor, and the slack.

        Raises:
            PlanError: no combination satisfies all needs, or none was found within the time limit.
        """
        found = minimize(self._sizes, self._tables, time_limit)
        if isinstance(found, Contradiction):
            where, *others = [self._owners[variable] for variable in found.variables]
            beside = f" beside {', '.join(others[:3])}" if others else ""
            expected = f"a combination of kernels{beside}"
            raise PlanError.at(where, expected=expected, found="none", fix=RELAX)
        picks = {node: kept[found.values[v]] for node, (v, kept) in self._picks.items()}
        given = {tensor: names[found.values[v]] for tensor, (v, names) in self._given.items()}
        return picks, given, found.slack

    def _variable(self, owner: str, size: int) -> int:
        self._owners.append(owner)
        self._sizes.append(size)
        return len(self._sizes) - 1

    def _add_given(self, tensor: str) -> None:
        names = sorted(self._problem.given[tensor])
        if not names:
            where, expected = f"tensor {tensor!r}", "a format that it is given in"
            raise PlanError.at(where, expected=expected, found="none")
        variable = self._variable(f"tensor {tensor!r}", len(names))
        self._given[tensor] = variable, names
        sets = [self._formats.bits[name] for name in names]
        self._makers.setdefault(tensor, []).append(_Side(variable, sets))

    def _add_node(self, node: str) -> None:
        choices = self._problem.nodes[node]
        kept = _worthwhile(choices)
        variable = self._variable(f"node {node!r}", len(kept))
        self._picks[node] = variable, kept
        self._tables.append(Table((variable,), np.array([choices[i].cost for i in kept], float)))
        bits, blank = self._formats.bits, [0] * len(kept)
        needs: dict[str, list[int]] = {}
        makes: dict[str, list[int]] = {}
        for value, index in enumerate(kept):
            for sets, stored in ((needs, choices[index].needs), (makes, choices[index].makes)):
                for tensor, fmt in stored:
                    if tensor not in sets:
                        sets[tensor] = blank.copy()
                    sets[tensor][value] |= bits[fmt]
        for sets, sides in ((needs, self._readers), (makes, self._makers)):
            for tensor in sorted(sets):
                sides.setdefault(tensor, []).append(_Side(variable, sets[tensor]))

    def _add_tensor(self, tensor: str) -> None:
        makers, readers = self._makers.get(tensor, []), self._readers.get(tensor, [])
        self._check(tensor, makers, readers)
        if not readers:
            self._add_table(tensor, makers, None)
            return
        if len(readers) == 1 and all(side.variable != readers[0].variable for side in makers):
            self._add_table(tensor, makers, readers[0])
            return
        sets = [0]
        for side in readers:
            sets = sorted({known | need for known in sets for need in side.sets})
        exists = _Side(self._variable(f"tensor {tensor!r}", len(sets)), sets)
        self._add_table(tensor, makers, exists)
        for side in readers:
            costs = [[_INFINITY if need & ~known else 0.0 for known in sets] for need in side.sets]
            self._tables.append(Table((side.variable, exists.variable), np.array(costs)))

    def _add_table(self, tensor: str, makers: list[_Side], wanted: _Side | None) -> None:
        """Add the cost of reorders from produced formats to wanted and demanded ones."""
        moves = self._formats.moves(tensor)
        names = self._problem.demanded.get(tensor)
        demanded = None if names is None else self._formats.mask(names)

        def price(made: int, want: int) -> float:
            asked = 0.0 if demanded is None else moves.any_of(made, want, demanded)[0]
            return asked + moves.add(made, want)

        goals = [0] if wanted is None else wanted.sets
        rows: dict[int, list[float]] = {}
        costs: list[float] = []
        for combination in product(*(side.sets for side in makers)):
            made = 0
            for one in combination:
                made |= one
            if made not in rows:
                rows[made] = [price(made, want) for want in goals]
            costs += rows[made]
        sides = makers if wanted is None else [*makers, wanted]
        shape = [len(side.sets) for side in sides]
        scope = tuple([side.variable for side in sides])
        self._tables.append(Table(scope, np.array(costs).reshape(shape)))

    def _check(self, tensor: str, makers: list[_Side], readers: list[_Side]) -> None:
        """Raise an error for needs that no combination can satisfy, with their place."""
        made = 0
        for side in makers:
            for one in side.sets:
                made |= one
        possible = self._formats.moves(tensor).possible(made)
        found = self._formats.text(possible)
        demanded = self._problem.demanded.get(tensor)
        if demanded is not None and not self._formats.mask(demanded) & possible:
            expected = f"one of the formats {', '.join(sorted(demanded))}"
            where = f"tensor {tensor!r}"
            raise PlanError.at(where, expected=expected, found=found, fix=RELAX)
        for side in readers:
            if all(need & ~possible for need in side.sets):
                where = f"{self._owners[side.variable]}, tensor {tensor!r}"
                sets = sorted({self._formats.text(need) for need in side.sets})
                expected = f"one of the formats {' or '.join(sets)}"
                raise PlanError.at(where, expected=expected, found=found, fix=RELAX)
