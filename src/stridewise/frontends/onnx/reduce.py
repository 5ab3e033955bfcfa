"""Reductions over axes."""

from __future__ import annotations

from functools import partial

from stridewise.frontends.onnx.importer import Handler, Importer
from stridewise.frontends.onnx.proto import OnnxNode

__all__ = ["HANDLERS"]


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


HANDLERS: dict[str, Handler] = {
    "ReduceMax": partial(_reduce, op="reduce_max"),
    "ReduceMean": partial(_reduce, op="reduce_mean"),
    "ReduceMin": partial(_reduce, op="reduce_min"),
    "ReduceSum": partial(_reduce, op="reduce_sum", since=13),
}
