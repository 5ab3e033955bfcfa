"""Normalization over axes of each position: layer norm, RMS norm, Lp norm."""

from __future__ import annotations

from math import prod

import numpy as np

from stridewise.frontends.onnx.reading.importer import Handler, Importer, scalar
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, OnnxValue, Writer
from stridewise.graph import Attr, Node

__all__ = ["EXPORTERS", "HANDLERS"]

_HALVES = ("float16", "bfloat16")
_TINY = float(np.finfo(np.float32).tiny)
_VARIANCE_GUARD = 1e-9
"""Source: ONNX, the function that defines MeanVarianceNormalization."""


def _trailing(imp: Importer, node: OnnxNode, x: str) -> tuple[int, ...]:
    """Return the axes from ``axis`` on."""
    rank = len(imp.shape(x))
    return tuple(range(imp.axis(node, node.integer("axis", -1), rank), rank))


def _parameter(imp: Importer, node: OnnxNode, index: int, x: str, axes: tuple[int, ...]) -> str:
    """Return a scale or a shift, broadcast to the shape of the normalized axes."""
    name = node.input(index)
    if not name:
        return ""
    wanted = tuple(imp.shape(x)[axis] for axis in axes)
    shape = imp.shape(name)
    if shape == wanted:
        return name
    data = imp.const(name)
    if data is not None and prod(shape[: max(len(shape) - len(wanted), 0)]) == 1:
        inner = data.reshape(shape[max(len(shape) - len(wanted), 0) :])
        aligned = (1,) * (len(wanted) - inner.ndim) + inner.shape
        if all(e in (1, w) for e, w in zip(aligned, wanted, strict=True)):
            whole = np.broadcast_to(inner, wanted)
            return imp.constant(f"{node.outputs[0]}/parameter{index}", whole)
    raise node.error(f"input {index} of shape {list(wanted)}", list(shape))


def _layer_norm(imp: Importer, node: OnnxNode) -> None:
    x = node.required(0)
    axes = _trailing(imp, node, x)
    parameters = [_parameter(imp, node, index, x, axes) for index in (1, 2)]
    if not parameters[1]:
        parameters.pop()
    epsilon = node.number("epsilon", 1e-5)
    imp.emit(node, "layer_norm", [x, *parameters], {"axes": axes, "epsilon": epsilon})
    if not any(imp.used(name) for name in node.outputs[1:]):
        return
    # The statistics are computed a second time. A kernel that returns them would not be faster.
    wide, _ = _widened(imp, node, x, node.integer("stash_type", 1))
    over: dict[str, Attr] = {"axes": axes, "keepdims": 1}
    if len(node.outputs) > 1:
        imp.emit(node, "reduce_mean", [wide], over, output=1)
    if len(node.outputs) > 2 and imp.used(node.outputs[2]):
        variance = _variance(imp, node, wide, axes)[1]
        raised = imp.step(
            node, "raised", "add", [variance, scalar(imp, node, "epsilon", epsilon, variance)]
        )
        deviation = imp.step(node, "deviation", "sqrt", [raised])
        imp.emit(node, "reciprocal", [deviation], output=2)


def _widened(imp: Importer, node: OnnxNode, x: str, stash: int) -> tuple[str, str]:
    """Return a value in float32 if its type is narrower, and the type to convert back to."""
    own = imp.type(x).dtype.name
    if stash == 1 and own in _HALVES:
        return imp.step(node, "wide", "cast", [x], {"to": "float32"}), own
    return x, ""


def _variance(imp: Importer, node: OnnxNode, x: str, axes: tuple[int, ...]) -> tuple[str, str]:
    """Return x without its mean, and the mean of its squares."""
    over: dict[str, Attr] = {"axes": axes, "keepdims": 1}
    mean = imp.step(node, "mean", "reduce_mean", [x], over)
    centered = imp.step(node, "centered", "sub", [x, mean])
    squares = imp.step(node, "squares", "mul", [centered, centered])
    return centered, imp.step(node, "variance", "reduce_mean", [squares], over)


