"""Operators that change the shape or the order of axes, or only pass elements on."""

from __future__ import annotations

from math import prod

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.backward import rule_of_term
from stridewise.ops.data_format import inverse
from stridewise.ops.registry import (
    Array,
    Operands,
    Permuted,
    Types,
    array,
    needs,
    register,
    tensor,
)

# --- reshape ------------------------------------------------------------------------------------


def _infer_reshape(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, shape = tensor(node, types, 0), node.ints_attr("shape")
    needs(node, prod(shape) == prod(x.shape), f"{prod(x.shape)} elements", shape)
    return (TensorType(x.dtype, shape),)


def _evaluate_reshape(node: Node, operands: Operands) -> tuple[Array, ...]:
    return (array(operands, 0).reshape(node.ints_attr("shape")),)


def _permuted_reshape(node: Node, shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    moved = [axis for axis in perm if shape[axis] != 1]
    if moved != sorted(moved):
        return "it takes the elements as they come"
    return Permuted(dict(node.attrs), tuple(range(len(node.ints_attr("shape")))))


# --- transpose ----------------------------------------------------------------------------------


def _infer_transpose(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, perm = tensor(node, types, 0), node.ints_attr("perm")
    fits = sorted(perm) == list(range(len(x.shape)))
    needs(node, fits, f"a permutation of {len(x.shape)} axes", perm)
    return (TensorType(x.dtype, tuple(x.shape[axis] for axis in perm)),)


def _evaluate_transpose(node: Node, operands: Operands) -> tuple[Array, ...]:
    return (np.transpose(array(operands, 0), node.ints_attr("perm")),)


# --- identity -----------------------------------------------------------------------------------


def _infer_same(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (tensor(node, types, 0),)


def _evaluate_identity(_node: Node, operands: Operands) -> tuple[Array, ...]:
    return (array(operands, 0),)


# --- gradients ------------------------------------------------------------------------------------

_vjp_reshape = rule_of_term(lambda _node, x, _y, dy: dy.reshape(x.shape))
_vjp_transpose = rule_of_term(
    lambda node, _x, _y, dy: dy.transpose(inverse(node.ints_attr("perm")))
)
_vjp_identity = rule_of_term(lambda _node, _x, _y, dy: dy)

register(
    "reshape",
    (1, 1),
    _infer_reshape,
    _evaluate_reshape,
    "interrupt",
    permuted=_permuted_reshape,
    vjp=_vjp_reshape,
    attributes={"shape": "integers"},
)
register(
    "transpose",
    (1, 1),
    _infer_transpose,
    _evaluate_transpose,
    "permute",
    attributes={"perm": "integers"},
    vjp=_vjp_transpose,
)
register("identity", (1, 1), _infer_same, _evaluate_identity, "elementwise", vjp=_vjp_identity)
