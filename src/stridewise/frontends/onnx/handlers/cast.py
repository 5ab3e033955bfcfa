"""Conversion of elements to another type."""

from __future__ import annotations

from stridewise.dtypes import DType, dtype_of
from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.reading.tensors import dtype_of_code
from stridewise.frontends.onnx.writing.initializers import code_of
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Node

__all__ = ["EXPORTERS", "HANDLERS"]


def _convert(imp: Importer, node: OnnxNode, dtype: DType) -> None:
    """Convert elements; attributes on 8-bit floats do not apply to any supported type."""
    x = node.required(0)
    if imp.type(x).dtype == dtype:
        imp.alias(node.outputs[0], x)
    else:
        imp.emit(node, "cast", [x], {"to": dtype.name})


def _cast(imp: Importer, node: OnnxNode) -> None:
    _convert(imp, node, dtype_of_code(node.integer("to"), f"{node.where}, attribute 'to'"))


def _cast_like(imp: Importer, node: OnnxNode) -> None:
    _convert(imp, node, imp.type(node.required(1)).dtype)


def _write_cast(writer: Writer, node: Node) -> None:
    writer.emit(node, "Cast", node.inputs, {"to": code_of(dtype_of(node.str_attr("to")))})


HANDLERS: dict[str, Handler] = {"Cast": _cast, "CastLike": _cast_like}

EXPORTERS: dict[str, Exporter] = {"cast": _write_cast}
