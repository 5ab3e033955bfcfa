"""Kernels of transposed convolution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod

from stridewise.formats import Format
from stridewise.graph import Refusal
from stridewise.ops.conv_transpose import geometry
from stridewise.ops.geometry import canonical_shape, row_major, user_format
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
from stridewise.targets.onednn.apart import apart
from stridewise.targets.onednn.conv import library_option
from stridewise.targets.onednn.family import Family, KernelKind, Offer
from stridewise.targets.onednn.groups import in_whole_vectors, narrow_share, per_group
from stridewise.targets.onednn.memory import (
    block_lanes,
    block_of,
    memory_of,
    plain_memory,
    storage_of,
)
from stridewise.targets.onednn.post_ops import all_post_ops, fused, input_formats, unknown_post_op
from stridewise.targets.onednn.winograd import specs, suits

__all__ = ["FAMILY"]


def _weights(context: KernelContext, groups: int) -> tuple[MemorySpec, Arg, Format | None]:
    """Describe the weights as oneDNN has them: output channels before input channels."""
    w = context.value(context.node.inputs[1])
    if groups == 1:
        split, order = w.shape, (1, 0, *range(2, len(w.shape)))
    else:
        split = (groups, w.shape[0] // groups, *w.shape[1:])
        order = (0, 2, 1, *range(3, len(split)))
    dims = tuple(split[axis] for axis in order)
    if context.is_constant(w.name):
        arg = Arg("weights", input_of(1), reshape=split, permute=order)
        return MemorySpec(dims, "any"), arg, None
    strides = row_major(split)
    memory = MemorySpec(dims, strides=tuple(strides[axis] for axis in order))
    return memory, Arg("weights", input_of(1)), user_format(w)


def _transposed(
    context: KernelContext, kind: str, formats: tuple[Format, Format], *, accumulate: bool
) -> KernelOption:
    node = context.node
    x, w = (context.value(name) for name in node.inputs[:2])
    weights = _weights(context, node.int_attr("groups", 1))
    flops = 2.0 * prod(x.shape) * prod(w.shape[1:])
    window = geometry(node, len(x.shape) - 2)
    return library_option(
        context, f"transposed, {kind}", "deconvolution", window, weights, formats, flops,
        accumulate=accumulate,
    )  # fmt: skip


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    """Yield one kernel a format that source and destination share; others are ``ref``."""
    node = context.node
    can_sum = bool(node.post_ops) and node.post_ops[0].op == "add"
    results = context.formats(node.outputs[0])
    for kind, source in context.formats(node.inputs[0]).items():
        if kind in results:
            for accumulate in (True, False) if can_sum else (False,):
                direct = _transposed(context, kind, (source, results[kind]), accumulate=accumulate)
                weights = direct.calls[0].spec.memory("weights")
                assert weights is not None  # convolutions have them
                together = in_whole_vectors(direct, weights, block_lanes(context))
                for option in (direct, *together):
                    yield option
                    yield from apart(context, option)
                yield from _in_fewer_products(context, direct)
            yield from _depthwise(context, kind, source, results[kind])


def _in_fewer_products(context: KernelContext, direct: KernelOption) -> Iterator[KernelOption]:
    """Yield the ways to compute it by Winograd's algorithm, as a convolution of rotated windows.

    They are for weights that change. Results are as large as the padding of that convolution says.
    """
    call, node = direct.calls[0], context.node
    spec, x = call.spec, context.value(node.inputs[0])
    strides, dilations, begins, _ = geometry(node, len(x.shape) - 2)
    w, y = context.value(node.inputs[1]), context.value(node.outputs[0])
    if node.int_attr("groups", 1) > 1 or context.is_constant(w.name) or set(strides) != {1}:
        return
    reach = [d * (taps - 1) for d, taps in zip(dilations, w.shape[2:], strict=True)]
    turned = tuple(most - pad for most, pad in zip(reach, begins, strict=True))
    axes = zip(reach, turned, x.shape[2:], y.shape[2:], strict=True)
    ends = tuple(most + out - begin - size for most, begin, size, out in axes)
    if min(*turned, *ends) < 0 or not suits(context, spec):
        return
    params = (("begins", turned), ("dilations", dilations), ("ends", ends), ("strides", strides))
    found = specs(context, replace(spec, params=params), is_transposed=True)
    for item in found:
        if isinstance(item, tuple):
            name, own = item
            algorithm = direct.algorithm.replace("transposed", f"transposed, {name}", 1)
            calls = (replace(call, spec=own),)
            yield replace(direct, algorithm=algorithm, calls=calls, approximate=True)


_LARGEST_WINDOW, _LARGEST_STEP = 64, 1 << 12
"""Taps, and strides and dilations, along an axis that the core's depthwise kernels accept."""


