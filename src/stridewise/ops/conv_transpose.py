"""Transposed convolution over one, two or three spatial axes, grouped and dilated.

Weights are as ONNX and PyTorch have them: input channels, output channels of one group, window.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from stridewise.graph import Attr, Node, TensorType
from stridewise.ops.backward import Term
from stridewise.ops.conv import ATTRIBUTES, windows
from stridewise.ops.registry import (
    Array,
    Backward,
    Operands,
    Types,
    array,
    needs,
    register,
    tensor,
)


def geometry(node: Node, spatial: int) -> tuple[tuple[int, ...], ...]:
    """Return strides, dilations, and what is cut off at the beginnings and at the ends.

    A negative end adds elements that no window reaches, fewer than a stride.
    ONNX calls them output padding.
    """
    strides = node.ints_attr("strides", (1,) * spatial)
    dilations = node.ints_attr("dilations", (1,) * spatial)
    pads = node.ints_attr("pads", (0,) * (2 * spatial))
    fits = len(strides) == len(dilations) == spatial and len(pads) == 2 * spatial
    needs(node, fits, f"strides, dilations and pads for {spatial} spatial axes", node.attrs)
    positive = min(strides) > 0 and min(dilations) > 0 and min(pads[:spatial]) >= 0
    needs(node, positive, "positive strides and dilations, pads of 0 or more", node.attrs)
    begins, ends = pads[:spatial], pads[spatial:]
    short = all(end > -stride for end, stride in zip(ends, strides, strict=True))
    needs(node, short, "ends that add less than a stride", f"{ends} and strides {strides}")
    return strides, dilations, begins, ends


def _uncut(node: Node, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
    """Return the extents that all windows together cover: (size - 1) * stride + reach."""
    strides, dilations, _, _ = geometry(node, len(sizes))
    return tuple(
        (size - 1) * stride + dilation * (extent - 1) + 1
        for size, extent, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True)
    )


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, w = tensor(node, types, 0), tensor(node, types, 1)
    groups = node.int_attr("groups", 1)
    needs(node, 3 <= len(x.shape) <= 5, "an input of rank 3 to 5", x)
    needs(node, len(w.shape) == len(x.shape), f"weights of rank {len(x.shape)}", w)
    needs(node, w.dtype == x.dtype, f"weights of dtype {x.dtype}", w.dtype)
    needs(node, x.shape[1] == w.shape[0], f"{w.shape[0]} input channels", f"{x.shape[1]} in {x}")
    needs(node, groups > 0 and w.shape[0] % groups == 0, "groups that divide the inputs", groups)
    channels = w.shape[1] * groups
    bias = types[2] if len(types) > 2 else None
    needs(node, bias is None or bias.shape == (channels,), f"a bias of {channels}", bias)
    _, _, begins, ends = geometry(node, len(x.shape) - 2)
    spatial = tuple(
        extent - begin - end
        for extent, begin, end in zip(
            _uncut(node, x.shape[2:], w.shape[2:]), begins, ends, strict=True
        )
    )
    needs(node, min(spatial) > 0, "pads that leave something of the output", node.attrs)
    return (TensorType(x.dtype, (x.shape[0], channels, *spatial)),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Add the window of each input element to the output (source: ONNX, ConvTranspose)."""
    x, w = array(operands, 0), array(operands, 1)
    bias = operands[2] if len(operands) > 2 else None
    groups, batch = node.int_attr("groups", 1), x.shape[0]
    strides, dilations, begins, ends = geometry(node, x.ndim - 2)
    uncut = _uncut(node, x.shape[2:], w.shape[2:])
    extended = tuple(extent + max(0, -end) for extent, end in zip(uncut, ends, strict=True))
    columns = x.reshape(batch, groups, x.shape[1] // groups, prod(x.shape[2:])).astype(np.float64)
    kernels = w.reshape(groups, -1, *w.shape[1:]).astype(np.float64)
    result = np.zeros((batch, groups * w.shape[1], *extended), np.float64)
    for group in range(groups):
        part = result[:, group * w.shape[1] : (group + 1) * w.shape[1]]
        for position, view in windows(part, x.shape[2:], strides, w.shape[2:], dilations):
            taps = kernels[(group, slice(None), slice(None), *position)]
            view[...] += np.matmul(taps.T, columns[:, group]).reshape(view.shape)
    kept = tuple(
        slice(begin, extent - end) for begin, extent, end in zip(begins, uncut, ends, strict=True)
    )
    result = result[(slice(None), slice(None), *kept)]
    if node.inputs[2:] and bias is not None and node.inputs[2]:
        result = result + bias.reshape(-1, *(1,) * len(kept))
    return (np.ascontiguousarray(result, x.dtype),)


def _vjp(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    """Return a convolution of dy for x, and correlations of dy with x for weights."""
    x, w, dy = (Term(b, name) for name in (*node.inputs[:2], gradients[0]))
    strides, dilations, begins, ends = geometry(node, len(x.shape) - 2)
    dbias = dy.sum((0, *range(2, len(dy.shape))), keepdims=False)
    if min(ends) < 0:  # no window reaches what these ends added
        stops = tuple(n + min(end, 0) for n, end in zip(dy.shape[2:], ends, strict=True))
        rank = len(dy.shape)
        dy = dy.of("slice", starts=(0,) * rank, stops=(*dy.shape[:2], *stops), steps=(1,) * rank)
    own: dict[str, Attr] = {
        "dilations": dilations,
        "groups": node.int_attr("groups", 1),
        "pads": (*begins, *(max(end, 0) for end in ends)),
        "strides": strides,
    }
    dx = dy.of("conv", w, **own)
    dw = dy.of("conv_weight_gradient", x, kernel=w.shape[2:], **own)
    return dx.name, dw.name, dbias.name


register("conv_transpose", (2, 3), _infer, _evaluate, "anchor", vjp=_vjp, attributes=ATTRIBUTES)
