"""What the solver is asked and what it answers, without graphs: tensors and formats are names.

A node has *choices*; each needs some tensors in some formats and makes others. A tensor may be
stored in another format for the cost of a reorder, which is paid once however many nodes read the
result. Reorders do not feed reorders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Choice", "Move", "Problem", "Solution", "Stored"]

Stored = tuple[str, str]
"""A tensor and a format that it is stored in."""

Move = tuple[str, str, str]
"""A tensor, the format that it is stored in, and the one that it is reordered to."""


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
        reorders: the cost of storing a tensor in another format, not negative.
        given: tensors that exist before, in exactly one of the formats; which one is free to
            choose.
        demanded: tensors that must exist afterwards, in one of the formats.
    """

    nodes: Mapping[str, tuple[Choice, ...]]
    reorders: Mapping[Move, float]
    given: Mapping[str, frozenset[str]]
    demanded: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Solution:
    """A decision and its proof.

    Attributes:
        picks: the index of the chosen choice of each node.
        reorders: the reorders that are made, in the problem's order.
        given: the format that each given tensor comes in.
        demanded: a format that each demanded tensor is there in; one without a reorder, if any.
        cost: what all of it costs.
        lower_bound: no solution is cheaper than this.
    """

    picks: Mapping[str, int]
    reorders: tuple[Move, ...]
    given: Mapping[str, str]
    demanded: Mapping[str, str]
    cost: float
    lower_bound: float

    @property
    def gap(self) -> float:
        """How far the cost may be from the optimum, as a part of the cost."""
        return 0.0 if self.cost <= 0 else max(0.0, self.cost - self.lower_bound) / self.cost
