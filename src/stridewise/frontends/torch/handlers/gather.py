"""Elements that are read, or written, at indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from stridewise.dtypes import dtype_of
from stridewise.frontends.torch.handlers.logic import where
from stridewise.frontends.torch.handlers.shape import expanded, joined, unsqueezed
from stridewise.frontends.torch.library import torch
from stridewise.frontends.torch.reader import (
    BOOL,
    INTEGERS,
    Handler,
    Operand,
    Reader,
    Traced,
    type_of,
)

__all__ = ["HANDLERS", "counted"]

_MOST_PIECES = 64
"""Beyond that many runs of constant indices they are a table, in place of slices."""

_INT64 = dtype_of("int64")


def counted(r: Reader, index: Operand, extent: int) -> Operand:
    """Return indices that are rejected below 0, where ONNX would count from the end.

    Args:
        r: reads the graph.
        index: integers.
        extent: of the axis that they are indices of.
    """
    if isinstance(index, Traced):
        below = r.truth("less", index, 0)
        return r.chosen(below, r.arithmetic("sub", index, extent), index)
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < extent:
        raise r.refuse(f"indices outside of {extent} elements")
    return index


def _axis(r: Reader, x: Operand, dim: int) -> int:
    if not r.shape(x):
        raise r.refuse("a tensor without axes")
    return r.axis(x, dim)


# --- slices along an axis -------------------------------------------------------------------------


def _runs(index: Operand, extent: int) -> list[list[int]]:
    """Return the first and the end of each run of successive indices, counted from the front."""
    runs: list[list[int]] = []
    for at in (index + extent * (index < 0)).flatten().tolist():
        if runs and at == runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([at, at + 1])
    return runs


def _taken(r: Reader, x: Operand, axis: int, index: Operand) -> Traced:
    """Take slices along an axis: runs of constant indices as they are, others by their indices."""
    shape = r.shape(x)
    if not isinstance(index, Traced):
        if index.numel() and not -shape[axis] <= int(index.min()) <= int(index.max()) < shape[axis]:
            raise r.refuse(f"indices outside of {shape[axis]} elements")
        runs = _runs(index, shape[axis])
        if 0 < len(runs) <= _MOST_PIECES:
            found = joined(r, [r.cut(x, axis, *run) for run in runs], axis)
            return r.reshape(found, (*shape[:axis], *index.shape, *shape[axis + 1 :]))
    return r.emit("gather", [r.held(x), r.held(index)], axis=axis)


def _index_select(r: Reader, x: Operand, dim: int, index: Operand) -> Traced:
    axis = _axis(r, x, dim)
    row = counted(r, index, r.shape(x)[axis])
    return _taken(r, x, axis, row if r.shape(row) else unsqueezed(r, r.held(row), 0))


def _embedding(
    r: Reader,
    weight: Operand,
    index: Operand,
    _padding: int = -1,
    _by_frequency: bool = False,
    _sparse: bool = False,
) -> Traced:
    return _taken(r, weight, 0, counted(r, index, r.shape(weight)[0]))


_MOST_ZEROS = 1 << 24
"""Elements of a table from which its gradient is left to PyTorch: a constant would have as many."""


def _embedding_backward(
    r: Reader, gradient: Operand, index: Operand, count: int, padding: int, by_frequency: bool
) -> Traced:
    found = r.held(gradient)
    width = found.shape[-1]
    if by_frequency:
        raise r.refuse("gradients scaled by frequencies")
    if count * width > _MOST_ZEROS:
        raise r.refuse(f"a table of {count} rows of {width} elements")
    rows = r.reshape(found, (prod(r.shape(index)), width))
    points = r.reshape(r.cast(r.held(index), _INT64), (prod(r.shape(index)), 1))
    if padding >= 0:
        is_padding = r.truth("equal", points, padding)
        rows = where(r, is_padding, 0.0, rows)
    zeros = torch.zeros((count, width), dtype=getattr(torch, rows.dtype.name))
    return r.emit("scatter_nd", [r.held(zeros), points, rows], reduction="add")


# --- points of several axes -----------------------------------------------------------------------


class _Points:
    """Indices of some axes of a tensor, as ``x[:, i, j]`` has them, in the order of operators.

    Operators have the indexed axes first. PyTorch puts the axes of the indices where the indexed
    axes were, if those are neighbours, and else first (source: NumPy, advanced indexing).
    """

    def __init__(self, r: Reader, x: Operand, indices: Sequence[Operand | None]) -> None:
        self.axes = [axis for axis, index in enumerate(indices) if index is not None]
        given = [index for index in indices if index is not None]
        if any(type_of(index) not in INTEGERS for index in given):
            raise r.refuse("truth values as indices")
        shape = np.broadcast_shapes(*map(r.shape, given))
        columns = [
            unsqueezed(r, expanded(r, r.cast(r.held(index), _INT64), shape), len(shape))
            for index in given
        ]
        self.points = joined(r, columns, len(shape))
        self.shape, self.rank = shape, len(r.shape(x))

    def order(self) -> list[int]:
        """Return the axes of the tensor, those with indices first."""
        return [*self.axes, *(axis for axis in range(self.rank) if axis not in self.axes)]

    def placed(self) -> list[int]:
        """Return which axis of a result of operators each axis of PyTorch's result is."""
        count = len(self.shape)
        is_together = self.axes == list(range(self.axes[0], self.axes[-1] + 1))
        ahead = self.axes[0] if is_together else 0
        left = range(count, count + self.rank - len(self.axes))
        return [*left[:ahead], *range(count), *left[ahead:]]


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def _index(r: Reader, x: Operand, indices: Sequence[Operand | None]) -> Traced:
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    index = indices[axes[0]]
    if len(axes) == 1 and index is not None and type_of(index) in INTEGERS:
        return _taken(r, x, axes[0], index)
    points = _Points(r, x, indices)
    data = r.permute(r.held(x), points.order())
    return r.permute(r.emit("gather_nd", [data, points.points]), points.placed())