def _depthwise(
    context: KernelContext, kind: str, source: Format, result: Format
) -> Iterator[KernelOption]:
    """Yield the core's way to compute a transposed convolution of each channel by itself."""
    node, lanes = context.node, block_lanes(context)
    x, w, y = (context.value(name) for name in (*node.inputs[:2], node.outputs[0]))
    strides, dilations, begins, _ = geometry(node, len(x.shape) - 2)
    window = w.shape[2:]
    extents = [(taps - 1) * step + 1 for taps, step in zip(window, dilations, strict=True)]
    post = fused(node, memory_of(result, canonical_shape(y, result)), accumulate=False)
    if (
        lanes not in (8, 16)
        or kind not in ("channels-last", "blocked")
        or len(window) != 2
        or w.shape[:2] != (node.int_attr("groups", 1), 1)
        or max(window) > _LARGEST_WINDOW
        or max(*strides, *dilations) > _LARGEST_STEP
        or not all(0 <= pad < extent for pad, extent in zip(begins, extents, strict=True))
        or (len(node.inputs) > 2 and node.inputs[2])
        or unknown_post_op(post.specs)
    ):
        return
    filters = plain_memory((w.shape[0], 1, 1, *window))
    spec = KernelSpec(
        "transposed_depthwise",
        (
            ("src", memory_of(source, canonical_shape(x, source))),
            ("weights", filters),
            ("dst", memory_of(result, canonical_shape(y, result))),
        ),
        (
            ("begins", begins),
            ("dilations", dilations),
            ("lanes", lanes),
            ("strides", strides),
            ("window", window),
        ),
        post.specs,
        flops=2.0 * prod(x.shape) * prod(window),
    )
    is_constant = context.is_constant(w.name)
    weights = Arg("weights", input_of(1), reshape=filters.dims if is_constant else None)
    own = (source, None if is_constant else user_format(w))
    yield KernelOption(
        f"transposed in rows, {kind}",
        input_formats(node, own, post, result),
        (result,),
        (Call(spec, (Arg("src", input_of(0)), weights, Arg("dst", output_of()), *post.args)),),
        post.aliases,
    )


def _ints(spec: KernelSpec, key: str) -> tuple[int, ...]:
    found = dict(spec.params)[key]
    return (
        tuple(item for item in found if isinstance(item, int)) if isinstance(found, tuple) else ()
    )


def _is_naive(spec: KernelSpec, storage: str, dst: MemorySpec) -> bool:
    """Return whether groups are uneven, strides meet dilations, or pads go beyond all taps."""
    src, weights = spec.memory("src"), spec.memory("weights")
    if storage != "blocked" or src is None or weights is None:
        return False
    block, group = block_of(dst), per_group(spec, weights)
    if set(group) == {1}:
        return any(dilation > 1 for dilation in _ints(spec, "dilations"))
    names, kernel = ("strides", "dilations", "ends"), weights.dims[2 - len(src.dims) :]
    axes = zip(kernel, *(_ints(spec, name) for name in names), strict=True)
    return any(extent % block for extent in group) or any(
        (dilation > 1 and stride > 1) or end > dilation * (extent - 1)
        for extent, stride, dilation, end in axes
    )


