"""Depthwise convolution and narrow groups, alone or in one kernel with the 1x1 before it.

Inverted residuals widen an image by a convolution of 1x1 only to filter each channel by itself
(Sandler et al., arXiv:1801.04381). What lies between is the largest tensor of the block; where one
kernel computes both, a few rows of it are computed when they are needed, and stay in the caches
nearest to the core. The kernels are the core's, ``native/depthwise/depthwise.cpp``.

The same kernels compute groups of several channels, of which a vector holds several: each tap then
has a product for each channel of a group. Without these, the library reaches a third to a half of
the rate of other convolutions, or runs naive loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from math import prod
from typing import cast

from stridewise.formats import Format
from stridewise.graph import Node, Value
from stridewise.ops.conv import parts
from stridewise.ops.geometry import canonical_shape
from stridewise.targets.kernels import (
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    behind_ahead,
    from_ahead,
    input_of,
    output_of,
)
from stridewise.targets.onednn.family import Family, KernelKind
from stridewise.targets.onednn.memory import block_lanes, filled, memory_of
from stridewise.targets.onednn.post_ops import fused, unknown_post_op
from stridewise.targets.onednn.winograd import Geometry

__all__ = [
    "ALONE",
    "FAMILY",
    "GROUPS",
    "KIND",
    "VOLUMES",
    "depthwise_options",
    "has_bias",
    "in_pairs",
    "is_1x1",
    "kinds_of",
    "options_with_expansion",
    "volume_options",
    "weight_gradient",
]

ALONE, KIND, GROUPS = "depthwise", "expand_depthwise", "narrow_groups"
"""The kinds of these kernels in a :class:`KernelSpec`: without and with the convolution of 1x1, and
of groups with several channels or results."""

VOLUMES = "volume_depthwise"
"""The kind of kernels of volumes, whose slices lie one below the other in an image."""

WEIGHTS = "depthwise_weight_gradient"
"""The kind of kernels of weight gradients."""

_LANES = (8, 16)
_MOST_TAPS = 64
"""Taps along an axis that the kernels of weight gradients accept."""
_LARGEST = 1 << 12
"""Taps, strides and dilations along an axis that the kernels accept."""


def is_1x1(context: KernelContext) -> bool:
    """Return whether a node is a convolution of 1x1 over an image, with constant weights.

    It may have groups and strides.
    """
    node = context.node
    if node.op != "conv":
        return False
    weights = context.value(node.inputs[1]).shape
    return (
        len(weights) == 4
        and weights[2:] == (1, 1)
        and node.ints_attr("pads", (0,) * 4) == (0,) * 4
        and _is_known(context)
    )


def _has_operands(node: Node) -> bool:
    return any(post.operand is not None for post in node.post_ops)


def _is_depthwise(context: KernelContext) -> bool:
    """Return whether a convolution filters each channel by itself."""
    weights = context.value(context.node.inputs[1]).shape
    return weights[:2] == (context.node.int_attr("groups", 1), 1)


def _is_narrow(context: KernelContext, lanes: int) -> bool:
    """Return whether vectors hold whole groups, of one channel or of as many as they have results.

    Both numbers are then powers of two.
    """
    groups = context.node.int_attr("groups", 1)
    outputs, channels = context.value(context.node.inputs[1]).shape[:2]
    results = outputs // groups
    return groups > 1 and lanes % results == 0 and channels in (1, results)


def _suits(context: KernelContext, axes: int = 2) -> bool:
    """Return whether the kernels take the window and the parameters of a convolution.

    Its padding must be smaller than its window.
    """
    node = context.node
    if len(context.value(node.inputs[1]).shape) != axes + 2:
        return False
    window, strides, dilations, pads = _window(context)
    extents = [(taps - 1) * step + 1 for taps, step in zip(window, dilations, strict=True)]
    return (
        max(*window, *strides, *dilations) <= _LARGEST
        and min(pads) >= 0
        and all(pad < extent for pad, extent in zip(pads, extents * 2, strict=True))
        and _is_known(context)
        and not _has_operands(node)
    )


def _window(context: KernelContext) -> tuple[tuple[int, ...], ...]:
    """Return taps, strides and dilations along all axes, and the pads of a convolution."""
    node, window = context.node, context.value(context.node.inputs[1]).shape[2:]
    ones = (1,) * len(window)
    return (
        window,
        node.ints_attr("strides", ones),
        node.ints_attr("dilations", ones),
        node.ints_attr("pads", (0,) * (2 * len(window))),
    )


def _is_known(context: KernelContext) -> bool:
    """Return whether weights and bias are constants."""
    return all(context.is_constant(name) for name in context.node.inputs[1:3] if name)


def has_bias(node: Node) -> bool:
    """Return whether a convolution has a bias."""
    return len(node.inputs) > 2 and bool(node.inputs[2])


def kinds_of(context: KernelContext, *names: str) -> Iterator[str]:
    """Yield the kinds of storage that kernels take and all of some values have."""
    offers = [context.formats(name) for name in names]
    for kind, fmt in offers[0].items():
        if (fmt.is_blocked or kind == "channels-last") and all(kind in offer for offer in offers):
            yield kind


def depthwise_options(context: KernelContext) -> Iterator[KernelOption]:
    """Yield the core's ways to compute a depthwise convolution or one of narrow groups."""
    node, lanes = context.node, block_lanes(context)
    if lanes not in _LANES or not _suits(context):
        return
    if not _is_depthwise(context) and not _is_narrow(context, lanes):
        return
    for kind in kinds_of(context, node.inputs[0], node.outputs[0]):
        source, result = (context.formats(n)[kind] for n in (node.inputs[0], node.outputs[0]))
        spec = _alone(context, kind, lanes)
        if unknown_post_op(spec.post_ops, rounds=True):
            continue
        args = (Arg("src", input_of(0)), *_own_args(node, spec))
        yield KernelOption(
            f"in rows, {kind}",
            (source, *(None,) * (len(node.inputs) - 1)),
            (result,),
            (Call(spec, args),),
        )


