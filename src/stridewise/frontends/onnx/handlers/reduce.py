"""Reductions over axes."""

from __future__ import annotations

from functools import partial

from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, OnnxValue, Writer
from stridewise.graph import Node

__all__ = ["EXPORTERS", "HANDLERS"]


def _axes(imp: Importer, node: OnnxNode, since: int) -> tuple[int, ...]:
    """Return the axes as given: an input since opset ``since``, an attribute in older opsets."""
    if node.opset < since:
        return node.integers("axes", ())
    return imp.integers(node, 1, "axes") if node.input(1) else ()


_OF_ONE = {"reduce_l1": "abs", "reduce_l2": "abs", "reduce_log_sum": "log"}
"""Functions of a single element that reductions apply, other than the identity."""


def _reduce_nothing(imp: Importer, node: OnnxNode, op: str) -> None:
    """Reduce each element by itself (source: ONNX, ``noop_with_empty_axes``)."""
    x = node.required(0)
    if op == "reduce_sum_square":
        imp.emit(node, "mul", [x, x])
    elif op in _OF_ONE:
        imp.emit(node, _OF_ONE[op], [x])
    else:
        imp.alias(node.outputs[0], x)


def _reduce(imp: Importer, node: OnnxNode, op: str, since: int) -> None:
    x = node.required(0)
    rank = len(imp.shape(x))
    axes = {imp.axis(node, axis, rank) for axis in _axes(imp, node, since)}
    if not node.integer("noop_with_empty_axes", 0) and not axes:
        axes = set(range(rank))
    if not axes:
        _reduce_nothing(imp, node, op)
        return
    attrs = {
        "axes": tuple(sorted(axes)),
        "keepdims": int(bool(node.integer("keepdims", 1))),
    }
    imp.emit(node, op, [x], attrs)


_ONNX_OF_ONE = {"reduce_l1": "Abs", "reduce_l2": "Abs", "reduce_log_sum": "Log"}

_TRUTH_VALUES = 20
"""The first opset in which ReduceMax and ReduceMin take booleans."""


def _write_nothing(writer: Writer, node: Node) -> None:
    (x,) = node.inputs
    if node.op == "reduce_sum_square":
        writer.emit(node, "Mul", [x, x])
    else:
        writer.emit(node, _ONNX_OF_ONE.get(node.op, "Identity"), [x])


def _write(writer: Writer, node: Node, op_type: str, since: int) -> None:
    """Write a reduction; axes are an input since opset ``since``, an attribute in older opsets."""
    axes = node.ints_attr("axes")
    if not axes:
        # In ONNX an empty list of axes means all axes.
        _write_nothing(writer, node)
        return
    if writer.type(node.inputs[0]).dtype.name == "bool":
        writer.needs(_TRUTH_VALUES)
    attrs: dict[str, OnnxValue] = {"keepdims": int(bool(node.int_attr("keepdims", 1)))}
    if writer.opset < since:
        writer.emit(node, op_type, node.inputs, {"axes": axes, **attrs})
    else:
        writer.emit(node, op_type, [*node.inputs, writer.integers(node, "axes", axes)], attrs)


_OPERATORS: dict[str, tuple[str, int]] = {
    "ReduceL1": ("reduce_l1", 18),
    "ReduceL2": ("reduce_l2", 18),
    "ReduceLogSum": ("reduce_log_sum", 18),
    "ReduceLogSumExp": ("reduce_log_sum_exp", 18),
    "ReduceMax": ("reduce_max", 18),
    "ReduceMean": ("reduce_mean", 18),
    "ReduceMin": ("reduce_min", 18),
    "ReduceProd": ("reduce_prod", 18),
    "ReduceSum": ("reduce_sum", 13),
    "ReduceSumSquare": ("reduce_sum_square", 18),
}
"""The operator for each ONNX operator, and the first opset with its axes as an input."""

HANDLERS: dict[str, Handler] = {
    name: partial(_reduce, op=op, since=since) for name, (op, since) in _OPERATORS.items()
}

EXPORTERS: dict[str, Exporter] = {
    op: partial(_write, op_type=name, since=since) for name, (op, since) in _OPERATORS.items()
}
