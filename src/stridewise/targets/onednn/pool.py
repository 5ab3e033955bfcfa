"""Kernels of pooling."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from stridewise.graph import Refusal
from stridewise.ops.geometry import canonical_shape
from stridewise.ops.pool import geometry
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
from stridewise.targets.onednn.conv_pool import options_with_convolution
from stridewise.targets.onednn.family import Family, KernelKind, Offer, refused
from stridewise.targets.onednn.memory import filled, memory_of, plain_memory, storage_of
from stridewise.targets.onednn.post_ops import fused, takes_snap

__all__ = ["FAMILY", "pooling_spec"]

PLAIN = "plain_pooling"


def pooling_spec(
    algorithm: str,
    source: MemorySpec,
    result: MemorySpec,
    geometry: tuple[tuple[int, ...], ...],
) -> KernelSpec:
    """Return the pooling primitive over ``(kernel, strides, dilations, begins, ends)``."""
    kernel, strides, dilations, begins, ends = geometry
    # A dilation of one element has no effect, but the library checks it.
    dilations = tuple(d if k > 1 else 1 for d, k in zip(dilations, kernel, strict=True))
    return KernelSpec(
        "pooling",
        (("src", source), ("dst", result)),
        (
            ("algorithm", algorithm),
            ("begins", begins),
            ("dilations", dilations),
            ("ends", ends),
            ("kernel", kernel),
            ("strides", strides),
        ),
        flops=float(prod(result.dims) * prod(kernel)),
    )


def _may_miss(geometry: tuple[tuple[int, ...], ...], shape: tuple[int, ...]) -> bool:
    """Return whether the library refuses a mean without padding, which might be one of nothing."""
    kernel, _, dilations, begins, ends = geometry
    axes = zip(shape[2:], kernel, dilations, begins, ends, strict=True)
    return any(
        begin >= taps or end >= taps or (taps > 1 and dilation > size)
        for size, taps, dilation, begin, end in axes
    )


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    algorithm = "max"
    if node.op == "avg_pool":
        include = node.int_attr("count_include_pad", 0)
        algorithm = "avg_include" if include else "avg_exclude"
    window = geometry(node, len(x.shape) - 2)
    if algorithm == "avg_exclude" and _may_miss(window, x.shape):
        yield refused(node, "a window may meet padding only")
        return
    results = context.formats(y.name)
    for kind, fmt in context.formats(x.name).items():
        if kind not in results:
            continue
        spec = pooling_spec(
            algorithm,
            memory_of(fmt, canonical_shape(x, fmt)),
            memory_of(results[kind], canonical_shape(y, results[kind])),
            window,
        )
        spec = replace(spec, post_ops=fused(node, spec.memories[1][1], accumulate=False).specs)
        args = (Arg("src", input_of(0)), Arg("dst", output_of()))
        yield KernelOption(f"pooling, {kind}", (fmt,), (results[kind],), (Call(spec, args),))
    yield from _plain(context, algorithm, window)
    if node.op == "max_pool":
        yield from options_with_convolution(context)


def _plain(
    context: KernelContext, algorithm: str, window: tuple[tuple[int, ...], ...]
) -> Iterable[KernelOption]:
    """Yield the core's kernel on images with channels first, which pools rows, then columns."""
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    kernel, strides, dilations, begins, _ = window
    reach = max((k - 1) * d for k, d in zip(kernel, dilations, strict=True))
    if len(kernel) != 2 or node.post_ops or min(begins) < 0:
        return
    if max(reach, *strides, *dilations, *begins) > _MOST_REACH:
        return
    formats = [context.formats(value.name)["plain"] for value in (x, y)]
    shapes = [canonical_shape(v, fmt) for v, fmt in zip((x, y), formats, strict=True)]
    source, result = map(plain_memory, shapes)
    params = (
        ("algorithm", algorithm),
        ("begins", begins),
        ("dilations", dilations),
        ("kernel", kernel),
        ("strides", strides),
    )
    items, channels, height, width = result.dims
    rows = items * channels * height
    # Partial results of 1, 2, 4, ... elements make up those of windows.
    flops = float(rows * (width + _ROW) * 2 * sum(map(int.bit_length, kernel)))
    spec = KernelSpec(PLAIN, (("src", source), ("dst", result)), params, flops=flops)
    args = (Arg("src", input_of(0)), Arg("dst", output_of()))
    yield KernelOption("rows, then columns", (formats[0],), (formats[1],), (Call(spec, args),))


_MOST_REACH = 1 << 20
"""Elements that a window of the kernel reaches at most, which holds as many rows."""

_ROW = 16
"""Elements in whose time a row begins; an estimate."""

_LANES = 16


def _share(spec: KernelSpec) -> float:
    """Return the part of vectors of channels that is filled.

    With channels first, the library has a thread for each vector of channels of an image.
    """
    dst = spec.memory("dst")
    if dst is None:
        return 1.0
    items, channels = dst.dims[:2]
    share = filled(channels)
    is_plain = channels == 1 or storage_of(dst) == "plain"
    return share / _ALONE if is_plain and items == 1 and channels <= _LANES else share


_ALONE = 8.0
"""How much longer that takes where there is one such vector (measured on Zen 4)."""

FAMILY = Family(
    {
        "max_pool": Offer(_kernels, joins=frozenset({"conv"})),
        "avg_pool": Offer(_kernels, post_ops=takes_snap),
    },
    {
        PLAIN: KernelKind({"plain": 0.06}),
        "pooling": KernelKind(
            {"plain": 0.25, "channels-last": 0.50, "blocked": 0.50}, share=_share
        ),
    },
)
