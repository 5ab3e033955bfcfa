"""Kernels of repetition: one strided copy whose source has loops of stride 0."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from stridewise.formats import loops
from stridewise.graph import Refusal
from stridewise.ops.geometry import row_major, user_format
from stridewise.targets.kernels import KernelContext, KernelOption, MemorySpec, input_of, output_of
from stridewise.targets.onednn.family import Family, Offer, refused
from stridewise.targets.walks import Walk, copy_call, walks

__all__ = ["FAMILY"]


def _repeated(walk: Walk, counts: tuple[int, ...]) -> tuple[MemorySpec, MemorySpec] | None:
    """Return source and result over the same loops, or None where a block would be cut.

    An axis is repeated outside of all its own loops. So the whole of it must fill its blocks.
    """
    repeats = dict(zip(walk.axes.axes, counts, strict=True))
    extents = dict(zip(walk.axes.axes, walk.shape, strict=True))
    if any(
        count > 1 and extents[axis] % walk.axes.multiple(axis) for axis, count in repeats.items()
    ):
        return None
    nest: list[tuple[int, int, int]] = []  # extent, stride in the source, in the result
    read = write = 1
    stored = loops(walk.axes, walk.shape)
    first = {loop.axis: index for index, loop in reversed(list(enumerate(stored)))}
    for index, loop in reversed(list(enumerate(stored))):
        outer = repeats[loop.axis] if first[loop.axis] == index else 1
        for extent, step in ((loop.extent, read), (outer, 0)):
            if extent > 1:
                nest.insert(0, (extent, step, write))
            write *= extent
        read *= loop.extent
    dims, source, target = zip(*nest or [(1, 1, 1)], strict=True)
    return MemorySpec(dims, strides=source), MemorySpec(dims, strides=target)


def _copies(context: KernelContext, counts: tuple[int, ...]) -> Iterable[KernelOption | Refusal]:
    """Yield the copies that repeat the axes of input 0, in the user's order."""
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    for source, result in walks(context, x, y):
        memories = _repeated(source, source.pick(counts))
        if memories is None:
            yield refused(node, f"{source.fmt} has blocks that the repeated axis does not fill")
            continue
        read, write = memories
        call = copy_call((read, 0), (write, 0), input_of(0), output_of())
        yield KernelOption("repeating copy", (source.fmt,), (result.fmt,), (call,))


def _kernels_tile(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    if not prod(context.value(node.outputs[0]).shape):
        yield refused(node, "the result has no elements")
        return
    yield from _copies(context, node.ints_attr("repeats"))


def _kernels_expand(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if not prod(y.shape):
        yield refused(node, "the result has no elements")
        return
    missing = len(y.shape) - len(x.shape)
    if not missing:
        counts = tuple(1 if a == b else b for a, b in zip(x.shape, y.shape, strict=True))
        yield from _copies(context, counts)
        return
    whole = (1,) * missing + x.shape
    strides = tuple(
        step if extent > 1 else 0 for extent, step in zip(whole, row_major(whole), strict=True)
    )
    source = MemorySpec(y.shape, strides=strides)
    result = MemorySpec(y.shape, strides=row_major(y.shape))
    call = copy_call((source, 0), (result, 0), input_of(0), output_of())
    yield KernelOption("repeating copy", (user_format(x),), (user_format(y),), (call,))


FAMILY = Family({"tile": Offer(_kernels_tile), "expand": Offer(_kernels_expand)})
