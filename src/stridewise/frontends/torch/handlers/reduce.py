"""Reductions, and softmax along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from stridewise.dtypes import dtype_of
from stridewise.frontends.torch.reader import (
    BOOL,
    INTEGERS,
    Handler,
    Operand,
    Reader,
    Results,
    Traced,
    type_of,
)

__all__ = ["HANDLERS", "reduced", "safe_softmax", "summed", "widened"]

Axes = Sequence[int] | int | None


_NARROW = INTEGERS[2:]
"""Integers that kernels do not compare."""


def widened(r: Reader, x: Operand) -> Operand:
    """Return what kernels compare: integers of less than 32 bits as int32.

    Args:
        r: reads the graph.
        x: the operand.
    """
    return r.cast(x, dtype_of("int32")) if type_of(x) in _NARROW else x


def reduced(r: Reader, op: str, x: Operand, axes: Axes, keep: bool) -> Traced:
    """Add a reduction; there is nothing to reduce without axes.

    Args:
        r: reads the graph.
        op: the operator.
        x: the operand.
        axes: that are reduced; all of them for None or an empty list.
        keep: whether they stay, of one element.
    """
    found = r.axes(x, axes)
    if not found:
        return r.emit("identity", [x])
    held = r.emit(op, [widened(r, x)], axes=found, keepdims=int(keep))
    return r.cast(held, type_of(x)) if type_of(x) in _NARROW else held


def _reduction(op: str) -> Handler:
    """Return the handler of a reduction whose result has the type of its operand."""

    def handler(r: Reader, x: Operand, axes: Axes = None, keep: bool = False) -> Traced:
        return reduced(r, op, x, axes, keep)

    return handler


def summed(r: Reader, x: Operand, dtype: object) -> Operand:
    """Return what sums add up: integers and truth values as int64, unless a type is given.

    Args:
        r: reads the graph.
        x: the operand.
        dtype: of PyTorch, or None.
    """
    if dtype is not None:
        return r.cast(x, type_of(dtype))
    return r.cast(x, dtype_of("int64")) if type_of(x) in (*INTEGERS, BOOL) else x


def _total(op: str) -> Handler:
    """Return the handler of a sum or its like, which may have another type than its operand."""

    def handler(
        r: Reader, x: Operand, axes: Axes = None, keep: bool = False, *, dtype: object = None
    ) -> Traced:
        return reduced(r, op, summed(r, x, dtype), axes, keep)

    return handler


def _product(
    r: Reader, x: Operand, axes: Axes = None, keep: bool = False, *, dtype: object = None
) -> Traced:
    if type_of(x) in (*INTEGERS, BOOL):
        raise r.refuse("products of integers")
    return reduced(r, "reduce_prod", summed(r, x, dtype), axes, keep)


def _variance_and_mean(
    r: Reader, x: Operand, axes: Axes, correction: float | None, keep: bool
) -> tuple[Traced, Traced]:
    found = r.axes(x, axes)
    count = prod(r.shape(x)[axis] for axis in found)
    less = 1.0 if correction is None else float(correction)
    if count <= less or not found:
        raise r.refuse(f"a variance of {count} elements")
    mean = r.emit("reduce_mean", [x], axes=found, keepdims=1)
    centered = r.emit("sub", [x, mean])
    squares = r.emit("mul", [centered, centered])
    variance = r.emit("reduce_mean", [squares], axes=found, keepdims=int(keep))
    if less:
        variance = r.emit("mul", [variance, count / (count - less)])
    if not keep:
        kept = [n for axis, n in enumerate(mean.shape) if axis not in found]
        mean = r.reshape(mean, kept)
    return variance, mean


def _variance(
    r: Reader, x: Operand, axes: Axes = None, *, correction: float | None = 1, keepdim: bool = False
) -> Traced:
    return _variance_and_mean(r, x, axes, correction, keepdim)[0]


def _both(
    r: Reader, x: Operand, axes: Axes = None, *, correction: float | None = 1, keepdim: bool = False
) -> Results:
    return _variance_and_mean(r, x, axes, correction, keepdim)


def _deviation(
    r: Reader, x: Operand, axes: Axes = None, *, correction: float | None = 1, keepdim: bool = False
) -> Traced:
    return r.emit("sqrt", [_variance_and_mean(r, x, axes, correction, keepdim)[0]])


_NORMS = {1: "reduce_l1", 2: "reduce_l2"}


def _norm(
    r: Reader, x: Operand, order: float = 2, axes: Axes = None, keep: bool = False, **_: object
) -> Traced:
    if order == inf:
        return reduced(r, "reduce_max", r.emit("abs", [x]), axes, keep)
    if order not in _NORMS:
        raise r.refuse(f"a norm of order {order}")
    return reduced(r, _NORMS[int(order)], x, axes, keep)


def safe_softmax(r: Reader, x: Operand, axis: int, _dtype: object = None) -> Traced:
    """Add a softmax that is 0 where all operands are -inf, as whole rows of a mask may be.

    Args:
        r: reads the graph.
        x: the operand.
        axis: along which its softmax is taken.
    """
    found = r.emit("softmax", [x], axis=r.axis(x, axis))
    if not r.may_be_masked(x):
        return found
    greatest = r.emit("reduce_max", [x], axes=(r.axis(x, axis),), keepdims=1)
    return r.chosen(r.truth("equal", greatest, -inf), 0.0, found)


def _softmax(op: str) -> Handler:
    def handler(r: Reader, x: Operand, axis: int, _half_to_float: bool = False) -> Traced:
        if not r.shape(x):
            raise r.refuse("a tensor without axes")
        return r.emit(op, [x], axis=r.axis(x, axis))

    return handler


HANDLERS: dict[str, Handler] = {
    "aten._log_softmax.default": _softmax("log_softmax"),
    "aten._safe_softmax.default": safe_softmax,
    "aten._softmax.default": _softmax("softmax"),
    "aten.amax.default": _reduction("reduce_max"),
    "aten.amin.default": _reduction("reduce_min"),
    "aten.linalg_vector_norm.default": _norm,
    "aten.logsumexp.default": _reduction("reduce_log_sum_exp"),
    "aten.max.default": _reduction("reduce_max"),
    "aten.mean.default": _total("reduce_mean"),
    "aten.mean.dim": _total("reduce_mean"),
    "aten.min.default": _reduction("reduce_min"),
    "aten.prod.default": _product,
    "aten.prod.dim_int": _product,
    "aten.std.correction": _deviation,
    "aten.sum.default": _total("reduce_sum"),
    "aten.sum.dim_IntList": _total("reduce_sum"),
    "aten.var.correction": _variance,
    "aten.var_mean.correction": _both,
}
