"""Operators that repeat a tensor: copies that read each element several times.

``tile`` repeats whole axes, ``expand`` repeats axes of one element.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.backward import Term, rule_of_term
from stridewise.ops.data_format import inverse
from stridewise.ops.registry import (
    Array,
    Backward,
    Operands,
    Permuted,
    Types,
    array,
    needs,
    register,
    tensor,
)

# --- tile -----------------------------------------------------------------------------------------


def _infer_tile(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, repeats = tensor(node, types, 0), node.ints_attr("repeats")
    fits = len(repeats) == len(x.shape) and min(repeats, default=0) >= 0
    needs(node, fits, f"{len(x.shape)} repeats of 0 or more", repeats)
    shape = tuple(extent * count for extent, count in zip(x.shape, repeats, strict=True))
    return (TensorType(x.dtype, shape),)


def _evaluate_tile(node: Node, operands: Operands) -> tuple[Array, ...]:
    return (np.tile(array(operands, 0), node.ints_attr("repeats")),)


def _permuted_tile(node: Node, _shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    repeats = node.ints_attr("repeats")
    return Permuted({"repeats": tuple(repeats[axis] for axis in inverse(perm))}, perm)


# --- expand ---------------------------------------------------------------------------------------


def _expanded(node: Node, shape: tuple[int, ...]) -> tuple[int, ...]:
    wanted = node.ints_attr("shape")
    try:
        return np.broadcast_shapes(shape, wanted)
    except ValueError:
        needs(node, False, f"a shape that {list(shape)} broadcasts with", wanted)
        raise


def _infer_expand(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    return (TensorType(x.dtype, _expanded(node, x.shape)),)


def _evaluate_expand(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    return (np.broadcast_to(x, _expanded(node, x.shape)),)


def _permuted_expand(node: Node, shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    wanted = _expanded(node, tuple(shape[axis] for axis in perm))
    if len(wanted) != len(perm):
        return "its result has more axes than the transpose"
    return Permuted({"shape": tuple(wanted[axis] for axis in inverse(perm))}, perm)


def _vjp_tile(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    x, dy = Term(b, node.inputs[0]), Term(b, gradients[0])
    copies = zip(node.ints_attr("repeats"), x.shape, strict=True)
    split = dy.reshape(tuple(extent for pair in copies for extent in pair))
    return (split.sum(range(0, 2 * len(x.shape), 2), keepdims=False).name,)


_vjp_expand = rule_of_term(lambda _node, x, _y, dy: dy.sum_to(x.shape))

register(
    "tile",
    (1, 1),
    _infer_tile,
    _evaluate_tile,
    "same",
    permuted=_permuted_tile,
    vjp=_vjp_tile,
    attributes={"repeats": "integers"},
)
register(
    "expand",
    (1, 1),
    _infer_expand,
    _evaluate_expand,
    "elementwise",
    permuted=_permuted_expand,
    vjp=_vjp_expand,
    attributes={"shape": "integers"},
)
