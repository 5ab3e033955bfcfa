"""Elementwise operators of two and more operands."""

from __future__ import annotations

from functools import partial

from stridewise.frontends.onnx.reading.importer import Handler, Importer, scalar
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Node

__all__ = ["EXPORTERS", "HANDLERS"]


def _binary(imp: Importer, node: OnnxNode, op: str) -> None:
    imp.emit(node, op, [node.required(0), node.required(1)])


def _chain(imp: Importer, node: OnnxNode, op: str) -> None:
    """Emit an operator of any number of operands as a chain, from the left."""
    names = [node.required(index) for index in range(max(len(node.inputs), 1))]
    if len(names) == 1:
        imp.alias(node.outputs[0], names[0])
        return
    total = names[0]
    for number, name in enumerate(names[1:-1], start=1):
        total = imp.step(node, f"{op}{number}", op, [total, name])
    imp.emit(node, op, [total, names[-1]])


def _mean(imp: Importer, node: OnnxNode) -> None:
    names = [node.required(index) for index in range(max(len(node.inputs), 1))]
    total = names[0]
    for number, name in enumerate(names[1:], start=1):
        total = imp.step(node, f"add{number}", "add", [total, name])
    factor = scalar(imp, node, "factor", 1 / len(names), total)
    imp.emit(node, "mul", [total, factor])


def _write(writer: Writer, node: Node, op_type: str) -> None:
    writer.emit(node, op_type, node.inputs)


HANDLERS: dict[str, Handler] = {
    "Add": partial(_binary, op="add"),
    "Div": partial(_binary, op="div"),
    "Max": partial(_chain, op="maximum"),
    "Mean": _mean,
    "Min": partial(_chain, op="minimum"),
    "Mul": partial(_binary, op="mul"),
    "Sub": partial(_binary, op="sub"),
    "Sum": partial(_chain, op="add"),
}

EXPORTERS: dict[str, Exporter] = {
    "add": partial(_write, op_type="Add"),
    "div": partial(_write, op_type="Div"),
    "maximum": partial(_write, op_type="Max"),
    "minimum": partial(_write, op_type="Min"),
    "mul": partial(_write, op_type="Mul"),
    "sub": partial(_write, op_type="Sub"),
}
