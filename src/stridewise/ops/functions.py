"""Elementwise functions of one operand without attributes.

Those with the attributes ``alpha`` and ``beta`` are in ``activation.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf, pi, sqrt

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.backward import Derivative, elementwise_rule
from stridewise.ops.element_types import FLOATS, NUMBERS, Family, computed, needs_type
from stridewise.ops.registry import Array, Operands, OpSpec, Types, array, register

__all__ = ["FUNCTIONS", "exact_erf"]


def exact_erf(x: Array) -> Array:
    """Return the error function in float64.

    NumPy has none, and the usual approximations are too coarse for a reference.
    """
    return np.vectorize(erf, otypes=[np.float64])(x.astype(np.float64))


FUNCTIONS: dict[str, tuple[Callable[[Array], Array], Family]] = {
    "acos": (np.arccos, FLOATS),
    "acosh": (np.arccosh, FLOATS),
    "asin": (np.arcsin, FLOATS),
    "asinh": (np.arcsinh, FLOATS),
    "atan": (np.arctan, FLOATS),
    "atanh": (np.arctanh, FLOATS),
    "ceil": (np.ceil, FLOATS),
    "cos": (np.cos, FLOATS),
    "cosh": (np.cosh, FLOATS),
    "erf": (exact_erf, NUMBERS),
    "floor": (np.floor, FLOATS),
    "sign": (np.sign, NUMBERS),
    "sin": (np.sin, FLOATS),
    "sinh": (np.sinh, FLOATS),
    "tan": (np.tan, FLOATS),
}


DERIVATIVES: dict[str, Derivative] = {
    "acos": lambda x, _y, _a, _b: -1.0 / (1.0 - x * x).of("sqrt"),
    "acosh": lambda x, _y, _a, _b: 1.0 / (x * x - 1.0).of("sqrt"),
    "asin": lambda x, _y, _a, _b: 1.0 / (1.0 - x * x).of("sqrt"),
    "asinh": lambda x, _y, _a, _b: 1.0 / (x * x + 1.0).of("sqrt"),
    "atan": lambda x, _y, _a, _b: 1.0 / (x * x + 1.0),
    "atanh": lambda x, _y, _a, _b: 1.0 / (1.0 - x * x),
    "ceil": lambda x, _y, _a, _b: x.like(0.0),
    "cos": lambda x, _y, _a, _b: -x.of("sin"),
    "cosh": lambda x, _y, _a, _b: x.of("sinh"),
    "erf": lambda x, _y, _a, _b: (-(x * x)).of("exp") * (2 / sqrt(pi)),
    "floor": lambda x, _y, _a, _b: x.like(0.0),
    "sign": lambda x, _y, _a, _b: x.like(0.0),
    "sin": lambda x, _y, _a, _b: x.of("cos"),
    "sinh": lambda x, _y, _a, _b: x.of("cosh"),
    "tan": lambda _x, y, _a, _b: y * y + 1.0,
}
"""The derivative of each function; 0 for those of steps."""


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (needs_type(node, types, 0, FUNCTIONS[node.op][1]),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    return computed(FUNCTIONS[node.op][0], array(operands, 0))


for _name in FUNCTIONS:
    _rule = elementwise_rule(DERIVATIVES[_name], lambda _: (0.0, 0.0))
    register(OpSpec(_name, (1, 1), _infer, _evaluate, "elementwise", vjp=_rule))
