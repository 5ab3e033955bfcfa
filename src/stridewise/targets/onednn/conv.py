"""Kernels of convolution: direct, by Winograd's algorithm, the core's depthwise and 1x1 kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod
from typing import cast

from stridewise.formats import Format, nd
from stridewise.graph import Refusal
from stridewise.ops.conv import EXACT, PARTS, geometry
from stridewise.ops.geometry import canonical_shape, user_format
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
from stridewise.targets.onednn.axes import over_two_axes
from stridewise.targets.onednn.conv1x1 import conv1x1_options
from stridewise.targets.onednn.conv_windows import window_options
from stridewise.targets.onednn.depthwise import (
    depthwise_options,
    options_with_expansion,
    volume_options,
)
from stridewise.targets.onednn.family import Family, KernelKind, Offer, refused
from stridewise.targets.onednn.groups import in_whole_vectors, narrow_share, per_group
from stridewise.targets.onednn.memory import (
    block_lanes,
    block_of,
    has_wide_blocks,
    memory_of,
    plain_memory,
    storage_of,
)
from stridewise.targets.onednn.post_ops import all_post_ops, fused, input_formats
from stridewise.targets.onednn.winograd import folds, specs, suits, volume_specs

__all__ = ["FAMILY", "conv_options", "library_option"]


FIRST_LAYER_CHANNELS = 3
"""Up to this many channels oneDNN reads NCHW and writes blocked channels in one fast kernel."""


def _format_pairs(context: KernelContext) -> Iterator[tuple[str, Format, Format]]:
    """Yield the storage kinds and formats of source and destination that some kernel takes.

    A convolution's source and destination share one format. The exception is the first layer.
    """
    source = context.formats(context.node.inputs[0])
    result = context.formats(context.node.outputs[0])
    channels = context.value(context.node.inputs[0]).shape[1]
    for kind, fmt in source.items():
        if kind in result:
            yield kind, fmt, result[kind]
    if channels <= FIRST_LAYER_CHANNELS:
        for kind, fmt in result.items():
            if fmt.is_blocked:
                yield f"first layer to {kind}", source["plain"], fmt


def _weights(context: KernelContext, groups: int) -> tuple[MemorySpec, Arg, Format | None]:
    w = context.value(context.node.inputs[1])
    dims = w.shape if groups == 1 else (groups, w.shape[0] // groups, *w.shape[1:])
    if context.is_constant(w.name):
        return MemorySpec(dims, "any"), Arg("weights", input_of(1), reshape=dims), None
    return plain_memory(dims), Arg("weights", input_of(1)), user_format(w)


def library_option(
    context: KernelContext,
    name: str,
    kernel: str,
    window: tuple[tuple[int, ...], ...],
    weights: tuple[MemorySpec, Arg, Format | None],
    formats: tuple[Format, Format],
    flops: float,
    *,
    accumulate: bool,
) -> KernelOption:
    """Return the library's kernel of a convolution, transposed or not.

    Args:
        context: the node, with weights as input 1 and perhaps a bias as input 2.
        name: of the option.
        kernel: ``"convolution"`` or ``"deconvolution"``.
        window: strides, dilations, and padding at both ends of each axis of the image.
        weights: their memory, the argument, and the format that they must have.
        formats: of source and destination.
        flops: operations.
        accumulate: whether an addition that follows is done in place.
    """
    node, (source, result) = context.node, formats
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    strides, dilations, begins, ends = window
    memory, weights_arg, weights_format = weights
    memories = [("src", memory_of(source, canonical_shape(x, source))), ("weights", memory)]
    args = [Arg("src", input_of(0)), weights_arg]
    own: list[Format | None] = [source, weights_format]
    if len(node.inputs) > 2:
        own.append(None)
        if node.inputs[2]:
            memories.append(("bias", MemorySpec((y.shape[1],), "a")))
            args.append(Arg("bias", input_of(2)))
            own[2] = None if context.is_constant(node.inputs[2]) else nd(1)
    destination = memory_of(result, canonical_shape(y, result))
    post = fused(node, destination, accumulate=accumulate)
    spec = KernelSpec(
        kernel if memory.tag == "any" else f"fitted_{kernel}",
        (*memories, ("dst", destination)),
        (("dilations", dilations), ("ends", ends), ("begins", begins), ("strides", strides)),
        post.specs,
        flops=flops,
    )
    return KernelOption(
        name + (", sum in place" if post.aliases else ""),
        input_formats(node, tuple(own), post, result),
        (result,),
        (Call(spec, (*args, Arg("dst", output_of()), *post.args)),),
        post.aliases,
    )


def _direct(
    context: KernelContext, kind: str, formats: tuple[Format, Format], *, accumulate: bool
) -> KernelOption:
    node = context.node
    w, y = context.value(node.inputs[1]), context.value(node.outputs[0])
    weights = _weights(context, node.int_attr("groups", 1))
    flops = 2.0 * prod(y.shape) * prod(w.shape[1:])
    window = geometry(node, len(y.shape) - 2)
    return library_option(
        context, f"direct, {kind}", "convolution", window, weights, formats, flops,
        accumulate=accumulate,
    )  # fmt: skip


def _of_volumes(context: KernelContext, direct: KernelOption) -> Iterator[KernelOption]:
    """Yield the ways to compute a direct convolution over three axes by Winograd's algorithm."""
    node, call = context.node, direct.calls[0]
    weights, dst = call.spec.memory("weights"), call.spec.memory("dst")
    is_volume = dst is not None and len(dst.dims) == _VOLUME_AXES
    if not is_volume or storage_of(dst) != "channels-last" or node.get(EXACT):
        return
    if weights is None or weights.tag != "any":  # weights of a run
        return
    for name, spec in volume_specs(context, call.spec):
        args = tuple(replace(a, reshape=None) if a.role == "weights" else a for a in call.args)
        algorithm = direct.algorithm.replace("direct", name, 1)
        yield replace(direct, algorithm=algorithm, calls=(Call(spec, args),), approximate=True)


