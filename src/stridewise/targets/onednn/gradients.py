"""Kernels of gradients by the library's backward primitives, and of batch norm in training.

The operators have canonical order whatever the data format of the graph. Gradients of a
convolution's source are transposed convolutions, which ``conv_transpose.py`` has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import inf, isinf, prod
from typing import cast

from stridewise.formats import Format, nd
from stridewise.graph import Node, Refusal, Value
from stridewise.ops.conv import geometry
from stridewise.ops.geometry import canonical_shape, user_format
from stridewise.ops.norm import EPSILON
from stridewise.targets.kernels import (
    Alias,
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    PostOpSpec,
    input_of,
    output_of,
)
from stridewise.targets.onednn.conv import FIRST_LAYER_CHANNELS
from stridewise.targets.onednn.depthwise import weight_gradient as depthwise_weights
from stridewise.targets.onednn.family import Family, KernelKind, Offer, float32_only, refused
from stridewise.targets.onednn.groups import in_whole_vectors, narrow_share, per_group
from stridewise.targets.onednn.memory import (
    block_of,
    has_wide_blocks,
    memory_of,
    plain_memory,
    storage_of,
)
from stridewise.targets.onednn.winograd import WEIGHTS as WINOGRAD
from stridewise.targets.onednn.winograd import Geometry as Window
from stridewise.targets.onednn.winograd import weight_gradients

__all__ = ["FAMILY", "image_formats", "image_memory", "needed"]


def _is_canonical(value: Value) -> bool:
    origin = value.origin
    return origin is not None and origin.order == origin.axes and origin.axes[:2] == ("N", "C")


def image_formats(context: KernelContext, *names: str) -> Iterator[tuple[str, tuple[Format, ...]]]:
    """Yield the formats that feature maps in canonical order can have, by kind."""
    values = [context.value(name) for name in names]
    if not all(map(_is_canonical, values)) or any(map(context.is_constant, names)):
        yield "plain", tuple(map(user_format, values))
        return
    offers = [context.formats(name) for name in names]
    for kind in offers[0]:
        if all(kind in offer for offer in offers):
            yield kind, tuple(offer[kind] for offer in offers)


def image_memory(context: KernelContext, name: str, fmt: Format) -> MemorySpec:
    """Return the memory of feature maps in a format of :func:`image_formats`.

    Constants and images that are not in canonical order have the user's order, which is the order
    of axes that the node means.
    """
    value = context.value(name)
    if context.is_constant(name) or not _is_canonical(value):
        return plain_memory(value.shape)
    return memory_of(fmt, canonical_shape(value, fmt))


def needed(context: KernelContext, name: str, fmt: Format) -> Format | None:
    """Return the format that an option needs of an input, None for constants."""
    return None if context.is_constant(name) else fmt


@float32_only
def _conv_weights(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, dy, w = (context.value(name) for name in (*node.inputs, node.outputs[0]))
    groups = node.int_attr("groups", 1)
    strides, dilations, begins, ends = geometry(node, len(x.shape) - 2)
    dims = w.shape if groups == 1 else (groups, w.shape[0] // groups, *w.shape[1:])
    pairs = list(image_formats(context, x.name, dy.name))
    if x.shape[1] <= FIRST_LAYER_CHANNELS:
        own = user_format(x)
        pairs += [(f"first layer from {k}", (own, f[1])) for k, f in pairs if f[1].is_blocked]
    for kind, (source, gradient) in pairs:
        memories = (
            ("src", image_memory(context, x.name, source)),
            ("diff_dst", image_memory(context, dy.name, gradient)),
            ("dst", plain_memory(dims)),
        )
        spec = KernelSpec(
            "conv_weight_gradient",
            memories,
            (("begins", begins), ("dilations", dilations), ("ends", ends), ("strides", strides)),
            flops=2.0 * prod(dy.shape) * prod(w.shape[1:]),
        )
        args = (Arg("src", input_of(0)), Arg("diff_dst", input_of(1)), Arg("dst", output_of()))
        needs = (needed(context, x.name, source), needed(context, dy.name, gradient))
        direct = KernelOption(
            f"weight gradient, {kind}", needs, (user_format(w),), (Call(spec, args),)
        )
        yield direct
        yield from in_whole_vectors(direct, plain_memory(dims), _lanes(context))
        if None in needs:
            continue
        src, diff_dst, dst = (memory for _, memory in memories)
        own = (src, diff_dst, dst, (strides, dilations, begins, ends), _lanes(context))
        for name, found in _own_weights(*own):
            algorithm, calls = f"weight gradient, {name}, {kind}", (Call(found, args),)
            approximate = found.kind == WINOGRAD
            yield replace(direct, algorithm=algorithm, calls=calls, approximate=approximate)


def _own_weights(
    src: MemorySpec, diff_dst: MemorySpec, dst: MemorySpec, window: Window, lanes: int
) -> Iterator[tuple[str, KernelSpec]]:
    """Yield the core's kernels, by name, for images in these formats."""
    if len(dst.dims) == len(src.dims):
        yield from weight_gradients(src, diff_dst, dst, window, lanes)
        return
    found = depthwise_weights(src, diff_dst, dst, window, lanes)
    if found is not None:
        yield "in rows", found


