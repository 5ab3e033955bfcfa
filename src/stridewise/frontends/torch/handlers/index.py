"""Elements by constant indices, and tensors with a part replaced."""

from __future__ import annotations

from collections.abc import Sequence

from stridewise.frontends.torch.handlers.shape import expanded, joined, unsqueezed
from stridewise.frontends.torch.library import torch
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


_MOST_PIECES = 64
"""Beyond that many runs of indices, a copy in pieces is slower than PyTorch's own."""


def _picked(r: Reader, x: Operand, dim: int, index: Operand) -> Traced:
    """Take indices along an axis: each run of them is a slice."""
    if isinstance(index, Traced) or index.dtype == torch.bool or index.dim() != 1:
        raise r.refuse("indices that are no constant")
    axis, extent = r.axis(x, dim), r.shape(x)[r.axis(x, dim)]
    wanted = [int(at) % max(extent, 1) for at in index]
    runs: list[list[int]] = []
    for at in wanted:
        if runs and at == runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([at, at + 1])
    if not 0 < len(runs) <= _MOST_PIECES:
        raise r.refuse(f"{len(runs)} runs of indices")
    return joined(r, [r.cut(x, axis, *run) for run in runs], axis)


def _indexed(r: Reader, x: Operand, indices: Sequence[Operand | None]) -> Traced:
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    if len(axes) != 1:
        raise r.refuse("indices for several axes")
    index = indices[axes[0]]
    if isinstance(index, Traced) or index is None or not index.dim():
        raise r.refuse("indices that are no constant")
    shape = r.shape(x)
    found = _picked(r, x, axes[0], index.flatten())
    return r.reshape(found, (*shape[: axes[0]], *index.shape, *shape[axes[0] + 1 :]))


HANDLERS: dict[str, Handler] = {
    "aten.copy.default": _copied,
    "aten.fill.Scalar": _copied,
    "aten.fill.Tensor": _copied,
    "aten.index.Tensor": _indexed,
    "aten.index_select.default": _picked,
    "aten.select_scatter.default": _select_scatter,
    "aten.slice_scatter.default": _scattered,
}