def _in_fewer_products(
    context: KernelContext, direct: KernelOption
) -> Iterator[KernelOption | Refusal]:
    """Yield the ways to compute a direct convolution's results by Winograd's algorithm."""
    call = direct.calls[0]
    if context.node.get(EXACT) or not suits(context, call.spec):
        return
    for item in specs(context, call.spec):
        if isinstance(item, Refusal):
            yield item
            continue
        name, spec = item
        # The kernel has windows of its own, so the array goes to it as the user has it.
        args = tuple(
            replace(arg, reshape=None) if arg.role == "weights" else arg for arg in call.args
        )
        algorithm = direct.algorithm.replace("direct", name, 1)
        calls = (Call(spec, args),)
        yield replace(direct, algorithm=algorithm, calls=calls, approximate=True)


def _with_folded_strides(
    context: KernelContext, strides: tuple[int, ...], sums: tuple[bool, ...]
) -> Iterator[KernelOption | Refusal]:
    """Yield the ways to compute a convolution with strides by Winograd's algorithm.

    They read images with channels first or last and write either format of vectors.

    Args:
        context: the node.
        strides: its strides.
        sums: whether an addition that follows is done in place; perhaps both ways.
    """
    node, found = context.node, folds(context, strides)
    if isinstance(found, Refusal):
        yield found
    if found is not True:
        return
    source, result = context.formats(node.inputs[0]), context.formats(node.outputs[0])
    for kind in ("plain", "channels-last"):
        for made in ("channels-last", "blocked"):
            if kind in source and made in result:
                name = kind if kind == made else f"{kind} to {made}"
                formats = (source[kind], result[made])
                for accumulate in sums:
                    direct = _direct(context, name, formats, accumulate=accumulate)
                    yield from _in_fewer_products(context, direct)


