"""Importing a whole model: the loop over its nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from onnx import ModelProto

from stridewise.errors import GraphError, ModelError, StridewiseError, describe
from stridewise.frontends.onnx import fold
from stridewise.frontends.onnx.importer import Importer
from stridewise.frontends.onnx.inputs import model_inputs, resolve_shapes
from stridewise.frontends.onnx.proto import OnnxNode, Undecoded, decode_node, opset_of
from stridewise.frontends.onnx.source import Source, folder_of, read_model
from stridewise.frontends.onnx.table import HANDLERS
from stridewise.frontends.onnx.tensors import TensorReader
from stridewise.graph import Graph, TensorType
from stridewise.ops.demand import check_demand, memory_demand

__all__ = ["import_model"]

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
    name: str | None = None,
    memory_limit: int | None = None,
) -> Graph:
    """Import an ONNX model of opset 7 to 28.

    Every shape is fixed at import, and whatever depends on shapes and constants only is computed.
    Inputs, outputs and results keep their ONNX names. Weights are not copied; external data are
    mapped from files in the model's folder.

    Where ``shapes`` gives a model of fixed batch another one, a ``Reshape`` to a constant shape
    follows: when its target starts with the old batch, its operand with the new one, and the
    element counts differ by just that ratio, the new batch takes the place of the old. It also does
    in the sizes of a ``Resize``.

    Args:
        source: a path, the content of a file, or a loaded model.
        shapes: shapes of inputs, for symbolic ones or to override fixed ones. An unknown first
            extent that is not given is 1; any other must be given.
        name: the graph's name; by default that in the model, or the file's.
        memory_limit: bytes that the model may need; None for no limit. Constants are computed only
            as far as they stay small beside what the file holds.

    Raises:
        MemoryLimitError: the model needs more memory than it may have.
        ModelError: the model cannot be read, is damaged, or uses something that is not supported.
        InputError: ``shapes`` does not fit the inputs of the model.
    """
    model = read_model(source)
    opset = opset_of(model)
    reader = TensorReader(folder_of(source))
    stem = Path(source).stem if isinstance(source, str | os.PathLike) else "model"
    importer = Importer(name or model.graph.name or stem, model, reader, memory_limit)
    _declare_inputs(importer, model, shapes or {})
    for proto in model.graph.node:
        _import_node(importer, decode_node(proto, opset, reader))
    try:
        graph = importer.finish()
    except GraphError as error:
        raise ModelError(str(error)) from error
    check_demand(f"model {graph.name!r}", memory_demand(graph), memory_limit)
    return graph


def _declare_inputs(
    importer: Importer, model: ModelProto, shapes: Mapping[str, Sequence[int]]
) -> None:
    inputs = model_inputs(model)
    resolved = resolve_shapes(inputs, shapes)
    for item in inputs:
        shape = resolved[item.name]
        old = item.dims[0] if item.dims else ""
        if isinstance(old, int) and old != shape[0]:
            importer.rebatched.add((old, shape[0]))
        importer.add_input(item.name, TensorType(item.dtype, shape))


def _import_node(importer: Importer, node: OnnxNode) -> None:
    importer.check_inputs(node)
    try:
        # Constants are computed as ONNX does: what overflows is infinite, without a warning.
        with np.errstate(all="ignore"):
            _dispatch(importer, node)
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
    return node.error(
        "a supported operator",
        f"{node.op_type!r} of domain {domain!r} (opset {node.opset})",
        "export the model without it, replace it by supported operators, or fold it if its "
        "inputs are constants",
    )
