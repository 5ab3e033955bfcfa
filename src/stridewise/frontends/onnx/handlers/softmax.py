"""Softmax, LogSoftmax and Hardmax along one axis, and their older form over several axes."""

from __future__ import annotations

from functools import partial
from math import prod

from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Node

__all__ = ["EXPORTERS", "HANDLERS"]

_ONE_AXIS = 13
"""The first opset with softmax along one axis; older ones normalize over ``axis`` and all after."""


def _softmax(imp: Importer, node: OnnxNode, op: str) -> None:
    x = node.required(0)
    shape = imp.shape(x)
    old = node.opset < _ONE_AXIS
    axis = imp.axis(node, node.integer("axis", 1 if old else -1), len(shape))
    if not old or prod(shape[axis + 1 :]) == 1:
        imp.emit(node, op, [x], {"axis": axis})
        return
    flat = (prod(shape[:axis]), prod(shape[axis:]))
    rows = imp.step(node, "rows", "reshape", [x], {"shape": flat})
    result = imp.step(node, op, op, [rows], {"axis": 1})
    imp.emit(node, "reshape", [result], {"shape": shape})


def _write(writer: Writer, node: Node, op_type: str) -> None:
    writer.emit(node, op_type, node.inputs, {"axis": node.int_attr("axis")})


HANDLERS: dict[str, Handler] = {
    "Hardmax": partial(_softmax, op="hardmax"),
    "LogSoftmax": partial(_softmax, op="log_softmax"),
    "Softmax": partial(_softmax, op="softmax"),
}

EXPORTERS: dict[str, Exporter] = {
    "hardmax": partial(_write, op_type="Hardmax"),
    "log_softmax": partial(_write, op_type="LogSoftmax"),
    "softmax": partial(_write, op_type="Softmax"),
}
