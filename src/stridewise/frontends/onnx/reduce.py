"""Reductions over axes."""

from __future__ import annotations

from functools import partial

from stridewise.frontends.onnx.importer import Handler, Importer
from stridewise.frontends.onnx.proto import OnnxNode
from stridewise.frontends.onnx.writer import Exporter, OnnxValue, Writer
from stridewise.graph import Node

__all__ = ["EXPORTERS", "HANDLERS"]


def _axes(imp: Importer, node: OnnxNode, since: int) -> tuple[int, ...]:
    """Return the axes as given; they are an input since opset ``since``, an attribute before."""
    if node.opset < since:
        return node.integers("axes", ())
    return imp.integers(node, 1, "axes") if node.input(1) else ()


def _reduce(imp: Importer, node: OnnxNode, op: str, since: int = 18) -> None:
    x = node.required(0)
    rank = len(imp.shape(x))
    axes = {imp.axis(node, axis, rank) for axis in _axes(imp, node, since)}
    if not axes and node.integer("noop_with_empty_axes", 0):
        imp.alias(node.outputs[0], x)
        return
    attrs = {
        "axes": tuple(sorted(axes or range(rank))),
        "keepdims": int(bool(node.integer("keepdims", 1))),
    }
    imp.emit(node, op, [x], attrs)


def _write(writer: Writer, node: Node, op_type: str, since: int = 18) -> None:
    """Write a reduction; its axes are an input since opset ``since``, an attribute before."""
    axes = node.ints_attr("axes")
    if not axes:
        # To ONNX, no axes are all axes.
        writer.emit(node, "Identity", node.inputs)
        return
    attrs: dict[str, OnnxValue] = {"keepdims": int(bool(node.int_attr("keepdims", 1)))}
    if writer.opset < since:
        writer.emit(node, op_type, node.inputs, {"axes": axes, **attrs})
    else:
        writer.emit(node, op_type, [*node.inputs, writer.integers(node, "axes", axes)], attrs)


HANDLERS: dict[str, Handler] = {
    "ReduceMax": partial(_reduce, op="reduce_max"),
    "ReduceMean": partial(_reduce, op="reduce_mean"),
    "ReduceMin": partial(_reduce, op="reduce_min"),
    "ReduceSum": partial(_reduce, op="reduce_sum", since=13),
}

EXPORTERS: dict[str, Exporter] = {
    "reduce_max": partial(_write, op_type="ReduceMax"),
    "reduce_mean": partial(_write, op_type="ReduceMean"),
    "reduce_min": partial(_write, op_type="ReduceMin"),
    "reduce_sum": partial(_write, op_type="ReduceSum", since=13),
}
