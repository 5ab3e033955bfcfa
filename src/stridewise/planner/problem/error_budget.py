"""The error of a plan, predicted from the sensitivity of the model's outputs to each tensor.

Rounding errors of different tensors are independent, so the squares of what they do to the outputs
add up (first order). Squares are therefore what the solver limits. A tensor counts once where it is
produced, or where a reorder rounds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from sys import float_info

from stridewise.classes import dataclass
from stridewise.graph import Graph, Node
from stridewise.ops.quantize import MOVES
from stridewise.planner.problem.candidates import Candidates
from stridewise.planner.solver.budget import Errors
from stridewise.targets.kernels import KernelOption
from stridewise.tensor import Storage

__all__ = ["ErrorBudget"]

_APPROXIMATE = 2e-3
"""Rounding errors of Winograd kernels in float32 over those of storing their result in bfloat16.

See benchmarks/results/winograd_accuracy.md: about 2e-6, against 1.7e-3.
"""


@dataclass(frozen=True, slots=True)
class ErrorBudget:
    """The limit on the error of a plan, and what errors follow from.

    Attributes:
        limit: the greatest relative error of the outputs that may be predicted.
        tensors: relative error of the outputs if a tensor alone is rounded to bfloat16.
        weights: the same for the constant weights of a node.
        integers: relative error of the outputs if a tensor alone is rounded to the grid that it is
            offered; tensors that are on a grid by themselves are absent.
        integer_weights: the same for the constant weights of a node.
    """

    limit: float
    tensors: Mapping[str, float]
    weights: Mapping[str, float]
    integers: Mapping[str, float] = field(default_factory=dict[str, float])
    integer_weights: Mapping[str, float] = field(default_factory=dict[str, float])

    def strained(self, factor: float) -> ErrorBudget:
        """Return the budget with errors of integers that are greater by a factor."""
        integers = {name: factor * error for name, error in self.integers.items()}
        weights = {name: factor * error for name, error in self.integer_weights.items()}
        return replace(self, integers=integers, integer_weights=weights)

    def of_option(self, node: Node, option: KernelOption) -> float:
        """Return the square of the relative error of the outputs if a node is computed so."""
        total = 0.0
        needs = {stored.dtype for stored in option.needs if stored is not None}
        for name, stored in zip(node.outputs, option.makes, strict=True):
            # Elements that are only moved were rounded before.
            is_moved = node.op in MOVES and not node.post_ops and needs == {stored.dtype}
            total += 0.0 if is_moved else self._rounded(name, stored)
            if option.approximate:
                total += (_APPROXIMATE * self.tensors.get(name, 0.0)) ** 2
        for dtype in _weights_dtypes(option):
            table = {"bf16": self.weights, "s8": self.integer_weights}.get(dtype, {})
            total += table.get(node.name, 0.0) ** 2
        return total

    def of_move(self, name: str, source: Storage, goal: Storage) -> float:
        """Return the same for a reorder."""
        return self._rounded(name, goal) if source.dtype != goal.dtype else 0.0

    def _rounded(self, name: str, stored: Storage) -> float:
        if stored.dtype is None:
            return 0.0
        table = self.tensors if stored.dtype.name == "bfloat16" else self.integers
        return table.get(name, 0.0) ** 2

    def errors(self, graph: Graph, candidates: Candidates) -> Errors:
        """Return the errors of all candidates and reorders, in parts of the limit."""
        # The square of a tiny limit would be 0.
        whole, storages = max(self.limit**2, float_info.min), candidates.storages
        choices = {
            node.name: tuple(
                self.of_option(node, candidate.option) / whole
                for candidate in candidates.nodes[node.name]
            )
            for node in graph.nodes
        }
        moves: dict[tuple[str, str, str], float] = {}
        for name, source, goal in candidates.reorders:
            ends = storages.storage(name, source), storages.storage(name, goal)
            moves[name, source, goal] = self.of_move(name, *ends) / whole
        return Errors(choices, moves)


def _weights_dtypes(option: KernelOption) -> set[str]:
    return {
        memory.dtype
        for call in option.calls
        for role, memory in call.spec.memories
        if role == "weights"
    }
