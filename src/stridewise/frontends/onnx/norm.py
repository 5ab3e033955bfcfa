"""Normalization: batch norm becomes one scale and one shift a channel; LRN stays."""

from __future__ import annotations

import numpy as np

from stridewise.frontends.onnx.importer import Handler, Importer
from stridewise.frontends.onnx.proto import OnnxNode

__all__ = ["HANDLERS"]

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


HANDLERS: dict[str, Handler] = {"BatchNormalization": _batch_norm, "LRN": _lrn}
