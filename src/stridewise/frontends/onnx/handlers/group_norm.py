"""Normalization of groups of channels, image by image; a group may be a single channel."""

from __future__ import annotations

import numpy as np

from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, OnnxValue, Writer
from stridewise.graph import Node

__all__ = ["EXPORTERS", "HANDLERS"]

_PER_CHANNEL = 21
"""The first opset in which scale and bias of GroupNormalization have a number per channel."""


def _instance_norm(imp: Importer, node: OnnxNode) -> None:
    inputs = [node.required(index) for index in range(3)]
    attrs = {"groups": imp.shape(inputs[0])[1], "epsilon": node.number("epsilon", 1e-5)}
    imp.emit(node, "group_norm", inputs, attrs)


def _group_norm(imp: Importer, node: OnnxNode) -> None:
    inputs = [node.required(index) for index in range(3)]
    groups = node.integer("num_groups")
    if node.opset < _PER_CHANNEL:
        channels = imp.shape(inputs[0])[1]
        for index, role in ((1, "scale"), (2, "bias")):
            data = imp.require_const(node, index, role)
            if data.shape != (groups,) or channels % groups:
                raise node.error(f"a {role} for each of {groups} groups", list(data.shape))
            row = np.repeat(data, channels // groups)
            inputs[index] = imp.constant(f"{node.outputs[0]}/{role}", row)
    attrs = {"groups": groups, "epsilon": node.number("epsilon", 1e-5)}
    imp.emit(node, "group_norm", inputs, attrs)


def _write_group_norm(writer: Writer, node: Node) -> None:
    """Write InstanceNormalization if every channel is a group.

    Larger groups become channels of a reshaped image, as in PyTorch's exporter. The opset that is
    written is older than 21, the first in which GroupNormalization has one parameter per channel.
    """
    x, inputs = node.inputs[0], [*node.inputs[1:], "", ""][:2]
    shape, groups = writer.shape(x), node.int_attr("groups")
    attrs: dict[str, OnnxValue] = {"epsilon": node.float_attr("epsilon", 1e-5)}
    if groups == shape[1] and shape[2:]:
        whole = [inputs[index] or _row(writer, node, shape[1], index) for index in (0, 1)]
        writer.emit(node, "InstanceNormalization", [x, *whole], attrs)
        return
    flat = writer.integers(node, "groups", (shape[0], groups, -1))
    rows = [_row(writer, node, groups, index) for index in (0, 1)]
    y = writer.step(node, "narrow", "Reshape", [x, flat])
    y = writer.step(node, "normal", "InstanceNormalization", [y, *rows], attrs)
    steps = [("Reshape", writer.integers(node, "shape", shape))]
    steps += [
        (op_type, _column(writer, node, name, len(shape)))
        for op_type, name in zip(("Mul", "Add"), inputs, strict=True)
        if name
    ]
    *first, (last, final) = steps
    for op_type, operand in first:
        y = writer.step(node, op_type.lower(), op_type, [y, operand])
    writer.emit(node, last, [y, final])


def _row(writer: Writer, node: Node, count: int, index: int) -> str:
    """Return a neutral scale (index 0) or shift (index 1)."""
    dtype = writer.type(node.inputs[0]).dtype.numpy
    return writer.constant(node, ("ones", "zeros")[index], np.full(count, 1 - index, dtype))


def _column(writer: Writer, node: Node, name: str, rank: int) -> str:
    """Return one number per channel in a shape that broadcasts to images."""
    shape = (*writer.shape(name), *(1,) * (rank - 2))
    if writer.is_constant(name):
        data = writer.graph.constants[name].array
        return writer.constant(node, "column", data.reshape(shape))
    return writer.step(
        node, "column", "Reshape", [name, writer.integers(node, "column_shape", shape)]
    )


HANDLERS: dict[str, Handler] = {
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
}

EXPORTERS: dict[str, Exporter] = {"group_norm": _write_group_norm}
