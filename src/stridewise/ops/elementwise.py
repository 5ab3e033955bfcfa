"""Elementwise operators of two operands, with NumPy's broadcasting.

Operators of one operand are in ``activation.py``, more of two operands in ``arithmetic.py`` and
``logic.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.backward import Term
from stridewise.ops.element_types import NUMBERS, broadcast, computed
from stridewise.ops.registry import Array, Backward, Operands, Types, array, register

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


def _chosen(dy: Term, a: Term, b: Term, worse: str) -> tuple[Term, Term]:
    """Return the gradients of what is chosen; equal operands share them.

    Args:
        dy: the gradient of the result.
        a: an operand.
        b: the other one.
        worse: the comparison that holds where the first one is not chosen.
    """
    zero = dy.like(0.0)
    shared = a.of("equal", b).of("where", dy * 0.5, dy)
    return (
        a.of(worse, b).of("where", zero, shared),
        b.of(worse, a).of("where", zero, shared),
    )


_GRADIENTS: dict[str, Callable[[Term, Term, Term], tuple[Term, Term]]] = {
    "add": lambda dy, _a, _b: (dy, dy),
    "sub": lambda dy, _a, _b: (dy, -dy),
    "mul": lambda dy, a, b: (dy * b, dy * a),
    "div": lambda dy, a, b: (dy / b, -(dy * a / (b * b))),
    "maximum": lambda dy, a, b: _chosen(dy, a, b, "less"),
    "minimum": lambda dy, a, b: _chosen(dy, a, b, "greater"),
}
"""From the gradient of the result and both operands to the gradients of these, not yet summed."""


def _vjp(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    left, right = (Term(b, name) for name in node.inputs)
    found = _GRADIENTS[node.op](Term(b, gradients[0]), left, right)
    return found[0].sum_to(left.shape).name, found[1].sum_to(right.shape).name


for _name in BINARY:
    register(_name, (2, 2), _infer, _evaluate, "elementwise", post_op="binary", vjp=_vjp)
