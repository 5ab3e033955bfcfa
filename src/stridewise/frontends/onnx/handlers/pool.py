"""Pooling over windows and over whole images."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import inf, log, prod

import numpy as np

from stridewise.dtypes import DType
from stridewise.frontends.onnx.handlers.window import (
    Window,
    extend_to_ceil,
    read_window,
    write_window,
)
from stridewise.frontends.onnx.reading.importer import Handler, Importer, scalar
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, OnnxValue, Writer
from stridewise.graph import Attr, Node
from stridewise.ops.registry import Array

__all__ = ["EXPORTERS", "HANDLERS"]


_DILATED_AVERAGE = 19
"""The first opset in which AveragePool has dilations."""
_MAX_POWER = 16
_SQUARE = 2


def _window(imp: Importer, node: OnnxNode) -> Window:
    sizes = imp.shape(node.required(0))[2:]
    window = read_window(node, sizes, node.integers("kernel_shape"))
    automatic = node.text("auto_pad", "NOTSET").startswith("SAME")
    if not node.integer("ceil_mode", 0) or automatic:
        return window
    return extend_to_ceil(window, sizes)


def _max_pool(imp: Importer, node: OnnxNode) -> None:
    window = _window(imp, node)
    x = node.required(0)
    attrs: dict[str, Attr] = {**window.attrs, "kernel": window.kernel}
    if imp.used(node.outputs[0]):
        imp.emit(node, "max_pool", [x], attrs)
    if len(node.outputs) > 1 and imp.used(node.outputs[1]):
        order = node.integer("storage_order", 0)
        imp.emit(node, "max_pool_indices", [x], {**attrs, "storage_order": order}, output=1)
        imp.pooled[node.outputs[1]] = imp.shape(x)


def _average_pool(imp: Importer, node: OnnxNode) -> None:
    include = int(bool(node.integer("count_include_pad", 0)))
    x = node.required(0)
    window = _window(imp, node)
    sizes = imp.shape(x)[2:]
    declared = read_window(node, sizes, window.kernel)
    attrs: dict[str, Attr] = {
        **window.attrs, "kernel": window.kernel, "count_include_pad": include,
    }  # fmt: skip
    if not include or window == declared:
        imp.emit(node, "avg_pool", [x], attrs)
        return
    # Elements that ceil_mode adds at the end are not padding, and are not counted.
    mean = imp.step(node, "mean", "avg_pool", [x], attrs)
    counted = _counted(window, declared, sizes, imp.shape(mean)[2:])
    factor = (prod(window.kernel) / counted).astype(imp.type(x).dtype.numpy)
    row = factor.reshape(1, 1, *factor.shape)
    imp.emit(node, "mul", [mean, imp.constant(f"{node.outputs[0]}/factor", row)])


def _counted(
    window: Window, declared: Window, sizes: tuple[int, ...], results: tuple[int, ...]
) -> Array:
    """Return the number of elements and declared pads in each window."""
    total = np.ones(results)
    for axis, (size, result) in enumerate(zip(sizes, results, strict=True)):
        taps = np.arange(window.kernel[axis]) * window.dilations[axis]
        starts = np.arange(result)[:, None] * window.strides[axis]
        end = window.begins[axis] + size + declared.ends[axis]
        count = (starts + taps < end).sum(axis=1)
        total *= count.reshape(-1, *(1,) * (len(results) - axis - 1))
    return total


def _powers(imp: Importer, node: OnnxNode, x: str) -> tuple[str, int]:
    """Return the p-th powers of the magnitudes, and p."""
    p = node.integer("p", 2)
    if not 1 <= p <= _MAX_POWER:
        raise node.error(f"p from 1 to {_MAX_POWER}", p)
    size = x if p % 2 == 0 else imp.step(node, "magnitude", "abs", [x])
    total = size
    for number in range(2, p + 1):
        total = imp.step(node, f"power{number}", "mul", [total, size])
    return total, p


def _root(imp: Importer, node: OnnxNode, total: str, p: int, factor: float) -> None:
    """Emit the p-th root of ``factor * total``."""
    if p <= _SQUARE:
        root = total if p == 1 else imp.step(node, "root", "sqrt", [total])
        imp.emit(node, "mul", [root, scalar(imp, node, "factor", factor ** (1 / p), total)])
        return
    least = scalar(imp, node, "least", float(np.finfo(np.float32).tiny), total)
    positive = imp.step(node, "positive", "maximum", [total, least])
    logarithm = imp.step(node, "logarithm", "log", [positive])
    part = imp.step(node, "part", "mul", [logarithm, scalar(imp, node, "exponent", 1 / p, total)])
    shift = scalar(imp, node, "factor", log(factor) / p, total)
    imp.emit(node, "exp", [imp.step(node, "shifted", "add", [part, shift])])


def _lp_pool(imp: Importer, node: OnnxNode) -> None:
    """Source: ONNX, LpPool; the sum is the mean, padding included, times the number of taps."""
    window = _window(imp, node)
    powers, p = _powers(imp, node, node.required(0))
    attrs: dict[str, Attr] = {**window.attrs, "kernel": window.kernel, "count_include_pad": 1}
    mean = imp.step(node, "mean", "avg_pool", [powers], attrs)
    _root(imp, node, mean, p, float(prod(window.kernel)))


def _global_lp_pool(imp: Importer, node: OnnxNode) -> None:
    x = node.required(0)
    powers, p = _powers(imp, node, x)
    shape = imp.shape(x)
    over: dict[str, Attr] = {"axes": tuple(range(2, len(shape))), "keepdims": 1}
    mean = imp.step(node, "mean", "reduce_mean", [powers], over)
    _root(imp, node, mean, p, float(prod(shape[2:])))


def _max_unpool(imp: Importer, node: OnnxNode) -> None:
    """Source: ONNX, MaxUnpool.

    Indices refer to the tensor that was pooled, if its max pooling is in the model and it has the
    ``output_shape``; else, as in ONNX's tests, to the result without ``output_shape``.
    """
    x, indices = node.required(0), node.required(1)
    sizes = imp.shape(x)[2:]
    window = read_window(node, sizes, node.integers("kernel_shape"))
    inner = tuple(
        (size - 1) * stride - begin - end + taps
        for size, taps, stride, begin, end in zip(
            sizes, window.kernel, window.strides, window.begins, window.ends, strict=True
        )
    )
    shape = inner
    if node.input(2):
        wanted = imp.integers(node, 2, "the output shape")
        if wanted[:2] != imp.shape(x)[:2] or len(wanted) != len(sizes) + 2:
            raise node.error(f"an output shape of {list(imp.shape(x)[:2])} images", list(wanted))
        shape = wanted[2:]
        if imp.pooled.get(indices) == wanted:
            inner = shape
    imp.emit(node, "max_unpool", [x, indices], {"inner": inner, "shape": shape})


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
    """Write a maximum; pads as wide as the window become a Pad, as ONNX Runtime refuses them."""
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


def _write_max_pool_indices(writer: Writer, node: Node) -> None:
    attrs = write_window(node, node.ints_attr("kernel"))
    attrs["storage_order"] = node.int_attr("storage_order", 0)
    writer.emit(node, "MaxPool", node.inputs, attrs, unread=1)


def _write_max_unpool(writer: Writer, node: Node) -> None:
    """Write MaxUnpool with a window of stride 1 that gives the extents ``inner``.

    A Pad adds the other elements, as ONNX Runtime applies indices to the padded result.
    """
    inner, shape = node.ints_attr("inner"), node.ints_attr("shape")
    sizes = writer.shape(node.inputs[0])[2:]
    more = [extent - size for extent, size in zip(inner, sizes, strict=True)]
    kernel = tuple(max(count, 0) + 1 for count in more)
    pads = (*(0 for _ in more), *(max(-count, 0) for count in more))
    attrs: dict[str, OnnxValue] = {"kernel_shape": kernel, "pads": pads}
    if shape == inner:
        writer.emit(node, "MaxUnpool", node.inputs, attrs)
        return
    behind = (extent - own for extent, own in zip(shape, inner, strict=True))
    full = writer.integers(node, "pads", (*(0,) * (len(shape) + 4), *behind))
    writer.emit(node, "Pad", [writer.step(node, "inner", "MaxUnpool", node.inputs, attrs), full])


def _lowest(dtype: DType) -> float:
    """Return the least value of an element type."""
    return float(np.iinfo(dtype.name).min) if "int" in dtype.name else -inf


def _is_global(attrs: Mapping[str, OnnxValue], sizes: tuple[int, ...]) -> bool:
    ones, zeros = (1,) * len(sizes), (0,) * (2 * len(sizes))
    one_window = (attrs["strides"], attrs["pads"]) == (ones, zeros) and "dilations" not in attrs
    return one_window and attrs["kernel_shape"] == sizes


HANDLERS: dict[str, Handler] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": partial(_global, op="avg_pool"),
    "GlobalLpPool": _global_lp_pool,
    "GlobalMaxPool": partial(_global, op="max_pool"),
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MaxUnpool": _max_unpool,
}

EXPORTERS: dict[str, Exporter] = {
    "avg_pool": partial(_write_pool, name="Average"),
    "max_pool": _write_max_pool,
    "max_pool_indices": _write_max_pool_indices,
    "max_unpool": _write_max_unpool,
}
