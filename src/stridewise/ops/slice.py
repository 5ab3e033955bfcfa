"""Slices. Contiguous ones are views, others strided copies.

The library walks forward only, so a reversed axis takes a copy for each of its elements.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import prod

from stridewise.graph import Node, Refusal, TensorType
from stridewise.ops.data_format import inverse
from stridewise.ops.geometry import Walk, copy_call, region, same_place, walks
from stridewise.ops.kernels import Alias, Call, KernelContext, KernelOption, input_of, output_of
from stridewise.ops.registry import (
    Array,
    Operands,
    OpSpec,
    Permuted,
    Types,
    array,
    needs,
    register,
    tensor,
)

__all__ = ["SLICE"]


_MOST_COPIES = 64
"""Copies that a slice may be split into; from there on, one pass over it is faster."""


def _bounds(node: Node, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return starts, lengths and steps, one for each axis.

    Where a step is negative, the stop -1 lies before the first element, as in ``range``.
    """
    starts, stops, steps = (node.ints_attr(key) for key in ("starts", "stops", "steps"))
    rank = len(shape)
    fits = len(starts) == len(stops) == len(steps) == rank
    needs(node, fits, f"starts, stops and steps for {rank} axes", node.attrs)
    for start, stop, step, extent in zip(starts, stops, steps, shape, strict=True):
        ahead = step >= 1 and 0 <= start <= stop <= extent
        back = step <= -1 and -1 <= stop <= start < extent
        expected = f"0 <= start <= stop <= {extent}, or a step below 0 and the stop below the start"
        needs(node, ahead or back, expected, (start, stop, step))
    bounds = zip(starts, stops, steps, strict=True)
    return starts, tuple(len(range(*bound)) for bound in bounds), steps


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    return (TensorType(x.dtype, _bounds(node, x.shape)[1]),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    bounds = zip(*(node.ints_attr(key) for key in ("starts", "stops", "steps")), strict=True)
    # To Python, -1 is the last element.
    keys = (slice(start, None if stop < 0 else stop, step) for start, stop, step in bounds)
    return (x[tuple(keys)],)


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
    bounds = _bounds(node, x.shape)
    if not prod(y.shape):
        yield Refusal("onednn-cpu", node.name, "the result has no elements")
        return
    ahead = min(bounds[2], default=1) > 0
    for source, result in walks(context, x, y):
        box = None
        if ahead:
            box = region(source.axes, source.shape, *(source.pick(bound) for bound in bounds))
        if box is not None and same_place(box[0], result.whole()[0]):
            alias = Alias(0, 0, box[1], "view")
            yield KernelOption("view", (source.fmt,), (result.fmt,), (), (alias,))
            continue
        calls = _copies(source, result, bounds)
        if isinstance(calls, str):
            yield Refusal("onednn-cpu", node.name, calls)
            continue
        yield KernelOption("copy", (source.fmt,), (result.fmt,), tuple(calls))


def _permuted(node: Node, _shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    order = inverse(perm)
    bounds = {key: node.ints_attr(key) for key in ("starts", "stops", "steps")}
    moved = {key: tuple(bound[axis] for axis in order) for key, bound in bounds.items()}
    return Permuted({**dict(node.attrs), **moved}, perm)


SLICE = register(OpSpec("slice", (1, 1), _infer, _evaluate, "same", _kernels, permuted=_permuted))
