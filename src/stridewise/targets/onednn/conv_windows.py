"""Convolution as products of windows, by the core's kernel ``native/conv_windows``.

With channels last, a row of a window is a run of numbers, whatever their number: images with few
channels, or with channels that are no whole vectors, and long windows are products like any other.
The kernel reads the user's images with channels first, too, and writes blocks, as a first layer
needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from stridewise.formats import Format
from stridewise.ops.conv import geometry
from stridewise.ops.geometry import canonical_shape
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
from stridewise.targets.onednn.depthwise import has_bias
from stridewise.targets.onednn.family import Family, KernelKind
from stridewise.targets.onednn.memory import block_lanes, memory_of
from stridewise.targets.onednn.post_ops import fused, input_formats, unknown_post_op

__all__ = ["FAMILY", "KIND", "window_options"]

KIND = "conv_windows"
"""The kind of these kernels in a :class:`KernelSpec`."""

_LANES = _NARROW, _WIDE = 8, 16
_IMAGE = 4
"""Axes of images and of weights without groups."""

_MOST_FIRST = 16
"""Channels that are turned one by one where they come first; with more, a reorder is faster."""

_MANY_TAPS = 25
"""Taps of windows for which Winograd's algorithm saves little."""

_FEW_OUTPUTS = 4
"""Up to so many outputs, vectors are of channels: ``kMostDots`` of the kernel."""

_LARGEST = 1 << 12
"""Taps, strides, dilations and padding along an axis that the kernel accepts."""


def _adds_up(weights: tuple[int, ...]) -> bool:
    """Return whether vectors are of channels and added up, as there are few outputs."""
    return weights[0] <= _FEW_OUTPUTS


def _suits(context: KernelContext, lanes: int) -> bool:
    """Return whether the kernel computes a node, and may be faster than others.

    It is not for small square windows of whole vectors of channels: the library is as fast there,
    and Winograd's algorithm faster.
    """
    node = context.node
    shape = context.value(node.inputs[1]).shape
    if len(shape) != _IMAGE or node.int_attr("groups", 1) != 1 or prod(shape[2:]) == 1:
        return False
    numbers = (*shape[2:], *(number for row in geometry(node, 2) for number in row))
    constants = (name for name in node.inputs[1:3] if name)
    if not 0 <= min(numbers) <= max(numbers) <= _LARGEST:
        return False
    if not all(map(context.is_constant, constants)):
        return False
    has_tails = any(extent % lanes for extent in shape[:2])
    return has_tails or 1 in shape[2:] or prod(shape[2:]) >= _MANY_TAPS


def _pairs(context: KernelContext) -> Iterator[tuple[str, Format, Format]]:
    """Yield names and formats of sources and results."""
    x, y = context.node.inputs[0], context.node.outputs[0]
    has_few = context.value(x).shape[1] <= _MOST_FIRST
    taken = ("channels-last", *(("plain",) if has_few else ()))
    for kind, fmt in context.formats(y).items():
        if kind != "channels-last" and not fmt.is_blocked:
            continue
        for name, source in context.formats(x).items():
            if name in taken:
                yield kind if name == kind else f"{name} to {kind}", source, fmt


def window_options(context: KernelContext) -> Iterator[KernelOption]:
    """Yield the core's ways to compute a convolution as products of windows."""
    node, lanes = context.node, block_lanes(context)
    if lanes not in _LANES or not _suits(context, lanes):
        return
    can_sum = bool(node.post_ops) and node.post_ops[0].op == "add"
    outputs = context.value(node.outputs[0]).shape[1]
    for kind, source, result in _pairs(context):
        has_part = outputs > _FEW_OUTPUTS and 0 < outputs % _WIDE <= _NARROW < lanes
        narrow = has_part and not result.is_blocked
        for accumulate in (True, False) if can_sum else (False,):
            for own in (lanes, _NARROW) if narrow else (lanes,):
                name = kind if own == lanes else f"{kind}, narrow vectors"
                option = _option(context, name, (source, result), own, accumulate=accumulate)
                if option is not None:
                    yield option


def _option(
    context: KernelContext, kind: str, formats: tuple[Format, Format], lanes: int, *,
    accumulate: bool,
) -> KernelOption | None:  # fmt: skip
    node, (source, result) = context.node, formats
    x, w, y = (context.value(n) for n in (node.inputs[0], node.inputs[1], node.outputs[0]))
    destination = memory_of(result, canonical_shape(y, result))
    post = fused(node, destination, accumulate=accumulate)
    if unknown_post_op(post.specs):
        return None
    args = [Arg("src", input_of(0)), Arg("weights", input_of(1), reshape=w.shape)]
    memories = [
        ("src", memory_of(source, canonical_shape(x, source))),
        ("weights", MemorySpec(w.shape, "acdb" if _adds_up(w.shape) else f"Acdb{2 * lanes}a")),
    ]
    if has_bias(node):
        args.append(Arg("bias", input_of(2)))
        memories.append(("bias", MemorySpec((w.shape[0],), "a")))
    strides, dilations, begins, ends = geometry(node, 2)
    params = (
        *(("begins", begins), ("dilations", dilations), ("ends", ends), ("lanes", lanes)),
        *(("narrow", int(lanes < block_lanes(context))), ("strides", strides)),
    )
    flops = 2.0 * prod(y.shape) * prod(w.shape[1:])
    spec = KernelSpec(KIND, (*memories, ("dst", destination)), params, post.specs, flops=flops)
    absent: tuple[Format | None, ...] = (None,) * (len(node.inputs) - 1)
    name = f"windows, {kind}" + (", sum in place" if post.aliases else "")
    inputs = input_formats(node, (source, *absent), post, result)
    calls = (Call(spec, (*args, Arg("dst", output_of()), *post.args)),)
    return KernelOption(name, inputs, (result,), calls, post.aliases)


_NARROW_SHARE = 0.7
"""Part of the rate of the machine's vectors that narrow ones are taken to reach where nothing was
measured: half on most processors, and all of it on Zen 4."""

_STARTED = 13
"""Products of a result that take as long as starting and storing its sum. Measured on Zen 4: 0.64
of the rate of long sums with 27 products, 0.8 with 54, and 0.9 with 147."""

_ADDED, _READ = 130, 2
"""Where vectors are of channels: products of a result that take as long as to add up the lanes of
its sum, and products that take as long as to read a vector of a pixel. Measured on Zen 4: 0.23 of
the rate of long sums for one output of 576 products, 0.41 for three, and 0.6 for four."""


def _share(spec: KernelSpec) -> float:
    """Return which part of the time goes to products of valid outputs."""
    weights, params = spec.memory("weights"), dict(spec.params)
    lanes, is_narrow = params["lanes"], params["narrow"]
    assert weights is not None  # the kernel has them
    assert isinstance(lanes, int)
    outputs, products = weights.dims[0], prod(weights.dims[1:])
    if _adds_up(weights.dims):
        return products / (products + _ADDED) * outputs / (outputs + _READ)
    used = outputs / (-(-outputs // lanes) * lanes) * products / (products + _STARTED)
    # A single vector of results has so few products that its width does not count.
    return used * (_NARROW_SHARE if is_narrow and outputs > lanes else 1.0)


FAMILY = Family(
    kinds={KIND: KernelKind({"channels-last": 0.9, "blocked": 0.9}, share=_share, function_ns=0.2)}
)
