"""Concatenation. Where the pieces lie one after the other in memory, nothing is copied."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.backward import Term
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


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    pieces = [tensor(node, types, index) for index in range(len(types))]
    first, axis = pieces[0], node.int_attr("axis")
    needs(node, 0 <= axis < len(first.shape), f"an axis below {len(first.shape)}", axis)
    for piece in pieces[1:]:
        same = len(piece.shape) == len(first.shape) and all(
            i == axis or a == b
            for i, (a, b) in enumerate(zip(piece.shape, first.shape, strict=True))
        )
        needs(node, same and piece.dtype == first.dtype, f"pieces like {first}", piece)
    total = sum(piece.shape[axis] for piece in pieces)
    return (TensorType(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :])),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    pieces = [array(operands, index) for index in range(len(operands))]
    return (np.concatenate(pieces, axis=node.int_attr("axis")),)


def _permuted(node: Node, _shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    return Permuted({"axis": perm[node.int_attr("axis")]}, perm)


def _vjp(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    dy, axis = Term(b, gradients[0]), node.int_attr("axis")
    rank, begin = len(dy.shape), 0
    found: list[str] = []
    for name in node.inputs:
        end = begin + b.type(name).shape[axis]
        starts = tuple(begin if i == axis else 0 for i in range(rank))
        stops = tuple(end if i == axis else extent for i, extent in enumerate(dy.shape))
        found.append(dy.of("slice", starts=starts, stops=stops, steps=(1,) * rank).name)
        begin = end
    return tuple(found)


register(
    "concat",
    (1, None),
    _infer,
    _evaluate,
    "same",
    permuted=_permuted,
    vjp=_vjp,
    attributes={"axis": "integer"},
)
