"""Running sums and products, and the mark of the greatest element, along one axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.backward import Term, rule_of_term
from stridewise.ops.element_types import FLOATS, NUMBERS, Family, computed, needs_type, wide
from stridewise.ops.registry import Array, Operands, Permuted, Types, array, needs, register

__all__ = ["RUNNING"]

RUNNING: dict[str, tuple[Callable[..., Any], int]] = {
    "cumprod": (np.cumprod, 1),
    "cumsum": (np.cumsum, 0),
}
"""The function, and what it gives before the first element."""

_FAMILIES: dict[str, Family] = {**dict.fromkeys(RUNNING, NUMBERS), "hardmax": FLOATS}


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, axis = needs_type(node, types, 0, _FAMILIES[node.op]), node.int_attr("axis")
    needs(node, 0 <= axis < len(x.shape), f"an axis below {len(x.shape)}", axis)
    return (x,)


def _accumulated(op: str, x: Array, axis: int, *, exclusive: bool) -> Array:
    function, start = RUNNING[op]
    total: Array = function(x, axis=axis, dtype=np.float64 if x.dtype.kind == "f" else x.dtype)
    if not exclusive:
        return total
    shifted = np.full_like(total, start)
    np.moveaxis(shifted, axis, 0)[1:] = np.moveaxis(total, axis, 0)[:-1]
    return shifted


def _evaluate_running(node: Node, operands: Operands) -> tuple[Array, ...]:
    """With ``exclusive``, without the element itself; with ``reverse``, from the end."""
    axis, exclusive = node.int_attr("axis"), bool(node.int_attr("exclusive", 0))

    def total(x: Array) -> Array:
        if not node.int_attr("reverse", 0):
            return _accumulated(node.op, x, axis, exclusive=exclusive)
        return np.flip(_accumulated(node.op, np.flip(x, axis), axis, exclusive=exclusive), axis)

    return computed(total, array(operands, 0))


def _evaluate_hardmax(node: Node, operands: Operands) -> tuple[Array, ...]:
    """1 at the first of the greatest elements, 0 everywhere else."""
    x, axis = array(operands, 0), node.int_attr("axis")
    result = np.zeros_like(x)
    if x.size:
        np.put_along_axis(result, np.argmax(wide(x), axis=axis, keepdims=True), 1, axis)
    return (result,)


def _permuted(node: Node, _shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    return Permuted({**dict(node.attrs), "axis": perm[node.int_attr("axis")]}, perm)


def _gradient_cumsum(node: Node, _x: Term, _y: Term, dy: Term) -> Term:
    backwards = {**dict(node.attrs), "reverse": 1 - node.int_attr("reverse", 0)}
    return dy.of("cumsum", **backwards)


_GRADIENTS = {"cumsum": rule_of_term(_gradient_cumsum)}

for _name in RUNNING:
    register(
        _name,
        (1, 1),
        _infer,
        _evaluate_running,
        "same",
        permuted=_permuted,
        vjp=_GRADIENTS.get(_name),
        attributes={"axis": "integer", "exclusive": "flag", "reverse": "flag"},
    )
register(
    "hardmax",
    (1, 1),
    _infer,
    _evaluate_hardmax,
    "same",
    permuted=_permuted,
    attributes={"axis": "integer"},
)
