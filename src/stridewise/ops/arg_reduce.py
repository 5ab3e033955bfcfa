"""The position of the greatest or least element along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stridewise.dtypes import dtype_of
from stridewise.graph import Node, TensorType
from stridewise.ops.element_types import NUMBERS, needs_type, wide
from stridewise.ops.registry import Array, Operands, Permuted, Types, array, needs, register

__all__ = ["POSITIONS"]

POSITIONS: dict[str, Callable[..., Any]] = {"arg_max": np.argmax, "arg_min": np.argmin}


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = needs_type(node, types, 0, NUMBERS)
    axis, keep = node.int_attr("axis"), node.int_attr("keepdims", 1)
    needs(node, 0 <= axis < len(x.shape), f"an axis below {len(x.shape)}", axis)
    needs(node, x.shape[axis] > 0, f"elements along axis {axis}", x)
    kept = (1,) if keep else ()
    return (TensorType(dtype_of("int64"), (*x.shape[:axis], *kept, *x.shape[axis + 1 :])),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Of equal elements the first one counts, or with ``last`` the last one."""
    x, axis = wide(array(operands, 0)), node.int_attr("axis")
    last = bool(node.int_attr("last", 0))
    seen = np.flip(x, axis) if last else x
    found = POSITIONS[node.op](seen, axis=axis, keepdims=bool(node.int_attr("keepdims", 1)))
    return (np.asarray(x.shape[axis] - 1 - found if last else found, np.int64),)


def _permuted(node: Node, shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    axis = node.int_attr("axis")
    kept = perm
    if not node.int_attr("keepdims", 1):
        left = [position for position in range(len(shape)) if position != perm[axis]]
        kept = tuple(left.index(position) for position in perm if position != perm[axis])
    return Permuted({**dict(node.attrs), "axis": perm[axis]}, kept)


for _name in POSITIONS:
    register(
        _name,
        (1, 1),
        _infer,
        _evaluate,
        "keepdims",
        permuted=_permuted,
        attributes={"axis": "integer", "keepdims": "flag", "last": "flag"},
    )
