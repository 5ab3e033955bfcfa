"""Nodes whose results are constants, and nodes that return their input."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stridewise.errors import UnsupportedError
from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Node
from stridewise.ops.registry import Array

__all__ = ["EXPORTERS", "HANDLERS"]

_BOOLEAN_MASK = 10
"""The first opset in which the mask of Dropout is boolean."""
_TRAINING_INPUT = 12
"""The first opset in which Dropout has the input ``training_mode``."""

_FORMS: dict[str, Callable[[OnnxNode], Array]] = {
    "value": lambda node: node.tensor("value"),
    "value_float": lambda node: np.array(node.number("value_float"), np.float32),
    "value_floats": lambda node: np.array(node.attrs["value_floats"], np.float32),
    "value_int": lambda node: np.array(node.integer("value_int"), np.int64),
    "value_ints": lambda node: np.array(node.integers("value_ints"), np.int64),
}


def _constant(imp: Importer, node: OnnxNode) -> None:
    if "sparse_value" in node.attrs:
        tensor = node.proto.attribute[0].sparse_tensor
        imp.define(node.outputs[0], imp.dense(tensor, node.where))
        return
    form = next((key for key in _FORMS if key in node.attrs), None)
    if form is None:
        found = ", ".join(node.attrs) or "no attribute"
        raise node.error(f"one of {', '.join(_FORMS)}", found)
    imp.define(node.outputs[0], _FORMS[form](node))


def _constant_of_shape(imp: Importer, node: OnnxNode) -> None:
    shape = imp.integers(node, 0, "the shape")
    value = node.tensor("value") if "value" in node.attrs else np.zeros(1, np.float32)
    if value.size != 1 or min(shape, default=0) < 0:
        raise node.error("one value and a shape", f"{value.size} values, shape {list(shape)}")
    imp.define(node.outputs[0], np.broadcast_to(value.reshape(()), shape))


def _shape(imp: Importer, node: OnnxNode) -> None:
    shape = imp.shape(node.required(0))
    # A Python slice clamps its bounds as ONNX does.
    part = shape[node.integer("start", 0) : node.integer("end", len(shape))]
    imp.define(node.outputs[0], np.array(part, np.int64))


def _size(imp: Importer, node: OnnxNode) -> None:
    imp.define(node.outputs[0], np.array(np.prod(imp.shape(node.required(0))), np.int64))


def _identity(imp: Importer, node: OnnxNode) -> None:
    imp.alias(node.outputs[0], node.required(0))


def _dropout(imp: Importer, node: OnnxNode) -> None:
    """Add a dropout to a graph to be trained; in inference it has no effect."""
    x, has_input = node.required(0), node.opset >= _TRAINING_INPUT
    share = _ratio(imp, node) if has_input else node.number("ratio", 0.5)
    if has_input and node.input(2) and share and not imp.trains:
        training = imp.require_const(node, 2, "training_mode")
        if training.any():
            fix = "export the model in evaluation mode, or load it with training=True"
            raise node.error("training_mode=false", "true", fix)
    if imp.trains and 0 < share < 1:
        imp.emit(node, "dropout", [x], {"share": share})
    else:
        imp.alias(node.outputs[0], x)
    if len(node.outputs) > 1 and imp.used(node.outputs[1]):
        dtype = np.bool_ if node.opset >= _BOOLEAN_MASK else imp.type(x).dtype.numpy
        imp.define(node.outputs[1], np.broadcast_to(np.ones((), dtype), imp.shape(x)))


def _ratio(imp: Importer, node: OnnxNode) -> float:
    if not node.input(1):
        return 0.5
    found = imp.require_const(node, 1, "the ratio")
    if found.size != 1:
        raise node.error("one ratio", f"{found.size}")
    return float(found.item())


def _write_identity(writer: Writer, node: Node) -> None:
    writer.emit(node, "Identity", node.inputs)


def _write_dropout(writer: Writer, node: Node) -> None:
    """Write what inference computes; a dropout that draws has no counterpart."""
    x, *counter = node.inputs
    if counter:
        expected, fix = "dropout of a model for inference", "save what Trainer.graph() returns"
        where = f"node {node.name!r} (dropout)"
        raise UnsupportedError.at(where, expected=expected, found="one that draws", fix=fix)
    share = np.array(node.float_attr("share", 0.5), np.float32)
    writer.emit(node, "Dropout", [x, writer.constant(node, "ratio", share)])


HANDLERS: dict[str, Handler] = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Dropout": _dropout,
    "Identity": _identity,
    "Shape": _shape,
    "Size": _size,
}

EXPORTERS: dict[str, Exporter] = {"dropout": _write_dropout, "identity": _write_identity}
