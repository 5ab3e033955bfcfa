"""The parts of an aten graph that PyTorch computes, as steps of a program."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import ExecutionError, describe
from stridewise.frontends.torch.graphs import Border, restored, stored
from stridewise.frontends.torch.library import torch
from stridewise.frontends.torch.partition import Outside, Part
from stridewise.frontends.torch.reader import Reader, Traced, array_of, tensor_of, type_of
from stridewise.frontends.torch.values import Values, resolved
from stridewise.graph import ForeignFunction, ForeignPart, TensorType
from stridewise.ops.fallback import OP as FALLBACK

__all__ = ["TorchFunction", "TorchPart", "add_foreign", "run_nodes"]

Array = NDArray[Any]


def run_nodes(nodes: Sequence[Any], tensors: dict[Any, Any], values: Values) -> None:
    """Run operators one after the other; results are added to ``tensors``.

    Args:
        nodes: calls of aten operators.
        tensors: what stands for the nodes that they read.
        values: the type of every node's result; numbers that depend on shapes are those.
    """
    for node in nodes:
        args, options = resolved((node.args, node.kwargs), tensors, values)
        tensors[node] = node.target(*args, **options)


class TorchPart(ForeignPart):
    """Aten operators for fixed shapes, with the constants that they read."""

    def __init__(self, part: Part, constants: Values, values: Values) -> None:
        """Take the operators.

        Args:
            part: its nodes.
            constants: tensors by node.
            values: the type of every node's result.
        """
        self._part, self._values = part, values
        self._constants = {
            read: constants[read]
            for node in part.nodes
            for read in node.all_input_nodes
            if read in constants
        }
        self.inputs = tuple(Border.of(values[node]) for node in part.inputs)
        self.outputs = tuple(Border.of(values[node]) for node in part.outputs)
        content = hashlib.sha256()
        for node in part.nodes:
            content.update(f"{node.format_node()} {values[node]}".encode())
        for tensor in self._tensors:
            content.update(np.ascontiguousarray(array_of(tensor)).tobytes())
        self._digest = content.hexdigest()[:16]

    @property
    def _tensors(self) -> list[Any]:
        return [item for item in self._constants.values() if isinstance(item, torch.Tensor)]

    @property
    def runtime(self) -> str:
        """``"pytorch"``."""
        return "pytorch"

    @property
    def nbytes(self) -> int:
        """Bytes of the constants."""
        return sum(item.numel() * item.element_size() for item in self._tensors)

    @property
    def digest(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of operators and constants."""
        return self._digest

    def prepare(self, threads: int, where: str) -> TorchFunction:
        """Return the part, ready to run; PyTorch runs it with the number of threads it has."""
        del threads
        return TorchFunction(self, where)

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the outputs as dense arrays in the order in which PyTorch stores them."""
        tensors = dict(self._constants)
        for node, border, array in zip(self._part.inputs, self.inputs, arrays, strict=True):
            tensors[node] = restored(tensor_of(array), border)
        with torch.no_grad():
            run_nodes(self._part.nodes, tensors, self._values)
        # What PyTorch gives may have another type than it promises in traces.
        types = [self._values[node].dtype for node in self._part.outputs]
        kept = [tensors[node].to(t) for node, t in zip(self._part.outputs, types, strict=True)]
        return [stored(tensor, border) for tensor, border in zip(kept, self.outputs, strict=True)]


class TorchFunction(ForeignFunction):
    """A part as a function of arrays in order."""

    def __init__(self, part: TorchPart, where: str) -> None:
        """Wrap a part; ``where`` is its node, for messages."""
        self._part, self._where = part, where

    def __call__(self, operands: Sequence[Any]) -> list[Array]:
        """Return the outputs as new arrays.

        Raises:
            ExecutionError: PyTorch fails.
        """
        try:
            # Results may be views of operands, which the next step overwrites.
            return [np.array(item) for item in self._part.run([_writable(x) for x in operands])]
        except RuntimeError as error:
            found = " ".join(str(error).split())
            message = describe(self._where, expected="a run in PyTorch", found=found)
            raise ExecutionError(message) from error

    def write(self, operands: Sequence[Array | None], results: Sequence[Array]) -> None:
        """Compute the outputs in the given arrays.

        Raises:
            ExecutionError: PyTorch fails.
        """
        for result, array in zip(results, self(operands), strict=True):
            np.copyto(result, array)


def _writable(array: Array) -> Array:
    """Return an array that PyTorch takes without a warning."""
    return array if array.flags.writeable else array.copy()


def add_foreign(
    reader: Reader,
    part: Part,
    made: dict[Any, Traced],
    constants: Values,
    values: Values,
    reasons: Mapping[str, Outside],
) -> None:
    """Add a part that PyTorch computes to a graph, as one node.

    Args:
        reader: the graph.
        part: its nodes.
        made: values of the graph by node; the outputs of the part are added.
        constants: tensors by node.
        values: the type of every node's result.
        reasons: by name of a node, why it is not native.
    """
    foreign = TorchPart(part, constants, values)
    operands = [
        reader.left(reader.permute(made[node], border.order)).name
        for node, border in zip(part.inputs, foreign.inputs, strict=True)
    ]
    types = [
        TensorType(type_of(values[node]), border.stored)
        for node, border in zip(part.outputs, foreign.outputs, strict=True)
    ]
    named = [node for node in part.nodes if node.name in reasons] or list(part.nodes)
    given = [reasons.get(node.name) for node in named]
    names = reader.builder.node(
        FALLBACK,
        operands,
        {
            "part": foreign,
            "types": tuple(map(str, types)),
            "nodes": tuple(node.name for node in named),
            "operators": tuple(str(node.target) for node in named),
            "reasons": tuple("a view" if item is None else item.reason for item in given),
        },
        name=reader.builder.fresh(part.nodes[0].name),
    )
    for node, border, name in zip(part.outputs, foreign.outputs, names, strict=True):
        made[node] = reader.permute(reader.entered(name), border.back)
