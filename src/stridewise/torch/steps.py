"""Running the parts of a graph: native programs, and operators of PyTorch one after the other."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from stridewise.api.dynamic import SharedPrograms
from stridewise.frontends.graph import GraphReader
from stridewise.frontends.torch.foreign import run_nodes
from stridewise.frontends.torch.graphs import PartGraph, dense_strides, graph_of, restored
from stridewise.frontends.torch.library import torch
from stridewise.frontends.torch.partition import Part
from stridewise.frontends.torch.values import Values
from stridewise.job import Job
from stridewise.options import Options as CompilerOptions
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
        self,
        name: str,
        part: Part,
        constants: Values,
        values: Values,
        options: Options,
        programs: SharedPrograms,
    ) -> None:
        """Compile the part; see :func:`graph_of`.

        Args:
            name: of the graph.
            part: its nodes.
            constants: tensors by node.
            values: the type of every node's result.
            options: how to compile it.
            programs: those of the same part for other shapes, and of other parts.
        """
        super().__init__(part)
        found, compiling = self._described(name, part, constants, values, options.compiling())
        job = Job.of(GraphReader(found.graph), compiling)
        empty = any(0 in border.shape for border in found.inputs)
        kind = (empty, *(node.name for node in part.nodes))
        self.model: CompiledModel = programs.compiled(job, kind)
        self._sources = [
            (node, border.strides if border.is_dense else None, border)
            for node, border in zip(part.inputs, found.inputs, strict=True)
        ]
        self._results = list(zip(part.outputs, found.outputs, strict=True))
        # Dense results get their strides at once, others after the run.
        dense = [border.is_dense for border in found.outputs]
        self._is_dense = all(dense)
        self._layouts = [
            (border.shape, border.strides) if own else (border.stored, dense_strides(border.stored))
            for border, own in zip(found.outputs, dense, strict=True)
        ]
        self._empty: Callable[..., Any] = torch.empty_strided

    def _described(
        self, name: str, part: Part, constants: Values, values: Values, options: CompilerOptions
    ) -> tuple[PartGraph, CompilerOptions]:
        """Return the part as a graph, and the options to compile it with."""
        return graph_of(name, part, constants, values), options

    def fallback_nodes(self) -> tuple[str, ...]:
        """Return the nodes that run on the NumPy fallback."""
        return tuple(
            decision.node
            for decision in self.model.plan.decisions
            if any(call.spec.kind == HOST for call in decision.chosen.option.calls)
        )

    def _run(self, tensors: dict[Any, Any]) -> None:
        sources: list[Any] = []
        for node, strides, border in self._sources:
            tensor = tensors[node]
            if tensor.stride() != strides or tensor.is_neg():
                tensor = tensor.permute(border.order).contiguous().resolve_neg()
            sources.append(tensor)
        results = [self._empty(shape, strides) for shape, strides in self._layouts]
        self.model.run_tensors(sources, results)
        if not self._is_dense:
            found = zip(results, self._results, strict=True)
            results = [r if b.is_dense else restored(r, b) for r, (_, b) in found]
        for (node, _), result in zip(self._results, results, strict=True):
            tensors[node] = result


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
