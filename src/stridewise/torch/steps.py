"""Running the parts of a graph: native programs, and operators of PyTorch one after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any

from stridewise.api.dynamic import SharedPrograms
from stridewise.frontends.graph import GraphReader
from stridewise.frontends.torch.foreign import run_nodes
from stridewise.frontends.torch.graphs import (
    Border,
    PartGraph,
    graph_of,
    restored,
)
from stridewise.frontends.torch.library import torch
from stridewise.frontends.torch.partition import Part
from stridewise.frontends.torch.table import PRODUCTS
from stridewise.frontends.torch.values import Values, tensors_of
from stridewise.job import Job
from stridewise.ops.geometry import row_major
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

    def release(self) -> None:
        """Give back memory that is kept for the next run."""

    def adopts(self, _node: Any) -> bool:
        """Return whether the part reads a kept tensor as the forward has stored it."""
        return False

    def _run(self, tensors: dict[Any, Any]) -> None:
        raise NotImplementedError


def _allows_bfloat16(part: Part, values: Values) -> bool:
    """Return whether a part may store its tensors as bfloat16: PyTorch computes it so.

    Where PyTorch computes products in float32 beside bfloat16, the model asks for that; autocast
    would not. float16 has more digits than bfloat16.
    """
    types = {tensor.dtype for node in part.nodes for tensor in tensors_of(values[node])}
    products = [node for node in part.nodes if str(node.target) in PRODUCTS]
    exact = any(tensors_of(values[node])[0].dtype == torch.float32 for node in products)
    return torch.bfloat16 in types and torch.float16 not in types and not exact


def _layout(border: Border, dtype: Any) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    """Return shape, strides and element type of the tensor that a program writes."""
    if border.is_dense:
        return border.shape, border.strides, _held(dtype)
    return border.stored, row_major(border.stored), _held(dtype)


def _held(dtype: Any) -> Any:
    """Return the element type of a tensor in a program, which has masks as numbers."""
    return torch.float32 if dtype == torch.bool else dtype


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
        compiling = options.compiling(_allows_bfloat16(part, values))
        found, compiling = self._described(name, part, constants, values, compiling)
        job = Job.of(GraphReader(found.graph), compiling)
        empty = any(0 in border.shape for border in found.inputs)
        kind = (empty, *(node.name for node in part.nodes))
        self.model: CompiledModel = programs.compiled(job, kind)
        found = self._bordered(found)
        self._sources = [
            (node, _held(values[node].dtype), border.strides if border.is_dense else None, border)
            for node, border in zip(part.inputs, found.inputs, strict=True)
        ]
        self._results = list(zip(part.outputs, found.outputs, strict=True))
        # Dense results get their strides at once, others after the run.
        self._is_dense = all(border.is_dense for border in found.outputs)
        self._layouts = [_layout(border, values[node].dtype) for node, border in self._results]
        kinds = [values[node].dtype for node in part.outputs]
        self._masks = [at for at, dtype in enumerate(kinds) if dtype == torch.bool]
        # On the CPU also where a program has another default device.
        self._empty: Callable[..., Any] = partial(torch.empty_strided, device="cpu")

    def _described(
        self, name: str, part: Part, constants: Values, values: Values, options: CompilerOptions
    ) -> tuple[PartGraph, CompilerOptions]:
        """Return the part as a graph, and the options to compile it with."""
        return graph_of(name, part, constants, values), options

    def _bordered(self, found: PartGraph) -> PartGraph:
        """Return the part with its borders as the plan has them."""
        return found

    def _entered(self, _node: Any, tensor: Any) -> Any:
        """Return an input with the rank that its border has."""
        return tensor

    def fallback_nodes(self) -> tuple[str, ...]:
        """Return the nodes that run on the NumPy fallback."""
        return tuple(
            decision.node
            for decision in self.model.plan.decisions
            if any(call.spec.kind == HOST for call in decision.chosen.option.calls)
        )

    def _run(self, tensors: dict[Any, Any]) -> None:
        sources: list[Any] = []
        for node, dtype, strides, border in self._sources:
            tensor = self._entered(node, tensors[node])
            # What an operator of PyTorch gives may have another type than it promises in traces.
            if tensor.dtype != dtype:
                tensor = tensor.to(dtype)
            if tensor.stride() != strides or tensor.is_neg():
                tensor = tensor.permute(border.order).contiguous().resolve_neg()
            sources.append(tensor)
        results = [self._empty(shape, steps, dtype=dtype) for shape, steps, dtype in self._layouts]
        self.model.run_tensors(sources, results)
        for at in self._masks:
            results[at] = results[at].bool()
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
