"""Putting the columns of an image back into place; where windows overlap, their values add up."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.attributes import WINDOW, each
from stridewise.ops.registry import Array, Operands, Types, array, needs, register, tensor


def _windows(node: Node) -> tuple[tuple[int, ...], ...]:
    """Return shapes of image and window, strides, dilations, begins and ends."""
    image, block = node.ints_attr("image"), node.ints_attr("block")
    rank = len(image)
    strides = node.ints_attr("strides", (1,) * rank)
    dilations = node.ints_attr("dilations", (1,) * rank)
    pads = node.ints_attr("pads", (0,) * (2 * rank))
    fits = len(block) == len(strides) == len(dilations) == rank and len(pads) == 2 * rank
    needs(node, fits and rank > 0, "an image, and parameters for all of its axes", node.attrs)
    positive = min((*image, *block, *strides, *dilations)) >= 1 and min(pads) >= 0
    needs(node, positive, "positive extents and steps, pads of 0 or more", node.attrs)
    return image, block, strides, dilations, pads[:rank], pads[rank:]


def _counts(node: Node) -> tuple[int, ...]:
    """Return how many windows there are along each axis."""
    return tuple(
        (extent + begin + end - dilation * (size - 1) - 1) // stride + 1
        for extent, size, stride, dilation, begin, end in zip(*_windows(node), strict=True)
    )


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    image, block, *_ = _windows(node)
    needs(node, len(x.shape) == 3, "columns of shape [batch, channels and windows, places]", x)
    n, rows, columns = x.shape
    needs(node, rows % prod(block) == 0, f"a multiple of {prod(block)} rows", x)
    counts = _counts(node)
    fits = min(counts) >= 1 and prod(counts) == columns
    needs(node, fits, f"a column for each of {counts} windows", x)
    return (TensorType(x.dtype, (n, rows // prod(block), *image)),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Add up one element of all windows at a time (source: ONNX, Col2Im)."""
    x = array(operands, 0)
    image, block, strides, dilations, begins, ends = _windows(node)
    counts = _counts(node)
    channels = x.shape[1] // prod(block)
    parts = x.reshape(x.shape[0], channels, *block, *counts)
    padded = tuple(b + n + e for b, n, e in zip(begins, image, ends, strict=True))
    result = np.zeros((x.shape[0], channels, *padded), x.dtype)
    for place in product(*map(range, block)):
        box = tuple(
            slice(at * dilation, at * dilation + (count - 1) * stride + 1, stride)
            for at, dilation, count, stride in zip(place, dilations, counts, strides, strict=True)
        )
        result[(slice(None), slice(None), *box)] += parts[(slice(None), slice(None), *place)]
    inner = tuple(slice(b, b + n) for b, n in zip(begins, image, strict=True))
    return (result[(slice(None), slice(None), *inner)],)


register(
    "col2im",
    (1, 1),
    _infer,
    _evaluate,
    "interrupt",
    attributes={**each("integers", "image", "block"), **WINDOW},
)