def _masked_put(r: Reader, x: Operand, mask: Operand, values: Operand) -> Traced:
    """Write one number where a mask says so."""
    if prod(r.shape(values)) != 1:
        raise r.refuse("values for the elements of a mask")
    ones = (1,) * (len(r.shape(x)) - len(r.shape(mask)))
    aligned = r.reshape(r.held(mask), (*r.shape(mask), *ones))
    number = values if not r.shape(values) else r.reshape(r.held(values), ())
    return where(r, aligned, number, x)


def _index_put(
    r: Reader,
    x: Operand,
    indices: Sequence[Operand | None],
    values: Operand,
    accumulate: bool = False,
    _unsafe: bool = False,
) -> Traced:
    given = [index for index in indices if index is not None]
    if len(given) == 1 and indices[0] is not None and type_of(given[0]) == BOOL and not accumulate:
        return _masked_put(r, x, given[0], values)
    points = _Points(r, x, indices)
    order, placed = points.order(), points.placed()
    data = r.permute(r.held(x), order)
    inner = (*points.shape, *data.shape[len(points.axes) :])
    whole = expanded(r, r.held(values), [inner[axis] for axis in placed])
    updates = r.permute(r.cast(whole, data.dtype), _inverse(placed))
    how = "add" if accumulate else "none"
    found = r.emit("scatter_nd", [data, points.points, updates], reduction=how)
    return r.permute(found, _inverse(order))


def _index_add(
    r: Reader, x: Operand, dim: int, index: Operand, source: Operand, *, alpha: float = 1
) -> Traced:
    axis = _axis(r, x, dim)
    row = counted(r, index, r.shape(x)[axis])
    added = r.held(source) if alpha == 1 else r.arithmetic("mul", source, alpha)
    return _index_put(r, x, [*(None,) * axis, row], added, accumulate=True)


# --- single elements along an axis ----------------------------------------------------------------


def _gather(r: Reader, x: Operand, dim: int, index: Operand, _sparse: bool = False) -> Traced:
    axis = _axis(r, x, dim)
    places = r.held(counted(r, index, r.shape(x)[axis]))
    return r.emit("gather_elements", [r.held(x), places], axis=axis)


def _scattered(
    r: Reader, x: Operand, dim: int, index: Operand, source: Operand, how: str
) -> Traced:
    axis = _axis(r, x, dim)
    data, wanted = r.held(x), r.shape(index)
    places = r.held(counted(r, index, data.shape[axis]))
    number = r.scalar(source)
    if number is None:
        updates = r.cast(r.held(source), data.dtype)
        for each, extent in enumerate(wanted):
            if updates.shape[each] != extent:
                updates = r.cut(updates, each, 0, extent)
    else:
        held = torch.full(wanted, number, dtype=getattr(torch, data.dtype.name))
        updates = r.held(held)
    return r.emit("scatter_elements", [data, places, updates], axis=axis, reduction=how)


def _scatter(r: Reader, x: Operand, dim: int, index: Operand, source: Operand) -> Traced:
    return _scattered(r, x, dim, index, source, "none")


def _scatter_add(r: Reader, x: Operand, dim: int, index: Operand, source: Operand) -> Traced:
    return _scattered(r, x, dim, index, source, "add")


_REDUCTIONS = {"amax": "max", "amin": "min", "prod": "mul", "sum": "add"}


def _scatter_reduce(
    r: Reader,
    x: Operand,
    dim: int,
    index: Operand,
    source: Operand,
    how: str,
    *,
    include_self: bool = True,
) -> Traced:
    if how not in _REDUCTIONS or not include_self:
        raise r.refuse(f"a reduction {how!r} without what is there")
    return _scattered(r, x, dim, index, source, _REDUCTIONS[how])


HANDLERS: dict[str, Handler] = {
    "aten.embedding.default": _embedding,
    "aten.embedding_dense_backward.default": _embedding_backward,
    "aten.gather.default": _gather,
    "aten.index.Tensor": _index,
    "aten.index_add.default": _index_add,
    "aten.index_put.default": _index_put,
    "aten._unsafe_index.Tensor": _index,
    "aten._unsafe_index_put.default": _index_put,
    "aten.index_select.default": _index_select,
    "aten.scatter.src": _scatter,
    "aten.scatter.value": _scatter,
    "aten.scatter_add.default": _scatter_add,
    "aten.scatter_reduce.two": _scatter_reduce,
}
