"""Importing a whole model: the loop over its nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from stridewise.errors import (
    GraphError,
    ModelError,
    StridewiseError,
    UnknownValueError,
    describe,
)
from stridewise.frontends.onnx import fold
from stridewise.frontends.onnx.importer import Importer
from stridewise.frontends.onnx.indices import DATA_DEPENDENT
from stridewise.frontends.onnx.inputs import (
    ModelInput,
    given_values,
    model_inputs,
    resolve_shapes,
)
from stridewise.frontends.onnx.proto import OnnxNode, Undecoded, decode_node, opset_of
from stridewise.frontends.onnx.source import Source, folder_of, read_model
from stridewise.frontends.onnx.table import HANDLERS
from stridewise.frontends.onnx.tensors import TensorReader
from stridewise.graph import Graph, Signature, TensorType
from stridewise.ops.demand import check_demand, memory_demand
from stridewise.ops.registry import Array

__all__ = ["ModelFile", "import_model"]

_CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_NOT_A_FUNCTION = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
     "RandomUniformLike"}
)  # fmt: skip
"""Operators that give something else each time; they must not be folded."""


def import_model(
    source: Source,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, ArrayLike] | None = None,
    name: str | None = None,
    memory_limit: int | None = None,
) -> Graph:
    """Import an ONNX model of opset 7 to 28.

    Every shape is fixed at import, and whatever depends on shapes and constants only is computed.
    Inputs, outputs and results keep their ONNX names. Weights are not copied; external data are
    mapped from files in the model's folder.

    Where ``shapes`` gives a model of fixed batch another one, a ``Reshape`` to a constant shape
    follows: when its target starts with the old batch, its operand with the new one, and the
    element counts differ by just that ratio, the new batch takes the place of the old.

    Args:
        source: a path, the content of a file, or a loaded model.
        shapes: shapes of inputs, for symbolic ones or to override fixed ones. An unknown first
            extent that is not given is 1; any other must be given.
        values: values of inputs that become constants and are inputs no longer: shapes, axes or
            pads that the model takes from its caller.
        name: the graph's name; by default that in the model, or the file's.
        memory_limit: bytes that the model may need; None for no limit. Constants are computed only
            as far as they stay small beside what the file holds.

    Raises:
        MemoryLimitError: the model needs more memory than it may have.
        ModelError: the model cannot be read, is damaged, or uses something that is not supported.
        UnknownValueError: the import needs the value of an input, which ``values`` does not have.
        InputError: ``shapes`` or ``values`` do not fit the inputs of the model.
    """
    return ModelFile(source, name).graph(shapes, values, memory_limit=memory_limit)


class ModelFile:
    """A model that was read once, to be imported for any number of shapes.

    Attributes:
        name: the graph's.
        signature: the inputs, and the shapes that the model takes them in.
        outputs: names of the outputs, in order.
    """

    def __init__(self, source: Source, name: str | None = None) -> None:
        """Read a model.

        Raises:
            ModelError: it cannot be read or is damaged, or an input is of no supported type.
        """
        self._model = read_model(source)
        self._opset = opset_of(self._model)
        self._reader = TensorReader(folder_of(source))
        stem = Path(source).stem if isinstance(source, str | os.PathLike) else "model"
        self.name = name or self._model.graph.name or stem
        self.outputs = tuple(item.name for item in self._model.graph.output)
        self._nodes: list[OnnxNode] = []
        self._inputs = model_inputs(self._model)
        self.signature = Signature(tuple(item.spec for item in self._inputs))

    def graph(
        self,
        shapes: Mapping[str, Sequence[int]] | None = None,
        values: Mapping[str, ArrayLike] | None = None,
        *,
        memory_limit: int | None = None,
    ) -> Graph:
        """Return the graph for some shapes; the arguments are those of :func:`import_model`.

        Weights that a graph takes from the file as they are, are those of all graphs of the file.

        Raises:
            UnknownValueError: the import needs values that are not given.
            ModelError: the model uses something that is not supported.
            MemoryLimitError: the model needs more memory than it may have.
            InputError: ``shapes`` or ``values`` do not fit the inputs of the model.
        """
        importer = Importer(self.name, self._model, self._reader, memory_limit)
        known = given_values(self._inputs, values or {})
        _declare_inputs(importer, self._inputs, shapes or {}, known)
        for position in range(len(self._model.graph.node)):
            _import_node(importer, self._node(position))
        try:
            graph = importer.finish()
        except GraphError as error:
            raise ModelError(str(error)) from error
        check_demand(f"model {graph.name!r}", memory_demand(graph), memory_limit)
        return graph

    def values(self, values: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """Return values of inputs in their dtypes.

        Raises:
            InputError: a name is not one of an input, or a value does not fit it.
        """
        return given_values(self._inputs, values)

    def _node(self, position: int) -> OnnxNode:
        """Return a node, decoded when it is first wanted: nodes after a wrong one need not be."""
        if position == len(self._nodes):
            proto = self._model.graph.node[position]
            self._nodes.append(decode_node(proto, self._opset, self._reader))
        return self._nodes[position]


def _declare_inputs(
    importer: Importer,
    inputs: Sequence[ModelInput],
    shapes: Mapping[str, Sequence[int]],
    values: Mapping[str, Array],
) -> None:
    given = {name: data.shape for name, data in values.items() if 0 not in data.shape}
    known = [item for item in inputs if item.name not in values or item.name in given]
    resolved = resolve_shapes(known, {**shapes, **given})
    for item in inputs:
        if item.name in values:
            importer.add_value(item.name, values[item.name])
            continue
        shape = resolved[item.name]
        old = item.dims[0] if item.dims else ""
        if isinstance(old, int) and old != shape[0]:
            importer.rebatched.add((old, shape[0]))
        importer.add_input(item.name, TensorType(item.dtype, shape))


def _import_node(importer: Importer, node: OnnxNode) -> None:
    try:
        _import_checked(importer, node)
    except UnknownValueError:
        raise
    except ModelError as error:
        # What is refused as a tensor may do as a constant: arithmetic on shapes, above all.
        inputs = importer.small_sources(node.inputs, "biu")
        if inputs:
            raise UnknownValueError(str(error), inputs) from error
        raise


def _import_checked(importer: Importer, node: OnnxNode) -> None:
    importer.check_inputs(node)
    try:
        # Constants are computed as ONNX does: what overflows is infinite, without a warning.
        with np.errstate(all="ignore"):
            _dispatch(importer, node)
    except UnknownValueError:
        raise
    except ModelError as error:
        if node.where in str(error):
            raise
        raise type(error)(f"{node.where}: {error}") from error
    except StridewiseError as error:
        # Our own operators name the node too, in their own terms.
        _, own_name, rest = str(error).partition("): ")
        raise ModelError(f"{node.where}: {rest if own_name else error}") from error
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
        # What handlers and NumPy raise for attributes and data that make no sense.
        text = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(
            describe(node.where, expected="inputs and attributes that fit it", found=text)
        ) from error


def _dispatch(importer: Importer, node: OnnxNode) -> None:
    handler = HANDLERS.get(node.op_type) if node.domain == "" else None
    subgraph = any(isinstance(value, Undecoded) for value in node.attrs.values())
    if node.domain == "" and node.op_type in _CONTROL_FLOW:
        raise node.error(
            "a model without control flow",
            f"operator {node.op_type}",
            "export it with fixed conditions, or simplify it before",
        )
    constant = node.domain == "" and importer.all_constant(node) and not subgraph
    if constant and fold.fold(importer, node):
        return
    if handler is None and (not constant or node.op_type in _NOT_A_FUNCTION):
        raise _unsupported(node)
    if handler is None:
        fold.by_reference(importer, node)
        return
    try:
        handler(importer, node)
    except GraphError:
        # Our operators know fewer dtypes than ONNX's; that doesn't matter for constants.
        if not constant:
            raise
        fold.by_reference(importer, node)


def _unsupported(node: OnnxNode) -> ModelError:
    domain = node.domain or "ai.onnx"
    count = "" if node.domain else DATA_DEPENDENT.get(node.op_type, "")
    reason = f", whose result has {count}, which no shape can tell" if count else ""
    return node.error(
        "a supported operator",
        f"{node.op_type!r} of domain {domain!r} (opset {node.opset}){reason}",
        "export the model without it, replace it by supported operators, or fold it if its "
        "inputs are constants",
    )
