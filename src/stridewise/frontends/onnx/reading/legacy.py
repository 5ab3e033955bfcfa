"""Opset 6: conversion of nodes whose meaning changed in opset 7.

Source: ONNX, Operators and Changelog, the operators with versions 1 or 6 and 7. All other operators
have the same meaning in opsets 6 and 7.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from onnx import NodeProto

from stridewise.frontends.onnx.reading.importer import Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode

__all__ = ["modern"]

_CHANGED_AT = 7

Change = Callable[[Importer, OnnxNode], OnnxNode]


def _changed(node: OnnxNode, without: str, *inputs: str) -> OnnxNode:
    """Return a node of opset 7 without some attributes, and with new inputs if they are given."""
    dropped = without.split()
    proto = NodeProto()
    proto.CopyFrom(node.proto)
    kept = [item for item in node.proto.attribute if item.name not in dropped]
    del proto.attribute[:]
    proto.attribute.extend(kept)
    names = inputs or node.inputs
    del proto.input[:]
    proto.input.extend(names)
    attrs = {key: value for key, value in node.attrs.items() if key not in dropped}
    return dataclasses.replace(node, inputs=names, attrs=attrs, opset=_CHANGED_AT, proto=proto)


def _spread(imp: Importer, node: OnnxNode, name: str, extents: tuple[int, ...]) -> str:
    return imp.step(node, "aligned", "reshape", [name], {"shape": extents})


def _binary(imp: Importer, node: OnnxNode) -> OnnxNode:
    """With ``broadcast``, align the second operand with axes of the first from ``axis`` on.

    Without ``axis``, align it with the last axes, as in NumPy.
    """
    a, b = node.required(0), node.required(1)
    shape, small = imp.shape(a), imp.shape(b)
    if not node.integer("broadcast", 0):
        if shape != small:
            raise node.error("operands of one shape without broadcast=1", f"{shape} and {small}")
        return _changed(node, "axis broadcast")
    last = len(shape) - len(small)
    axis = node.integer("axis", last)
    if not 0 <= axis <= last:
        raise node.error(f"an axis from 0 to {last}", axis)
    behind = last - axis
    other = _spread(imp, node, b, (*small, *(1,) * behind)) if behind else b
    return _changed(node, "axis broadcast", a, other)


def _slopes(imp: Importer, node: OnnxNode) -> OnnxNode:
    """A single slope is shared; otherwise there is one per channel."""
    x, slope = node.required(0), node.required(1)
    shape, given = imp.shape(x), imp.shape(slope)
    if len(given) != 1 or given == (1,) or len(shape) < 2:
        return _changed(node, "")
    if given[0] != shape[1]:
        raise node.error(f"one slope, or {shape[1]}", given[0])
    return _changed(node, "", x, _spread(imp, node, slope, (*given, *(1,) * (len(shape) - 2))))


def _evaluating(imp: Importer, node: OnnxNode) -> OnnxNode:
    del imp
    if not node.integer("is_test", 0):
        raise node.unsupported("is_test=1", "0", "export the model in evaluation mode", "training")
    return _changed(node, "is_test")


def _product(imp: Importer, node: OnnxNode) -> OnnxNode:
    del imp
    return _changed(node, "broadcast")


def _refused(imp: Importer, node: OnnxNode) -> OnnxNode:
    del imp
    raise node.unsupported(
        f"{node.op_type} of opset {_CHANGED_AT} or later",
        f"opset {node.opset}",
        "export the model with another opset",
        "its form is too old",
    )


_CHANGES: dict[str, Change] = {
    **dict.fromkeys(
        ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"), _binary
    ),
    **dict.fromkeys(("BatchNormalization", "Dropout"), _evaluating),
    **dict.fromkeys(("GRU", "LSTM", "RNN", "Upsample"), _refused),
    "Gemm": _product,
    "PRelu": _slopes,
}


def modern(imp: Importer, node: OnnxNode) -> OnnxNode:
    """Return a node of opset 6 as one of opset 7, other nodes as they are.

    Raises:
        UnsupportedError: its form is too old.
        ModelError: it does not fit its operands.
    """
    change = _CHANGES.get(node.op_type) if node.domain == "" else None
    return change(imp, node) if change and node.opset < _CHANGED_AT else node
