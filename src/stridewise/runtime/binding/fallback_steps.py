"""Host steps: functions of NumPy arrays as steps of the native program.

The core hands such a function views of bytes, which become arrays here. It knows the node and its
constants and nothing of the model, so that a model and its program never keep each other alive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import ExecutionError, StridewiseError
from stridewise.graph import Graph, Node, TensorType
from stridewise.ops import evaluate
from stridewise.ops.fallback import OP as FALLBACK
from stridewise.ops.fallback import foreign_part

__all__ = [
    "HOST_FUNCTIONS",
    "HostFunction",
    "InPlace",
    "MakeHostFunction",
    "host_call",
    "host_function",
]

Array = NDArray[Any]

HostFunction = Callable[[Sequence[Array | None]], Sequence[Array]]
"""From the operands of a node, None for absent ones, to its results; both in the user's order.

Operands are views of memory that the next step may overwrite, so that a function that keeps one
has to copy it. A result may be an operand, or a view of one. Any number of threads may call it.
"""

MakeHostFunction = Callable[[Node, Graph, int], HostFunction]


def _foreign(node: Node, graph: Graph, threads: int) -> HostFunction:
    del graph
    return foreign_part(node).prepare(threads, f"node {node.name!r} ({node.op})")


HOST_FUNCTIONS: dict[str, MakeHostFunction] = {FALLBACK: _foreign}
"""Operators that run something else than their NumPy reference.

The function is made once per model, where constants can be prepared, and must not keep the graph.
"""


@runtime_checkable
class InPlace(Protocol):
    """A host function that can write its results where they belong, without a copy."""

    def write(self, operands: Sequence[Array | None], results: Sequence[Array]) -> None:
        """Compute the results in arrays that are there."""
        ...


def host_function(node: Node, graph: Graph, threads: int) -> HostFunction:
    """Return what computes a node on the host, with as many threads where it has its own."""
    make = HOST_FUNCTIONS.get(node.op)
    return partial(evaluate, node) if make is None else make(node, graph, threads)


@dataclass(frozen=True, slots=True)
class _HostCall:
    """A node's function on the bytes of its arguments.

    Attributes:
        node: the node.
        function: computes it.
        constants: operands that are known, by index.
        reads: index and type of each operand among the arguments, in their order.
        writes: type of each result among the arguments, after the operands.
    """

    node: Node
    function: HostFunction
    constants: Mapping[int, Array]
    reads: tuple[tuple[int, TensorType], ...]
    writes: tuple[TensorType, ...]

    def __call__(self, views: Sequence[NDArray[np.uint8]]) -> None:
        """Compute the results and store them in their arguments.

        Raises:
            ExecutionError: the function fails, or gives something else than the graph says.
        """
        operands: list[Array | None] = [None] * len(self.node.inputs)
        for index, constant in self.constants.items():
            operands[index] = constant
        for (index, type_), view in zip(self.reads, views, strict=False):
            operands[index] = _as_array(view, type_)
        if isinstance(self.function, InPlace):
            places = zip(self.writes, views[len(self.reads) :], strict=True)
            self.function.write(operands, [_as_array(view, type_) for type_, view in places])
            return
        try:
            # As in the kernels of the library, infinity and NaN are results like any other.
            with np.errstate(all="ignore"):
                results = self.function(operands)
        except StridewiseError:
            raise
        except Exception as error:
            raise self._failed(f"{type(error).__name__}: {error}") from error
        if len(results) != len(self.writes):
            raise self._failed(f"{len(results)} results instead of {len(self.writes)}")
        for result, type_, view in zip(results, self.writes, views[len(self.reads) :], strict=True):
            if result.shape != type_.shape or result.dtype != type_.dtype.numpy:
                raise self._failed(f"{result.dtype}{list(result.shape)} instead of {type_}")
            np.copyto(_as_array(view, type_), result)

    def _failed(self, found: str) -> ExecutionError:
        where = f"node {self.node.name!r} ({self.node.op}), on the host"
        return ExecutionError.at(where, expected="its results", found=found)


def _as_array(view: NDArray[np.uint8], type_: TensorType) -> Array:
    return view.view(type_.dtype.numpy).reshape(type_.shape)


def host_call(
    node: Node, graph: Graph, threads: int
) -> Callable[[list[NDArray[np.uint8]]], object]:
    """Return what a host step calls.

    Its arguments are the operands that are no constants, in the order of the node, then the
    results; see ``Program.add_host`` of the core.
    """
    constants = {
        index: _readonly(graph.constants[name].array)
        for index, name in enumerate(node.inputs)
        if name in graph.constants
    }
    reads = tuple(
        (index, graph.values[name].type)
        for index, name in enumerate(node.inputs)
        if name and name not in graph.constants
    )
    writes = tuple(graph.values[name].type for name in node.outputs)
    return _HostCall(node, host_function(node, graph, threads), constants, reads, writes)


def _readonly(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view
