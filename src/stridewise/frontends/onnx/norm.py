"""Normalization: batch norm becomes one scale and one shift a channel; LRN stays."""

from __future__ import annotations

import numpy as np

from stridewise.frontends.onnx.importer import Handler, Importer
from stridewise.frontends.onnx.proto import OnnxNode
from stridewise.frontends.onnx.writer import Exporter, OnnxValue, Writer
from stridewise.graph import Node

__all__ = ["EXPORTERS", "HANDLERS"]

_STATISTICS = ("scale", "bias", "mean", "variance")


def _batch_norm(imp: Importer, node: OnnxNode) -> None:
    """Source: ONNX, BatchNormalization: y = (x - mean) / sqrt(var + epsilon) * scale + bias."""
    inference = "export the model in evaluation mode"
    if node.integer("training_mode", 0):
        raise node.error("training_mode=0", 1, inference)
    if not node.integer("spatial", 1):
        raise node.error("spatial=1", 0, "statistics of every pixel are not supported")
    imp.only_first_output(node, inference)
    x = node.required(0)
    channels = imp.shape(x)[1:2]
    parameters = [
        imp.require_const(node, index, name) for index, name in enumerate(_STATISTICS, start=1)
    ]
    for name, parameter in zip(_STATISTICS, parameters, strict=True):
        if parameter.shape != channels:
            raise node.error(f"{name} of shape {list(channels)}", list(parameter.shape))
    gamma, beta, mean, variance = (item.astype(np.float64) for item in parameters)
    positive = variance + node.number("epsilon", 1e-5)
    if not (positive > 0).all():
        raise node.error("variances of 0 or more", positive.min(), "the model is damaged")
    scale = gamma / np.sqrt(positive)
    dtype = imp.type(x).dtype.numpy
    result = node.outputs[0]
    scale_name = imp.constant(f"{result}/scale", scale.astype(dtype))
    shift_name = imp.constant(f"{result}/shift", (beta - mean * scale).astype(dtype))
    imp.emit(node, "scale_shift", [x, scale_name, shift_name])


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

    Parameters that are computed are no business of a batch norm; they take a product and a sum.
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
