"""Greatest elements and their positions, elements in order, and running sums, along an axis."""

from __future__ import annotations

from math import prod

from stridewise.frontends.torch.handlers.reduce import reduced, summed, widened
from stridewise.frontends.torch.reader import INTEGERS, Handler, Operand, Reader, Results, Traced

__all__ = ["HANDLERS"]


def _top(r: Reader, x: Operand, k: int, axis: int, *, largest: bool) -> tuple[Traced, Traced]:
    """Take elements in order. Of equal ones the first comes first, as in stable sorts."""
    data = r.held(x)
    if not data.shape:
        raise r.refuse("a tensor without axes")
    wide = widened(r, data)
    attrs = {"axis": r.axis(data, axis), "k": k, "largest": int(largest)}
    values, positions = r.emit_all("top_k", [wide], **attrs)
    return r.cast(values, data.dtype), positions


def _topk(
    r: Reader, x: Operand, k: int, dim: int = -1, largest: bool = True, _sorted: bool = True
) -> Results:
    return _top(r, x, k, dim, largest=largest)


def _sort(r: Reader, x: Operand, dim: int = -1, descending: bool = False) -> Results:
    return _top(r, x, r.shape(x)[dim] if r.shape(x) else 1, dim, largest=descending)


def _stable_sort(
    r: Reader,
    x: Operand,
    *,
    stable: bool | None = None,
    dim: int = -1,
    descending: bool = False,
) -> Results:
    del stable  # all sorts are
    return _sort(r, x, dim, descending)


def _position(r: Reader, x: Operand, axis: int, keep: bool, *, largest: bool) -> Traced:
    """Return where the first of the greatest or least elements is."""
    data = r.held(x)
    if data.dtype not in INTEGERS:
        op = "arg_max" if largest else "arg_min"
        return r.emit(op, [data], axis=axis, keepdims=int(keep))
    found = _top(r, data, 1, axis, largest=largest)[1]
    return found if keep else r.reshape(found, (*found.shape[:axis], *found.shape[axis + 1 :]))


def _extreme(largest: bool) -> Handler:
    """Return the handler of ``max.dim`` or ``min.dim``."""

    def handler(r: Reader, x: Operand, dim: int, keep: bool = False) -> Results:
        if not r.shape(x):
            raise r.refuse("a tensor without axes")
        op = "reduce_max" if largest else "reduce_min"
        position = _position(r, x, r.axis(x, dim), keep, largest=largest)
        return reduced(r, op, x, dim, keep), position

    return handler


def _extreme_position(largest: bool) -> Handler:
    """Return the handler of ``argmax`` or ``argmin``, by default of all elements in their order."""

    def handler(r: Reader, x: Operand, dim: int | None = None, keep: bool = False) -> Traced:
        shape = r.shape(x)
        if dim is not None and shape:
            return _position(r, x, r.axis(x, dim), keep, largest=largest)
        found = _position(r, r.reshape(x, (prod(shape),)), 0, keep=False, largest=largest)
        return r.reshape(found, (1,) * len(shape)) if keep else found

    return handler


def _cumsum(r: Reader, x: Operand, dim: int, *, dtype: object = None) -> Traced:
    total = summed(r, x, dtype)
    if not r.shape(total):
        return r.emit("identity", [total])
    return r.emit("cumsum", [total], axis=r.axis(total, dim))


HANDLERS: dict[str, Handler] = {
    "aten.argmax.default": _extreme_position(largest=True),
    "aten.argmin.default": _extreme_position(largest=False),
    "aten.cumsum.default": _cumsum,
    "aten.max.dim": _extreme(largest=True),
    "aten.min.dim": _extreme(largest=False),
    "aten.sort.default": _sort,
    "aten.sort.stable": _stable_sort,
    "aten.topk.default": _topk,
}
