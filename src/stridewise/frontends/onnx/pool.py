"""Pooling over windows and over whole images."""

from __future__ import annotations

from functools import partial

from stridewise.frontends.onnx.importer import Handler, Importer
from stridewise.frontends.onnx.proto import OnnxNode
from stridewise.frontends.onnx.window import Window, extend_to_ceil, read_window
from stridewise.graph import Attr

__all__ = ["HANDLERS"]


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


HANDLERS: dict[str, Handler] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": partial(_global, op="avg_pool"),
    "GlobalMaxPool": partial(_global, op="max_pool"),
    "MaxPool": _max_pool,
}
