"""Convolution."""

from __future__ import annotations

from collections.abc import Mapping

from stridewise.frontends.onnx.handlers.window import read_window, write_window
from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Attr, Node

__all__ = ["EXPORTERS", "HANDLERS", "conv_attrs", "product_inputs"]


def conv_attrs(imp: Importer, node: OnnxNode, x: str, w: str) -> Mapping[str, Attr]:
    """Return the attributes of a convolution of ``x`` with the weights ``w``.

    Raises:
        ModelError: the attributes of the node do not fit these two shapes.
    """
    sizes, kernel = imp.shape(x)[2:], imp.shape(w)[2:]
    declared = node.integers("kernel_shape", kernel)
    if declared != kernel:
        raise node.error(f"kernel_shape {list(declared)} in the weights", list(kernel))
    window = read_window(node, sizes, kernel)
    return {**window.attrs, "groups": node.integer("group", 1)}


def product_inputs(imp: Importer, node: OnnxNode) -> list[str]:
    """Return the image, the weights, and the bias if there is one.

    Raises:
        ModelError: the bias has another element type than the image.
    """
    x, w, bias = node.required(0), node.required(1), node.input(2)
    if bias and imp.type(bias).dtype != imp.type(x).dtype:
        raise node.error(f"a bias of dtype {imp.type(x).dtype}", imp.type(bias).dtype)
    return [x, w, bias] if bias else [x, w]


def _conv(imp: Importer, node: OnnxNode) -> None:
    inputs = product_inputs(imp, node)
    imp.emit(node, "conv", inputs, conv_attrs(imp, node, *inputs[:2]))


def _write_conv(writer: Writer, node: Node) -> None:
    window = write_window(node, writer.shape(node.inputs[1])[2:])
    writer.emit(node, "Conv", node.inputs, {**window, "group": node.int_attr("groups", 1)})


HANDLERS: dict[str, Handler] = {"Conv": _conv}

EXPORTERS: dict[str, Exporter] = {"conv": _write_conv}
