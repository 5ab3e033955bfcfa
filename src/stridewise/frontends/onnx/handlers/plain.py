"""Operators with the same operands and results in ONNX, and float attributes at most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import partial
from types import MappingProxyType

from stridewise.classes import dataclass
from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Node
from stridewise.ops.activation import UNARY

__all__ = ["EXPORTERS", "HANDLERS", "Plain", "emit", "write"]

_SELU = UNARY["selu"].defaults


@dataclass(frozen=True, slots=True)
class Plain:
    """An operator, and its form in ONNX.

    Attributes:
        op: the operator.
        operands: how many it has.
        attrs: ONNX's names and defaults of its attributes ``alpha`` and ``beta``, in this order.
        since: the first opset of the ONNX operator, if it is later than those that are written.
    """

    op: str
    operands: int = 1
    attrs: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    since: int = 0


_OPERATORS = {
    "Abs": Plain("abs"),
    "Acos": Plain("acos"),
    "Acosh": Plain("acosh"),
    "Add": Plain("add", 2),
    "And": Plain("logical_and", 2),
    "Asin": Plain("asin"),
    "Asinh": Plain("asinh"),
    "Atan": Plain("atan"),
    "Atanh": Plain("atanh"),
    "BitwiseAnd": Plain("bitwise_and", 2, since=18),
    "BitwiseNot": Plain("bitwise_not", since=18),
    "BitwiseOr": Plain("bitwise_or", 2, since=18),
    "BitwiseXor": Plain("bitwise_xor", 2, since=18),
    "Ceil": Plain("ceil"),
    "Celu": Plain("celu", attrs={"alpha": 1.0}),
    "Cos": Plain("cos"),
    "Cosh": Plain("cosh"),
    "Det": Plain("det"),
    "Div": Plain("div", 2),
    "Elu": Plain("elu", attrs={"alpha": 1.0}),
    "Equal": Plain("equal", 2),
    "Erf": Plain("erf"),
    "Exp": Plain("exp"),
    "Floor": Plain("floor"),
    "Greater": Plain("greater", 2),
    "GreaterOrEqual": Plain("greater_equal", 2),
    "HardSigmoid": Plain("hard_sigmoid", attrs={"alpha": 0.2, "beta": 0.5}),
    "LeakyRelu": Plain("leaky_relu", attrs={"alpha": 0.01}),
    "Less": Plain("less", 2),
    "LessOrEqual": Plain("less_equal", 2),
    "Log": Plain("log"),
    "Mish": Plain("mish", since=18),
    "Mul": Plain("mul", 2),
    "Neg": Plain("neg"),
    "Not": Plain("logical_not"),
    "Or": Plain("logical_or", 2),
    "Reciprocal": Plain("reciprocal"),
    "Relu": Plain("relu"),
    "Round": Plain("round"),
    "Selu": Plain("selu", attrs={"alpha": _SELU[0], "gamma": _SELU[1]}),
    "Shrink": Plain("shrink", attrs={"lambd": 0.5, "bias": 0.0}),
    "Sigmoid": Plain("sigmoid"),
    "Sign": Plain("sign"),
    "Sin": Plain("sin"),
    "Sinh": Plain("sinh"),
    "Softplus": Plain("softplus"),
    "Sqrt": Plain("sqrt"),
    "Sub": Plain("sub", 2),
    "Tan": Plain("tan"),
    "Tanh": Plain("tanh"),
    "ThresholdedRelu": Plain("thresholded_relu", attrs={"alpha": 1.0}),
    "Where": Plain("where", 3),
    "Xor": Plain("logical_xor", 2),
}


def emit(imp: Importer, node: OnnxNode, form: Plain) -> None:
    """Emit the operator of an ONNX node."""
    numbers = (node.number(key, default) for key, default in form.attrs.items())
    operands = [node.required(index) for index in range(form.operands)]
    imp.emit(node, form.op, operands, dict(zip(("alpha", "beta"), numbers, strict=False)))


def write(writer: Writer, node: Node, op_type: str, form: Plain) -> None:
    """Write the ONNX node of an operator."""
    writer.needs(form.since)
    pairs = zip(form.attrs.items(), ("alpha", "beta"), strict=False)
    attrs = {theirs: node.float_attr(name, default) for (theirs, default), name in pairs}
    writer.emit(node, op_type, node.inputs, attrs)


HANDLERS: dict[str, Handler] = {name: partial(emit, form=form) for name, form in _OPERATORS.items()}

EXPORTERS: dict[str, Exporter] = {
    form.op: partial(write, op_type=name, form=form) for name, form in _OPERATORS.items()
}
