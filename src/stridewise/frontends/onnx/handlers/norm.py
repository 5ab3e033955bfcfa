"""Batch norm, which becomes one scale and one shift per channel, and LRN."""

from __future__ import annotations

import dataclasses
from math import prod

import numpy as np

from stridewise.frontends.onnx.reading.importer import Handler, Importer, scalar
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, OnnxValue, Writer
from stridewise.graph import Attr, Node
from stridewise.ops.element_types import FLOATS
from stridewise.ops.norm import RUNNING
from stridewise.ops.registry import Array

__all__ = ["EXPORTERS", "HANDLERS"]

_TRAINING_MODE = 14
"""The first opset in which an attribute says whether a batch norm is in training mode."""

_STATISTICS = ("scale", "bias", "mean", "variance")


def _of_pixels(imp: Importer, node: OnnxNode, names: list[str]) -> None:
    """Normalize each channel of each pixel by statistics of its own, as up to opset 8."""
    imp.only_first_output(node, "export the model in evaluation mode")
    x, (scale, bias, mean, variance) = node.required(0), names
    epsilon = scalar(imp, node, "epsilon", node.number("epsilon", 1e-5), variance)
    raised = imp.step(node, "raised", "add", [variance, epsilon])
    factor = imp.step(node, "factor", "div", [scale, imp.step(node, "deviation", "sqrt", [raised])])
    shift = imp.step(node, "shift", "sub", [bias, imp.step(node, "moved", "mul", [mean, factor])])
    imp.emit(node, "add", [imp.step(node, "scaled", "mul", [x, factor]), shift])


def _batch_norm(imp: Importer, node: OnnxNode) -> None:
    """Source: ONNX, BatchNormalization: y = (x - mean) / sqrt(var + epsilon) * scale + bias."""
    x, spatial = node.required(0), node.integer("spatial", 1)
    channels = imp.shape(x)[1:2] if spatial else imp.shape(x)[1:]
    names = [node.required(index) for index in range(1, 5)]
    for role, name in zip(_STATISTICS, names, strict=True):
        if imp.shape(name) != channels:
            raise node.error(f"{role} of shape {list(channels)}", list(imp.shape(name)))
        if imp.type(name).dtype.name not in FLOATS:
            raise node.error(f"{role} of a float dtype", imp.type(name).dtype)
    if not spatial:
        _of_pixels(imp, node, names)
        return
    # Before opset 14, further outputs say that a node is in training mode.
    if node.integer("training_mode", 0) or (node.opset < _TRAINING_MODE and any(node.outputs[1:])):
        _trained(imp, node, names)
        return
    imp.only_first_output(node, "export the model in evaluation mode")
    known = [data for data in map(imp.const, names) if data is not None]
    pair = _folded(imp, node, known) if len(known) == len(names) else _computed(imp, node, names)
    imp.emit(node, "scale_shift", [x, *pair])


def _folded(imp: Importer, node: OnnxNode, parameters: list[Array]) -> tuple[str, str]:
    """Return scale and shift for constant statistics."""
    gamma, beta, mean, variance = (item.astype(np.float64) for item in parameters)
    positive = variance + node.number("epsilon", 1e-5)
    if not (positive > 0).all():
        raise node.error("variances of 0 or more", positive.min(), "the model is damaged")
    scale = gamma / np.sqrt(positive)
    dtype = imp.type(node.required(0)).dtype.numpy
    result = node.outputs[0]
    return (
        imp.constant(f"{result}/scale", scale.astype(dtype)),
        imp.constant(f"{result}/shift", (beta - mean * scale).astype(dtype)),
    )


def _computed(imp: Importer, node: OnnxNode, names: list[str]) -> tuple[str, str]:
    """Return scale and shift for statistics that are not constant."""
    dtypes = {imp.type(name).dtype.name for name in (node.required(0), *names)}
    if len(dtypes) > 1:
        raise node.error("computed statistics of the input's dtype", ", ".join(sorted(dtypes)))
    gamma, beta, mean, variance = names
    epsilon = scalar(imp, node, "epsilon", node.number("epsilon", 1e-5), variance)
    raised = imp.step(node, "raised", "add", [variance, epsilon])
    scale = imp.step(node, "scale", "div", [gamma, imp.step(node, "deviation", "sqrt", [raised])])
    moved = imp.step(node, "moved", "mul", [mean, scale])
    return scale, imp.step(node, "shift", "sub", [beta, moved])


