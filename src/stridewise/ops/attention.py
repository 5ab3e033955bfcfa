"""Attention: a softmax of products of queries and keys, which weighs values.

A pass makes it of matrix products, steps between them, and a softmax; see
``passes/fuse_attention.py``. The result is ``softmax(steps(scale * queries keys')) values``. The
attributes ``perm_q``, ``perm_k`` and ``perm_v`` are transposes of the operands to ``[batch axes,
rows, columns]``, and ``perm`` is one of the result.

Each step has one operand, a further input of the node. Operands have the rank of the attribute
``shape``, to which the scores are reshaped for the steps: batch axes, ``query_axes`` axes of
queries and ``key_axes`` axes of keys. Their extents may be 1.

The weights of a row are undefined if all of its scores are -inf, or one is NaN. The attribute
``zeroed`` says which of such weights are 0: none (``""``), those of rows of -inf (``"empty"``), or
all of them (``"nan"``).
"""

from __future__ import annotations

from math import prod
from typing import cast

import numpy as np

from stridewise.classes import dataclass
from stridewise.dtypes import dtype_of
from stridewise.graph import Node, TensorType
from stridewise.ops.attributes import each
from stridewise.ops.element_types import FLOATS, needs_type
from stridewise.ops.matmul import turned
from stridewise.ops.registry import Array, Operands, Types, array, needs, register, tensor

__all__ = ["OPERANDS", "STEPS", "ZEROED", "AttentionShape", "attention_shape", "steps_of"]

OPERANDS = 3
"""Inputs before those of the steps: queries, keys and values."""

STEPS = ("add", "mul", "where", "where_not")
"""What may be done to scores: add or multiply an operand; replace them by a number of the attribute
``fills`` where the operand is not 0, or where it is 0."""

ZEROED = ("", "empty", "nan")
"""Which undefined weights are 0."""

