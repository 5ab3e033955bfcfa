"""Tensors with a part replaced."""

from __future__ import annotations

from stridewise.frontends.torch.handlers.shape import expanded, joined, unsqueezed
from stridewise.frontends.torch.reader import Handler, Operand, Reader, Traced, type_of

__all__ = ["HANDLERS"]


def _copied(r: Reader, x: Operand, source: Operand, _wait: bool = False) -> Traced:
    held = source if isinstance(source, Traced) else r.emit("identity", [source])
    return expanded(r, r.cast(held, type_of(x)), r.shape(x))


def _scattered(
    r: Reader,
    x: Operand,
    source: Operand,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Traced:
    axis = r.axis(x, dim)
    extent = r.shape(x)[axis]
    begin, stop, _ = slice(start, end, step).indices(extent)
    count = len(range(begin, stop, step))
    if not count:
        return r.emit("identity", [x])
    last = begin + (count - 1) * step
    pieces = [
        r.cut(x, axis, 0, begin),
        source if step == 1 else _between(r, r.cut(x, axis, begin, last), source, axis, step),
        r.cut(x, axis, last + 1, extent),
    ]
    return joined(r, [piece for piece in pieces if r.shape(piece)[axis]], axis)


def _between(r: Reader, x: Operand, source: Operand, axis: int, step: int) -> Traced:
    """Put slices of a source in place of each first of ``step`` slices, and one behind them."""
    shape, count = r.shape(x), r.shape(source)[axis] - 1
    final = r.cut(source, axis, count, count + 1)
    if not count:
        return final
    groups = r.reshape(x, (*shape[:axis], count, step, *shape[axis + 1 :]))
    firsts = unsqueezed(r, r.cut(source, axis, 0, count), axis + 1)
    merged = joined(r, [firsts, r.cut(groups, axis + 1, 1, step)], axis + 1)
    return joined(r, [r.reshape(merged, shape), final], axis)


def _select_scatter(r: Reader, x: Operand, source: Operand, dim: int, index: int) -> Traced:
    axis = r.axis(x, dim)
    at = index % r.shape(x)[axis]
    return _scattered(r, x, unsqueezed(r, source, axis), axis, at, at + 1)


HANDLERS: dict[str, Handler] = {
    "aten.copy.default": _copied,
    "aten.fill.Scalar": _copied,
    "aten.fill.Tensor": _copied,
    "aten.select_scatter.default": _select_scatter,
    "aten.slice_scatter.default": _scattered,
}
