"""Input and output of the solver, independent of graphs: tensors and formats are names.

A node has *choices*. Each choice needs some tensors in certain formats and makes others. A tensor
may be stored in another format for the cost of a reorder, which is paid once for all readers. A
reorder does not read the result of another reorder.
"""

from __future__ import annotations

from collections.abc import Mapping

from stridewise.classes import dataclass

__all__ = ["Choice", "Move", "Problem", "Solution", "Stored"]

Stored = tuple[str, str]
"""A tensor and its format."""

Move = tuple[str, str, str]
"""A tensor, its format, and the format to which it is reordered."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to compute a node.

    Attributes:
        cost: a non-negative number in any unit.
        needs: inputs with their required formats.
        makes: outputs with their formats.
    """

    cost: float
    needs: frozenset[Stored]
    makes: frozenset[Stored]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem for the solver.

    Attributes:
        nodes: the choices of each node.
        reorders: the non-negative cost of each reorder.
        given: tensors that exist before the first node, each in exactly one of the formats. The
            solver chooses the format.
        demanded: tensors that must exist after the last node, in one of the formats.
    """

    nodes: Mapping[str, tuple[Choice, ...]]
    reorders: Mapping[Move, float]
    given: Mapping[str, frozenset[str]]
    demanded: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Solution:
    """A solution and its lower bound.

    Attributes:
        picks: the index of the choice of each node.
        reorders: the reorders of the solution, in the order of the problem.
        given: the format of each given tensor.
        demanded: a format of each demanded tensor; one without a reorder, if there is one.
        cost: the total cost.
        lower_bound: a lower bound of the cost of all solutions.
    """

    picks: Mapping[str, int]
    reorders: tuple[Move, ...]
    given: Mapping[str, str]
    demanded: Mapping[str, str]
    cost: float
    lower_bound: float

    @property
    def gap(self) -> float:
        """Upper bound of the distance from the optimum, relative to the cost."""
        return 0.0 if self.cost <= 0 else max(0.0, self.cost - self.lower_bound) / self.cost
