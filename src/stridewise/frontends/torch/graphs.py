"""From a native part of an aten graph to a graph of Stridewise.

Inputs and outputs of the graph are dense arrays in the order in which PyTorch stores them.
Transposes at its borders give them PyTorch's logical order; those of known axes are free.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stridewise.dtypes import DType
from stridewise.frontends.torch.library import torch
from stridewise.frontends.torch.partition import Part, read_node
from stridewise.frontends.torch.reader import BOOL, FLOAT, Reader, Traced, array_of, type_of
from stridewise.frontends.torch.values import Values
from stridewise.graph import Graph
from stridewise.ops.geometry import row_major

__all__ = [
    "Border",
    "PartGraph",
    "graph_of",
    "memory_order",
    "restored",
    "stored",
]


@dataclass(frozen=True, slots=True)
class Border:
    """How PyTorch stores a tensor that enters or leaves a part.

    Attributes:
        shape: its logical shape.
        strides: its strides in elements, as PyTorch promises them.
        order: its axes from the outermost to the innermost in memory.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    order: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Any) -> Border:
        """Return how a tensor is stored; one with gaps or repeated elements as a dense copy."""
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        return cls(shape, strides, memory_order(shape, strides))

    @property
    def back(self) -> tuple[int, ...]:
        """The permutation from the dense array to the logical order."""
        return tuple(self.order.index(axis) for axis in range(len(self.order)))

    @property
    def stored(self) -> tuple[int, ...]:
        """The shape of the dense array."""
        return tuple(self.shape[axis] for axis in self.order)

    @property
    def is_dense(self) -> bool:
        """Whether the strides are those of the dense array, up to axes of one element."""
        step = 1
        for axis in reversed(self.order):
            if self.shape[axis] != 1 and self.strides[axis] != step:
                return False
            step *= self.shape[axis]
        return True


def memory_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Return the axes of a tensor from the outermost to the innermost in memory.

    Axes of one element say nothing: contiguous tensors keep their order, and images of which all
    others are as in channels-last have it whole.

    >>> memory_order((2, 8, 4, 4), (128, 1, 32, 8))
    (0, 2, 3, 1)
    >>> memory_order((2, 8, 1, 1), (8, 1, 8, 8))
    (0, 1, 2, 3)
    """
    rank = len(shape)
    for order in (tuple(range(rank)), (0, *range(2, rank), 1) if rank > 2 else ()):
        steps = [strides[axis] for axis in order if shape[axis] > 1]
        if order and 0 not in steps and steps == sorted(steps, reverse=True):
            return order
    return tuple(sorted(range(rank), key=lambda axis: -strides[axis]))


@dataclass(frozen=True, slots=True)
class PartGraph:
    """A native part as a graph of Stridewise.

    Attributes:
        graph: what to compile.
        inputs: the borders of its inputs, in order.
        outputs: the borders of its outputs, in order.
    """

    graph: Graph
    inputs: tuple[Border, ...]
    outputs: tuple[Border, ...]


def graph_of(
    name: str,
    part: Part,
    constants: Values,
    values: Values,
    logical: frozenset[Any] = frozenset(),
) -> PartGraph:
    """Return a native part as a graph; truth values enter and leave it as float32.

    Args:
        name: of the graph.
        part: its nodes.
        constants: tensors by node.
        values: the type of every node's result.
        logical: inputs and outputs that the graph has in PyTorch's logical order, whatever the
            order in memory.
    """
    reader = Reader(name)
    inputs = {node: Border.of(values[node]) for node in part.inputs}
    outputs = {node: Border.of(values[node]) for node in part.outputs}
    given: dict[Any, str] = {}
    for node, border in inputs.items():
        dtype = type_of(values[node])
        shape = border.shape if node in logical else border.stored
        given[node] = reader.declare(node.name, shape, FLOAT if dtype == BOOL else dtype)
    made: dict[Any, Any] = {}
    left: dict[Any, str] = {}
    # Conversions are beside what reads or makes a tensor, so that it is not kept in two types.
    for node in part.nodes:
        for read in (item for item in node.all_input_nodes if item in given and item not in made):
            order = () if read in logical else inputs[read].back
            args = (given[read], type_of(values[read]), order)
            made[read] = reader.read(read.name, _entered, args, {})
        made[node] = read_node(reader, node, made, constants, values)
        if node in outputs:
            order = () if node in logical else outputs[node].order
            taken = (*given.values(), *left.values())
            result: Any = reader.read(node.name, _left, (made[node], order, taken), {})
            left[node] = result.name
    names = [left[node] for node in outputs]
    return PartGraph(reader.builder.build(names), tuple(inputs.values()), tuple(outputs.values()))


def _entered(reader: Reader, name: str, dtype: DType, order: Sequence[int]) -> Traced:
    """Return an input in PyTorch's logical order, as operators read it."""
    found = replace(reader.entered(name), dtype=dtype)
    return reader.permute(found, order) if order else found


def _left(reader: Reader, x: Traced, order: Sequence[int], taken: Collection[str]) -> Traced:
    """Return a result as it leaves the graph, of another name than others."""
    found = reader.permute(x, order) if order else x
    found = found if found.dtype == BOOL else reader.left(found)
    return reader.emit("identity", [found]) if found.name in taken else found


def stored(tensor: Any, border: Border) -> Any:
    """Return the dense array of a tensor, without a copy if its strides are those expected."""
    if tensor.stride() != border.strides or not border.is_dense:
        tensor = tensor.permute(border.order).contiguous()
        return array_of(tensor)
    return array_of(tensor.as_strided(border.stored, row_major(border.stored)))


def restored(tensor: Any, border: Border) -> Any:
    """Return a dense tensor with the logical shape and the strides that PyTorch promises."""
    if border.is_dense:
        return tensor.as_strided(border.shape, border.strides)
    logical = tensor.permute(border.back)
    for axis, (extent, stride) in enumerate(zip(border.shape, border.strides, strict=True)):
        if extent > 1 and not stride:
            logical = logical.narrow(axis, 0, 1)
    single = [
        1 if extent > 1 and not stride else extent
        for extent, stride in zip(border.shape, border.strides, strict=True)
    ]
    found = torch.empty_strided(single, border.strides, dtype=tensor.dtype, device=tensor.device)
    return found.copy_(logical).expand(border.shape)
