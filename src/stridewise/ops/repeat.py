"""Operators that repeat a tensor: copies that read each element several times.

``tile`` repeats whole axes, ``expand`` repeats axes of one element. Kernels are one strided copy
whose source has loops of stride 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from stridewise.formats import loops
from stridewise.graph import Node, Refusal, TensorType
from stridewise.ops.data_format import inverse
from stridewise.ops.geometry import Walk, copy_call, row_major, user_format, walks
from stridewise.ops.kernels import (
    KernelContext,
    KernelOption,
    MemorySpec,
    input_of,
    output_of,
)
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

__all__ = ["EXPAND", "TILE"]


# --- tile -----------------------------------------------------------------------------------------


def _infer_tile(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, repeats = tensor(node, types, 0), node.ints_attr("repeats")
    fits = len(repeats) == len(x.shape) and min(repeats, default=0) >= 0
    needs(node, fits, f"{len(x.shape)} repeats of 0 or more", repeats)
    shape = tuple(extent * count for extent, count in zip(x.shape, repeats, strict=True))
    return (TensorType(x.dtype, shape),)


def _evaluate_tile(node: Node, operands: Operands) -> tuple[Array, ...]:
    return (np.tile(array(operands, 0), node.ints_attr("repeats")),)


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
            reason = f"{source.fmt} has blocks that the repeated axis does not fill"
            yield Refusal("onednn-cpu", node.name, reason)
            continue
        read, write = memories
        call = copy_call((read, 0), (write, 0), input_of(0), output_of())
        yield KernelOption("repeating copy", (source.fmt,), (result.fmt,), (call,))


def _kernels_tile(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    if not prod(context.value(node.outputs[0]).shape):
        yield Refusal("onednn-cpu", node.name, "the result has no elements")
        return
    yield from _copies(context, node.ints_attr("repeats"))


def _permuted_tile(node: Node, _shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    repeats = node.ints_attr("repeats")
    return Permuted({"repeats": tuple(repeats[axis] for axis in inverse(perm))}, perm)


# --- expand ---------------------------------------------------------------------------------------


def _expanded(node: Node, shape: tuple[int, ...]) -> tuple[int, ...]:
    wanted = node.ints_attr("shape")
    try:
        return np.broadcast_shapes(shape, wanted)
    except ValueError:
        needs(node, False, f"a shape that {list(shape)} broadcasts with", wanted)
        raise


def _infer_expand(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    return (TensorType(x.dtype, _expanded(node, x.shape)),)


def _evaluate_expand(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    return (np.broadcast_to(x, _expanded(node, x.shape)),)


def _kernels_expand(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if not prod(y.shape):
        yield Refusal("onednn-cpu", node.name, "the result has no elements")
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


def _permuted_expand(node: Node, shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    wanted = _expanded(node, tuple(shape[axis] for axis in perm))
    if len(wanted) != len(perm):
        return "its result has more axes than the transpose"
    return Permuted({"shape": tuple(wanted[axis] for axis in inverse(perm))}, perm)


TILE = register(
    OpSpec(
        "tile", (1, 1), _infer_tile, _evaluate_tile, "same", _kernels_tile, permuted=_permuted_tile
    )
)
EXPAND = register(
    OpSpec(
        "expand",
        (1, 1),
        _infer_expand,
        _evaluate_expand,
        "elementwise",
        _kernels_expand,
        permuted=_permuted_expand,
    )
)
