"""Concatenation."""

from __future__ import annotations

from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Node

__all__ = ["EXPORTERS", "HANDLERS"]


def _concat(imp: Importer, node: OnnxNode) -> None:
    names = [node.required(index) for index in range(max(len(node.inputs), 1))]
    axis = imp.axis(node, node.integer("axis"), len(imp.shape(names[0])))
    # Some exporters start a list with an empty tensor.
    names = [name for name in names if imp.shape(name)[axis : axis + 1] != (0,)] or names[:1]
    if len(names) == 1:
        imp.alias(node.outputs[0], names[0])
    else:
        imp.emit(node, "concat", names, {"axis": axis})


def _write_concat(writer: Writer, node: Node) -> None:
    writer.emit(node, "Concat", node.inputs, {"axis": node.int_attr("axis")})


HANDLERS: dict[str, Handler] = {"Concat": _concat}

EXPORTERS: dict[str, Exporter] = {"concat": _write_concat}
