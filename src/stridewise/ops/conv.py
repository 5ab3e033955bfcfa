"""Convolution over one, two or three spatial axes, grouped and dilated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np

from stridewise.formats import Format, nd
from stridewise.graph import Node, Refusal, TensorType
from stridewise.ops import winograd
from stridewise.ops.depthwise import depthwise_options, options_with_expansion
from stridewise.ops.geometry import canonical_shape, user_format
from stridewise.ops.kernels import (
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    input_of,
    output_of,
)
from stridewise.ops.post_ops import fused, input_formats
from stridewise.ops.registry import Array, Operands, OpSpec, Types, array, needs, register, tensor

__all__ = ["CONV", "conv_options", "window_extent"]


FIRST_LAYER_CHANNELS = 3
"""Up to this many channels oneDNN reads NCHW and writes blocked channels in one fast kernel."""


def window_extent(size: int, kernel: int, stride: int, dilation: int, pad: int) -> int:
    """Return the number of positions of a window: floor((size + pad - reach) / stride) + 1.

    Source: ONNX, operator Conv. ``pad`` is the sum of both ends.
    """
    return (size + pad - dilation * (kernel - 1) - 1) // stride + 1


def _geometry(node: Node, spatial: int) -> tuple[tuple[int, ...], ...]:
    """Return strides, dilations, begins and ends of the padding."""
    strides = node.ints_attr("strides", (1,) * spatial)
    dilations = node.ints_attr("dilations", (1,) * spatial)
    pads = node.ints_attr("pads", (0,) * (2 * spatial))
    fits = len(strides) == len(dilations) == spatial and len(pads) == 2 * spatial
    needs(node, fits, f"strides, dilations and pads for {spatial} spatial axes", node.attrs)
    positive = min(strides) > 0 and min(dilations) > 0 and min(pads) >= 0
    needs(node, positive, "positive strides and dilations, pads of 0 or more", node.attrs)
    return strides, dilations, pads[:spatial], pads[spatial:]


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, w = tensor(node, types, 0), tensor(node, types, 1)
    groups = node.int_attr("groups", 1)
    needs(node, 3 <= len(x.shape) <= 5, "an input of rank 3 to 5", x)
    needs(node, len(w.shape) == len(x.shape), f"weights of rank {len(x.shape)}", w)
    needs(node, groups > 0 and w.shape[0] % groups == 0, "groups that divide the outputs", groups)
    needs(node, w.dtype == x.dtype, f"weights of dtype {x.dtype}", w.dtype)
    channels = w.shape[1] * groups
    needs(node, x.shape[1] == channels, f"{channels} input channels", f"{x.shape[1]} in {x}")
    bias = types[2] if len(types) > 2 else None
    needs(node, bias is None or bias.shape == w.shape[:1], f"a bias of {w.shape[0]}", bias)
    strides, dilations, begins, ends = _geometry(node, len(x.shape) - 2)
    spatial = tuple(
        window_extent(size, kernel, stride, dilation, begin + end)
        for size, kernel, stride, dilation, begin, end in zip(
            x.shape[2:], w.shape[2:], strides, dilations, begins, ends, strict=True
        )
    )
    needs(node, min(spatial) > 0, "a window that fits into the padded input", x)
    return (TensorType(x.dtype, (x.shape[0], w.shape[0], *spatial)),)


def windows(
    x: Array,
    out: tuple[int, ...],
    strides: tuple[int, ...],
    kernel: tuple[int, ...],
    dilations: tuple[int, ...],
) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Yield, for each position in the window, the strided view of x that it meets."""
    for position in product(*(range(k) for k in kernel)):
        slices = tuple(
            slice(p * d, p * d + (o - 1) * s + 1, s)
            for p, d, o, s in zip(position, dilations, out, strides, strict=True)
        )
        yield position, x[(slice(None), slice(None), *slices)]


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x, w = array(operands, 0), array(operands, 1)
    bias = operands[2] if len(operands) > 2 else None
    groups = node.int_attr("groups", 1)
    strides, dilations, begins, ends = _geometry(node, x.ndim - 2)
    out = tuple(
        window_extent(*item)
        for item in zip(
            x.shape[2:],
            w.shape[2:],
            strides,
            dilations,
            (b + e for b, e in zip(begins, ends, strict=True)),
            strict=True,
        )
    )
    padded = np.pad(x, ((0, 0), (0, 0), *zip(begins, ends, strict=True)))
    split = padded.reshape(x.shape[0], groups, x.shape[1] // groups, *padded.shape[2:])
    kernels = w.reshape(groups, -1, *w.shape[1:])
    result = np.zeros((x.shape[0], groups, kernels.shape[1], prod(out)), np.float64)
    for group in range(groups):
        for position, view in windows(split[:, group], out, strides, w.shape[2:], dilations):
            columns = view.reshape(x.shape[0], w.shape[1], prod(out)).astype(np.float64)
            taps = kernels[(group, slice(None), slice(None), *position)].astype(np.float64)
            result[:, group] += np.matmul(taps, columns)
    result = result.reshape(x.shape[0], w.shape[0], *out)
    if node.inputs[2:] and bias is not None and node.inputs[2]:
        result += bias.reshape(-1, *(1,) * len(out))
    return (result.astype(x.dtype),)


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
    return MemorySpec.plain(dims), Arg("weights", input_of(1)), user_format(w)


def _option(
    context: KernelContext, kind: str, source: Format, result: Format, *, accumulate: bool
) -> KernelOption:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    w = context.value(node.inputs[1])
    groups = node.int_attr("groups", 1)
    strides, dilations, begins, ends = _geometry(node, len(x.shape) - 2)
    weights, weights_arg, weights_format = _weights(context, groups)
    memories = [("src", MemorySpec.of(source, canonical_shape(x, source))), ("weights", weights)]
    args = [Arg("src", input_of(0)), weights_arg]
    own: list[Format | None] = [source, weights_format]
    if len(node.inputs) > 2:
        own.append(None)
        if node.inputs[2]:
            memories.append(("bias", MemorySpec((y.shape[1],), "a")))
            args.append(Arg("bias", input_of(2)))
            own[2] = None if context.is_constant(node.inputs[2]) else nd(1)
    destination = MemorySpec.of(result, canonical_shape(y, result))
    post = fused(node, destination, accumulate=accumulate)
    spec = KernelSpec(
        "convolution",
        (*memories, ("dst", destination)),
        (("dilations", dilations), ("ends", ends), ("begins", begins), ("strides", strides)),
        post.specs,
        flops=2.0 * prod(y.shape) * prod(w.shape[1:]),
    )
    return KernelOption(
        f"direct, {kind}" + (", sum in place" if post.aliases else ""),
        input_formats(node, tuple(own), post, result),
        (result,),
        (Call(spec, (*args, Arg("dst", output_of()), *post.args)),),
        post.aliases,
    )


def _in_fewer_products(
    context: KernelContext, direct: KernelOption
) -> Iterator[KernelOption | Refusal]:
    """Yield the ways to compute a direct convolution's results by Winograd's algorithm."""
    call = direct.calls[0]
    if not winograd.suits(context, call.spec):
        return
    for item in winograd.specs(context, call.spec):
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


def conv_options(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    """Yield the kernels of a convolution, and refusals with their reasons."""
    post_ops = context.node.post_ops
    can_sum = bool(post_ops) and post_ops[0].op == "add"
    for kind, source, result in _format_pairs(context):
        # Only sum keeps the plain GEMM convolution fast; a full binary operand makes it `ref`.
        ways = (True,) if can_sum and kind == "plain" else (True, False) if can_sum else (False,)
        for accumulate in ways:
            direct = _option(context, kind, source, result, accumulate=accumulate)
            yield direct
            yield from _in_fewer_products(context, direct)
    yield from depthwise_options(context)
    yield from options_with_expansion(context)


CONV = register(
    OpSpec(
        "conv",
        (2, 3),
        _infer,
        _evaluate,
        "anchor",
        conv_options,
        joins=frozenset({"conv"}),
        hosts=frozenset({"eltwise", "binary"}),
    )
)
