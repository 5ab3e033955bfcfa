"""A captured graph for one set of weights and one set of input shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from stridewise.frontends.torch.foreign import run_nodes
from stridewise.frontends.torch.library import torch
from stridewise.frontends.torch.partition import Partition
from stridewise.frontends.torch.values import Values
from stridewise.torch.steps import Step

__all__ = ["Program", "Promised", "Result"]

Result: TypeAlias = "tuple[Any, int | None, Any]"
"""The node of a result, or its position among the arguments, or neither and its value."""

Promised: TypeAlias = "Sequence[tuple[Any, Callable[[Any], Any]]]"
"""Placeholders, and what gives their tensors the strides that PyTorch promises."""


@dataclass(slots=True)
class Program:
    """A graph for one set of weights and one set of input shapes.

    Attributes:
        partition: which operators are native.
        steps: the parts, ready to run.
        inputs: placeholders that steps or views read, by position.
        results: where each result comes from.
        views: nodes that PyTorch runs after the steps.
        values: the type of every node's result.
        promised: placeholders that a forward stores otherwise than steps here expect.
        calls: number of runs.
    """

    partition: Partition
    steps: list[Step]
    inputs: tuple[tuple[int, Any], ...]
    results: tuple[Result, ...]
    views: Sequence[Any]
    values: Values
    promised: Promised = ()
    calls: int = 0

    def release(self) -> None:
        """Give back memory that is kept for the next run."""
        for step in self.steps:
            step.release()

    def run(self, args: Sequence[Any]) -> list[Any]:
        """Return the results for the values of the placeholders."""
        tensors = {node: args[index] for index, node in self.inputs}
        for node, promise in self.promised:
            tensors[node] = promise(tensors[node])
        for step in self.steps:
            step.run(tensors)
        if self.views:
            run_nodes(self.views, tensors, self.values)
        self.calls += 1
        found: list[Any] = []
        copies: dict[int, Any] = {}
        for node, index, value in self.results:
            if node is not None:
                found.append(tensors[node])
            elif index is not None:
                found.append(args[index])
            else:  # the caller may write to results
                found.append(_copied(value, copies) if isinstance(value, torch.Tensor) else value)
        return found


def _copied(tensor: Any, copies: dict[int, Any]) -> Any:
    """Return a tensor in a copy of its memory; those in one memory stay in one.

    Args:
        tensor: the tensor.
        copies: of memory, by the address of the original; the copy is added.
    """
    tensor = tensor.resolve_neg()
    memory = tensor.untyped_storage()
    if memory.data_ptr() not in copies:
        copies[memory.data_ptr()] = memory.clone()
    found = torch.empty(0, dtype=tensor.dtype)
    copy = copies[memory.data_ptr()]
    return found.set_(copy, tensor.storage_offset(), tensor.shape, tensor.stride())
