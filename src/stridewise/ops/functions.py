"""Elementwise functions of one operand without attributes.

Those with the attributes ``alpha`` and ``beta`` are in ``activation.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf, pi, sqrt

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.backward import Gradient, elementwise_rule, of_steps
from stridewise.ops.element_types import FLOATS, NUMBERS, Family, computed, needs_type
from stridewise.ops.registry import Array, Operands, Types, array, register

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


GRADIENTS: dict[str, Gradient] = {
    "acos": lambda dy, x, _y, _a, _b: -dy / (1.0 - x * x).of("sqrt"),
    "acosh": lambda dy, x, _y, _a, _b: dy / (x * x - 1.0).of("sqrt"),
    "asin": lambda dy, x, _y, _a, _b: dy / (1.0 - x * x).of("sqrt"),
    "asinh": lambda dy, x, _y, _a, _b: dy / (x * x + 1.0).of("sqrt"),
    "atan": lambda dy, x, _y, _a, _b: dy / (x * x + 1.0),
    "atanh": lambda dy, x, _y, _a, _b: dy / (1.0 - x * x),
    "ceil": of_steps,
    "cos": lambda dy, x, _y, _a, _b: dy * -x.of("sin"),
    "cosh": lambda dy, x, _y, _a, _b: dy * x.of("sinh"),
    "erf": lambda dy, x, _y, _a, _b: dy * ((-(x * x)).of("exp") * (2 / sqrt(pi))),
    "floor": of_steps,
    "sign": of_steps,
    "sin": lambda dy, x, _y, _a, _b: dy * x.of("cos"),
    "sinh": lambda dy, x, _y, _a, _b: dy * x.of("cosh"),
    "tan": lambda dy, _x, y, _a, _b: dy * (y * y + 1.0),
}


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (needs_type(node, types, 0, FUNCTIONS[node.op][1]),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    return computed(FUNCTIONS[node.op][0], array(operands, 0))


for _name in FUNCTIONS:
    _rule = elementwise_rule(GRADIENTS[_name], lambda _: (0.0, 0.0))
    register(_name, (1, 1), _infer, _evaluate, "elementwise", vjp=_rule)
