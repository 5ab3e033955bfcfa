"""Layer normalization: by the mean and variance over some axes, for every position of the others.

The parameters have the extents of those axes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.backward import Term, normalization_gradient
from stridewise.ops.registry import (
    Array,
    Backward,
    Operands,
    Permuted,
    Types,
    array,
    needs,
    register,
    tensor,
)

EPSILON = 1e-5


def normalized_axes(node: Node, rank: int) -> tuple[int, ...]:
    """Return the normalized axes, in the order that the parameters have them."""
    axes = node.ints_attr("axes")
    fits = bool(axes) and all(0 <= axis < rank for axis in axes) and len(set(axes)) == len(axes)
    needs(node, fits, f"distinct axes below {rank}", axes)
    return axes


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    needs(node, "float" in x.dtype.name, "a float tensor", x.dtype)
    needs(node, node.float_attr("epsilon", EPSILON) >= 0, "an epsilon of 0 or more", node.attrs)
    expected = TensorType(
        x.dtype, tuple(x.shape[axis] for axis in normalized_axes(node, len(x.shape)))
    )
    for index, found in enumerate(types[1:], start=1):
        needs(
            node, found is None or found == expected, f"input {index} to be {expected}", str(found)
        )
    return (x,)


def _spread(parameter: Array, axes: tuple[int, ...], rank: int) -> Array:
    """Return a parameter in a shape that broadcasts to the normalized tensor."""
    order = sorted(range(len(axes)), key=lambda position: axes[position])
    extents = dict(zip(axes, parameter.shape, strict=True))
    return parameter.transpose(order).reshape([extents.get(axis, 1) for axis in range(rank)])


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Source: ONNX, LayerNormalization: (x - mean) / sqrt(var + epsilon) * scale + shift."""
    x = array(operands, 0)
    axes = normalized_axes(node, x.ndim)
    wide = x.astype(np.float64)
    centered = wide - wide.mean(axes, keepdims=True)
    variance = np.square(centered).mean(axes, keepdims=True)
    result = centered / np.sqrt(variance + node.float_attr("epsilon", EPSILON))
    own = [operands[i] if i < len(operands) and node.inputs[i] else None for i in (1, 2)]
    scale, shift = own
    if scale is not None:
        result = result * _spread(scale, axes, x.ndim)
    if shift is not None:
        result = result + _spread(shift, axes, x.ndim)
    return (result.astype(x.dtype),)


def _permuted(node: Node, shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    axes = tuple(perm[axis] for axis in normalized_axes(node, len(shape)))
    return Permuted({**dict(node.attrs), "axes": axes}, perm)


def _vjp(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    x, dy = Term(b, node.inputs[0]), Term(b, gradients[0])
    axes = normalized_axes(node, len(x.shape))
    others = [axis for axis in range(len(x.shape)) if axis not in axes]
    order = sorted(range(len(axes)), key=lambda position: axes[position])
    centered = x - x.mean(axes)
    variance = (centered * centered).mean(axes) + node.float_attr("epsilon", EPSILON)
    inverse = variance.power(-0.5)
    normal = centered * inverse

    def of_parameter(gradient: Term) -> str:
        summed = gradient.sum(others, keepdims=False) if others else gradient
        return summed.transpose([order.index(position) for position in range(len(axes))]).name

    found = of_parameter(dy * normal), of_parameter(dy)
    if len(node.inputs) > 1 and node.inputs[1]:
        scale = Term(b, node.inputs[1]).transpose(order)
        dy = dy * scale.reshape([n if i in axes else 1 for i, n in enumerate(x.shape)])
    return normalization_gradient(dy, normal, inverse, axes).name, *found


register(
    "layer_norm",
    (1, 3),
    _infer,
    _evaluate,
    "data",
    permuted=_permuted,
    vjp=_vjp,
    attributes={"axes": "integers", "epsilon": "number"},
)