_PERMS = ("perm_q", "perm_k", "perm_v")


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """The extents of one node.

    Attributes:
        batch: extents of the batch axes; each pair of queries and keys there is one matrix.
        queries: rows of scores.
        keys: columns of scores.
        depth: elements of a query and of a key.
        width: elements of a value.
        scores: the shape in which steps see the scores.
        query_axes: how many axes of it are those of queries.
        key_axes: how many axes of it, the last ones, are those of keys.
    """

    batch: tuple[int, ...]
    queries: int
    keys: int
    depth: int
    width: int
    scores: tuple[int, ...]
    query_axes: int
    key_axes: int

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of the result before its transpose."""
        return (*self.batch, self.queries, self.width)


def attention_shape(node: Node, *types: TensorType) -> AttentionShape:
    """Return the extents of a node, given the types of queries, keys and values.

    Raises:
        GraphError: they do not fit.
    """
    rank = len(types[0].shape)
    needs(node, rank >= 2, "queries of rank 2 or more", types[0])
    for item in types:
        needs(node, len(item.shape) == rank, f"operands of rank {rank}", item)
        needs(node, item.dtype == types[0].dtype, f"operands of dtype {types[0].dtype}", item.dtype)
    q, k, v = (
        tuple(item.shape[axis] for axis in turned(node, key, rank))
        for item, key in zip(types, _PERMS, strict=True)
    )
    needs(node, q[-1] == k[-1], "queries and keys of one depth", f"{q} and {k}")
    needs(node, k[-2] == v[-2], "as many values as keys", f"{k} and {v}")
    try:
        batch = np.broadcast_shapes(q[:-2], k[:-2], v[:-2])
    except ValueError:
        needs(node, False, "batch extents that broadcast", f"{q}, {k} and {v}")
        raise
    scores = node.ints_attr("shape", (*batch, q[-2], k[-2]))
    query_axes, key_axes = node.int_attr("query_axes", 1), node.int_attr("key_axes", 1)
    split = len(scores) - key_axes - query_axes, len(scores) - key_axes
    needs(
        node,
        query_axes >= 1 and key_axes >= 1 and split[0] >= 0
        and prod(scores[: split[0]]) == prod(batch)
        and prod(scores[split[0] : split[1]]) == q[-2]
        and prod(scores[split[1] :]) == k[-2],
        f"a shape of axes of {batch}, of {q[-2]} queries and of {k[-2]} keys",
        scores,
    )  # fmt: skip
    return AttentionShape(
        batch, q[-2], k[-2], q[-1], v[-1], scores, query_axes, key_axes
    )  # fmt: skip


def steps_of(node: Node) -> tuple[tuple[str, float], ...]:
    """Return the steps of a node and their fills.

    Raises:
        GraphError: there is no step or fill for an operand, or a step is unknown.
    """
    steps = cast("tuple[str, ...]", node.get("steps") or ())
    fills = cast("tuple[float, ...]", node.get("fills") or (0.0,) * len(steps))
    count = len(node.inputs) - OPERANDS
    needs(node, set(steps) <= set(STEPS), f"steps of {', '.join(STEPS)}", steps)
    needs(node, len(steps) == count, f"{count} steps, as many as operands", steps)
    needs(node, len(fills) == count, f"{count} fills", fills)
    return tuple(zip(steps, fills, strict=True))


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = needs_type(node, types, 0, FLOATS)
    found = attention_shape(node, x, tensor(node, types, 1), tensor(node, types, 2))
    steps_of(node)
    zeroed = node.str_attr("zeroed", "")
    needs(node, zeroed in ZEROED, f"zeroed among {ZEROED}", zeroed)
    for index in range(OPERANDS, len(types)):
        operand = tensor(node, types, index)
        fits = len(operand.shape) == len(found.scores) and all(
            extent in (1, whole) for extent, whole in zip(operand.shape, found.scores, strict=True)
        )
        needs(node, fits, f"an operand that broadcasts to {found.scores}", operand)
        needs(node, operand.dtype == x.dtype, f"an operand of dtype {x.dtype}", operand.dtype)
    perm = turned(node, "perm", len(found.result))
    return (TensorType(x.dtype, tuple(found.result[axis] for axis in perm)),)


def _stepped(step: str, fill: float, scores: Array, operand: Array) -> Array:
    if step == "add":
        return scores + operand
    if step == "mul":
        return scores * operand
    return np.where((operand != 0) == (step == "where"), fill, scores)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    arrays = [array(operands, index) for index in range(len(operands))]
    dtype, rank = arrays[0].dtype, arrays[0].ndim
    types = [TensorType(dtype_of(item.dtype), item.shape) for item in arrays[:OPERANDS]]
    shape = attention_shape(node, *types)
    q, k, v = (
        item.transpose(turned(node, key, rank)).astype(np.float64)
        for item, key in zip(arrays, _PERMS, strict=False)
    )
    with np.errstate(over="ignore", invalid="ignore"):
        scores = np.matmul(q, np.swapaxes(k, -1, -2)) * node.float_attr("scale", 1.0)
        whole = (*shape.batch, shape.queries, shape.keys)
        scores = np.broadcast_to(scores, whole).reshape(shape.scores)
        for (step, fill), operand in zip(steps_of(node), arrays[OPERANDS:], strict=True):
            scores = _stepped(step, fill, scores, operand.astype(np.float64))
        scores = scores.reshape(whole)
        if scores.size:
            most = scores.max(axis=-1, keepdims=True)
            scores = np.exp(scores - most)
            scores = scores / scores.sum(axis=-1, keepdims=True)
            if node.str_attr("zeroed", ""):
                is_empty = np.isnan(scores) & (most == -np.inf)
                is_zero = np.isnan(scores) if node.str_attr("zeroed") == "nan" else is_empty
                scores = np.where(is_zero, 0, scores)
        result = np.matmul(scores, v)
    return (result.transpose(turned(node, "perm", rank)).astype(dtype),)


register(
    "attention",
    (OPERANDS, None),
    _infer,
    _evaluate,
    "interrupt",
    attributes={
        **each("integers", *_PERMS, "perm", "shape"),
        **each("integer", "query_axes", "key_axes"),
        "scale": "number",
        "zeroed": "text",
        "steps": "texts",
        "fills": "numbers",
    },
)
