"""Elementwise operators of one operand.

All take the attributes ``alpha`` and ``beta``; the table says what they mean. Operators of two
operands are in ``elementwise.py``, functions without attributes in ``functions.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.element_types import FLOATS, NUMBERS, SIGNED, Family, computed, needs_type
from stridewise.ops.functions import exact_erf
from stridewise.ops.registry import Array, Operands, OpSpec, Types, array, register

__all__ = ["UNARY", "Unary"]


@dataclass(frozen=True, slots=True)
class Unary:
    """One elementwise function.

    Attributes:
        function: the NumPy definition, of x, alpha and beta.
        defaults: alpha and beta where the node has none.
        family: the element types that it takes.
    """

    function: Callable[[Array, float, float], Array]
    defaults: tuple[float, float] = (0.0, 0.0)
    family: Family = FLOATS


def _sigmoid(x: Array) -> Array:
    # exp of a non-positive number only, so that nothing overflows
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    return np.clip(alpha * x + beta, 0, 1)


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _gelu_tanh(x: Array) -> Array:
    """Source: ONNX, Gelu with approximate="tanh"."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


_SELU = (1.67326319217681884765625, 1.05070102214813232421875)
"""Alpha and gamma (source: ONNX, Selu)."""

UNARY: dict[str, Unary] = {
    "relu": Unary(lambda x, _a, _b: np.maximum(x, 0), family=SIGNED),
    "leaky_relu": Unary(lambda x, a, _b: np.where(x >= 0, x, a * x), (0.01, 0.0)),
    "clip": Unary(np.clip, (float("-inf"), float("inf"))),
    "sigmoid": Unary(lambda x, _a, _b: _sigmoid(x)),
    "tanh": Unary(lambda x, _a, _b: np.tanh(x)),
    "hard_sigmoid": Unary(_hard_sigmoid, (0.2, 0.5)),
    "hard_swish": Unary(lambda x, a, b: x * _hard_sigmoid(x, a, b), (1 / 6, 0.5)),
    "thresholded_relu": Unary(lambda x, a, _b: np.where(x > a, x, 0), (1.0, 0.0)),
    "shrink": Unary(lambda x, a, b: np.where(x < -a, x + b, np.where(x > a, x - b, 0)), (0.5, 0.0)),
    "mish": Unary(lambda x, _a, _b: x * np.tanh(np.logaddexp(x, 0))),
    "gelu_tanh": Unary(lambda x, _a, _b: _gelu_tanh(x)),
    "selu": Unary(lambda x, a, b: b * _elu(x, a), _SELU),
    "celu": Unary(lambda x, a, _b: a * _elu(x / a, 1.0), (1.0, 0.0)),
    "swish": Unary(lambda x, a, _b: x * _sigmoid(a * x), (1.0, 0.0)),
    "elu": Unary(lambda x, a, _b: _elu(x, a), (1.0, 0.0)),
    "gelu": Unary(lambda x, _a, _b: 0.5 * x * (1 + exact_erf(x / np.sqrt(2.0)))),
    "softplus": Unary(lambda x, _a, _b: np.logaddexp(x, 0)),
    "exp": Unary(lambda x, _a, _b: np.exp(x)),
    "log": Unary(lambda x, _a, _b: np.log(x)),
    "sqrt": Unary(lambda x, _a, _b: np.sqrt(x)),
    "abs": Unary(lambda x, _a, _b: np.abs(x), family=NUMBERS),
    "neg": Unary(lambda x, _a, _b: -x, family=SIGNED),
    "power": Unary(lambda x, a, _b: np.power(x, x.dtype.type(a)), (1.0, 0.0)),
    "reciprocal": Unary(lambda x, _a, _b: 1 / x),
    "round": Unary(lambda x, _a, _b: np.rint(x)),
}


def parameters(node: Node) -> tuple[float, float]:
    """Return alpha and beta of a node."""
    a, b = UNARY[node.op].defaults
    return node.float_attr("alpha", a), node.float_attr("beta", b)


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (needs_type(node, types, 0, UNARY[node.op].family),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    function, given = UNARY[node.op].function, parameters(node)

    def of(x: Array) -> Array:
        return function(x, *given)

    return computed(of, array(operands, 0))


for _name in UNARY:
    register(OpSpec(_name, (1, 1), _infer, _evaluate, "elementwise", post_op="eltwise"))
