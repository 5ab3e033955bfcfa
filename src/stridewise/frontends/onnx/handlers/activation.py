"""Activation functions whose ONNX operator differs from that of Stridewise."""

from __future__ import annotations

from functools import partial
from math import inf

import numpy as np

from stridewise.frontends.onnx.handlers.plain import Plain, emit
from stridewise.frontends.onnx.reading.importer import Handler, Importer, scalar
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Node
from stridewise.ops.element_types import FLOATS

__all__ = ["EXPORTERS", "HANDLERS"]

_INPUT_BOUNDS = 11
"""The first opset in which the bounds of Clip are inputs."""


def _hard_swish(imp: Importer, node: OnnxNode) -> None:
    imp.emit(node, "hard_swish", [node.required(0)], {"alpha": 1 / 6, "beta": 0.5})


def _gelu(imp: Importer, node: OnnxNode) -> None:
    mode = node.text("approximate", "none")
    if mode not in _GELUS:
        raise node.error(f"approximate one of {', '.join(_GELUS)}", repr(mode))
    imp.emit(node, _GELUS[mode], [node.required(0)])


_GELUS = {"none": "gelu", "tanh": "gelu_tanh"}


def _softsign(imp: Importer, node: OnnxNode) -> None:
    """Source: ONNX, Softsign: x / (1 + |x|)."""
    x = node.required(0)
    size = imp.step(node, "size", "abs", [x])
    raised = imp.step(node, "raised", "add", [size, scalar(imp, node, "one", 1.0, x)])
    imp.emit(node, "div", [x, raised])


def _bound(imp: Importer, node: OnnxNode, index: int, absent: float) -> float | None:
    """Return a bound of Clip, None where it is computed from the inputs of the model."""
    if not node.input(index):
        return absent
    data = imp.const(node.input(index))
    return None if data is None else float(data.reshape(()))


def _clip_integers(imp: Importer, node: OnnxNode, x: str) -> None:
    """Clip with bounds as operands, as floats cannot represent all integers."""
    low, high = node.input(1), node.input(2)
    if low and high:
        x = imp.step(node, "maximum", "maximum", [x, low])
    if high:
        imp.emit(node, "minimum", [x, high])
    elif low:
        imp.emit(node, "maximum", [x, low])
    else:
        imp.alias(node.outputs[0], x)


def _clip(imp: Importer, node: OnnxNode) -> None:
    x = node.required(0)
    if imp.type(x).dtype.name not in FLOATS:
        _clip_integers(imp, node, x)
        return
    if node.opset < _INPUT_BOUNDS:
        low, high = node.number("min", -inf), node.number("max", inf)
        imp.emit(node, "clip", [x], {"alpha": low, "beta": high})
        return
    low, high = _bound(imp, node, 1, -inf), _bound(imp, node, 2, inf)
    if low is not None and high is not None:
        imp.emit(node, "clip", [x], {"alpha": low, "beta": high})
    elif low is None and high == inf:
        imp.emit(node, "maximum", [x, node.input(1)])
    elif high is None and low == -inf:
        imp.emit(node, "minimum", [x, node.input(2)])
    else:
        # A computed bound is an operand, so that Clip becomes a maximum and a minimum.
        above = imp.step(node, "maximum", "maximum", [x, node.input(1)])
        imp.emit(node, "minimum", [above, node.input(2)])


def _write_gelu(writer: Writer, node: Node) -> None:
    writer.needs(20)
    mode = next(mode for mode, op in _GELUS.items() if op == node.op)
    writer.emit(node, "Gelu", node.inputs, {"approximate": mode} if mode != "none" else {})


def _write_clip(writer: Writer, node: Node) -> None:
    low, high = node.float_attr("alpha", -inf), node.float_attr("beta", inf)
    bounds = [
        writer.scalar(node, role, bound) if bound != absent else ""
        for role, bound, absent in (("min", low, -inf), ("max", high, inf))
    ]
    writer.emit(node, "Clip", [*node.inputs, *bounds])


def _write_hard_swish(writer: Writer, node: Node) -> None:
    """Write HardSwish, whose parameters are fixed, or the equivalent product."""
    (x,) = node.inputs
    alpha, beta = node.float_attr("alpha", 1 / 6), node.float_attr("beta", 0.5)
    if (np.float32(alpha), beta) == (np.float32(1 / 6), 0.5):
        writer.emit(node, "HardSwish", [x])
        return
    gate = writer.step(node, "gate", "HardSigmoid", [x], {"alpha": alpha, "beta": beta})
    writer.emit(node, "Mul", [x, gate])


def _write_linear(writer: Writer, node: Node) -> None:
    """Write a product and a sum with numbers, each only where it changes something."""
    (x,) = node.inputs
    alpha, beta = node.float_attr("alpha", 1.0), node.float_attr("beta", 0.0)
    if beta == 0:
        writer.emit(node, "Mul", [x, writer.scalar(node, "alpha", alpha)])
        return
    scaled = x
    if alpha != 1:
        scaled = writer.step(node, "scaled", "Mul", [x, writer.scalar(node, "alpha", alpha)])
    writer.emit(node, "Add", [scaled, writer.scalar(node, "beta", beta)])


def _write_swish(writer: Writer, node: Node) -> None:
    """Write a product with a sigmoid: the opset that is written has no operator Swish."""
    (x,) = node.inputs
    alpha = node.float_attr("alpha", 1.0)
    scaled = x
    if alpha != 1:
        scaled = writer.step(node, "scaled", "Mul", [x, writer.scalar(node, "alpha", alpha)])
    writer.emit(node, "Mul", [x, writer.step(node, "gate", "Sigmoid", [scaled])])


HANDLERS: dict[str, Handler] = {
    "Clip": _clip,
    "Gelu": _gelu,
    "HardSwish": _hard_swish,
    "Softsign": _softsign,
    "Swish": partial(emit, form=Plain("swish", attrs={"alpha": 1.0})),
}

EXPORTERS: dict[str, Exporter] = {
    "clip": _write_clip,
    "gelu": _write_gelu,
    "gelu_tanh": _write_gelu,
    "hard_swish": _write_hard_swish,
    "linear": _write_linear,
    "swish": _write_swish,
}
