"""The greatest or least elements along an axis, and where they are."""

from __future__ import annotations

import numpy as np

from stridewise.dtypes import dtype_of
from stridewise.graph import Node, TensorType
from stridewise.ops.registry import Array, Operands, Types, array, needs, register, tensor


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, axis, k = tensor(node, types, 0), node.int_attr("axis"), node.int_attr("k")
    needs(node, 0 <= axis < len(x.shape), f"an axis below {len(x.shape)}", axis)
    needs(node, 0 <= k <= x.shape[axis], f"k from 0 to {x.shape[axis]}", k)
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return TensorType(x.dtype, shape), TensorType(dtype_of("int64"), shape)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Return the elements in order, whether that is asked for or not, and their indices.

    Of equal elements the one with the lower index comes first (source: ONNX, TopK). NaN counts as
    greater than any number, as NumPy sorts it.
    """
    x, axis, k = array(operands, 0), node.int_attr("axis"), node.int_attr("k")
    if node.int_attr("largest", 1):
        # A stable sort of the reversed axis, read from its end: equal elements keep their order.
        order = np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
        order = x.shape[axis] - 1 - order
    else:
        order = np.argsort(x, axis, kind="stable")
    indices = np.take(order, np.arange(k), axis).astype(np.int64)
    return np.take_along_axis(x, indices, axis), indices


register(
    "top_k",
    (1, 1),
    _infer,
    _evaluate,
    "same",
    attributes={"axis": "integer", "k": "integer", "largest": "flag"},
)