_POST_OPS_NS, _BIAS_NS = 38.0, {"bf16": 15.0}
"""What one thread of Zen 4 takes for an output element in the library's naive loops behind a data
gradient: for post-ops, and for a bias by the type of the result."""
_OTHER_BIAS_NS = 2.5
_FLOPS_PER_NS = {"bf16": 160.0}
"""What one thread reaches in a data gradient, by the type of its products."""
_OTHER_FLOPS_PER_NS = 80.0
_LANES = 16
_FEW = 16
"""Channels of a source below which the library may have a data gradient alone."""


def _applies_itself(spec: KernelSpec, weights: MemorySpec) -> bool:
    """Return whether the library has a kernel of transposed convolution, which includes the rest.

    That is so with channels last, without strides and groups, and neither for a few channels nor
    for padding beyond all taps.
    """
    src, window = spec.memory("src"), weights.dims[2:]
    is_last = storage_of(spec.memory("dst")) == "channels-last"
    if src is None or not is_last or src.dims[1] < _FEW or per_group(spec, weights):
        return False
    names = ("strides", "dilations", "begins", "ends")
    axes = zip(window, *(_ints(spec, name) for name in names), strict=True)
    return all(
        stride == 1 and max(begin, end) <= dilation * (taps - 1)
        for taps, stride, dilation, begin, end in axes
    )


def _filled(weights: MemorySpec, dst: MemorySpec) -> float:
    """Return which part of the products belongs to results, where these are in vectors.

    On Zen 4, one output instead of 16 took as long in channels-last, and a sixth in plain format.
    """
    if storage_of(dst) == "plain" or len(weights.dims) > len(dst.dims):
        return 1.0
    outputs = weights.dims[0]
    return outputs / (-(-outputs // _LANES) * _LANES)


def _share(spec: KernelSpec) -> float:
    """Return which part of the time the products take.

    Where the library computes a data gradient, it adds biases and applies post-ops by naive loops.
    """
    weights, dst = spec.memory("weights"), spec.memory("dst")
    if weights is None or dst is None:
        return 1.0
    narrow = narrow_share(spec, weights, 0.35) * _filled(weights, dst)
    if _applies_itself(spec, weights):
        return narrow
    behind = _POST_OPS_NS if spec.post_ops else 0.0
    if spec.memory("bias") is not None:
        behind += _BIAS_NS.get(dst.dtype, _OTHER_BIAS_NS)
    products = spec.flops / _FLOPS_PER_NS.get(weights.dtype, _OTHER_FLOPS_PER_NS)
    return narrow * products / (products + behind * prod(dst.dims))


_COLUMN_NS = 3.0
"""What one thread takes for a product of a pixel with the weights, summed over channels, which the
library's matrix product for plain formats stores and then adds to the result. Measured on Ice Lake:
2.6 to 4.3, for 1 to 64 outputs and 16 to 128 channels."""


def _columns_ns(spec: KernelSpec) -> float:
    weights, src, dst = (spec.memory(role) for role in ("weights", "src", "dst"))
    if weights is None or src is None or storage_of(dst) != "plain":
        return 0.0
    channels = weights.dims[len(weights.dims) - len(src.dims) + 1]
    return _COLUMN_NS * spec.flops / (2 * channels)


# Measured on Zen 4: 0.85 to 0.95 of the convolution that it is the data gradient of.
_DECONVOLUTION = KernelKind(
    {"plain": 0.70, "channels-last": 0.80, "blocked": 0.80},
    _is_naive,
    _share,
    loops_ns=_columns_ns,
)

FAMILY = Family(
    {"conv_transpose": Offer(_kernels, post_ops=all_post_ops)},
    {
        "deconvolution": _DECONVOLUTION,
        "fitted_deconvolution": _DECONVOLUTION,
        "transposed_depthwise": KernelKind(),
    },
)
