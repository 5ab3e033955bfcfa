"""Elementwise operators of any number of operands."""

from __future__ import annotations

from functools import partial

from stridewise.frontends.onnx.handlers.plain import Plain, write
from stridewise.frontends.onnx.reading.importer import Handler, Importer, scalar
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter

__all__ = ["EXPORTERS", "HANDLERS"]


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


HANDLERS: dict[str, Handler] = {
    "Max": partial(_chain, op="maximum"),
    "Mean": _mean,
    "Min": partial(_chain, op="minimum"),
    "Sum": partial(_chain, op="add"),
}

EXPORTERS: dict[str, Exporter] = {
    "maximum": partial(write, op_type="Max", form=Plain("maximum", 2)),
    "minimum": partial(write, op_type="Min", form=Plain("minimum", 2)),
}
