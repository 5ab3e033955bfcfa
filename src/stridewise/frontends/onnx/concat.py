"""Operators that put tensors together, and choose between them."""

from __future__ import annotations

from onnx import TensorProto

from stridewise.frontends.onnx.importer import Handler, Importer
from stridewise.frontends.onnx.proto import OnnxNode
from stridewise.frontends.onnx.writer import Exporter, Writer
from stridewise.graph import Node

__all__ = ["EXPORTERS", "HANDLERS"]


def _concat(imp: Importer, node: OnnxNode) -> None:
    names = [node.required(index) for index in range(max(len(node.inputs), 1))]
    axis = imp.axis(node, node.integer("axis"), len(imp.shape(names[0])))
    if len(names) == 1:
        imp.alias(node.outputs[0], names[0])
    else:
        imp.emit(node, "concat", names, {"axis": axis})


def _gather(imp: Importer, node: OnnxNode) -> None:
    data, indices = node.required(0), node.required(1)
    axis = imp.axis(node, node.integer("axis", 0), len(imp.shape(data)))
    imp.emit(node, "gather", [data, indices], {"axis": axis})


def _where(imp: Importer, node: OnnxNode) -> None:
    imp.emit(node, "where", [node.required(index) for index in range(3)])


def _write_concat(writer: Writer, node: Node) -> None:
    writer.emit(node, "Concat", node.inputs, {"axis": node.int_attr("axis")})


def _write_gather(writer: Writer, node: Node) -> None:
    data, indices = node.inputs
    if writer.type(indices).dtype.name not in ("int32", "int64"):
        indices = writer.step(node, "indices", "Cast", [indices], {"to": TensorProto.INT64})
    writer.emit(node, "Gather", [data, indices], {"axis": node.int_attr("axis", 0)})


def _write_where(writer: Writer, node: Node) -> None:
    condition, a, b = node.inputs
    if writer.type(condition).dtype.name != "bool":
        condition = writer.step(node, "condition", "Cast", [condition], {"to": TensorProto.BOOL})
    writer.emit(node, "Where", [condition, a, b])


HANDLERS: dict[str, Handler] = {"Concat": _concat, "Gather": _gather, "Where": _where}

EXPORTERS: dict[str, Exporter] = {
    "concat": _write_concat,
    "gather": _write_gather,
    "where": _write_where,
}
