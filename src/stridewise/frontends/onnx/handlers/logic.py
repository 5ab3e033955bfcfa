"""Tests for NaN and infinity."""

from __future__ import annotations

from functools import partial

from stridewise.frontends.onnx.handlers.plain import Plain, emit
from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Node

__all__ = ["EXPORTERS", "HANDLERS"]

_HALF_TESTS = 20
"""The first opset in which IsNaN and IsInf take all float types."""


def _is_inf(imp: Importer, node: OnnxNode) -> None:
    attrs = {
        "positive": int(bool(node.integer("detect_positive", 1))),
        "negative": int(bool(node.integer("detect_negative", 1))),
    }
    imp.emit(node, "is_inf", [node.required(0)], attrs)


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
    "IsInf": _is_inf,
    "IsNaN": partial(emit, form=Plain("is_nan")),
}

EXPORTERS: dict[str, Exporter] = {
    "is_inf": _write_is_inf,
    "is_nan": _write_is_nan,
}