def _trained(imp: Importer, node: OnnxNode, names: list[str]) -> None:
    """Normalize by the statistics of the batch; the running statistics are further outputs.

    Source: ONNX, BatchNormalization: running = running * momentum + current * (1 - momentum).
    """
    if imp.trains and not any(map(imp.used, node.outputs[1:])):
        _learned(imp, node, names)
        return
    x = node.required(0)
    over: dict[str, Attr] = {"axes": (0, *range(2, len(imp.shape(x)))), "keepdims": 1}
    row: dict[str, Attr] = {"shape": imp.shape(x)[1:2]}
    middle = imp.step(node, "middle", "reduce_mean", [x], over)
    centered = imp.step(node, "centered", "sub", [x, middle])
    squares = imp.step(node, "squares", "mul", [centered, centered])
    spread = imp.step(node, "spread", "reduce_mean", [squares], over)
    mean = imp.step(node, "mean", "reshape", [middle], row)
    variance = imp.step(node, "variance", "reshape", [spread], row)
    pair = _computed(imp, node, [*names[:2], mean, variance])
    imp.emit(node, "scale_shift", [x, *pair])
    momentum = node.number("momentum", 0.9)
    if any(map(imp.used, node.outputs[3:])):
        raise node.error("no reader of the statistics of the batch", "one", "export with opset 14")
    for output, (running, current) in enumerate(((names[2], mean), (names[3], variance)), start=1):
        if not imp.used(node.outputs[output] if output < len(node.outputs) else ""):
            continue
        parts = [
            imp.step(node, f"part{output}", "mul", [name, scalar(imp, node, "part", part, name)])
            for name, part in ((running, momentum), (current, 1 - momentum))
        ]
        imp.emit(node, "add", parts, output=output)


def _learned(imp: Importer, node: OnnxNode, names: list[str]) -> None:
    """Add a batch norm whose running statistics, if they are constants, are states.

    Several nodes may have the same ones, such as a module that is used twice. Computed statistics
    are read by nothing, and are not kept.
    """
    epsilon, x = node.number("epsilon", 1e-5), node.required(0)
    states = [state for state in map(imp.state, names[2:]) if state is not None]
    attrs: dict[str, Attr] = {"epsilon": epsilon}
    if len(states) == len(names[2:]):
        attrs[RUNNING] = tuple(states)
    alone = dataclasses.replace(node, outputs=node.outputs[:1])
    found = imp.emit_all(alone, "batch_norm", [x, *names[:2]], attrs, 3)
    if RUNNING in attrs:
        statistics = [imp.materialize(name) for name in found[1:]]
        count = prod(imp.shape(x)) // max(imp.shape(x)[1], 1)
        imp.builder.track(states, statistics, 1 - node.number("momentum", 0.9), count)


def _lrn(imp: Importer, node: OnnxNode) -> None:
    attrs = {
        "size": node.integer("size"),
        "alpha": node.number("alpha", 1e-4),
        "beta": node.number("beta", 0.75),
        "bias": node.number("bias", 1.0),
    }
    imp.emit(node, "lrn", [node.required(0)], attrs)


def _write_scale_shift(writer: Writer, node: Node) -> None:
    """Write a batch norm without statistics, which is a scale and a shift.

    Parameters that are not constant become a product and a sum.
    """
    x, scale, shift = node.inputs
    channels = writer.shape(scale)
    floats = writer.type(x).dtype.name in ("float16", "bfloat16", "float32", "float64")
    if floats and writer.is_constant(scale) and writer.is_constant(shift):
        dtype = writer.type(x).dtype.numpy
        mean = writer.constant(node, "mean", np.zeros(channels, dtype))
        variance = writer.constant(node, "variance", np.ones(channels, dtype))
        inputs = [x, scale, shift, mean, variance]
        writer.emit(node, "BatchNormalization", inputs, {"epsilon": 0.0})
        return
    row = (*channels, *(1,) * (len(writer.shape(x)) - 2))
    shape = writer.integers(node, "row", row)
    scale = writer.step(node, "scale", "Reshape", [scale, shape])
    shift = writer.step(node, "shift", "Reshape", [shift, shape])
    writer.emit(node, "Add", [writer.step(node, "scaled", "Mul", [x, scale]), shift])


def _write_lrn(writer: Writer, node: Node) -> None:
    defaults = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}
    attrs: dict[str, OnnxValue] = {
        key: node.float_attr(key, default) for key, default in defaults.items()
    }
    writer.emit(node, "LRN", node.inputs, {"size": node.int_attr("size"), **attrs})


HANDLERS: dict[str, Handler] = {"BatchNormalization": _batch_norm, "LRN": _lrn}

EXPORTERS: dict[str, Exporter] = {"lrn": _write_lrn, "scale_shift": _write_scale_shift}
