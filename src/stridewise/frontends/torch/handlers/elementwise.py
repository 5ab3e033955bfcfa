"""Elementwise operators of numbers of any type, with broadcasting."""

from __future__ import annotations

from math import inf

from stridewise.frontends.torch.reader import INTEGERS, Handler, Operand, Reader, Traced, type_of

__all__ = ["HANDLERS", "clamped", "plain"]


def plain(op: str, **attrs: float) -> Handler:
    """Return the handler of an operator that has a counterpart without further arguments."""

    def handler(r: Reader, x: Operand) -> Traced:
        return r.emit(op, [x], **attrs)

    return handler


def _binary(op: str) -> Handler:
    def handler(r: Reader, a: Operand, b: Operand) -> Traced:
        return r.arithmetic(op, a, b)

    return handler


def _sum(r: Reader, op: str, a: Operand, b: Operand, alpha: float) -> Traced:
    return r.arithmetic(op, a, b if alpha == 1 else r.arithmetic("mul", b, alpha))


def _add(r: Reader, a: Operand, b: Operand, alpha: float = 1) -> Traced:
    return _sum(r, "add", a, b, alpha)


def _sub(r: Reader, a: Operand, b: Operand, alpha: float = 1) -> Traced:
    return _sum(r, "sub", a, b, alpha)


def _rsub(r: Reader, a: Operand, b: Operand, alpha: float = 1) -> Traced:
    return _sum(r, "sub", b, a, alpha)


def _add_product(r: Reader, x: Operand, a: Operand, b: Operand, value: float = 1) -> Traced:
    return _sum(r, "add", x, r.arithmetic("mul", a, b), value)


def _add_quotient(r: Reader, x: Operand, a: Operand, b: Operand, value: float = 1) -> Traced:
    return _sum(r, "add", x, r.arithmetic("div", a, b), value)


def _bounded(
    r: Reader, x: Operand, low: Operand | None = None, high: Operand | None = None
) -> Traced:
    for op, bound in (("maximum", low), ("minimum", high)):
        x = x if bound is None else r.arithmetic(op, x, bound)
    return x


def clamped(r: Reader, x: Operand, low: float | None = None, high: float | None = None) -> Traced:
    """Add limits to numbers.

    Args:
        r: reads the graph.
        x: the operand.
        low: the lower limit; by default none.
        high: the upper limit; by default none.
    """
    if type_of(x) in INTEGERS:
        return _bounded(r, x, low, high)
    bounds = (-inf if low is None else float(low), inf if high is None else float(high))
    if bounds[0] > bounds[1]:
        raise r.refuse("a lower bound above the upper one")
    return r.emit("clip", [x], alpha=bounds[0], beta=bounds[1])


def _clamp_max(r: Reader, x: Operand, high: float) -> Traced:
    return clamped(r, x, None, high)


def _remainder(r: Reader, a: Operand, b: Operand) -> Traced:
    """Add the remainder with the sign of the divisor. By 0, PyTorch raises errors for integers."""
    if not r.number(b):
        raise r.refuse("a divisor that may be 0")
    return r.arithmetic("mod", a, b)


def _floored(r: Reader, a: Operand, b: Operand) -> Traced:
    """Take the remainder off, so that the quotient is an integer but for its rounding."""
    whole = r.arithmetic("sub", a, _remainder(r, a, b))
    dtype = r.common(a, b)
    if dtype in INTEGERS:
        return r.emit("div", [whole, r.cast(b, dtype)])
    return r.emit("round", [r.arithmetic("div", whole, b)])


def _div(r: Reader, a: Operand, b: Operand, *, rounding_mode: str | None = None) -> Traced:
    if rounding_mode is None:
        return r.arithmetic("div", a, b)
    if rounding_mode == "floor":
        return _floored(r, a, b)
    raise r.refuse(f"a quotient rounded by {rounding_mode!r}")


def _lerp(r: Reader, a: Operand, b: Operand, weight: Operand) -> Traced:
    change = r.arithmetic("mul", r.arithmetic("sub", b, a), weight)
    return r.arithmetic("add", a, change)


HANDLERS: dict[str, Handler] = {
    "aten.abs.default": plain("abs"),
    "aten.add.Scalar": _add,
    "aten.add.Tensor": _add,
    "aten.addcdiv.default": _add_quotient,
    "aten.addcmul.default": _add_product,
    "aten.clamp.Tensor": _bounded,
    "aten.clamp.default": clamped,
    "aten.clamp_max.default": _clamp_max,
    "aten.clamp_max.Tensor": _binary("minimum"),
    "aten.clamp_min.default": clamped,
    "aten.clamp_min.Tensor": _binary("maximum"),
    "aten.div.Scalar": _div,
    "aten.div.Scalar_mode": _div,
    "aten.div.Tensor": _div,
    "aten.div.Tensor_mode": _div,
    "aten.floor_divide.default": _floored,
    "aten.lerp.Scalar": _lerp,
    "aten.lerp.Tensor": _lerp,
    "aten.maximum.default": _binary("maximum"),
    "aten.minimum.default": _binary("minimum"),
    "aten.mul.Scalar": _binary("mul"),
    "aten.mul.Tensor": _binary("mul"),
    "aten.neg.default": plain("neg"),
    "aten.pow.Scalar": _binary("pow"),
    "aten.pow.Tensor_Tensor": _binary("pow"),
    "aten.remainder.Scalar": _remainder,
    "aten.remainder.Tensor": _remainder,
    "aten.rsub.Scalar": _rsub,
    "aten.rsub.Tensor": _rsub,
    "aten.sgn.default": plain("sign"),
    "aten.sign.default": plain("sign"),
    "aten.sub.Scalar": _sub,
    "aten.sub.Tensor": _sub,
}