def volume_options(context: KernelContext) -> Iterator[KernelOption]:
    """Yield the core's ways to compute such a convolution over three axes."""
    node, lanes = context.node, block_lanes(context)
    if lanes not in _LANES or not _suits(context, 3):
        return
    if not _is_depthwise(context) and not _is_narrow(context, lanes):
        return
    for kind in kinds_of(context, node.inputs[0], node.outputs[0]):
        source, result = (context.formats(n)[kind] for n in (node.inputs[0], node.outputs[0]))
        spec = _volume(context, source, result, lanes)
        if unknown_post_op(spec.post_ops, rounds=True):
            continue
        args = (Arg("src", input_of(0)), *_own_args(node, spec))
        absent = (None,) * (len(node.inputs) - 1)
        calls = (Call(spec, args),)
        yield KernelOption(f"in rows, {kind}", (source, *absent), (result,), calls)


def options_with_expansion(context: KernelContext) -> Iterator[KernelOption]:
    """Yield the ways to compute a depthwise convolution together with that of 1x1 before it."""
    ahead, lanes = context.ahead(), block_lanes(context)
    if ahead is None or lanes not in _LANES:
        return
    if not _suits(context) or not _is_depthwise(context):
        return
    is_strided = set(ahead.node.ints_attr("strides", (1, 1))) != {1}
    if not is_1x1(ahead) or is_strided or _has_operands(ahead.node):
        return
    if ahead.node.int_attr("groups", 1) > 1:
        return
    first, node = ahead.node, context.node
    for kind in kinds_of(context, first.inputs[0], node.inputs[0], node.outputs[0]):
        spec = _with_expansion(ahead, context, kind, lanes)
        if unknown_post_op(spec.post_ops):
            continue
        names = (first.inputs[0], node.inputs[0], node.outputs[0])
        source, between, result = (context.formats(name)[kind] for name in names)
        absent = (None,) * (len(first.inputs) - 1)
        args = [from_ahead(Arg("src", input_of(0))), from_ahead(Arg("weights", input_of(1)))]
        if has_bias(first):
            args.append(from_ahead(Arg("bias", input_of(2))))
        yield behind_ahead(
            KernelOption("", (source, *absent), (between,)),
            kind,
            algorithm=f"with its expansion, {kind}",
            inputs=(None,) * (len(node.inputs) - 1),
            outputs=(result,),
            calls=(Call(spec, (*args, *_own_args(node, spec))),),
        )


