"""Comparisons, logic on truth values, and the choice between two tensors."""

from __future__ import annotations

from functools import partial

from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Node

__all__ = ["EXPORTERS", "HANDLERS"]

_OPERATORS: dict[str, tuple[str, int]] = {
    "And": ("logical_and", 2),
    "Equal": ("equal", 2),
    "Greater": ("greater", 2),
    "GreaterOrEqual": ("greater_equal", 2),
    "IsNaN": ("is_nan", 1),
    "Less": ("less", 2),
    "LessOrEqual": ("less_equal", 2),
    "Not": ("logical_not", 1),
    "Or": ("logical_or", 2),
    "Where": ("where", 3),
    "Xor": ("logical_xor", 2),
}
"""The operator for each ONNX operator, and the number of its operands."""

_HALF_TESTS = 20
"""The first opset in which IsNaN and IsInf take all float types."""


def _plain(imp: Importer, node: OnnxNode, op: str, count: int) -> None:
    imp.emit(node, op, [node.required(index) for index in range(count)])


def _is_inf(imp: Importer, node: OnnxNode) -> None:
    attrs = {
        "positive": int(bool(node.integer("detect_positive", 1))),
        "negative": int(bool(node.integer("detect_negative", 1))),
    }
    imp.emit(node, "is_inf", [node.required(0)], attrs)


def _write(writer: Writer, node: Node, op_type: str) -> None:
    writer.emit(node, op_type, node.inputs)


def _write_is_nan(writer: Writer, node: Node) -> None:
    if writer.type(node.inputs[0]).dtype.name == "bfloat16":
        writer.needs(_HALF_TESTS)
    writer.emit(node, "IsNaN", node.inputs)


def _write_is_inf(writer: Writer, node: Node) -> None:
    if writer.type(node.inputs[0]).dtype.name not in ("float32", "float64"):
        writer.needs(_HALF_TESTS)
    attrs = {f"detect_{sign}": node.int_attr(sign, 1) for sign in ("positive", "negative")}
    writer.emit(node, "IsInf", node.inputs, attrs)


HANDLERS: dict[str, Handler] = {
    **{name: partial(_plain, op=op, count=count) for name, (op, count) in _OPERATORS.items()},
    "IsInf": _is_inf,
}

EXPORTERS: dict[str, Exporter] = {
    **{op: partial(_write, op_type=name) for name, (op, _) in _OPERATORS.items()},
    "is_inf": _write_is_inf,
    "is_nan": _write_is_nan,
}
