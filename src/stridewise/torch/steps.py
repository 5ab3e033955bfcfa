"""Running the parts of a graph: native programs, and operators of PyTorch one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

from stridewise.api import compile  # noqa: A004 (public name)
from stridewise.frontends.torch.graphs import Border, graph_of
from stridewise.frontends.torch.library import submodule, torch
from stridewise.frontends.torch.partition import Part
from stridewise.frontends.torch.reader import array_of
from stridewise.frontends.torch.values import Values, resolved
from stridewise.profile import Profile
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.targets.kernels import HOST
from stridewise.torch.options import Options

__all__ = ["NativeStep", "Step", "TorchStep", "restored", "stored"]


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

    def profile(self, tensors: dict[Any, Any], runs: int) -> Profile:
        """Time every step of the program.

        Args:
            tensors: by node, as for :meth:`run`.
            runs: how often it runs.
        """
        named = zip(self.model.input_names, self._arrays(tensors), strict=True)
        return self.model.profile(dict(named), runs)

    def _arrays(self, tensors: dict[Any, Any]) -> list[Any]:
        return [
            stored(tensors[node], border)
            for node, border in zip(self.part.inputs, self._inputs, strict=True)
        ]

    def _run(self, tensors: dict[Any, Any]) -> None:
        results = self.model(*self._arrays(tensors))
        listed = results if isinstance(results, tuple) else (results,)
        for node, border, array in zip(self.part.outputs, self._outputs, listed, strict=True):
            tensors[node] = restored(torch.from_numpy(array), border)


def stored(tensor: Any, border: Border) -> Any:
    """Return the dense array of a tensor, without a copy if its strides are those expected."""
    if tensor.stride() != border.strides or not border.is_dense:
        tensor = tensor.permute(border.order).contiguous()
        return array_of(tensor)
    return array_of(tensor.as_strided(border.stored, _dense(border.stored)))


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def restored(tensor: Any, border: Border) -> Any:
    """Return a dense tensor with the logical shape and the strides that PyTorch promises."""
    if border.is_dense:
        return tensor.as_strided(border.shape, border.strides)
    back = tuple(border.order.index(axis) for axis in range(len(border.order)))
    logical = tensor.permute(back)
    for axis, (extent, stride) in enumerate(zip(border.shape, border.strides, strict=True)):
        if extent > 1 and not stride:
            logical = logical.narrow(axis, 0, 1)
    single = [
        1 if extent > 1 and not stride else extent
        for extent, stride in zip(border.shape, border.strides, strict=True)
    ]
    found = torch.empty_strided(single, border.strides, dtype=tensor.dtype)
    return found.copy_(logical).expand(border.shape)


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
        self._map: Callable[..., Any] = submodule("torch.fx").map_arg

    def _run(self, tensors: dict[Any, Any]) -> None:
        own = {**self._constants, **{node: tensors[node] for node in self.part.inputs}}
        for node in self.part.nodes:
            args, options = resolved((node.args, node.kwargs), own, self._values)
            own[node] = node.target(*args, **options)
        tensors.update((node, own[node]) for node in self.part.outputs)
