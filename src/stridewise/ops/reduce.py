"""Reductions over some axes: means, sums, norms, products, maxima and minima."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from stridewise.classes import dataclass
from stridewise.graph import Node, TensorType
from stridewise.ops.backward import Term
from stridewise.ops.data_format import inverse
from stridewise.ops.element_types import BOOL, NUMBERS, Family, lowest_and_highest, needs_type
from stridewise.ops.registry import (
    Array,
    Backward,
    Operands,
    Permuted,
    Types,
    array,
    needs,
    register,
)

__all__ = ["REDUCTIONS", "Reduction"]


def _greatest(x: Array, **where: Any) -> Any:
    return np.max(x, initial=lowest_and_highest(x.dtype)[0], **where)


def _least(x: Array, **where: Any) -> Any:
    return np.min(x, initial=lowest_and_highest(x.dtype)[1], **where)


def _mean(x: Array, **where: Any) -> Any:
    total = np.sum(x, **where)
    return np.divide(total, x.size / total.size if total.size else 1)


def _l1(x: Array, **where: Any) -> Any:
    return np.sum(np.abs(x), **where)


def _l2(x: Array, **where: Any) -> Any:
    return np.sqrt(np.sum(np.square(x.astype(np.float64)), **where))


def _sum_square(x: Array, **where: Any) -> Any:
    return np.sum(np.square(x), **where)


def _log_sum(x: Array, **where: Any) -> Any:
    return np.log(np.sum(x, **where))


def _log_sum_exp(x: Array, axis: tuple[int, ...], *, keepdims: bool) -> Any:
    greatest = _greatest(x, axis=axis, keepdims=True)
    # Exponentials of what is not above 0 don't overflow; infinity less infinity is no number.
    shift = np.where(np.isfinite(greatest), greatest, 0)
    total = np.log(np.sum(np.exp(x - shift), axis=axis, keepdims=True)) + shift
    return total if keepdims else np.squeeze(total, axis)


@dataclass(frozen=True, slots=True)
class Reduction:
    """One reduction.

    Attributes:
        function: its definition, with NumPy's ``axis`` and ``keepdims``; without elements it gives
            what changes nothing when more are added.
        keeps_one: whether a single element is its own result.
        family: the element types that it takes.
    """

    function: Callable[..., Any]
    keeps_one: bool = False
    family: Family = NUMBERS


REDUCTIONS: dict[str, Reduction] = {
    "reduce_l1": Reduction(_l1),
    "reduce_l2": Reduction(_l2),
    "reduce_log_sum": Reduction(_log_sum),
    "reduce_log_sum_exp": Reduction(_log_sum_exp),
    "reduce_max": Reduction(_greatest, keeps_one=True, family=NUMBERS | BOOL),
    "reduce_mean": Reduction(_mean, keeps_one=True),
    "reduce_min": Reduction(_least, keeps_one=True, family=NUMBERS | BOOL),
    "reduce_prod": Reduction(np.prod, keeps_one=True),
    "reduce_sum": Reduction(np.sum, keeps_one=True),
    "reduce_sum_square": Reduction(_sum_square),
}


def reduced_axes(node: Node, rank: int) -> tuple[int, ...]:
    """Return the axes that a node reduces."""
    axes = node.ints_attr("axes")
    fits = all(0 <= axis < rank for axis in axes) and len(set(axes)) == len(axes)
    needs(node, fits, f"distinct axes below {rank}", axes)
    return axes


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = needs_type(node, types, 0, REDUCTIONS[node.op].family)
    axes = reduced_axes(node, len(x.shape))
    keep = node.int_attr("keepdims", 1)
    shape = tuple(
        1 if axis in axes else extent
        for axis, extent in enumerate(x.shape)
        if keep or axis not in axes
    )
    return (TensorType(x.dtype, shape),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    precise = x if x.dtype.kind in "biu" else x.astype(np.float64)
    axes, keep = reduced_axes(node, x.ndim), bool(node.int_attr("keepdims", 1))
    function = REDUCTIONS[node.op].function
    with np.errstate(all="ignore"):
        return (np.asarray(function(precise, axis=axes, keepdims=keep)).astype(x.dtype),)


def _permuted(node: Node, shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    axes = tuple(sorted(perm[axis] for axis in reduced_axes(node, len(shape))))
    kept = perm
    if not node.int_attr("keepdims", 1):
        left = [axis for axis in range(len(perm)) if axis not in axes]
        kept = tuple(left.index(axis) for axis in perm if axis not in axes)
    return Permuted({**dict(node.attrs), "axes": axes}, kept)


def _of_chosen(dy: Term, x: Term, y: Term, axes: tuple[int, ...]) -> Term:
    """Return the gradients of the greatest or least elements; equal ones share them."""
    count = x.where("equal", y).sum(axes)
    return (dy / count).kept(x.of("equal", y))


def _product_of_others(x: Term, axes: tuple[int, ...]) -> Term:
    """Return for each element the product of all others; a division fails where one is zero."""
    order = (*(axis for axis in range(len(x.shape)) if axis not in axes), *axes)
    last = len(order) - len(axes)
    moved = x.transpose(order)
    rows = moved.reshape((*moved.shape[:last], prod(moved.shape[last:])))
    before, after = (rows.of("cumprod", axis=last, exclusive=1, reverse=way) for way in (0, 1))
    return (before * after).reshape(moved.shape).transpose(inverse(order))


_SMALLEST = 2e-38
"""A positive number of float32 whose inverse is finite."""


_GRADIENTS: dict[str, Callable[[Term, Term, Term, tuple[int, ...]], Term]] = {
    "reduce_l1": lambda dy, x, _y, _axes: dy * x.of("sign"),
    "reduce_l2": lambda dy, x, y, _axes: dy * (x / y.of("maximum", _SMALLEST)),  # of zeros it is 0
    "reduce_log_sum": lambda dy, _x, y, _axes: dy * (-y).of("exp"),
    "reduce_log_sum_exp": lambda dy, x, y, _axes: dy * (x - y).of("exp"),
    "reduce_max": _of_chosen,
    "reduce_mean": lambda dy, x, _y, axes: dy * (1 / max(prod(x.shape[i] for i in axes), 1)),
    "reduce_min": _of_chosen,
    "reduce_prod": lambda dy, x, _y, axes: dy * _product_of_others(x, axes),
    "reduce_sum": lambda dy, _x, _y, _axes: dy,
    "reduce_sum_square": lambda dy, x, _y, _axes: dy * (x * 2.0),
}
"""From the gradient, x, the result with the reduced axes kept, and these axes to that of x."""


def _vjp(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    x, y, dy = (Term(b, name) for name in (node.inputs[0], node.outputs[0], gradients[0]))
    axes = reduced_axes(node, len(x.shape))
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(x.shape))
    found = _GRADIENTS[node.op](dy.reshape(kept), x, y.reshape(kept), axes)
    return (found.expand(x.shape).name,)


for _name in REDUCTIONS:
    register(
        _name,
        (1, 1),
        _infer,
        _evaluate,
        "keepdims",
        permuted=_permuted,
        vjp=_vjp,
        attributes={"axes": "integers", "keepdims": "flag"},
    )
