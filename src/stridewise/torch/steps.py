"""Running the parts of a graph: native programs, and operators of PyTorch one after the other."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from stridewise.api import compile  # noqa: A004 (public name)
from stridewise.frontends.torch.foreign import run_nodes
from stridewise.frontends.torch.graphs import graph_of, restored, stored
from stridewise.frontends.torch.partition import Part
from stridewise.frontends.torch.reader import tensor_of
from stridewise.frontends.torch.values import Values
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.targets.kernels import HOST
from stridewise.torch.options import Options

__all__ = ["NativeStep", "Step", "TorchStep"]


class Step:
    """One part of a graph, ready to run.

    Attributes:
        part: its nodes.
        nanoseconds: time that all runs took.
    """

    def __init__(self, part: Part) -> None:
        self.part = part
        self.nanoseconds = 0

    def run(self, tensors: dict[Any, Any]) -> None:
        """Compute the outputs of the part from its inputs.

        Args:
            tensors: by node; the outputs are added.
        """
        start = perf_counter_ns()
        self._run(tensors)
        self.nanoseconds += perf_counter_ns() - start

    def _run(self, tensors: dict[Any, Any]) -> None:
        raise NotImplementedError


class NativeStep(Step):
    """A part that a program of Stridewise computes.

    Attributes:
        model: the program.
    """

    def __init__(
        self, name: str, part: Part, constants: Values, values: Values, options: Options
    ) -> None:
        """Compile the part; see :func:`graph_of`."""
        super().__init__(part)
        found = graph_of(name, part, constants, values)
        self._inputs, self._outputs = found.inputs, found.outputs
        self.model: CompiledModel = compile(found.graph, **options.compiling())

    def fallback_nodes(self) -> tuple[str, ...]:
        """Return the nodes that run on the NumPy fallback."""
        return tuple(
            decision.node
            for decision in self.model.plan.decisions
            if any(call.spec.kind == HOST for call in decision.chosen.option.calls)
        )

    def _arrays(self, tensors: dict[Any, Any]) -> list[Any]:
        return [
            stored(tensors[node], border)
            for node, border in zip(self.part.inputs, self._inputs, strict=True)
        ]

    def _run(self, tensors: dict[Any, Any]) -> None:
        results = self.model(*self._arrays(tensors))
        listed = results if isinstance(results, tuple) else (results,)
        for node, border, array in zip(self.part.outputs, self._outputs, listed, strict=True):
            tensors[node] = restored(tensor_of(array), border)


class TorchStep(Step):
    """A part that PyTorch computes."""

    def __init__(self, part: Part, constants: Values, values: Values) -> None:
        """Prepare the calls; numbers that depend on shapes are those of ``values``."""
        super().__init__(part)
        self._constants = {
            read: constants[read]
            for node in part.nodes
            for read in node.all_input_nodes
            if read in constants
        }
        self._values = values

    def _run(self, tensors: dict[Any, Any]) -> None:
        own = {**self._constants, **{node: tensors[node] for node in self.part.inputs}}
        run_nodes(self.part.nodes, own, self._values)
        tensors.update((node, own[node]) for node in self.part.outputs)
