"""Elementwise operators of two operands, with NumPy's broadcasting.

Operators of one operand are in ``activation.py``, more of two operands in ``arithmetic.py`` and
``logic.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.element_types import NUMBERS, broadcast, computed
from stridewise.ops.registry import Array, Operands, OpSpec, Types, array, register

__all__ = ["BINARY"]


BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (broadcast(node, types, NUMBERS),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    a, b = array(operands, 0), array(operands, 1)
    return computed(_quotient if node.op == "div" else BINARY[node.op], a, b)


def _quotient(a: Array, b: Array) -> Array:
    """Return quotients; ONNX divides integers as C does: towards zero."""
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    rounded_down = np.floor_divide(a, b)
    return rounded_down + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


for _name in BINARY:
    register(OpSpec(_name, (2, 2), _infer, _evaluate, "elementwise", post_op="binary"))
