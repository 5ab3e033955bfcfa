"""Operators that change the shape, take parts, or put parts together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

from stridewise.frontends.torch.library import torch
from stridewise.frontends.torch.reader import (
    INTEGERS,
    Handler,
    Operand,
    Reader,
    Results,
    Traced,
    type_of,
)

__all__ = ["HANDLERS", "VIEWS", "batched", "expanded", "joined", "unsqueezed"]


def _same(r: Reader, x: Operand, *_args: object, **_options: object) -> Traced:
    return x if isinstance(x, Traced) else r.emit("identity", [x])


def _view(r: Reader, x: Operand, shape: Sequence[int]) -> Traced:
    known = prod(extent for extent in shape if extent != -1)
    total = prod(r.shape(x))
    filled = [total // max(known, 1) if extent == -1 else extent for extent in shape]
    return r.reshape(x, filled)


def _reshape_alias(r: Reader, x: Operand, shape: Sequence[int], _stride: Sequence[int]) -> Traced:
    return _view(r, x, shape)


def _permute(r: Reader, x: Operand, dims: Sequence[int]) -> Traced:
    return r.permute(x, [r.axis(x, dim) for dim in dims])


def _swap(r: Reader, x: Operand, first: int, second: int) -> Traced:
    order = list(range(len(r.shape(x))))
    if order:
        a, b = r.axis(x, first), r.axis(x, second)
        order[a], order[b] = order[b], order[a]
    return r.permute(x, order)


def _transpose(r: Reader, x: Operand) -> Traced:
    return r.permute(x, tuple(reversed(range(len(r.shape(x))))))


def _squeeze(r: Reader, x: Operand, axes: Sequence[int] | int | None = None) -> Traced:
    shape = r.shape(x)
    chosen = range(len(shape)) if axes is None else r.axes(x, axes)
    return r.reshape(
        x, [extent for axis, extent in enumerate(shape) if extent != 1 or axis not in chosen]
    )


def unsqueezed(r: Reader, x: Operand, axis: int) -> Traced:
    """Add an axis of one element."""
    shape = list(r.shape(x))
    shape.insert(axis % (len(shape) + 1), 1)
    return r.reshape(x, shape)


def batched(handler: Handler, rank: int) -> Handler:
    """Return a handler of images that takes one without a batch axis, too.

    Args:
        handler: takes images first.
        rank: number of axes of the images.
    """

    def whole(r: Reader, x: Operand, *args: Any, **options: Any) -> Results:
        if len(r.shape(x)) != rank - 1:
            return handler(r, x, *args, **options)
        found = handler(r, unsqueezed(r, x, 0), *args, **options)
        if isinstance(found, tuple):
            return tuple(y and r.reshape(y, y.shape[1:]) for y in found)
        return r.reshape(found, found.shape[1:])

    return whole


def expanded(r: Reader, x: Operand, size: Sequence[int], implicit: bool = False) -> Traced:
    """Repeat elements along axes of one element."""
    del implicit
    shape = r.shape(x)
    ahead = len(size) - len(shape)
    aligned = (*(1,) * ahead, *shape)
    wanted = [old if n == -1 else n for old, n in zip(aligned, size, strict=True)]
    return r.emit("expand", [r.reshape(x, aligned) if ahead else x], shape=tuple(wanted))


def _repeat(r: Reader, x: Operand, repeats: Sequence[int]) -> Traced:
    shape = r.shape(x)
    aligned = (*(1,) * (len(repeats) - len(shape)), *shape)
    return r.emit(
        "tile", [x if aligned == shape else r.reshape(x, aligned)], repeats=tuple(repeats)
    )


def _select(r: Reader, x: Operand, dim: int, index: int) -> Traced:
    axis, shape = r.axis(x, dim), r.shape(x)
    at = index % shape[axis]
    return r.reshape(r.cut(x, axis, at, at + 1), (*shape[:axis], *shape[axis + 1 :]))


def _slice(
    r: Reader,
    x: Operand,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Traced:
    axis = r.axis(x, dim)
    begin, stop, _ = slice(start, end, step).indices(r.shape(x)[axis])
    return r.cut(x, axis, begin, max(begin, stop), step)


def _pieces(r: Reader, x: Operand, sizes: Sequence[int], axis: int) -> Results:
    found: list[Traced] = []
    start = 0
    for size in sizes:
        found.append(r.cut(x, axis, start, start + size))
        start += size
    return tuple(found)


def _split(r: Reader, x: Operand, size: int, dim: int = 0) -> Results:
    axis = r.axis(x, dim)
    extent = r.shape(x)[axis]
    if not size:
        raise r.refuse("pieces of no element")
    return _pieces(r, x, [min(size, extent - at) for at in range(0, extent, size)], axis)


def _split_sizes(r: Reader, x: Operand, sizes: Sequence[int], dim: int = 0) -> Results:
    return _pieces(r, x, sizes, r.axis(x, dim))


def _unbind(r: Reader, x: Operand, dim: int = 0) -> Results:
    return tuple(_select(r, x, dim, index) for index in range(r.shape(x)[r.axis(x, dim)]))


def _cat(r: Reader, tensors: Sequence[Operand], dim: int = 0) -> Traced:
    # Tensors of shape (0,) are left out whatever the others are (source: PyTorch, cat).
    kept = [x for x in tensors if r.shape(x) != (0,)] or list(tensors)
    return joined(r, kept, r.axis(kept[0], dim))


def _stack(r: Reader, tensors: Sequence[Operand], dim: int = 0) -> Traced:
    axis = dim % (len(r.shape(tensors[0])) + 1)
    return joined(r, [unsqueezed(r, x, axis) for x in tensors], axis)


def joined(r: Reader, tensors: Sequence[Operand], axis: int) -> Traced:
    """Join tensors in the element type that they have in common."""
    types = (getattr(torch, type_of(x).name) for x in tensors)
    dtype = type_of(reduce(torch.promote_types, types))
    return r.emit("concat", [r.cast(x, dtype) for x in tensors], axis=axis)


def _pads(r: Reader, x: Operand, pads: Sequence[int]) -> tuple[int, ...]:
    """Return pads of all axes, begins and then ends; PyTorch has pairs from the last axis on."""
    rank = len(r.shape(x))
    begins, ends = [0] * rank, [0] * rank
    for pair in range(len(pads) // 2):
        begins[rank - 1 - pair], ends[rank - 1 - pair] = pads[2 * pair], pads[2 * pair + 1]
    return (*begins, *ends)


def _bordered_with(r: Reader, x: Operand, pads: Sequence[int], value: float) -> Traced:
    """Put constants before and behind integers along each axis."""
    found = r.held(x)
    rank = len(pads) // 2

    def border(axis: int, extent: int) -> list[Operand]:
        shape = (*found.shape[:axis], extent, *found.shape[axis + 1 :])
        held = getattr(torch, found.dtype.name)
        return [torch.full(shape, value, dtype=held)] if extent else []

    for axis in range(rank):
        pieces = [*border(axis, pads[axis]), found, *border(axis, pads[rank + axis])]
        found = joined(r, pieces, axis) if len(pieces) > 1 else found
    return found


def _pad(r: Reader, x: Operand, pads: Sequence[int], value: float = 0) -> Traced:
    amounts = _pads(r, x, pads)
    rank = len(amounts) // 2
    for axis in range(rank):
        cut = [max(-amounts[axis], 0), max(-amounts[rank + axis], 0)]
        if any(cut):
            x = r.cut(x, axis, cut[0], r.shape(x)[axis] - cut[1])
    positive = tuple(max(amount, 0) for amount in amounts)
    if not any(positive):
        return _same(r, x)
    if type_of(x) in INTEGERS:
        return _bordered_with(r, x, positive, value)
    return r.emit("pad", [x], pads=positive, value=float(value))


def _bordered(mode: str) -> Handler:
    def handler(r: Reader, x: Operand, pads: Sequence[int]) -> Traced:
        if min(pads) < 0:
            raise r.refuse("a padding below 0")
        return r.emit("pad", [x], pads=_pads(r, x, pads), mode=mode)

    return handler


def _roll(r: Reader, x: Operand, shifts: Sequence[int], dims: Sequence[int] = ()) -> Traced:
    if not dims:
        flat = _roll(r, r.reshape(x, (prod(r.shape(x)),)), shifts, (0,))
        return r.reshape(flat, r.shape(x))
    found = _same(r, x)
    for shift, dim in zip(shifts, dims, strict=True):
        axis = r.axis(found, dim)
        extent = found.shape[axis]
        cut = -shift % max(extent, 1)
        if cut:
            parts = [r.cut(found, axis, cut, extent), r.cut(found, axis, 0, cut)]
            found = r.emit("concat", parts, axis=axis)
    return found


def _flip(r: Reader, x: Operand, dims: Sequence[int]) -> Traced:
    found = _same(r, x)
    for axis in r.axes(x, dims) if dims else ():
        found = r.cut(found, axis, found.shape[axis] - 1, -1, -1)
    return found


def _pixels(op: str) -> Handler:
    """Return the handler of ``pixel_shuffle`` or its inverse; any axes are ahead of the images."""

    def handler(r: Reader, x: Operand, factor: int) -> Traced:
        *ahead, channels, height, width = r.shape(x)
        if len(ahead) == 1:
            return r.emit(op, [x], block=factor, mode="CRD")
        images = r.reshape(x, (prod(ahead), channels, height, width))
        found = r.emit(op, [images], block=factor, mode="CRD")
        return r.reshape(found, (*ahead, *found.shape[1:]))

    return handler


def _channel_shuffle(r: Reader, x: Operand, groups: int) -> Traced:
    return r.emit("channel_shuffle", [x], groups=groups)


def _copy(r: Reader, x: Operand, *, dtype: Any = None, **_options: object) -> Traced:
    found = _same(r, x)
    return found if dtype is None else r.cast(found, type_of(dtype))


VIEWS: dict[str, Handler] = {
    "aten._reshape_alias.default": _reshape_alias,
    "aten._to_copy.default": _copy,
    "aten._unsafe_view.default": _view,
    "aten.alias.default": _same,
    "aten.as_strided.default": _same,
    "aten.clone.default": _same,
    "aten.contiguous.default": _same,
    "aten.detach.default": _same,
    "aten.expand.default": expanded,
    "aten.lift_fresh_copy.default": _same,
    "aten.permute.default": _permute,
    "aten.reshape.default": _view,
    "aten.select.int": _select,
    "aten.slice.Tensor": _slice,
    "aten.split.Tensor": _split,
    "aten.split_with_sizes.default": _split_sizes,
    "aten.squeeze.default": _squeeze,
    "aten.squeeze.dim": _squeeze,
    "aten.squeeze.dims": _squeeze,
    "aten.t.default": _transpose,
    "aten.transpose.int": _swap,
    "aten.unbind.int": _unbind,
    "aten.unsafe_split.Tensor": _split,
    "aten.unsafe_split_with_sizes.default": _split_sizes,
    "aten.unsqueeze.default": unsqueezed,
    "aten.view.default": _view,
}
"""Operators that compute nothing; alone they are not worth a program."""

HANDLERS: dict[str, Handler] = {
    **VIEWS,
    "aten.cat.default": _cat,
    "aten.channel_shuffle.default": _channel_shuffle,
    "aten.constant_pad_nd.default": _pad,
    "aten.flip.default": _flip,
    "aten.native_channel_shuffle.default": _channel_shuffle,
    "aten.pixel_shuffle.default": _pixels("depth_to_space"),
    "aten.pixel_unshuffle.default": _pixels("space_to_depth"),
    "aten.reflection_pad1d.default": _bordered("reflect"),
    "aten.reflection_pad2d.default": _bordered("reflect"),
    "aten.reflection_pad3d.default": _bordered("reflect"),
    "aten.repeat.default": _repeat,
    "aten.replication_pad1d.default": _bordered("edge"),
    "aten.replication_pad2d.default": _bordered("edge"),
    "aten.replication_pad3d.default": _bordered("edge"),
    "aten.roll.default": _roll,
    "aten.stack.default": _stack,
}
