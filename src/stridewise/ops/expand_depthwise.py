"""A convolution of 1x1 and the depthwise one behind it in one kernel.

Inverted residuals widen an image by a convolution of 1x1 only to filter each channel by itself
(Sandler et al., arXiv:1801.04381). What lies between is the largest tensor of the block; here a few
rows of it are computed when they are needed, and stay in the caches nearest to the core. The kernel
is our own, ``native/expand_depthwise.cpp``.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from stridewise.graph import Node
from stridewise.ops import winograd
from stridewise.ops.geometry import canonical_shape
from stridewise.ops.kernels import (
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
from stridewise.ops.post_ops import fused

__all__ = ["KIND", "options_with_expansion"]

KIND = "expand_depthwise"
"""The kind of these kernels in a :class:`KernelSpec`."""

_WINDOWS = (3, 5)
_STRIDES = (1, 2)


def _is_expansion(context: KernelContext) -> bool:
    """Return whether a convolution is one of 1x1 over an image, with constant weights."""
    node = context.node
    weights = context.value(node.inputs[1]).shape
    return (
        len(weights) == 4
        and weights[2:] == (1, 1)
        and node.int_attr("groups", 1) == 1
        and node.ints_attr("strides", (1, 1)) == (1, 1)
        and node.ints_attr("pads", (0,) * 4) == (0,) * 4
        and _is_known(context)
    )


def _is_depthwise(context: KernelContext) -> bool:
    """Return whether a convolution filters each channel by itself, in windows that there are."""
    node = context.node
    weights = context.value(node.inputs[1]).shape
    if len(weights) != 4:
        return False
    rows, columns = node.ints_attr("strides", (1, 1))
    return (
        weights[:2] == (node.int_attr("groups", 1), 1)
        and weights[2] == weights[3] in _WINDOWS
        and rows == columns in _STRIDES
        and node.ints_attr("dilations", (1, 1)) == (1, 1)
        and max(node.ints_attr("pads", (0,) * 4)) < weights[2]
        and _is_known(context)
    )


def _is_known(context: KernelContext) -> bool:
    """Return whether weights and bias are constants, and no post-op has an operand."""
    node = context.node
    constant = all(context.is_constant(name) for name in node.inputs[1:] if name)
    return constant and all(post.operand is None for post in node.post_ops)


def _bias(node: Node) -> bool:
    return len(node.inputs) > 2 and bool(node.inputs[2])


def options_with_expansion(context: KernelContext) -> Iterator[KernelOption]:
    """Yield the ways to compute a depthwise convolution together with that of 1x1 before it."""
    ahead = context.ahead()
    if ahead is None or not _is_depthwise(context) or not _is_expansion(ahead):
        return
    sources = ahead.formats(ahead.node.inputs[0])
    between = context.formats(context.node.inputs[0])
    results = context.formats(context.node.outputs[0])
    lanes = next((fmt.blocks[-1].size for fmt in results.values() if fmt.is_blocked), 0)
    for kind, fmt in sources.items():
        suits = fmt.is_blocked or kind == "channels-last"
        if lanes not in (8, 16) or not suits or kind not in between or kind not in results:
            continue
        spec = _spec(ahead, context, kind, lanes)
        if winograd.unknown_post_op(spec.post_ops):
            continue
        first = KernelOption("", (fmt, *(None,) * (len(ahead.node.inputs) - 1)), (between[kind],))
        yield behind_ahead(
            first,
            kind,
            algorithm=f"with its expansion, {kind}",
            inputs=(None,) * (len(context.node.inputs) - 1),
            outputs=(results[kind],),
            calls=(Call(spec, _args(ahead.node, context.node, spec)),),
        )


def _args(ahead: Node, node: Node, spec: KernelSpec) -> tuple[Arg, ...]:
    depthwise = spec.memory("depthwise_weights")
    assert depthwise is not None  # below
    args = [from_ahead(Arg("src", input_of(0))), from_ahead(Arg("weights", input_of(1)))]
    if _bias(ahead):
        args.append(from_ahead(Arg("bias", input_of(2))))
    args.append(Arg("depthwise_weights", input_of(1), reshape=depthwise.dims))
    if _bias(node):
        args.append(Arg("depthwise_bias", input_of(2)))
    return (*args, Arg("dst", output_of()))


def _spec(ahead: KernelContext, context: KernelContext, kind: str, lanes: int) -> KernelSpec:
    node = context.node
    x, y = ahead.value(ahead.node.inputs[0]), context.value(node.outputs[0])
    middle = context.value(node.inputs[0])
    weights, window = (c.value(c.node.inputs[1]).shape for c in (ahead, context))
    source, result = ahead.formats(x.name)[kind], context.formats(y.name)[kind]
    src = MemorySpec.of(source, canonical_shape(x, source))
    dst = MemorySpec.of(result, canonical_shape(y, result))
    memories = [("src", src), ("weights", MemorySpec(weights, f"ABcd16b{2 * lanes}a"))]
    if _bias(ahead.node):
        memories.append(("bias", MemorySpec((weights[0],), "a")))
    filters = MemorySpec((window[0], 1, *window[1:]), f"Abcde{2 * lanes}a")
    memories.append(("depthwise_weights", filters))
    if _bias(node):
        memories.append(("depthwise_bias", MemorySpec((window[0],), "a")))
    posts = [fused(n, dst, accumulate=False).specs for n in (ahead.node, node)]
    pads = node.ints_attr("pads", (0,) * 4)
    products = prod(middle.shape) * weights[1] + prod(y.shape) * prod(window[1:])
    params = (
        ("begins", pads[:2]),
        ("between", len(posts[0])),
        ("ends", pads[2:]),
        ("lanes", lanes),
        ("stride", node.ints_attr("strides", (1, 1))[0]),
        ("taps", window[2]),
    )
    all_posts = (*posts[0], *posts[1])
    return KernelSpec(KIND, (*memories, ("dst", dst)), params, all_posts, flops=2.0 * products)
