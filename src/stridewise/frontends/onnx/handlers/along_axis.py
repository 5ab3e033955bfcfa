"""Operators along one axis: positions of the greatest and least element, running sums."""

from __future__ import annotations

from functools import partial

from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Node

__all__ = ["EXPORTERS", "HANDLERS"]


def _position(imp: Importer, node: OnnxNode, op: str) -> None:
    x = node.required(0)
    attrs = {
        "axis": imp.axis(node, node.integer("axis", 0), len(imp.shape(x))),
        "keepdims": int(bool(node.integer("keepdims", 1))),
        "last": int(bool(node.integer("select_last_index", 0))),
    }
    imp.emit(node, op, [x], attrs)


def _running(imp: Importer, node: OnnxNode, op: str) -> None:
    x, given = node.required(0), imp.integers(node, 1, "the axis")
    if len(given) != 1:
        raise node.error("one axis", list(given))
    attrs = {
        "axis": imp.axis(node, given[0], len(imp.shape(x))),
        "exclusive": int(bool(node.integer("exclusive", 0))),
        "reverse": int(bool(node.integer("reverse", 0))),
    }
    imp.emit(node, op, [x], attrs)


def _write_position(writer: Writer, node: Node, op_type: str) -> None:
    attrs = {
        "axis": node.int_attr("axis"),
        "keepdims": node.int_attr("keepdims", 1),
        "select_last_index": node.int_attr("last", 0),
    }
    writer.emit(node, op_type, node.inputs, attrs)


def _write_cumsum(writer: Writer, node: Node) -> None:
    attrs = {key: node.int_attr(key, 0) for key in ("exclusive", "reverse")}
    axis = writer.integers(node, "axis", [node.int_attr("axis")])
    writer.emit(node, "CumSum", [*node.inputs, axis], attrs)


HANDLERS: dict[str, Handler] = {
    "ArgMax": partial(_position, op="arg_max"),
    "ArgMin": partial(_position, op="arg_min"),
    "CumProd": partial(_running, op="cumprod"),
    "CumSum": partial(_running, op="cumsum"),
}

EXPORTERS: dict[str, Exporter] = {
    "arg_max": partial(_write_position, op_type="ArgMax"),
    "arg_min": partial(_write_position, op_type="ArgMin"),
    "cumsum": _write_cumsum,
}