def _own_args(node: Node, spec: KernelSpec) -> tuple[Arg, ...]:
    """Return the arguments of the depthwise convolution, alone or not."""
    weights = spec.memory("depthwise_weights")
    assert weights is not None  # below
    args = [Arg("depthwise_weights", input_of(1), reshape=weights.dims)]
    if has_bias(node):
        args.append(Arg("depthwise_bias", input_of(2)))
    return (*args, Arg("dst", output_of()))


def _alone(context: KernelContext, kind: str, lanes: int) -> KernelSpec:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    window, strides, dilations, pads = _window(context)
    source, result = context.formats(x.name)[kind], context.formats(y.name)[kind]
    src = memory_of(source, canonical_shape(x, source))
    dst = memory_of(result, canonical_shape(y, result))
    channels, each = context.value(node.inputs[1]).shape[:2]
    filters = MemorySpec((channels, 1, each, *window), f"Abcde{2 * lanes}a")
    memories = [("src", src), ("depthwise_weights", filters)]
    if has_bias(node):
        memories.append(("depthwise_bias", MemorySpec((channels,), "a")))
    found = parts(node, context.value(node.inputs[1]).shape)
    params = (
        ("begins", pads[:2]),
        ("between", 0),
        ("dilations", dilations),
        ("ends", pads[2:]),
        *(() if _is_depthwise(context) else (("groups", node.int_attr("groups", 1)),)),
        ("lanes", lanes),
        *((("parts", tuple(chain(*found))),) if found else ()),
        ("strides", strides),
        ("window", window),
    )
    posts = fused(node, dst, accumulate=False).specs
    taps = sum(count * rows * columns for count, _, _, rows, columns in found)
    flops = 2.0 * prod(y.shape) * (taps / channels if found else each * prod(window))
    kind = ALONE if _is_depthwise(context) else GROUPS
    return KernelSpec(kind, (*memories, ("dst", dst)), params, posts, flops=flops)


def _volume(context: KernelContext, source: Format, result: Format, lanes: int) -> KernelSpec:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    window, strides, dilations, pads = _window(context)
    tag = f"aBcd{lanes}b" if source.is_blocked else "acdb"

    def image(value: Value, fmt: Format) -> MemorySpec:
        images, channels, slices, rows, columns = canonical_shape(value, fmt)
        return MemorySpec((images, channels, slices * rows, columns), tag)

    dst, slices = image(y, result), canonical_shape(x, source)[2]
    outputs, each = context.value(node.inputs[1]).shape[:2]
    filters = (outputs, 1, each, window[0] * window[1], window[2])
    memories = [
        ("src", image(x, source)),
        ("depthwise_weights", MemorySpec(filters, f"Abcde{2 * lanes}a")),
    ]
    if has_bias(node):
        memories.append(("depthwise_bias", MemorySpec((outputs,), "a")))
    params = (
        ("begins", pads[1:3]),
        ("between", 0),
        ("dilations", dilations[1:]),
        ("ends", pads[4:]),
        *(() if _is_depthwise(context) else (("groups", node.int_attr("groups", 1)),)),
        ("lanes", lanes),
        ("slices", (slices, window[0], strides[0], dilations[0], pads[0], pads[3])),
        ("strides", strides[1:]),
        ("window", window[1:]),
    )
    posts = fused(node, dst, accumulate=False).specs
    flops = 2.0 * prod(y.shape) * each * prod(window)
    return KernelSpec(VOLUMES, (*memories, ("dst", dst)), params, posts, flops=flops)


def _with_expansion(
    ahead: KernelContext, context: KernelContext, kind: str, lanes: int
) -> KernelSpec:
    alone, first = _alone(context, kind, lanes), ahead.node
    x, weights = ahead.value(first.inputs[0]), ahead.value(first.inputs[1]).shape
    source = ahead.formats(x.name)[kind]
    src = memory_of(source, canonical_shape(x, source))
    memories = [("src", src), ("weights", MemorySpec(weights, f"ABcd16b{2 * lanes}a"))]
    if has_bias(first):
        memories.append(("bias", MemorySpec((weights[0],), "a")))
    posts = fused(first, src, accumulate=False).specs
    between = prod(context.value(context.node.inputs[0]).shape)
    return KernelSpec(
        KIND,
        (*memories, *alone.memories[1:]),
        tuple((key, len(posts) if key == "between" else value) for key, value in alone.params),
        (*posts, *alone.post_ops),
        flops=alone.flops + 2.0 * between * weights[1],
    )


