"""Comparisons, logic on truth values, and choices between tensors."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from stridewise.frontends.torch.library import torch
from stridewise.frontends.torch.reader import BOOL, FLOAT, Handler, Operand, Reader, Traced, type_of

__all__ = ["HANDLERS", "where"]


def _compared(r: Reader, op: str, a: Operand, b: Operand) -> Traced:
    """Compare in the common type, to which PyTorch rounds numbers before."""
    dtype = r.common(a, b)
    held = getattr(torch, dtype.name)
    rounded = [
        torch.tensor(x, dtype=held) if isinstance(x, bool | int | float) else r.cast(x, dtype)
        for x in (a, b)
    ]
    return r.truth(op, *rounded)


def _comparison(op: str) -> Handler:
    def handler(r: Reader, a: Operand, b: Operand) -> Traced:
        return _compared(r, op, a, b)

    return handler


def _unequal(r: Reader, a: Operand, b: Operand) -> Traced:
    return r.negated(_compared(r, "equal", a, b))


def _is_nan(r: Reader, x: Operand) -> Traced:
    return r.negated(r.truth("equal", x, x))


def _is_inf(r: Reader, x: Operand) -> Traced:
    return r.truth("equal", r.emit("abs", [x]), inf)


def _of_truth(r: Reader, op: str, operands: list[Operand]) -> Traced:
    """Add an operator on floats that keeps truth values 0 or 1."""
    found = r.emit(op, [r.cast(r.cast(x, BOOL), FLOAT) for x in operands])
    return replace(found, dtype=BOOL)


def _connective(op: str) -> Handler:
    def handler(r: Reader, a: Operand, b: Operand) -> Traced:
        return _of_truth(r, op, [a, b])

    return handler


def _bits(op: str, handler: Handler) -> Handler:
    """Return the handler of an operator on bits, which is one of logic for truth values."""

    def checked(r: Reader, *operands: Operand) -> Traced:
        dtype = r.common(operands[0], operands[-1])
        held = [r.cast(x, dtype) for x in operands]
        found = handler(r, *held) if dtype == BOOL else r.emit(op, held)
        assert isinstance(found, Traced)
        return found

    return checked


def _xor(r: Reader, a: Operand, b: Operand) -> Traced:
    return r.negated(r.truth("equal", *(r.cast(r.cast(x, BOOL), FLOAT) for x in (a, b))))


def _not(r: Reader, x: Operand) -> Traced:
    return r.negated(r.cast(x, BOOL))


def _reduced(op: str) -> Handler:
    def handler(
        r: Reader, x: Operand, axes: list[int] | int | None = None, keep: bool = False
    ) -> Traced:
        truth = r.cast(x, BOOL)
        found = r.axes(truth, axes)
        if not found:
            raise r.refuse("a tensor without axes")
        return replace(r.emit(op, [truth], axes=found, keepdims=int(keep)), dtype=BOOL)

    return handler


def where(r: Reader, condition: Operand, a: Operand, b: Operand) -> Traced:
    """Add the choice between two operands in the type that they have in common."""
    dtype = r.common(a, b)
    # Numbers are tensors of the type, as they may be the only operands.
    held = getattr(torch, dtype.name)
    chosen = [
        torch.tensor(x, dtype=held) if isinstance(x, bool | int | float) else r.cast(x, dtype)
        for x in (a, b)
    ]
    return replace(r.chosen(r.cast(condition, BOOL), *chosen), dtype=dtype)


def _masked_fill(r: Reader, x: Operand, mask: Operand, value: Operand) -> Traced:
    number = r.scalar(value)
    if number is None:
        raise r.refuse("a value that is no constant")
    return where(r, mask, torch.tensor(number, dtype=getattr(torch, type_of(x).name)), x)


def _triangle(keeps: str) -> Handler:
    """Return the handler of ``tril`` and ``triu``, whose mask is known."""

    def handler(r: Reader, x: Operand, diagonal: int = 0) -> Traced:
        ones = torch.ones(r.shape(x)[-2:], dtype=torch.bool)
        return where(r, getattr(torch, keeps)(ones, diagonal), x, 0.0)

    return handler


_AND, _OR = _connective("mul"), _connective("maximum")
_COMPARISONS = {
    "eq": _comparison("equal"),
    "ge": _comparison("greater_equal"),
    "gt": _comparison("greater"),
    "le": _comparison("less_equal"),
    "lt": _comparison("less"),
    "ne": _unequal,
}

HANDLERS: dict[str, Handler] = {
    **{
        f"aten.{name}.{kind}": handler
        for name, handler in _COMPARISONS.items()
        for kind in ("Scalar", "Tensor")
    },
    "aten.all.default": _reduced("reduce_min"),
    "aten.all.dim": _reduced("reduce_min"),
    "aten.all.dims": _reduced("reduce_min"),
    "aten.any.default": _reduced("reduce_max"),
    "aten.any.dim": _reduced("reduce_max"),
    "aten.any.dims": _reduced("reduce_max"),
    "aten.bitwise_and.Tensor": _bits("bitwise_and", _AND),
    "aten.bitwise_not.default": _bits("bitwise_not", _not),
    "aten.bitwise_or.Tensor": _bits("bitwise_or", _OR),
    "aten.bitwise_xor.Tensor": _bits("bitwise_xor", _xor),
    "aten.isinf.default": _is_inf,
    "aten.isnan.default": _is_nan,
    "aten.logical_and.default": _AND,
    "aten.logical_not.default": _not,
    "aten.logical_or.default": _OR,
    "aten.logical_xor.default": _xor,
    "aten.masked_fill.Scalar": _masked_fill,
    "aten.masked_fill.Tensor": _masked_fill,
    "aten.tril.default": _triangle("tril"),
    "aten.triu.default": _triangle("triu"),
    "aten.where.self": where,
}
