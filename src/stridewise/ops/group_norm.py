"""Group normalization: by the mean and variance of groups of channels, image by image.

With as many groups as channels it is ONNX's instance normalization.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from stridewise.graph import Node, TensorType
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

EPSILON = 1e-5


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    groups = node.int_attr("groups")
    needs(node, "float" in x.dtype.name, "a float tensor", x.dtype)
    needs(node, len(x.shape) >= 2, "an input with a channel axis", x)
    fits = groups > 0 and x.shape[1] % groups == 0
    needs(node, fits, f"groups that divide {x.shape[1]} channels", groups)
    needs(node, node.float_attr("epsilon", EPSILON) >= 0, "an epsilon of 0 or more", node.attrs)
    expected = TensorType(x.dtype, x.shape[1:2])
    for index, found in enumerate(types[1:], start=1):
        needs(
            node, found is None or found == expected, f"input {index} to be {expected}", str(found)
        )
    return (x,)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Source: ONNX, GroupNormalization since opset 21: parameters are one number a channel."""
    x = array(operands, 0)
    wide = x.astype(np.float64).reshape(x.shape[0], node.int_attr("groups"), -1)
    centered = wide - wide.mean(-1, keepdims=True)
    variance = np.square(centered).mean(-1, keepdims=True)
    result = centered / np.sqrt(variance + node.float_attr("epsilon", EPSILON))
    result = result.reshape(x.shape)
    row = (-1, *(1,) * (x.ndim - 2))
    own = [operands[i] if i < len(operands) and node.inputs[i] else None for i in (1, 2)]
    scale, shift = own
    if scale is not None:
        result = result * scale.reshape(row)
    if shift is not None:
        result = result + shift.reshape(row)
    return (result.astype(x.dtype),)


def _vjp(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    """Source: the chain rule. Images are summed over pixels alone, in any format.

    Only the sums, one a channel, are seen in groups.
    """
    x, dy = Term(b, node.inputs[0]), Term(b, gradients[0])
    (batch, channels, *extents), groups = x.shape, node.int_attr("groups")
    ones = (1,) * len(extents)

    def mean(image: Term) -> Term:
        return image.mean(tuple(range(2, len(x.shape)))) if extents else image

    def shared(found: Term) -> Term:
        """Return the mean of each channel's group, from those of the channels."""
        if groups == channels:
            return found
        whole = found.reshape((batch, groups, channels // groups)).mean((2,))
        if groups == 1:
            return whole.reshape((batch, 1, *ones))
        return whole.expand((batch, groups, channels // groups)).reshape(found.shape)

    centered = x - shared(mean(x))
    variance = shared(mean(centered * centered)) + node.float_attr("epsilon", EPSILON)
    inverse = variance.power(-0.5)
    sums, products = mean(dy), mean(dy * centered)
    pixels = float(prod(extents))
    of_scale = ((products * inverse).sum((0,)) * pixels).reshape((channels,))
    of_shift = (sums.sum((0,)) * pixels).reshape((channels,))
    scale = node.inputs[1] if len(node.inputs) > 1 else ""
    if scale:
        row = Term(b, scale).reshape((channels, *ones))
        dy, sums, products = dy * row, sums * row, products * row
    slope = shared(products) * inverse * inverse
    dx = (dy - shared(sums) - centered * slope) * inverse
    return dx.name, of_scale.name, of_shift.name


register(
    "group_norm",
    (1, 3),
    _infer,
    _evaluate,
    "anchor",
    vjp=_vjp,
    attributes={"groups": "integer", "epsilon": "number"},
)
