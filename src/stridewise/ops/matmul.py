"""Matrix products: MatMul and Gemm, batched or not, with an optional row bias.

The attributes ``perm_a`` and ``perm_b`` are transposes of the operands, and ``perm`` is one of the
result. They come from transposes around the product; see ``passes/turn_products.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.attributes import each
from stridewise.ops.backward import Term
from stridewise.ops.data_format import inverse
from stridewise.ops.element_types import NUMBERS, needs_type
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

__all__ = ["operand_shapes", "turned"]

BIAS = 2
MATRIX = 2  # rank of a matrix


def transposed(shape: tuple[int, ...], flag: int) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if flag else shape


def turned(node: Node, key: str, rank: int) -> tuple[int, ...]:
    """Return the transpose of an operand or of the result, by the name of its attribute.

    Raises:
        GraphError: it is no permutation of that many axes.
    """
    perm = node.ints_attr(key, tuple(range(rank)))
    needs(node, sorted(perm) == list(range(rank)), f"{key}: a permutation of {rank} axes", perm)
    return perm


def _permuted(shape: tuple[int, ...], perm: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(shape[axis] for axis in perm)


def operand_shapes(
    node: Node, a: tuple[int, ...], b: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of the operands behind the transposes of a product."""
    a = _permuted(a, turned(node, "perm_a", len(a)))
    b = _permuted(b, turned(node, "perm_b", len(b)))
    return transposed(a, node.int_attr("trans_a", 0)), transposed(b, node.int_attr("trans_b", 0))


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    a, b = needs_type(node, types, 0, NUMBERS), tensor(node, types, 1)
    needs(node, min(len(a.shape), len(b.shape)) >= 1, "operands of rank 1 or more", f"{a}, {b}")
    matrices = min(len(a.shape), len(b.shape)) >= MATRIX
    flags = node.int_attr("trans_a", 0) or node.int_attr("trans_b", 0)
    needs(node, matrices or not flags, "matrices where one is transposed", f"{a}, {b}")
    needs(node, a.dtype == b.dtype, f"two operands of dtype {a.dtype}", b.dtype)
    left, right = operand_shapes(node, a.shape, b.shape)
    rows = left[-2:-1]
    inner = right[-2:][0]
    columns = right[-1:] if len(right) > 1 else ()
    needs(node, left[-1] == inner, "equal inner extents", f"{a} and {b}")
    try:
        batch = np.broadcast_shapes(left[:-2], right[:-2])
    except ValueError:
        needs(node, False, "batch extents that broadcast", f"{a} and {b}")
        raise
    bias = types[BIAS] if len(types) > BIAS and node.inputs[BIAS] else None
    if bias is not None:
        needs(node, bias.shape == columns, f"a bias of {columns}", bias)
        needs(node, bias.dtype == a.dtype, f"a bias of dtype {a.dtype}", bias.dtype)
    shape = (*batch, *rows, *columns)
    return (TensorType(a.dtype, _permuted(shape, turned(node, "perm", len(shape)))),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    a, b = array(operands, 0), array(operands, 1)
    a, b = a.transpose(turned(node, "perm_a", a.ndim)), b.transpose(turned(node, "perm_b", b.ndim))
    a = np.swapaxes(a, -1, -2) if node.int_attr("trans_a", 0) else a
    b = np.swapaxes(b, -1, -2) if node.int_attr("trans_b", 0) else b
    precise = a.dtype if a.dtype.kind in "iu" else np.float64
    with np.errstate(over="ignore", invalid="ignore"):
        result = np.matmul(a.astype(precise), b.astype(precise))
        if len(node.inputs) > BIAS and node.inputs[BIAS]:
            result = result + array(operands, BIAS).astype(precise)
        result = np.asarray(result)
        return (result.transpose(turned(node, "perm", result.ndim)).astype(a.dtype),)


def _vjp(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    """Return dy times the other operand; a vector counts as a matrix of one row or column."""
    left, right, dy = (Term(b, name) for name in (*node.inputs[:2], gradients[0]))
    perms = [turned(node, "perm_a", len(left.shape)), turned(node, "perm_b", len(right.shape))]
    left, right = left.transpose(perms[0]), right.transpose(perms[1])
    dy = dy.transpose(inverse(turned(node, "perm", len(dy.shape))))
    left_shape, right_shape = left.shape, right.shape
    dbias = dy.sum(range(len(dy.shape) - 1), keepdims=False)
    if len(left_shape) == 1:
        left = left.reshape((1, *left_shape))
        dy = dy.reshape((*dy.shape[:-1], 1, *dy.shape[-1:]) if len(right_shape) > 1 else (1,))
    if len(right_shape) == 1:
        right = right.reshape((*right_shape, 1))
        dy = dy.reshape((*dy.shape, 1))
    trans_a, trans_b = node.int_attr("trans_a", 0), node.int_attr("trans_b", 0)
    if trans_a:
        da = right.of("matmul", dy, trans_a=trans_b, trans_b=1)
    else:
        da = dy.of("matmul", right, trans_b=1 - trans_b)
    rows, slopes = left, dy
    if len(right.shape) == MATRIX and not trans_a:
        # One product over the rows of all matrices, instead of a sum of products.
        rows, slopes = (
            term.reshape((prod(term.shape[:-1]), term.shape[-1])) for term in (left, dy)
        )
    if trans_b:
        dc = slopes.of("matmul", rows, trans_a=1, trans_b=trans_a)
    else:
        dc = rows.of("matmul", slopes, trans_a=1 - trans_a)
    of_a = da.sum_to(left.shape).reshape(left_shape).transpose(inverse(perms[0]))
    of_b = dc.sum_to(right.shape).reshape(right_shape).transpose(inverse(perms[1]))
    return of_a.name, of_b.name, dbias.name


register(
    "matmul",
    (2, 3),
    _infer,
    _evaluate,
    "interrupt",
    vjp=_vjp,
    attributes={
        **each("flag", "trans_a", "trans_b"),
        **each("integers", "perm_a", "perm_b", "perm"),
    },
)
