"""Kernels of several strided copies as one operator."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from stridewise.graph import Refusal
from stridewise.ops.geometry import row_major, user_format
from stridewise.ops.rearrange import Box, boxes_of
from stridewise.targets.kernels import (
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    input_of,
    output_of,
)
from stridewise.targets.onednn.elements import copy_elements
from stridewise.targets.onednn.family import Family, KernelKind, Offer, other_than_float32, refused
from stridewise.targets.onednn.memory import plain_memory

__all__ = ["FAMILY"]


def _numbers(box: Box, steps: tuple[int, ...]) -> tuple[int, ...]:
    """Return a box as the kernel takes it: rank, both starts, then the loops."""
    start = sum(begin * step for begin, step in zip(box.starts, steps, strict=True))
    loops = zip(box.extents, box.strides, steps, strict=True)
    return (len(steps), box.offset, start, *(number for loop in loops for number in loop))


def _call(context: KernelContext, index: int, boxes: tuple[Box, ...]) -> Call:
    """Return the call that makes all copies from one input."""
    node = context.node
    source, result = context.value(node.inputs[index]), context.value(node.outputs[0])
    steps = row_major(result.shape)
    numbers = tuple(
        number for box in boxes if box.source == index for number in _numbers(box, steps)
    )
    memories = (
        ("src", plain_memory((prod(source.shape),))),
        ("dst", plain_memory((prod(result.shape),))),
    )
    spec = KernelSpec("rearrange", memories, (("boxes", numbers),))
    return Call(spec, (Arg("src", input_of(index)), Arg("dst", output_of())))


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    if any(context.is_constant(name) for name in node.inputs):
        yield refused(node, "an operand is a constant")
        return
    refusal = other_than_float32(context)
    if refusal is not None:
        yield refusal
        return
    boxes, result = boxes_of(node), context.value(node.outputs[0])
    read = dict.fromkeys(box.source for box in boxes)
    inputs = tuple(user_format(context.value(name)) for name in node.inputs)
    calls = tuple(_call(context, index, boxes) for index in read)
    yield KernelOption("copies", inputs, (user_format(result),), calls)


_MOST_COPIES = 64
"""Boxes of another type than float32 that are copied one by one."""


def _typed(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    """Yield a copy of elements of any type for each box."""
    node = context.node
    if any(context.is_constant(name) for name in node.inputs):
        yield refused(node, "an operand is a constant")
        return
    boxes, result = boxes_of(node), context.value(node.outputs[0])
    if len(boxes) > _MOST_COPIES or any(min(box.strides, default=0) < 0 for box in boxes):
        yield refused(node, f"it is no {_MOST_COPIES} copies, or reverses an axis")
        return
    steps = row_major(result.shape)
    calls: list[Call] = []
    for box in boxes:
        start = sum(begin * step for begin, step in zip(box.starts, steps, strict=True))
        source = MemorySpec(box.extents, strides=box.strides)
        target = MemorySpec(box.extents, strides=steps)
        sides = (Arg("src0", input_of(box.source), box.offset), Arg("dst", output_of(), start))
        calls.append(copy_elements(result.dtype.short, (source, sides[0]), (target, sides[1])))
    inputs = tuple(user_format(context.value(name)) for name in node.inputs)
    yield KernelOption("copies", inputs, (user_format(result),), tuple(calls))


FAMILY = Family(
    {"rearrange": Offer(_kernels)}, {"rearrange": KernelKind()}, typed={"rearrange": _typed}
)
