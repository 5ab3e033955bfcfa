"""Kernels of padding: a fill and a copy, or copies of parts of the tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

import numpy as np

from stridewise.formats import algebra
from stridewise.graph import Node, Refusal
from stridewise.ops.pad import bordered, pad_amounts, pad_mode
from stridewise.targets.kernels import Call, Fill, KernelContext, KernelOption, input_of, output_of
from stridewise.targets.onednn.family import Family, Offer, refused
from stridewise.targets.walks import Walk, copy_call, region, walks

__all__ = ["FAMILY"]


_MOST_COPIES = 64
"""Copies that a border may be made of; from there on, one pass over all of it is faster."""


def _constant(context: KernelContext, source: Walk, result: Walk) -> KernelOption | Refusal:
    node = context.node
    begins, _ = pad_amounts(node, len(source.shape))
    value = node.float_attr("value", 0.0)
    if value and result.fmt.is_blocked:
        return refused(node, f"the spare lanes of {result.fmt} must stay zero")
    box = region(result.axes, result.shape, result.pick(begins), source.shape)
    if box is None:
        return refused(node, f"the pad cuts a block of {result.fmt}")
    return KernelOption(
        "fill and copy",
        (source.fmt,),
        (result.fmt,),
        (copy_call(source.whole(), box, input_of(0), output_of()),),
        (),
        Fill(algebra.element_count(result.axes, result.shape), value),
    )


def _runs(extent: int, begin: int, end: int, mode: str) -> Iterator[tuple[int, int, int]]:
    """Yield the border of an axis as (place, element that it repeats, length) over ascending runs.

    Both are indices of the result, in which the elements themselves begin at ``begin``.

    >>> list(_runs(4, 2, 3, "wrap")), list(_runs(4, 2, 0, "reflect"))
    ([(0, 4, 2), (6, 2, 3)], [(0, 4, 1), (1, 3, 1)])
    """
    read = bordered(np.arange(extent), ((begin, end),), mode) + begin
    place = 0
    while place < begin + extent + end:
        if place == begin:
            place += extent
            continue
        limit = begin if place < begin else begin + extent + end
        length = 1
        while place + length < limit and read[place + length] == read[place] + length:
            length += 1
        yield place, int(read[place]), length
        place += length


def _drawn(node: Node, source: Walk, result: Walk) -> list[Call] | str:
    """Return copies that put the tensor into the result and make the border, axis by axis, of it.

    What an axis adds is copied with the borders of the axes before it, so corners come by
    themselves.
    """
    begins, ends = (result.pick(amounts) for amounts in pad_amounts(node, len(source.shape)))
    starts, lengths = list(begins), list(source.shape)
    cut = f"the pad cuts a block of {result.fmt}"
    box = region(result.axes, result.shape, begins, source.shape)
    if box is None:
        return cut
    calls = [copy_call(source.whole(), box, input_of(0), output_of())]
    for axis, extent in enumerate(source.shape):
        for place, read, length in _runs(extent, begins[axis], ends[axis], pad_mode(node)):
            lengths[axis] = length
            boxes = [
                region(
                    result.axes,
                    result.shape,
                    (*starts[:axis], start, *starts[axis + 1 :]),
                    tuple(lengths),
                )
                for start in (read, place)
            ]
            old, new = boxes
            if old is None or new is None:
                return cut
            calls.append(copy_call(old, new, output_of(), output_of()))
            if len(calls) > _MOST_COPIES:
                return f"it would take more than {_MOST_COPIES} copies"
        starts[axis], lengths[axis] = 0, result.shape[axis]
    return calls


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if len(node.inputs) > 1:
        yield refused(node, "the value of its border is not known before a run")
        return
    if not prod(x.shape):
        yield refused(node, "the operand has no elements")
        return
    for source, result in walks(context, x, y):
        if pad_mode(node) == "constant":
            yield _constant(context, source, result)
            continue
        calls = _drawn(node, source, result)
        if isinstance(calls, str):
            yield refused(node, calls)
            continue
        algorithm = f"{pad_mode(node)} copies"
        yield KernelOption(algorithm, (source.fmt,), (result.fmt,), tuple(calls))


FAMILY = Family({"pad": Offer(_kernels)})
