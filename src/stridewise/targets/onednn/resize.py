"""Kernels of resizing: the library's resampling, and a matrix product for one axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from math import prod

import numpy as np

from stridewise.formats import Format, loops
from stridewise.graph import Attr, Node, Refusal, Value
from stridewise.ops.geometry import canonical_shape, user_format
from stridewise.ops.interpolation import Interpolation
from stridewise.ops.registry import Array
from stridewise.ops.resize import extrapolates, interpolation, resized_axes
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
from stridewise.targets.onednn.family import Family, KernelKind, Offer, refused
from stridewise.targets.onednn.memory import (
    elementwise_formats,
    filled,
    memory_of,
    plain_memory,
    storage_of,
)
from stridewise.targets.onednn.post_ops import fused, takes_snap
from stridewise.targets.walks import Walk, walks

__all__ = ["FAMILY", "is_resampling"]


@cache
def _aligns_centers(wanted: Interpolation) -> bool:
    """Return whether oneDNN resizes an axis alike; nearest neighbors without any tie only."""
    ties = ("round_prefer_floor", "round_prefer_ceil") if wanted.mode == "nearest" else ("floor",)
    theirs = [Interpolation(wanted.size, wanted.count, wanted.mode, rounding=tie) for tie in ties]
    return all(_is_close(wanted.entries(), each.entries()) for each in theirs)


def _is_close(one: tuple[Array, Array], other: tuple[Array, Array]) -> bool:
    places = np.union1d(one[0], other[0])
    difference = np.zeros(len(places))
    difference[np.searchsorted(places, one[0])] += one[1]
    difference[np.searchsorted(places, other[0])] -= other[1]
    return bool(np.all(np.abs(difference) <= 1e-7))


def is_resampling(node: Node, shape: tuple[int, ...]) -> bool:
    """Return whether a ``resize`` of a tensor of this shape is what oneDNN's resampling computes.

    Two axes must keep their extents, to be batch and channels there.
    """
    axes = resized_axes(node, shape)
    return (
        node.str_attr("mode") in ("nearest", "linear")
        and 3 <= len(shape) <= 5
        and len(axes) <= len(shape) - 2
        and not extrapolates(node, shape)
        and all(_aligns_centers(interpolation(node, shape, axis)) for axis in axes)
    )


def _memories(
    x: Value, y: Value, source: Format, result: Format
) -> tuple[MemorySpec, MemorySpec] | None:
    """Return operand and result as images, None unless batch and channels stay as they are."""
    if x.origin is None or x.origin != y.origin:
        return None
    before, after = canonical_shape(x, source), canonical_shape(y, result)
    if before[:2] != after[:2]:
        return None
    return memory_of(source, before), memory_of(result, after)


def _kept_first(
    x: Value, y: Value, source: Format, resized: tuple[int, ...]
) -> tuple[MemorySpec, MemorySpec] | None:
    """Return operand and result in the user's order as images whose channels are not resized."""
    if source != user_format(x):
        return None
    order = sorted(range(len(x.shape)), key=lambda axis: axis in resized)
    if order == list(range(len(x.shape))):
        return plain_memory(x.shape), plain_memory(y.shape)
    return _turned(x.shape, order), _turned(y.shape, order)


def _turned(shape: tuple[int, ...], order: Sequence[int]) -> MemorySpec:
    """Return a row-major tensor with its axes in another order."""
    strides = tuple(prod(shape[axis + 1 :]) for axis in order)
    return MemorySpec(tuple(shape[axis] for axis in order), strides=strides)


def _kernels_resize(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if not is_resampling(node, x.shape):
        yield refused(node, "oneDNN resizes images only, with the centers of pixels aligned")
        return
    params: tuple[tuple[str, Attr], ...] = (("algorithm", node.str_attr("mode")),)
    resized = resized_axes(node, x.shape)
    for source, result, _ in elementwise_formats(context, x, y):
        memories = _memories(x, y, source, result) or _kept_first(x, y, source, resized)
        if memories is None:
            yield refused(node, f"axes {resized} are not all spatial")
            continue
        taps = 1 if params[0][1] == "nearest" else 2 ** (len(x.shape) - 2)
        spec = KernelSpec(
            "resampling",
            (("src", memories[0]), ("dst", memories[1])),
            params,
            fused(node, memories[1], accumulate=False).specs,
            flops=2.0 * taps * prod(y.shape),
        )
        call = Call(spec, (Arg("src", input_of(0)), Arg("dst", output_of())))
        yield KernelOption("resampling", (source,), (result,), (call,))


def _around(walk: Walk, axis: str) -> tuple[int, int]:
    """Return how many elements are stored outside of an axis, and how many inside of it."""
    stored = loops(walk.axes, walk.shape)
    position = [loop.axis for loop in stored].index(axis)
    extents = [loop.extent for loop in stored]
    return prod(extents[:position]), prod(extents[position + 1 :])


def _product(outer: int, size: int, count: int, inner: int) -> Call:
    """Return the matrix product over an axis that is stored between two others."""
    flops = 2.0 * outer * count * size * inner
    if inner == 1:
        memories = (
            ("src", plain_memory((outer, size))),
            ("weights", MemorySpec((size, count), "any")),
            ("dst", plain_memory((outer, count))),
        )
        weights = Arg("weights", input_of(1), permute=(1, 0))
        args = (Arg("src", input_of(0)), weights, Arg("dst", output_of()))
    else:
        memories = (
            ("src", plain_memory((1, count, size))),
            ("weights", plain_memory((outer, size, inner))),
            ("dst", plain_memory((outer, count, inner))),
        )
        matrix = Arg("src", input_of(1), reshape=(1, count, size))
        args = (matrix, Arg("weights", input_of(0)), Arg("dst", output_of()))
    return Call(KernelSpec("matmul", memories, flops=flops), args)


def _kernels_interpolate(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    if not context.is_constant(node.inputs[1]):
        yield refused(node, "the matrix is not a constant")
        return
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    axis = node.int_attr("axis")
    for source, result in walks(context, x, y):
        name = source.axes.axes[source.order.index(axis)]
        if source.axes.multiple(name) > 1:
            yield refused(node, f"{source.fmt} has blocks of axis {name}")
            continue
        outer, inner = _around(source, name)
        call = _product(outer, x.shape[axis], y.shape[axis], inner)
        yield KernelOption("matmul", (source.fmt, None), (result.fmt,), (call,))


def _share(spec: KernelSpec) -> float:
    """Return the part of vectors of channels that is filled."""
    dst = spec.memory("dst")
    return 1.0 if dst is None or storage_of(dst) == "plain" else filled(dst.dims[1])


FAMILY = Family(
    {
        "resize": Offer(_kernels_resize, post_ops=takes_snap),
        "interpolate": Offer(_kernels_interpolate),
    },
    {
        "resampling": KernelKind(
            {"plain": 0.25, "channels-last": 0.50, "blocked": 0.50}, share=_share
        )
    },
)
