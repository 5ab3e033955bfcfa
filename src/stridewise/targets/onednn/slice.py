"""Kernels of slices. Contiguous slices are views, others strided copies.

The library walks forward only, so a reversed axis takes a copy for each of its elements.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import prod

from stridewise.graph import Refusal
from stridewise.ops.slice import slice_bounds
from stridewise.targets.kernels import Call, KernelContext, KernelOption, input_of, output_of
from stridewise.targets.onednn.family import Family, Offer, refused
from stridewise.targets.views import slice_view
from stridewise.targets.walks import Walk, copy_call, region, walks

__all__ = ["FAMILY"]


_MOST_COPIES = 64
"""Copies that a slice may be split into; from there on, one pass over it is faster."""


def _parts(extent: int, start: int, length: int, step: int) -> list[tuple[int, int, int, int]]:
    """Return one axis of the slice as (source, result, length, step), in one part or several.

    The library takes no strides with length * step > extent, which it believes to overlap; the last
    index of such an axis is copied by itself. So is every index of a reversed axis.
    """
    if length == 1:
        return [(start, 0, 1, 1)]
    if step < 0:
        return [(start + index * step, index, 1, 1) for index in range(length)]
    if length * step <= extent:
        return [(start, 0, length, step)]
    last = start + (length - 1) * step
    head = _parts(extent, start, length - 1, step)
    return [*head, (last, length - 1, 1, 1)]


def _copies(source: Walk, result: Walk, bounds: tuple[tuple[int, ...], ...]) -> list[Call] | str:
    """Return the strided copies that make up the slice, or why there are none."""
    starts, lengths, steps = (source.pick(bound) for bound in bounds)
    axes = [_parts(*axis) for axis in zip(source.shape, starts, lengths, steps, strict=True)]
    count = prod(map(len, axes))
    if count > _MOST_COPIES:
        return f"it would take {count} copies, more than {_MOST_COPIES}"
    calls: list[Call] = []
    for part in product(*axes):
        begins, places, extents, strides = zip(*part, strict=True)
        box = region(source.axes, source.shape, begins, extents, strides)
        place = region(result.axes, result.shape, places, extents)
        if box is None or place is None:
            return f"the slice cuts a block of {source.fmt}"
        calls.append(copy_call(box, place, input_of(0), output_of()))
    return calls


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    bounds = slice_bounds(node, x.shape)
    if not prod(y.shape):
        yield refused(node, "the result has no elements")
        return
    for source, result in walks(context, x, y):
        option = slice_view(bounds, source, result)
        if option is not None:
            yield option
            continue
        calls = _copies(source, result, bounds)
        if isinstance(calls, str):
            yield refused(node, calls)
            continue
        yield KernelOption("copy", (source.fmt,), (result.fmt,), tuple(calls))


FAMILY = Family({"slice": Offer(_kernels)})
