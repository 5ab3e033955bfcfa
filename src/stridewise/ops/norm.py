"""Normalization at inference: per-channel scale and shift, and local response normalization.

A batch norm with known statistics is one multiplication and one addition per channel, so the
graph has only ``scale_shift``; the frontends compute its parameters.
"""

from __future__ import annotations

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.registry import Array, Operands, OpSpec, Types, array, needs, register, tensor

__all__ = ["LRN", "SCALE_SHIFT"]


def _infer_scale_shift(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    needs(node, len(x.shape) >= 2, "an input with a channel axis", x)
    for index in (1, 2):
        parameter = tensor(node, types, index)
        expected = TensorType(x.dtype, x.shape[1:2])
        needs(node, parameter == expected, f"input {index} to be {expected}", parameter)
    return (x,)


def _evaluate_scale_shift(_node: Node, operands: Operands) -> tuple[Array, ...]:
    x, scale, shift = (array(operands, index) for index in range(3))
    per_channel = (-1, *(1,) * (x.ndim - 2))
    return (x * scale.reshape(per_channel) + shift.reshape(per_channel),)


def _infer_lrn(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    needs(node, 3 <= len(x.shape) <= 5, "an input of rank 3 to 5", x)
    needs(node, node.int_attr("size") > 0, "a positive size", node.int_attr("size"))
    return (x,)


def _evaluate_lrn(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    size = node.int_attr("size")
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = np.square(x.astype(np.float64))
    total = squares.copy()
    for step in range(1, min(max(before, after) + 1, x.shape[1])):
        if step <= before:
            total[:, step:] += squares[:, :-step]
        if step <= after:
            total[:, :-step] += squares[:, step:]
    scale = node.float_attr("bias", 1.0) + node.float_attr("alpha", 1e-4) / size * total
    return ((x / scale ** node.float_attr("beta", 0.75)).astype(x.dtype),)


SCALE_SHIFT = register(
    OpSpec("scale_shift", (3, 3), _infer_scale_shift, _evaluate_scale_shift, "anchor")
)
LRN = register(OpSpec("lrn", (1, 1), _infer_lrn, _evaluate_lrn, "anchor"))