def weight_gradient(
    src: MemorySpec, diff_dst: MemorySpec, dst: MemorySpec, geometry: Geometry, lanes: int
) -> KernelSpec | None:
    """Return the core's kernel for the gradient of a depthwise convolution's weights, or None.

    Args:
        src: the source of the convolution.
        diff_dst: the gradient of its result.
        dst: the gradient of its weights.
        geometry: strides, dilations and pads of the convolution.
        lanes: elements of a vector of the target, 0 where it has none.
    """
    strides, dilations, begins, ends = geometry
    if len(dst.dims) != 5 or dst.dims[:3] != (src.dims[1], 1, 1) or lanes not in _LANES:
        return None
    window = dst.dims[3:]
    extents = [(taps - 1) * step + 1 for taps, step in zip(window, dilations, strict=True)]
    pads = zip((*begins, *ends), extents * 2, strict=True)
    if (
        {src.tag, diff_dst.tag} not in ({"acdb"}, {f"aBcd{lanes}b"})
        or max(window) > _MOST_TAPS
        or max(*strides, *dilations) > _LARGEST
        or not all(0 <= pad < extent for pad, extent in pads)
    ):
        return None
    params = (
        ("begins", begins),
        ("dilations", dilations),
        ("lanes", lanes),
        ("strides", strides),
        ("window", window),
    )
    memories = (("src", src), ("diff_dst", diff_dst), ("dst", dst))
    return KernelSpec(WEIGHTS, memories, params, flops=2.0 * prod(diff_dst.dims) * prod(window))


def in_pairs(spec: KernelSpec) -> KernelSpec:
    """Return the kernel whose convolution of 1x1 multiplies pairs of bfloat16.

    Args:
        spec: the kernel with float32 products, whose tensors are of bfloat16.
    """
    outputs = 2 * cast("int", dict(spec.params)["lanes"])
    memories = tuple(
        (role, MemorySpec(memory.dims, f"ABcd8b{outputs}a2b", dtype="bf16"))
        if role == "weights"
        else (role, memory)
        for role, memory in spec.memories
    )
    return replace(spec, memories=memories, params=(*spec.params, ("products", "bf16")))


_FLOPS_PER_NS = {"bf16": 200.0}
"""Which rate the estimates assume for one thread with AVX-512, by the type of products; relative to
it are the following figures. They are those of Zen 4, for the 9 blocks of MobileNetV2."""
_OTHER_FLOPS_PER_NS = 100.0
_EXPANDS, _FILTERS, _BETWEEN_NS = 0.95, 0.4, 0.17
"""Which part of the rate the 1x1 convolution reaches, and of the one for float32 the depthwise one;
what an element between them takes, for post-ops, storing and loading."""


def _filled(spec: KernelSpec) -> float:
    """Return the part of vectors that channels fill."""
    dst = spec.memory("dst")
    return 1.0 if dst is None else filled(dst.dims[1], cast("int", dict(spec.params)["lanes"]))


def _share(spec: KernelSpec) -> float:
    """Return which part of the rate for products both convolutions reach together.

    Only the products of the 1x1 convolution may be of bfloat16. Vectors are computed in pairs.
    """
    src, weights = spec.memory("src"), spec.memory("weights")
    if src is None or weights is None:
        return 1.0
    (channels, inputs), pair = weights.dims[:2], 2 * cast("int", dict(spec.params)["lanes"])
    rate = _FLOPS_PER_NS.get(weights.dtype, _OTHER_FLOPS_PER_NS)
    between = src.dims[0] * prod(src.dims[2:]) * channels
    expansion = 2.0 * between * inputs
    taken = expansion / (rate * _EXPANDS) + between * _BETWEEN_NS
    taken += (spec.flops - expansion) / (_OTHER_FLOPS_PER_NS * _FILTERS)
    return spec.flops / rate / (taken * (-(-channels // pair) * pair / channels))


FAMILY = Family(
    kinds={
        ALONE: KernelKind(share=_filled),
        KIND: KernelKind({"channels-last": 1.0, "blocked": 1.0}, share=_share),
        GROUPS: KernelKind(share=_filled),
        VOLUMES: KernelKind(share=_filled),
        WEIGHTS: KernelKind({"plain": 0.40}),
    }
)
