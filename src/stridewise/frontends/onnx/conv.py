"""Convolution."""

from __future__ import annotations

from stridewise.frontends.onnx.importer import Handler, Importer
from stridewise.frontends.onnx.proto import OnnxNode
from stridewise.frontends.onnx.window import read_window, write_window
from stridewise.frontends.onnx.writer import Exporter, Writer
from stridewise.graph import Node

__all__ = ["EXPORTERS", "HANDLERS"]


def _conv(imp: Importer, node: OnnxNode) -> None:
    x, w, bias = node.required(0), node.required(1), node.input(2)
    sizes, kernel = imp.shape(x)[2:], imp.shape(w)[2:]
    declared = node.integers("kernel_shape", kernel)
    if declared != kernel:
        raise node.error(f"kernel_shape {list(declared)} in the weights", list(kernel))
    window = read_window(node, sizes, kernel)
    attrs = {**window.attrs, "groups": node.integer("group", 1)}
    imp.emit(node, "conv", [x, w, bias] if bias else [x, w], attrs)


def _write_conv(writer: Writer, node: Node) -> None:
    window = write_window(node, writer.shape(node.inputs[1])[2:])
    writer.emit(node, "Conv", node.inputs, {**window, "group": node.int_attr("groups", 1)})


HANDLERS: dict[str, Handler] = {"Conv": _conv}

EXPORTERS: dict[str, Exporter] = {"conv": _write_conv}
