"""Mathematical functions of one operand, and determinants."""

from __future__ import annotations

from functools import partial

from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Node

__all__ = ["EXPORTERS", "HANDLERS"]

_FUNCTIONS = {
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Det": "det",
    "Erf": "erf",
    "Floor": "floor",
    "Round": "round",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Tan": "tan",
}


def _plain(imp: Importer, node: OnnxNode, op: str) -> None:
    imp.emit(node, op, [node.required(0)])


def _write(writer: Writer, node: Node, op_type: str) -> None:
    writer.emit(node, op_type, node.inputs)


HANDLERS: dict[str, Handler] = {name: partial(_plain, op=op) for name, op in _FUNCTIONS.items()}

EXPORTERS: dict[str, Exporter] = {
    op: partial(_write, op_type=name) for name, op in _FUNCTIONS.items()
}
