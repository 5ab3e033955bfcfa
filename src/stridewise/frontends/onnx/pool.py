"""Pooling over windows and over whole images."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import inf

import numpy as np

from stridewise.dtypes import DType
from stridewise.frontends.onnx.importer import Handler, Importer
from stridewise.frontends.onnx.proto import OnnxNode
from stridewise.frontends.onnx.window import Window, extend_to_ceil, read_window, write_window
from stridewise.frontends.onnx.writer import Exporter, OnnxValue, Writer
from stridewise.graph import Attr, Node

__all__ = ["EXPORTERS", "HANDLERS"]


_DILATED_AVERAGE = 19
"""Since this opset, AveragePool has dilations."""


def _window(imp: Importer, node: OnnxNode) -> Window:
    sizes = imp.shape(node.required(0))[2:]
    window = read_window(node, sizes, node.integers("kernel_shape"))
    automatic = node.text("auto_pad", "NOTSET").startswith("SAME")
    if not node.integer("ceil_mode", 0) or automatic:
        return window
    return extend_to_ceil(window, sizes)


def _max_pool(imp: Importer, node: OnnxNode) -> None:
    imp.only_first_output(node, "indices of maxima are not computed")
    window = _window(imp, node)
    attrs: dict[str, Attr] = {**window.attrs, "kernel": window.kernel}
    imp.emit(node, "max_pool", [node.required(0)], attrs)


def _average_pool(imp: Importer, node: OnnxNode) -> None:
    include = node.integer("count_include_pad", 0)
    window = _window(imp, node)
    declared = read_window(node, imp.shape(node.required(0))[2:], window.kernel)
    if include and window != declared:
        raise node.error(
            "count_include_pad=0 where ceil_mode=1 adds a partial window",
            "1: such a window is not divided by the size of the kernel",
            "pad the input by a node of its own and set count_include_pad=0",
        )
    attrs: dict[str, Attr] = {
        **window.attrs,
        "kernel": window.kernel,
        "count_include_pad": int(bool(include)),
    }
    imp.emit(node, "avg_pool", [node.required(0)], attrs)


def _global(imp: Importer, node: OnnxNode, op: str) -> None:
    x = node.required(0)
    kernel = imp.shape(x)[2:]
    rank = len(kernel)
    window = Window(kernel, (1,) * rank, (1,) * rank, (0,) * rank, (0,) * rank)
    attrs: dict[str, Attr] = {**window.attrs, "kernel": kernel}
    if op == "avg_pool":
        attrs["count_include_pad"] = 0
    imp.emit(node, op, [x], attrs)


def _write_pool(writer: Writer, node: Node, name: str) -> None:
    include = node.int_attr("count_include_pad", 0)
    attrs = write_window(node, node.ints_attr("kernel"))
    if _is_global(attrs, writer.shape(node.inputs[0])[2:]) and not include:
        writer.emit(node, f"Global{name}Pool", node.inputs)
        return
    if include:
        attrs["count_include_pad"] = 1
    if name == "Average" and "dilations" in attrs:
        writer.needs(_DILATED_AVERAGE)
    writer.emit(node, f"{name}Pool", node.inputs, attrs)


def _write_max_pool(writer: Writer, node: Node) -> None:
    """Write a maximum; pads as wide as the window, which ONNX Runtime refuses, become a node."""
    kernel = node.ints_attr("kernel")
    pads = node.ints_attr("pads", (0,) * (2 * len(kernel)))
    if all(pad < extent for pad, extent in zip(pads, kernel * 2, strict=True)):
        _write_pool(writer, node, "Max")
        return
    half = len(kernel)
    full = writer.integers(node, "pads", (0, 0, *pads[:half], 0, 0, *pads[half:]))
    border = writer.scalar(node, "border", _lowest(writer.type(node.inputs[0]).dtype))
    padded = writer.step(node, "padded", "Pad", [*node.inputs, full, border])
    window = {**write_window(node, kernel), "pads": (0,) * len(pads)}
    writer.emit(node, "MaxPool", [padded], window)


def _lowest(dtype: DType) -> float:
    """Return what no maximum is less than."""
    return float(np.iinfo(dtype.name).min) if "int" in dtype.name else -inf


def _is_global(attrs: Mapping[str, OnnxValue], sizes: tuple[int, ...]) -> bool:
    ones, zeros = (1,) * len(sizes), (0,) * (2 * len(sizes))
    one_window = (attrs["strides"], attrs["pads"]) == (ones, zeros) and "dilations" not in attrs
    return one_window and attrs["kernel_shape"] == sizes


HANDLERS: dict[str, Handler] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": partial(_global, op="avg_pool"),
    "GlobalMaxPool": partial(_global, op="max_pool"),
    "MaxPool": _max_pool,
}

EXPORTERS: dict[str, Exporter] = {
    "avg_pool": partial(_write_pool, name="Average"),
    "max_pool": _write_max_pool,
}
