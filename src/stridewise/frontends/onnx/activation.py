"""Elementwise functions of one operand."""

from __future__ import annotations

from functools import partial
from math import inf

from stridewise.frontends.onnx.importer import Handler, Importer
from stridewise.frontends.onnx.proto import OnnxNode
from stridewise.graph import Attr

__all__ = ["HANDLERS"]

_INPUT_BOUNDS = 11
"""Since this opset, Clip has its bounds as inputs."""


def _plain(imp: Importer, node: OnnxNode, op: str) -> None:
    imp.emit(node, op, [node.required(0)])


def _with(imp: Importer, node: OnnxNode, op: str, defaults: dict[str, float]) -> None:
    """Emit an operator that has ONNX's parameters under the same names."""
    attrs: dict[str, Attr] = {key: node.number(key, default) for key, default in defaults.items()}
    imp.emit(node, op, [node.required(0)], attrs)


def _hard_swish(imp: Importer, node: OnnxNode) -> None:
    imp.emit(node, "hard_swish", [node.required(0)], {"alpha": 1 / 6, "beta": 0.5})


def _gelu(imp: Importer, node: OnnxNode) -> None:
    mode = node.text("approximate", "none")
    if mode != "none":
        raise node.error("approximate='none'", repr(mode), "export the model with the exact GELU")
    imp.emit(node, "gelu", [node.required(0)])


def _bound(imp: Importer, node: OnnxNode, index: int, absent: float) -> float | None:
    """Return a bound of Clip, None where it is computed from the inputs of the model."""
    if not node.input(index):
        return absent
    data = imp.const(node.input(index))
    return None if data is None else float(data.reshape(()))


def _clip(imp: Importer, node: OnnxNode) -> None:
    x = node.required(0)
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
        # A bound that is computed takes an operator of two operands.
        above = imp.step(node, "maximum", "maximum", [x, node.input(1)])
        imp.emit(node, "minimum", [above, node.input(2)])


HANDLERS: dict[str, Handler] = {
    "Abs": partial(_plain, op="abs"),
    "Clip": _clip,
    "Elu": partial(_with, op="elu", defaults={"alpha": 1.0}),
    "Exp": partial(_plain, op="exp"),
    "Gelu": _gelu,
    "HardSigmoid": partial(_with, op="hard_sigmoid", defaults={"alpha": 0.2, "beta": 0.5}),
    "HardSwish": _hard_swish,
    "LeakyRelu": partial(_with, op="leaky_relu", defaults={"alpha": 0.01}),
    "Log": partial(_plain, op="log"),
    "Neg": partial(_plain, op="neg"),
    "Reciprocal": partial(_plain, op="reciprocal"),
    "Relu": partial(_plain, op="relu"),
    "Sigmoid": partial(_plain, op="sigmoid"),
    "Softplus": partial(_plain, op="softplus"),
    "Sqrt": partial(_plain, op="sqrt"),
    "Swish": partial(_with, op="swish", defaults={"alpha": 1.0}),
    "Tanh": partial(_plain, op="tanh"),
}
