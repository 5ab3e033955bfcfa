"""Softmax and its logarithm over one axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.backward import Term
from stridewise.ops.element_types import FLOATS, needs_type
from stridewise.ops.registry import (
    OPS,
    Array,
    Backward,
    Operands,
    Permuted,
    Types,
    array,
    needs,
    register,
)

__all__ = ["LOG_SOFTMAX", "SOFTMAX"]


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = needs_type(node, types, 0, FLOATS)
    axis = node.int_attr("axis")
    needs(node, 0 <= axis < len(x.shape), f"an axis below {len(x.shape)}", axis)
    return (x,)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    axis = node.int_attr("axis")
    if x.size == 0:
        return (x,)
    with np.errstate(invalid="ignore", divide="ignore"):
        precise = x.astype(np.float64)
        shifted = precise - precise.max(axis=axis, keepdims=True)
        total = np.exp(shifted).sum(axis=axis, keepdims=True)
        result = shifted - np.log(total) if node.op == "log_softmax" else np.exp(shifted) / total
        return (result.astype(x.dtype),)


def _permuted(node: Node, _shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    return Permuted({"axis": perm[node.int_attr("axis")]}, perm)


def _vjp(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    y, dy, axes = Term(b, node.outputs[0]), Term(b, gradients[0]), (node.int_attr("axis"),)
    if node.op == "log_softmax":
        return ((dy - y.of("exp") * dy.sum(axes)).name,)
    return ((y * (dy - (dy * y).sum(axes))).name,)


for _name in ("softmax", "log_softmax"):
    register(
        _name,
        (1, 1),
        _infer,
        _evaluate,
        "same",
        permuted=_permuted,
        vjp=_vjp,
        attributes={"axis": "integer"},
    )

SOFTMAX, LOG_SOFTMAX = OPS["softmax"], OPS["log_softmax"]
