"""One-hot encoding: an axis along which one element is on, and all others are off."""

from __future__ import annotations

from math import prod
from typing import cast

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.registry import Array, Operands, Types, array, needs, register, tensor


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    indices, values = tensor(node, types, 0), tensor(node, types, 1)
    axis, depth = node.int_attr("axis"), node.int_attr("depth")
    needs(node, indices.dtype.name != "bool", "numbers as indices", indices)
    needs(node, prod(values.shape) == 2, "two values, off and on", values)
    needs(node, 0 <= axis <= len(indices.shape), f"an axis up to {len(indices.shape)}", axis)
    needs(node, depth >= 1, "a positive depth", depth)
    shape = (*indices.shape[:axis], depth, *indices.shape[axis:])
    return (TensorType(values.dtype, shape),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Return the encoding; an index outside of the depth is off everywhere (ONNX, OneHot)."""
    indices, values = array(operands, 0), array(operands, 1).reshape(-1)
    axis, depth = node.int_attr("axis"), node.int_attr("depth")
    # Small integers plus the depth could overflow; of floats, only whole numbers are on anywhere.
    whole = indices.astype(np.int64) if indices.dtype.kind in "iu" else indices
    whole = np.expand_dims(np.where(whole < 0, whole + depth, whole), axis)
    off, on = values
    places = np.arange(depth, dtype=np.int64).reshape((-1,) + (1,) * (indices.ndim - axis))
    return (cast("Array", np.where(whole == places, on, off)).astype(values.dtype),)


register(
    "one_hot",
    (2, 2),
    _infer,
    _evaluate,
    "interrupt",
    attributes={"axis": "integer", "depth": "integer"},
)
