"""Reversing the first elements of sequences of different lengths."""

from __future__ import annotations

import numpy as np

from stridewise.errors import ExecutionError
from stridewise.graph import Node, TensorType
from stridewise.ops.gather import index_type
from stridewise.ops.registry import Array, Operands, Types, array, needs, register, tensor


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, lengths = tensor(node, types, 0), index_type(node, types, 1)
    axes = (node.int_attr("batch_axis", 1), node.int_attr("time_axis", 0))
    needs(node, sorted(axes) == [0, 1], "batch and time as the first two axes", axes)
    needs(node, len(x.shape) >= 2, "a batch of sequences", x)
    needs(node, lengths.shape == (x.shape[axes[0]],), f"{x.shape[axes[0]]} lengths", lengths)
    return (x,)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x, lengths = array(operands, 0), array(operands, 1).astype(np.int64)
    time = node.int_attr("time_axis", 0)
    extent = x.shape[time]
    if lengths.size and not 0 <= lengths.min() <= lengths.max() <= extent:
        raise ExecutionError.at(
            f"node {node.name!r} ({node.op})",
            expected=f"lengths from 0 to {extent}",
            found=str(lengths.tolist()),
            fix="check the lengths that the model is given",
        )
    steps = np.arange(extent, dtype=np.int64)
    read = np.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)
    rows = np.arange(len(lengths))
    return (x[rows[:, None], read] if time == 1 else x[read.T, rows[None, :]],)


register(
    "reverse_sequence",
    (2, 2),
    _infer,
    _evaluate,
    "interrupt",
    attributes={"batch_axis": "integer", "time_axis": "integer"},
)
