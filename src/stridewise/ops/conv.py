"""Convolution over one, two or three spatial axes, grouped and dilated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np

from stridewise.graph import Attr, Node, TensorType
from stridewise.ops.attributes import WINDOW, Attributes
from stridewise.ops.backward import Term
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

__all__ = [
    "ATTRIBUTES",
    "EXACT",
    "PARTS",
    "parts",
    "transposed_pads",
    "window_extent",
    "within_parts",
]

EXACT = "exact"
"""The attribute that is 1 where operands of the model are whole numbers: kernels shall not round
sums that float32 holds. Later passes may scale the weights by constants all the same."""

PARTS = "parts"
"""The attribute that says which part of the window each channel has; see :func:`parts`."""
_PART = 5
"""Numbers of a part."""


def parts(node: Node, weights: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the parts of the window that some channels after others have, none for all of it.

    A part has five numbers: how many outputs have it, its first tap down and across, and its number
    of taps down and across. Weights outside of it count as zero.

    Args:
        node: a convolution.
        weights: the shape of its weights.
    """
    numbers = node.ints_attr(PARTS, ())
    found = tuple(numbers[at : at + _PART] for at in range(0, len(numbers), _PART))
    fits = all(
        len(part) == _PART
        and min(part[0], *part[3:]) >= 1
        and min(part[1:3]) >= 0
        and part[1] + part[3] <= weights[2]
        and part[2] + part[4] <= weights[3]
        for part in found
    ) and (not found or sum(part[0] for part in found) == weights[0])
    is_each = not found or (len(weights) == 4 and node.int_attr("groups", 1) == weights[0])
    needs(node, is_each and fits, "parts of the window of an image's channels", numbers)
    return found


def window_extent(size: int, kernel: int, stride: int, dilation: int, pad: int) -> int:
    """Return the number of positions of a window: floor((size + pad - reach) / stride) + 1.

    Source: ONNX, operator Conv. ``pad`` is the sum of both ends.
    """
    return (size + pad - dilation * (kernel - 1) - 1) // stride + 1


def geometry(node: Node, spatial: int) -> tuple[tuple[int, ...], ...]:
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
    parts(node, w.shape)
    channels = w.shape[1] * groups
    needs(node, x.shape[1] == channels, f"{channels} input channels", f"{x.shape[1]} in {x}")
    bias = types[2] if len(types) > 2 else None
    needs(node, bias is None or bias.shape == w.shape[:1], f"a bias of {w.shape[0]}", bias)
    strides, dilations, begins, ends = geometry(node, len(x.shape) - 2)
    spatial = tuple(
        window_extent(size, kernel, stride, dilation, begin + end)
        for size, kernel, stride, dilation, begin, end in zip(
            x.shape[2:], w.shape[2:], strides, dilations, begins, ends, strict=True
        )
    )
    needs(node, min(spatial) > 0, "a window that fits into the padded input", x)
    return (TensorType(x.dtype, (x.shape[0], w.shape[0], *spatial)),)


