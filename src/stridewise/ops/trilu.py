"""Triangles of matrices: what lies beyond a diagonal becomes zero."""

from __future__ import annotations

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.backward import rule_of_term
from stridewise.ops.registry import Array, Operands, Types, array, needs, register, tensor


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    needs(node, len(x.shape) >= 2, "matrices", x)
    return (x,)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    rows, columns = x.shape[-2:]
    # Beyond the corners nothing changes, and NumPy takes no diagonal of more than 64 bits.
    diagonal = int(np.clip(node.int_attr("k", 0), -rows, columns))
    triangle = np.triu if node.int_attr("upper", 1) else np.tril
    kept = triangle(np.ones((rows, columns), bool), diagonal)
    return (np.where(kept, x, np.zeros((), x.dtype)),)


register(
    "trilu",
    (1, 1),
    _infer,
    _evaluate,
    "same",
    vjp=rule_of_term(lambda node, _x, _y, dy: dy.of("trilu", **dict(node.attrs))),
    attributes={"k": "integer", "upper": "flag"},
)
