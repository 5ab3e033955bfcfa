"""Comparisons, logic on truth values, and the choice between two tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from stridewise.dtypes import dtype_of
from stridewise.graph import Node, TensorType
from stridewise.ops.backward import Term
from stridewise.ops.element_types import (
    ALL,
    BOOL,
    FLOATS,
    NUMBERS,
    Family,
    broadcast,
    broadcast_shape,
    needs_type,
    wide,
)
from stridewise.ops.registry import (
    Array,
    Backward,
    Operands,
    Types,
    array,
    needs,
    register,
    tensor,
)

__all__ = ["COMPARISONS", "CONNECTIVES"]

_Binary = Callable[[Array, Array], Array]

COMPARISONS: dict[str, tuple[_Binary, Family]] = {
    "equal": (np.equal, ALL),
    "greater": (np.greater, NUMBERS),
    "greater_equal": (np.greater_equal, NUMBERS),
    "less": (np.less, NUMBERS),
    "less_equal": (np.less_equal, NUMBERS),
}
CONNECTIVES: dict[str, tuple[_Binary, Family]] = {
    "logical_and": (np.logical_and, BOOL),
    "logical_or": (np.logical_or, BOOL),
    "logical_xor": (np.logical_xor, BOOL),
}
_BINARY = {**COMPARISONS, **CONNECTIVES}


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (TensorType(dtype_of("bool"), broadcast(node, types, _BINARY[node.op][1]).shape),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    return (_BINARY[node.op][0](array(operands, 0), array(operands, 1)),)


def _infer_not(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (needs_type(node, types, 0, BOOL),)


def _evaluate_not(_node: Node, operands: Operands) -> tuple[Array, ...]:
    return (np.logical_not(array(operands, 0)),)


def _infer_test(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (TensorType(dtype_of("bool"), needs_type(node, types, 0, FLOATS).shape),)


def _evaluate_is_nan(_node: Node, operands: Operands) -> tuple[Array, ...]:
    return (np.isnan(wide(array(operands, 0))),)


def _evaluate_is_inf(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = wide(array(operands, 0))
    above = np.isposinf(x) & bool(node.int_attr("positive", 1))
    return (above | (np.isneginf(x) & bool(node.int_attr("negative", 1))),)


def _infer_where(node: Node, types: Types) -> tuple[TensorType, ...]:
    condition = needs_type(node, types, 0, BOOL)
    a, b = tensor(node, types, 1), tensor(node, types, 2)
    needs(node, a.dtype == b.dtype, f"two choices of dtype {a.dtype}", b.dtype)
    return (TensorType(a.dtype, broadcast_shape(node, (condition, a, b))),)


def _evaluate_where(_node: Node, operands: Operands) -> tuple[Array, ...]:
    return (np.where(*(array(operands, index) for index in range(3))),)


for _name in _BINARY:
    register(_name, (2, 2), _infer, _evaluate, "elementwise")
register("logical_not", (1, 1), _infer_not, _evaluate_not, "elementwise")
register("is_nan", (1, 1), _infer_test, _evaluate_is_nan, "elementwise")
register(
    "is_inf",
    (1, 1),
    _infer_test,
    _evaluate_is_inf,
    "elementwise",
    attributes={"positive": "flag", "negative": "flag"},
)


def _vjp_where(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    condition, first, second = (Term(b, name) for name in node.inputs)
    dy = Term(b, gradients[0])
    zero = dy.like(0.0)
    chosen = condition.of("where", dy, zero).sum_to(first.shape)
    other = condition.of("where", zero, dy).sum_to(second.shape)
    return "", chosen.name, other.name


register("where", (3, 3), _infer_where, _evaluate_where, "elementwise", vjp=_vjp_where)
