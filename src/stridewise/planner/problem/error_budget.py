"""The error of a plan, predicted from the sensitivity of the model's outputs to each tensor.

Rounding errors of different tensors are independent, so the squares of what they do to the outputs
add up (first order). Squares are therefore what the solver limits. A tensor counts once where it is
produced, or where a reorder rounds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stridewise.graph import Graph, Node
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
    """

    limit: float
    tensors: Mapping[str, float]
    weights: Mapping[str, float]

    def of_option(self, node: Node, option: KernelOption) -> float:
        """Return the square of the relative error of the outputs if a node is computed so."""
        total = 0.0
        for name, stored in zip(node.outputs, option.makes, strict=True):
            total += self._rounded(name, stored)
            if option.approximate:
                total += (_APPROXIMATE * self.tensors.get(name, 0.0)) ** 2
        if _has_rounded_weights(option):
            total += self.weights.get(node.name, 0.0) ** 2
        return total

    def of_move(self, name: str, source: Storage, goal: Storage) -> float:
        """Return the same for a reorder."""
        return self._rounded(name, goal) if source.dtype is None else 0.0

    def _rounded(self, name: str, stored: Storage) -> float:
        is_rounded = stored.dtype is not None and stored.dtype.name == "bfloat16"
        return self.tensors.get(name, 0.0) ** 2 if is_rounded else 0.0

    def errors(self, graph: Graph, candidates: Candidates) -> Errors:
        """Return the errors of all candidates and reorders, in parts of the limit."""
        whole, storages = self.limit**2, candidates.storages
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


def _has_rounded_weights(option: KernelOption) -> bool:
    return any(
        role == "weights" and memory.dtype == "bf16"
        for call in option.calls
        for role, memory in call.spec.memories
    )