def conv_options(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    """Yield the kernels of a convolution, and refusals with their reasons."""
    own = [*depthwise_options(context), *options_with_expansion(context)]
    if context.node.get(PARTS) and own:
        yield from own  # kernels of the library compute the whole window
        return
    if context.node.get(PARTS) and not context.is_constant(context.node.inputs[1]):
        yield refused(context.node, "weights outside of parts may not be zero")
        return
    post_ops = context.node.post_ops
    can_sum = bool(post_ops) and post_ops[0].op == "add"
    sums = (True, False) if can_sum else (False,)
    strides = geometry(context.node, len(context.value(context.node.outputs[0]).shape) - 2)[0]
    has_strides = set(strides) != {1}
    for kind, source, result in _format_pairs(context):
        # Only sum keeps the plain GEMM convolution fast; a full binary operand makes it `ref`.
        for accumulate in (True,) if can_sum and kind == "plain" else sums:
            direct = _direct(context, kind, (source, result), accumulate=accumulate)
            yield direct
            weights = direct.calls[0].spec.memory("weights")
            assert weights is not None  # convolutions have them
            yield from in_whole_vectors(direct, weights, block_lanes(context))
            if not has_strides:
                yield from _in_fewer_products(context, direct)
            yield from _of_volumes(context, direct)
    if has_strides:
        yield from _with_folded_strides(context, strides, sums)
    yield from own
    yield from conv1x1_options(context)
    yield from window_options(context)
    yield from volume_options(context)
    yield from over_two_axes(context, conv_options)


_MOST_FEW, _MOST_PADDED = 4, 28
"""Up to this many channels, and this much padding along a row, the library's direct kernel takes
images of few channels; with more padding, it has products of a copy of all windows, or naive
loops where results are blocked."""


def _is_copied(spec: KernelSpec, src: MemorySpec) -> bool:
    """Return whether an image of few channels has more padding than the direct kernel takes."""
    if src.dims[1] > _MOST_FEW or spec.kind == "deconvolution":
        return False
    params = dict(spec.params)
    begins, ends = (cast("tuple[int, ...]", params[name]) for name in ("begins", "ends"))
    return max(begins[-1], ends[-1]) > _MOST_PADDED


def _is_outside(spec: KernelSpec, weights: MemorySpec) -> bool:
    """Return whether some windows lie in the padding alone: there are naive loops only."""
    if spec.kind == "deconvolution":
        return False
    params = cast("dict[str, tuple[int, ...]]", dict(spec.params))
    padding = list(map(max, params["begins"], params["ends"]))
    windows = weights.dims[-len(padding) :]
    return any(
        pad > (taps - 1) * gap
        for pad, taps, gap in zip(padding, windows, params["dilations"], strict=True)
    )


_LONGEST_ROW = 7
"""Taps in a row up to which kernels without AVX-512 take windows with both strides and padding."""


def _is_long(spec: KernelSpec, weights: MemorySpec) -> bool:
    """Return whether windows have long rows, strides, and padding before an image."""
    if spec.kind == "deconvolution":
        return False
    params = cast("dict[str, tuple[int, ...]]", dict(spec.params))
    has_strides, is_padded = max(params["strides"]) > 1, max(params["begins"]) > 0
    return weights.dims[-1] > _LONGEST_ROW and has_strides and is_padded


def _is_naive(spec: KernelSpec, storage: str, dst: MemorySpec) -> bool:
    """Return whether groups are not whole blocks, or there are fewer channels than a block has.

    There are naive loops also for windows that are outside of what direct kernels take.
    """
    src, weights = spec.memory("src"), spec.memory("weights")
    if storage != "blocked" or src is None or weights is None:
        return False
    block, group = block_of(dst), per_group(spec, weights)
    if _is_copied(spec, src) or _is_outside(spec, weights):
        return True
    if _is_long(spec, weights) and not has_wide_blocks(dst):
        return True
    if group:
        return set(group) != {1} and any(extent % block for extent in group)
    return src.dims[1] < block and storage_of(src) == "blocked"


def prefers_direct(spec: KernelSpec) -> bool:
    """Return whether the direct kernel of a convolution is faster than batches of small products.

    The library's first choice are the products where channels come last. In float32, the direct
    kernel was faster for 183 of 191 sizes with a filter for each channel on Zen 4, and for all 19
    with a single pixel.
    """
    src, dst, weights = map(spec.memory, ("src", "dst", "weights"))
    if spec.kind != "convolution" or src is None or dst is None or weights is None:
        return False
    is_float32 = {memory.dtype for _, memory in spec.memories} == {"f32"}
    is_each_channel = set(per_group(spec, weights)) == {1}
    is_pixel = prod((dst.dims[0], *dst.dims[2:])) == 1
    is_last = storage_of(dst) == "channels-last"
    return is_float32 and is_last and (is_each_channel or is_pixel)


_PLAIN_DEPTHWISE = 1 / 14
"""Part of the rate of other convolutions, without blocks and with channels outside, that those with
a filter for each channel reach: each is a product of a matrix and a vector. Measured on Zen 4."""


_BYTE_DEPTHWISE = 1 / 6
"""Part of the rate of other convolutions of integers that those with a filter for each channel
reach: each instruction multiplies one tap instead of four. Measured on Zen 4: 1/5 for windows of
3x3, 1/7 for 5x5."""


_IMAGE_AXES, _VOLUME_AXES = 4, 5
_OTHER_DEPTHWISE = 1 / 50
"""The same over one and three axes, for which the library has no kernels with a filter for each
channel. Measured on Zen 4 with channels last: 1/100 to 1/30."""


_COPIED = 1 / 8
"""Part of the rate of direct kernels that products of copies of windows of few channels reach.
Measured on Zen 4: 37 GFLOP/s for windows of 64 of a single channel, 230 for others."""

_LEAST_LANES = 8
"""Outputs of the smallest vectors."""

_COPYING = 16
"""Outputs whose products take as long as to copy what they read, in plain storage."""


def _share(spec: KernelSpec) -> float:
    src, dst, weights = map(spec.memory, ("src", "dst", "weights"))
    if src is None or dst is None or weights is None:
        return 1.0
    if set(per_group(spec, weights)) != {1}:
        share, outputs = narrow_share(spec, weights, 0.6), dst.dims[1]
        if _is_copied(spec, src):
            return share * _COPIED
        if storage_of(dst) == "plain":
            return share * outputs / (outputs + _COPYING)
        # Blocks are computed whole, and so are vectors.
        block = max(block_of(dst), _LEAST_LANES)
        return share * outputs / (-(-outputs // block) * block)
    if len(dst.dims) != _IMAGE_AXES:
        return _OTHER_DEPTHWISE
    if weights.dtype == "s8":
        return _BYTE_DEPTHWISE
    return _PLAIN_DEPTHWISE if storage_of(dst) == "plain" else 1.0


_LOOP_NS = {True: 4.0, False: 11.0}
"""What one thread takes for the post-ops of an element where the library computes them one by one:
one activation alone, and several post-ops. Measured on Zen 5: 3.7 to 4.1 ns for ReLU and clip, 15
for GELU, and 11 for ReLU behind a sum and for four functions."""


def _loops_ns(spec: KernelSpec) -> float:
    """Return the time of naive loops: the library's GEMM of plain float32 images has no others."""
    dst = spec.memory("dst")
    if dst is None or dst.dtype != "f32" or storage_of(dst) != "plain":
        return 0.0
    has_functions = any(post.kind == "eltwise" for post in spec.post_ops)
    return _LOOP_NS[len(spec.post_ops) == 1] * prod(dst.dims) if has_functions else 0.0


_CONVOLUTION = KernelKind(
    {"plain": 0.40, "channels-last": 0.92, "blocked": 0.90}, _is_naive, _share, loops_ns=_loops_ns
)

_JOINED = frozenset({"conv", "mul", "pointwise"})
"""Operators whose results kernels of convolution may compute as well: an expansion, or a product by
a factor for each channel."""

FAMILY = Family(
    {"conv": Offer(conv_options, joins=_JOINED, post_ops=all_post_ops)},
    {"convolution": _CONVOLUTION, "fitted_convolution": _CONVOLUTION},
)
