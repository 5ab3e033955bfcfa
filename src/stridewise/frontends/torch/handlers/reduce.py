"""Reductions, and softmax along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from stridewise.frontends.torch.reader import Handler, Operand, Reader, Results, Traced

__all__ = ["HANDLERS", "safe_softmax"]

Axes = Sequence[int] | int | None


def _reduced(r: Reader, op: str, x: Operand, axes: Axes, keep: bool) -> Traced:
    found = r.axes(x, axes)
    return r.emit(op, [x], axes=found, keepdims=int(keep)) if found else r.emit("identity", [x])


def _reduction(op: str) -> Handler:
    """Return the handler of a reduction whose result has the type of its operand."""

    def handler(
        r: Reader, x: Operand, axes: Axes = None, keep: bool = False, **_types: object
    ) -> Traced:
        return _reduced(r, op, x, axes, keep)

    return handler


def _extremum(op: str) -> Handler:
    """Return the handler of ``max.dim`` and its like; positions are not made."""

    def handler(r: Reader, x: Operand, axis: int, keep: bool = False) -> Results:
        return _reduced(r, op, x, axis, keep), None

    return handler


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
        return _reduced(r, "reduce_max", r.emit("abs", [x]), axes, keep)
    if order not in _NORMS:
        raise r.refuse(f"a norm of order {order}")
    return _reduced(r, _NORMS[int(order)], x, axes, keep)


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
    "aten.max.dim": _extremum("reduce_max"),
    "aten.mean.default": _reduction("reduce_mean"),
    "aten.mean.dim": _reduction("reduce_mean"),
    "aten.min.default": _reduction("reduce_min"),
    "aten.min.dim": _extremum("reduce_min"),
    "aten.prod.default": _reduction("reduce_prod"),
    "aten.prod.dim_int": _reduction("reduce_prod"),
    "aten.std.correction": _deviation,
    "aten.sum.default": _reduction("reduce_sum"),
    "aten.sum.dim_IntList": _reduction("reduce_sum"),
    "aten.var.correction": _variance,
    "aten.var_mean.correction": _both,
}
