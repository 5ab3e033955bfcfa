"""Elementwise operators of two operands with broadcasting."""

from __future__ import annotations

from stridewise.frontends.torch.reader import Handler, Operand, Reader, Traced

__all__ = ["HANDLERS"]


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


def _clamp(
    r: Reader, x: Operand, low: Operand | None = None, high: Operand | None = None
) -> Traced:
    for op, bound in (("maximum", low), ("minimum", high)):
        x = x if bound is None else r.arithmetic(op, x, bound)
    return x


def _lerp(r: Reader, a: Operand, b: Operand, weight: Operand) -> Traced:
    change = r.arithmetic("mul", r.arithmetic("sub", b, a), weight)
    return r.arithmetic("add", a, change)


HANDLERS: dict[str, Handler] = {
    "aten.add.Scalar": _add,
    "aten.add.Tensor": _add,
    "aten.addcdiv.default": _add_quotient,
    "aten.addcmul.default": _add_product,
    "aten.clamp.Tensor": _clamp,
    "aten.clamp_max.Tensor": _binary("minimum"),
    "aten.clamp_min.Tensor": _binary("maximum"),
    "aten.div.Scalar": _binary("div"),
    "aten.div.Tensor": _binary("div"),
    "aten.lerp.Scalar": _lerp,
    "aten.lerp.Tensor": _lerp,
    "aten.maximum.default": _binary("maximum"),
    "aten.minimum.default": _binary("minimum"),
    "aten.mul.Scalar": _binary("mul"),
    "aten.mul.Tensor": _binary("mul"),
    "aten.pow.Scalar": _binary("pow"),
    "aten.pow.Tensor_Tensor": _binary("pow"),
    "aten.rsub.Scalar": _rsub,
    "aten.rsub.Tensor": _rsub,
    "aten.sub.Scalar": _sub,
    "aten.sub.Tensor": _sub,
}