def _rms_norm(imp: Importer, node: OnnxNode) -> None:
    """Source: ONNX, RMSNormalization: x / sqrt(mean(x * x) + epsilon) * scale."""
    x, scale = node.required(0), node.required(1)
    over: dict[str, Attr] = {"axes": _trailing(imp, node, x), "keepdims": 1}
    wide, own = _widened(imp, node, x, node.integer("stash_type", 1))
    squares = imp.step(node, "squares", "mul", [wide, wide])
    mean = imp.step(node, "mean", "reduce_mean", [squares], over)
    epsilon = scalar(imp, node, "epsilon", node.number("epsilon", 1e-5), wide)
    size = imp.step(node, "size", "sqrt", [imp.step(node, "raised", "add", [mean, epsilon])])
    normal = imp.step(node, "normal", "div", [wide, size])
    if own:
        normal = imp.step(node, "narrow", "cast", [normal], {"to": own})
    imp.emit(node, "mul", [normal, scale])


def _mean_variance_norm(imp: Importer, node: OnnxNode) -> None:
    x = node.required(0)
    rank = len(imp.shape(x))
    axes = tuple(sorted({imp.axis(node, a, rank) for a in node.integers("axes", (0, 2, 3))}))
    centered, variance = _variance(imp, node, x, axes)
    deviation = imp.step(node, "deviation", "sqrt", [variance])
    guard = scalar(imp, node, "guard", _VARIANCE_GUARD, deviation)
    imp.emit(node, "div", [centered, imp.step(node, "guarded", "add", [deviation, guard])])


def _lp_norm(imp: Importer, node: OnnxNode) -> None:
    """Source: ONNX, LpNormalization; the result of zeros is zero."""
    x, p = node.required(0), node.integer("p", 2)
    if p not in (1, 2):
        raise node.error("p of 1 or 2", p)
    axis = imp.axis(node, node.integer("axis", -1), len(imp.shape(x)))
    over: dict[str, Attr] = {"axes": (axis,), "keepdims": 1}
    # Squares and sums of float16 overflow, and it has no numbers as small as the least size.
    x, own = _widened(imp, node, x, 1)
    if p == 1:
        powers = imp.step(node, "powers", "abs", [x])
    else:
        powers = imp.step(node, "powers", "mul", [x, x])
    size = imp.step(node, "total", "reduce_sum", [powers], over)
    if p != 1:
        size = imp.step(node, "size", "sqrt", [size])
    # Kernels take squares of less than the smallest normal number for zero.
    is_rounded = p != 1 and imp.type(x).dtype.name != "float64"
    least = scalar(imp, node, "least", _TINY**0.5 if is_rounded else _TINY, x)
    operands = [x, imp.step(node, "positive", "maximum", [size, least])]
    if own:
        imp.emit(node, "cast", [imp.step(node, "normal", "div", operands)], {"to": own})
    else:
        imp.emit(node, "div", operands)


def _neutral(writer: Writer, node: Node, shape: tuple[int, ...]) -> str:
    dtype = writer.type(node.inputs[0]).dtype.numpy
    return writer.constant(node, "scale", np.ones(shape, dtype))


def _write_layer_norm(writer: Writer, node: Node) -> None:
    """Write a layer norm, between transposes if its axes are not the last ones."""
    x, inputs = node.inputs[0], [*node.inputs[1:], "", ""][:2]
    shape, axes = writer.shape(x), node.ints_attr("axes")
    rank = len(shape)
    order = (*(axis for axis in range(rank) if axis not in axes), *axes)
    inputs[0] = inputs[0] or _neutral(writer, node, tuple(shape[axis] for axis in axes))
    attrs: dict[str, OnnxValue] = {
        "axis": rank - len(axes), "epsilon": node.float_attr("epsilon", 1e-5),
    }  # fmt: skip
    if order == tuple(range(rank)):
        writer.emit(node, "LayerNormalization", [x, *inputs], attrs)
        return
    turned = writer.step(node, "turned", "Transpose", [x], {"perm": order})
    result = writer.step(node, "normal", "LayerNormalization", [turned, *inputs], attrs)
    back = tuple(order.index(axis) for axis in range(rank))
    writer.emit(node, "Transpose", [result], {"perm": back})


HANDLERS: dict[str, Handler] = {
    "LayerNormalization": _layer_norm,
    "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mean_variance_norm,
    "RMSNormalization": _rms_norm,
}

EXPORTERS: dict[str, Exporter] = {"layer_norm": _write_layer_norm}
