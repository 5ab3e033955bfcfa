"""Operators that put tensors together, and choose between them."""

from __future__ import annotations

from stridewise.frontends.onnx.importer import Handler, Importer
from stridewise.frontends.onnx.proto import OnnxNode

__all__ = ["HANDLERS"]


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


HANDLERS: dict[str, Handler] = {"Concat": _concat, "Gather": _gather, "Where": _where}
