"""Elementwise functions of one operand."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import inf

import numpy as np

from stridewise.frontends.onnx.reading.importer import Handler, Importer, scalar
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Attr, Node
from stridewise.ops.activation import UNARY
from stridewise.ops.element_types import FLOATS

__all__ = ["EXPORTERS", "HANDLERS"]

_INPUT_BOUNDS = 11
"""The first opset in which the bounds of Clip are inputs."""


def _plain(imp: Importer, node: OnnxNode, op: str) -> None:
    imp.emit(node, op, [node.required(0)])


def _with(imp: Importer, node: OnnxNode, op: str, defaults: dict[str, float]) -> None:
    """Emit an operator whose attributes have the names that ONNX gives them."""
    attrs: dict[str, Attr] = {key: node.number(key, default) for key, default in defaults.items()}
    imp.emit(node, op, [node.required(0)], attrs)


def _hard_swish(imp: Importer, node: OnnxNode) -> None:
    imp.emit(node, "hard_swish", [node.required(0)], {"alpha": 1 / 6, "beta": 0.5})


def _gelu(imp: Importer, node: OnnxNode) -> None:
    mode = node.text("approximate", "none")
    if mode not in _GELUS:
        raise node.error(f"approximate one of {', '.join(_GELUS)}", repr(mode))
    imp.emit(node, _GELUS[mode], [node.required(0)])


_GELUS = {"none": "gelu", "tanh": "gelu_tanh"}
_SELU = UNARY["selu"].defaults


def _renamed(imp: Importer, node: OnnxNode, op: str, defaults: dict[str, float]) -> None:
    """Emit an operator with alpha and beta, given their ONNX names in this order."""
    numbers = (node.number(key, default) for key, default in defaults.items())
    imp.emit(node, op, [node.required(0)], dict(zip(("alpha", "beta"), numbers, strict=False)))


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


def _write(
    writer: Writer,
    node: Node,
    op_type: str,
    defaults: Mapping[str, float] | None = None,
    since: int = 0,
) -> None:
    """Write an operator whose ONNX attributes have the same names, if it has any."""
    writer.needs(since)
    attrs = {key: node.float_attr(key, default) for key, default in (defaults or {}).items()}
    writer.emit(node, op_type, node.inputs, attrs)


def _write_renamed(writer: Writer, node: Node, op_type: str, defaults: Mapping[str, float]) -> None:
    """Write an operator with alpha and beta, given their ONNX names in this order."""
    pairs = zip(defaults.items(), ("alpha", "beta"), strict=False)
    attrs = {theirs: node.float_attr(ours, default) for (theirs, default), ours in pairs}
    writer.emit(node, op_type, node.inputs, attrs)


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


def _write_swish(writer: Writer, node: Node) -> None:
    """Write a product with a sigmoid: the opset that is written has no operator Swish."""
    (x,) = node.inputs
    alpha = node.float_attr("alpha", 1.0)
    scaled = x
    if alpha != 1:
        scaled = writer.step(node, "scaled", "Mul", [x, writer.scalar(node, "alpha", alpha)])
    writer.emit(node, "Mul", [x, writer.step(node, "gate", "Sigmoid", [scaled])])


HANDLERS: dict[str, Handler] = {
    "Abs": partial(_plain, op="abs"),
    "Celu": partial(_with, op="celu", defaults={"alpha": 1.0}),
    "Clip": _clip,
    "Elu": partial(_with, op="elu", defaults={"alpha": 1.0}),
    "Exp": partial(_plain, op="exp"),
    "Gelu": _gelu,
    "HardSigmoid": partial(_with, op="hard_sigmoid", defaults={"alpha": 0.2, "beta": 0.5}),
    "HardSwish": _hard_swish,
    "LeakyRelu": partial(_with, op="leaky_relu", defaults={"alpha": 0.01}),
    "Log": partial(_plain, op="log"),
    "Mish": partial(_plain, op="mish"),
    "Neg": partial(_plain, op="neg"),
    "Reciprocal": partial(_plain, op="reciprocal"),
    "Relu": partial(_plain, op="relu"),
    "Selu": partial(_renamed, op="selu", defaults={"alpha": _SELU[0], "gamma": _SELU[1]}),
    "Shrink": partial(_renamed, op="shrink", defaults={"lambd": 0.5, "bias": 0.0}),
    "Sigmoid": partial(_plain, op="sigmoid"),
    "Softplus": partial(_plain, op="softplus"),
    "Softsign": _softsign,
    "Sqrt": partial(_plain, op="sqrt"),
    "Swish": partial(_with, op="swish", defaults={"alpha": 1.0}),
    "Tanh": partial(_plain, op="tanh"),
    "ThresholdedRelu": partial(_with, op="thresholded_relu", defaults={"alpha": 1.0}),
}

EXPORTERS: dict[str, Exporter] = {
    "abs": partial(_write, op_type="Abs"),
    "celu": partial(_write, op_type="Celu", defaults={"alpha": 1.0}),
    "clip": _write_clip,
    "elu": partial(_write, op_type="Elu", defaults={"alpha": 1.0}),
    "exp": partial(_write, op_type="Exp"),
    "gelu": _write_gelu,
    "gelu_tanh": _write_gelu,
    "hard_sigmoid": partial(_write, op_type="HardSigmoid", defaults={"alpha": 0.2, "beta": 0.5}),
    "hard_swish": _write_hard_swish,
    "leaky_relu": partial(_write, op_type="LeakyRelu", defaults={"alpha": 0.01}),
    "log": partial(_write, op_type="Log"),
    "mish": partial(_write, op_type="Mish", since=18),
    "neg": partial(_write, op_type="Neg"),
    "reciprocal": partial(_write, op_type="Reciprocal"),
    "relu": partial(_write, op_type="Relu"),
    "selu": partial(
        _write_renamed, op_type="Selu", defaults={"alpha": _SELU[0], "gamma": _SELU[1]}
    ),
    "shrink": partial(_write_renamed, op_type="Shrink", defaults={"lambd": 0.5, "bias": 0.0}),
    "sigmoid": partial(_write, op_type="Sigmoid"),
    "softplus": partial(_write, op_type="Softplus"),
    "sqrt": partial(_write, op_type="Sqrt"),
    "swish": _write_swish,
    "tanh": partial(_write, op_type="Tanh"),
    "thresholded_relu": partial(_write, op_type="ThresholdedRelu", defaults={"alpha": 1.0}),
}