def _lanes(context: KernelContext) -> int:
    """Return the channels of the blocks of images, which are the lanes of a vector; else 0."""
    formats = context.formats(context.node.inputs[0]).values()
    return next((fmt.blocks[-1].size for fmt in formats if fmt.is_blocked), 0)


_NORMS = {
    "batch_norm": ("batch_norm_training", ("scale", "shift"), ("out_mean", "out_variance")),
    "batch_norm_gradient": (
        "batch_norm_gradient",
        ("scale", "mean", "variance", "shift"),
        ("out_scale", "out_shift"),
    ),
}
"""The library's kind of kernel of each operator, and the roles of its rows, read and written."""


_IMAGES = {"batch_norm": 1, "batch_norm_gradient": 2}
"""How many inputs are images, before the rows."""


@float32_only
def _norms(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    epsilon = node.float_attr("epsilon", EPSILON)
    if epsilon <= 0:
        yield refused(node, "the library divides by variances of 0")
        return
    added = tuple(post.operand for post in node.post_ops if post.operand is not None)
    images = (*range(_IMAGES[node.op]), *added)
    bounds = dict(_bounds(node))
    clears_spare_lanes = bounds.get("low", 0.0) <= 0 <= bounds.get("high", 0.0)
    names = (*(node.inputs[index] for index in images), node.outputs[0])
    for kind, (*sources, result) in image_formats(context, *names):
        if result.is_blocked and not clears_spare_lanes:
            continue
        option = _norm(context, dict(zip(images, sources, strict=True)), added, result)
        yield replace(option, algorithm=f"own {option.algorithm}, {kind}")
        if not (bounds or added):
            call = option.calls[0]
            calls = (replace(call, spec=replace(call.spec, kind=_NORMS[node.op][0])),)
            yield replace(option, algorithm=f"{option.algorithm}, {kind}", calls=calls)


def _norm(
    context: KernelContext, images: Mapping[int, Format], added: tuple[int, ...], result: Format
) -> KernelOption:
    """Return the core's kernel for inputs that are images in these formats, and for rows.

    Args:
        context: of the node.
        images: the formats of images among the inputs.
        added: the inputs that are operands of post-ops.
        result: the format of the result.
    """
    node, is_gradient = context.node, context.node.op == "batch_norm_gradient"
    name, reads, writes = _NORMS[node.op]
    own = len(node.inputs) - len(added)
    roles = (*("src", "diff_dst")[: _IMAGES[node.op]], *reads)[:own]
    row = MemorySpec(context.value(node.outputs[1]).shape, "a")
    found = [images.get(index) for index in range(len(node.inputs))]
    memories = [
        row if fmt is None else image_memory(context, item, fmt)
        for item, fmt in zip(node.inputs, found, strict=True)
    ]
    dst = image_memory(context, node.outputs[0], result)
    outputs = {"dst": dst, **dict.fromkeys(writes, row)}
    spec = KernelSpec(
        f"fused_{node.op}",
        (*zip(roles, memories, strict=False), *outputs.items()),
        (("epsilon", node.float_attr("epsilon", EPSILON)), *_bounds(node)),
        tuple(PostOpSpec("binary", "add", operand=dst) for _ in added),
        flops=8.0 * prod(context.value(node.outputs[0]).shape),
    )
    args = [Arg(role, input_of(index)) for index, role in enumerate(roles)]
    args += [Arg("post0", input_of(index)) for index in added]
    args += [Arg(role, output_of(index)) for index, role in enumerate(outputs)]
    needs = tuple(
        needed(context, item, fmt or nd(1)) for item, fmt in zip(node.inputs, found, strict=True)
    )
    aliases = (Alias(1, 0, 0, "in place"),) if is_gradient and needs[1] is not None else ()
    made = (result, nd(1), nd(1))
    algorithm = name.replace("_", " ")
    return KernelOption(algorithm, needs, made, (Call(spec, tuple(args)),), aliases)


def _bounds(node: Node) -> tuple[tuple[str, float], ...]:
    """Return the bounds of what a batch norm gives, by name; those that there are."""
    low, high = node.float_attr("low", -inf), node.float_attr("high", inf)
    for post in node.post_ops:
        if post.operand is None:
            low, high = (0.0, inf) if post.op == "relu" else (post.alpha, post.beta)
    return tuple((key, x) for key, x in (("high", high), ("low", low)) if not isinf(x))


def _norm_post_ops(node: Node) -> frozenset[str]:
    """Return what follows a batch norm of the batch: a sum, and then an activation."""
    if not node.post_ops:
        return frozenset({"add", "clip", "relu"})
    return frozenset({"clip", "relu"}) if node.post_ops[-1].op == "add" else frozenset()


_LONGEST_ROW = 14
"""Taps in a row up to which the library has fast kernels of weight gradients in blocks; one less
without AVX-512."""


_VOLUME = 3
"""Axes of the window of a volume."""


def _is_naive_volume(spec: KernelSpec, reach: list[int], *, is_wide: bool) -> bool:
    """Return whether the library has naive loops only for a volume in blocks.

    So it is where windows have gaps, and without AVX-512 where they meet padding. With AVX-512,
    those volumes are others that have padding before the first slice, and no more slices than the
    window without that padding.
    """
    src, params = spec.memory("src"), cast("dict[str, tuple[int, ...]]", dict(spec.params))
    if src is None or max(params["dilations"]) > 1:
        return True
    begins = params["begins"]
    if is_wide:
        return begins[0] > 0 and src.dims[2] <= reach[0] - begins[0]
    return max(*begins, *params["ends"]) > 0


def _has_no_kernel(spec: KernelSpec, windows: tuple[int, ...], *, is_wide: bool) -> bool:
    """Return whether the library has naive loops only for windows of weight gradients in blocks.

    So it is for long rows, where padding is as long as a window or, with AVX-512, longer than half
    of it along other axes than rows, and where windows have gaps: with AVX-512 only those with
    strides.
    """
    params = cast("dict[str, tuple[int, ...]]", dict(spec.params))
    steps, apart = params["strides"], params["dilations"]
    reach = [(taps - 1) * gap + 1 for taps, gap in zip(windows, apart, strict=True)]
    most = [*(extent // 2 if is_wide else extent - 1 for extent in reach[:-1]), reach[-1] - 1]
    padding = list(map(max, params["begins"], params["ends"]))
    return (
        (len(windows) == _VOLUME and _is_naive_volume(spec, reach, is_wide=is_wide))
        or windows[-1] > _LONGEST_ROW - (not is_wide)
        or any(
            gap > 1 and (step > 1 or not is_wide) for step, gap in zip(steps, apart, strict=True)
        )
        or any(pad > limit for pad, limit in zip(padding, most, strict=True))
    )


def _is_naive(spec: KernelSpec, _storage: str, dst: MemorySpec) -> bool:
    """Return whether gradients in blocks have uneven groups, few channels or wide windows."""
    src, diff_dst = spec.memory("src"), spec.memory("diff_dst")
    if src is None or storage_of(diff_dst) != "blocked":
        return False
    block, group = block_of(diff_dst), per_group(spec, dst)
    if _has_no_kernel(spec, dst.dims[2 - len(src.dims) :], is_wide=has_wide_blocks(diff_dst)):
        return True
    if set(group) == {1}:
        return any(extent > _DEPTHWISE_WINDOW for extent in dst.dims[3:])
    return any(extent % block for extent in group) or (
        storage_of(src) == "blocked" and src.dims[1] < block
    )


def _weights_share(spec: KernelSpec) -> float:
    """Return which part of the roofline gradients of weights reach, by the format of images.

    Figures fit oneDNN 3.2 on Zen 4. On Zen 5, whose peak is twice as high, large images with
    channels last take as long; samples of a calibration say so.
    """
    diff_dst, dst = spec.memory("diff_dst"), spec.memory("dst")
    assert diff_dst is not None  # all have both
    assert dst is not None
    pixels, storage = prod(diff_dst.dims[2:]), storage_of(diff_dst)
    is_depthwise = len(dst.dims) > len(diff_dst.dims) and dst.dims[1:3] == (1, 1)
    if is_depthwise and max(dst.dims[3:]) > _DEPTHWISE_WINDOW:
        return 0.05
    if storage == "blocked":
        return 0.92
    share = 0.88 / (1 + pixels / 15000) if storage == "channels-last" else 0.20
    return share * narrow_share(spec, dst, 0.75)


_DEPTHWISE_WINDOW = 3
"""Up to this extent the library has fast kernels of depthwise weight gradients."""

FAMILY = Family(
    {
        "batch_norm": Offer(_norms, post_ops=_norm_post_ops),
        "batch_norm_gradient": Offer(_norms),
        "conv_weight_gradient": Offer(_conv_weights),
    },
    {
        # With channels last, sums of all channels do not fit into registers: on one core of Zen 4
        # such kernels take 1.3 times as long as in blocks. In blocks the library's gradient, which
        # has no masks, takes three quarters of the time of the core's, with channels last more.
        "batch_norm_gradient": KernelKind({"channels-last": 0.28}),
        "batch_norm_training": KernelKind({"channels-last": 0.40}),
        "fused_batch_norm": KernelKind({"channels-last": 0.46}),
        "fused_batch_norm_gradient": KernelKind({"blocked": 0.45, "channels-last": 0.35}),
        "conv_weight_gradient": KernelKind({"plain": 1.0}, _is_naive, _weights_share),
    },
)