def _infer_convolution(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    is_float = x.dtype.name == "float32"
    needs(node, not node.get(EXACT) or is_float, "an input of dtype float32 for exact sums", x)
    return _infer(node, types)


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


def within_parts(node: Node, w: Array) -> Array:
    """Return weights of a convolution with zeros where they count as zero."""
    found = parts(node, w.shape)
    if not found:
        return w
    kept, first = np.zeros_like(w), 0
    for count, top, left, rows, columns in found:
        own = (slice(first, first + count), slice(None), slice(top, top + rows))
        own = (*own, slice(left, left + columns))
        kept[own], first = w[own], first + count
    return kept


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x, w = array(operands, 0), within_parts(node, array(operands, 1))
    bias = operands[2] if len(operands) > 2 else None
    groups = node.int_attr("groups", 1)
    strides, dilations, begins, ends = geometry(node, x.ndim - 2)
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
    kernels = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
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


# --- gradients ------------------------------------------------------------------------------------


def transposed_pads(node: Node, size: tuple[int, ...], out: tuple[int, ...]) -> tuple[int, ...]:
    """Return the pads with which a transposed convolution goes back to images of some size.

    Args:
        node: has the window: ``kernel``, strides, dilations and pads.
        size: spatial extents of the image.
        out: spatial extents of what the windows gave.
    """
    kernel = node.ints_attr("kernel")
    strides, dilations, begins, _ = geometry(node, len(size))
    ends = (
        (o - 1) * s + d * (k - 1) + 1 - b - n
        for o, s, d, k, b, n in zip(out, strides, dilations, kernel, begins, size, strict=True)
    )
    return (*begins, *ends)


def _window(node: Node, kernel: tuple[int, ...]) -> dict[str, Attr]:
    attrs = {key: value for key, value in node.attrs if key in _WINDOW}
    return {**attrs, "kernel": kernel}


_WINDOW = ("dilations", "groups", "pads", "strides")


def _vjp(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    """Return a transposed convolution of dy for x, and correlations of x with dy for weights."""
    x, w, dy = (Term(b, name) for name in (*node.inputs[:2], gradients[0]))
    window = _window(node, w.shape[2:])
    seen = replace(node, attrs=tuple(sorted(window.items())))
    pads = transposed_pads(seen, x.shape[2:], dy.shape[2:])
    own = {key: value for key, value in window.items() if key != "kernel"}
    dx = dy.of("conv_transpose", w, **{**own, "pads": pads})
    dw = x.of("conv_weight_gradient", dy, **window)
    dbias = dy.sum((0, *range(2, len(dy.shape))), keepdims=False)
    return dx.name, dw.name, dbias.name


def _infer_weight_gradient(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, dy = tensor(node, types, 0), tensor(node, types, 1)
    kernel, groups = node.ints_attr("kernel"), node.int_attr("groups", 1)
    needs(node, 3 <= len(x.shape) <= 5, "an input of rank 3 to 5", x)
    fits = groups > 0 and x.shape[1] % groups == 0
    needs(node, fits, f"groups that divide {x.shape[1]} channels", groups)
    needs(node, len(dy.shape) == len(x.shape), f"a gradient of rank {len(x.shape)}", dy)
    weights = TensorType(x.dtype, (dy.shape[1], x.shape[1] // groups, *kernel))
    needs(node, len(weights.shape) == len(x.shape), "a kernel for each spatial axis", kernel)
    (expected,) = _infer(node, (x, weights))
    needs(node, dy == expected, f"a gradient of type {expected}", dy)
    return (weights,)


def _evaluate_weight_gradient(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Return for each tap the products of what it met with dy, summed over images and places."""
    x, dy = array(operands, 0), array(operands, 1)
    kernel, groups = node.ints_attr("kernel"), node.int_attr("groups", 1)
    strides, dilations, begins, ends = geometry(node, x.ndim - 2)
    out, batch = dy.shape[2:], x.shape[0]
    padded = np.pad(x, ((0, 0), (0, 0), *zip(begins, ends, strict=True))).astype(np.float64)
    split = padded.reshape(batch, groups, x.shape[1] // groups, *padded.shape[2:])
    rows = dy.reshape(batch, groups, dy.shape[1] // groups, prod(out)).astype(np.float64)
    result = np.zeros((groups, rows.shape[2], split.shape[2], *kernel))
    for group in range(groups):
        for position, view in windows(split[:, group], out, strides, kernel, dilations):
            columns = view.reshape(batch, split.shape[2], prod(out))
            taps = np.einsum("nop,nip->oi", rows[:, group], columns)
            result[(group, slice(None), slice(None), *position)] = taps
    return (result.reshape(dy.shape[1], split.shape[2], *kernel).astype(x.dtype),)


def _vjp_weight_gradient(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    x, dy, ddw = (Term(b, name) for name in (*node.inputs, gradients[0]))
    own = {key: value for key, value in node.attrs if key in _WINDOW}
    pads = transposed_pads(node, x.shape[2:], dy.shape[2:])
    of_x = dy.of("conv_transpose", ddw, **{**own, "pads": pads})
    return of_x.name, x.of("conv", ddw, **own).name


ATTRIBUTES: Attributes = {"groups": "integer", **WINDOW}

register(
    "conv",
    (2, 3),
    _infer_convolution,
    _evaluate,
    "anchor",
    vjp=_vjp,
    attributes={**ATTRIBUTES, EXACT: "flag", PARTS: "integers"},
)
# The gradient of a convolution's weights, from x and dy; ``kernel`` is their spatial shape.
register(
    "conv_weight_gradient",
    (2, 2),
    _infer_weight_gradient,
    _evaluate_weight_gradient,
    "sources",
    vjp=_vjp_weight_gradient,
    attributes={**ATTRIBUTES, "kernel": "integers"},
)
