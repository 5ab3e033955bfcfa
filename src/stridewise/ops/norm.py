"""Batch norm, per-channel scale and shift, and local response normalization.

A batch norm with known statistics is one multiplication and one addition per channel, so the
graph has only ``scale_shift``; the frontends compute its parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.attributes import each
from stridewise.ops.backward import Term, rule_of_term
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


def _infer_scale_shift(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    needs(node, len(x.shape) >= 2, "an input with a channel axis", x)
    for index in (1, 2):
        parameter = tensor(node, types, index)
        expected = TensorType(x.dtype, x.shape[1:2])
        needs(node, parameter == expected, f"input {index} to be {expected}", parameter)
    return (x,)


def _evaluate_scale_shift(_node: Node, operands: Operands) -> tuple[Array, ...]:
    x, scale, shift = (array(operands, index) for index in range(3))
    per_channel = (-1, *(1,) * (x.ndim - 2))
    return (x * scale.reshape(per_channel) + shift.reshape(per_channel),)


def _infer_lrn(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    needs(node, 3 <= len(x.shape) <= 5, "an input of rank 3 to 5", x)
    needs(node, node.int_attr("size") > 0, "a positive size", node.int_attr("size"))
    return (x,)


def _evaluate_lrn(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    size = node.int_attr("size")
    before, after = (size - 1) // 2, size // 2
    squares = np.square(x.astype(np.float64))
    total = squares.copy()
    for step in range(1, min(max(before, after) + 1, x.shape[1])):
        if step <= before:
            total[:, step:] += squares[:, :-step]
        if step <= after:
            total[:, :-step] += squares[:, step:]
    scale = node.float_attr("bias", 1.0) + node.float_attr("alpha", 1e-4) / size * total
    return ((x / scale ** node.float_attr("beta", 0.75)).astype(x.dtype),)


def _window_sum(x: Term, before: int, after: int) -> Term:
    """Return the sum of each element and its neighbours in other channels.

    It is a 1x1 convolution with a band of ones. So images keep the formats of the layers around it.
    """
    channels = x.shape[1]
    band = np.tri(channels, channels, after) - np.tri(channels, channels, -before - 1)
    return x.of("conv", x.constant(band.reshape(channels, channels, *(1,) * (len(x.shape) - 2))))


def _gradient_lrn(node: Node, x: Term, y: Term, dy: Term) -> Term:
    """Return the gradient of x, where y[i] = x[i] s[i]^-beta.

    With s[i] = bias + alpha / size sum(x[j]^2) over the window of i, it is dx[j] = dy[j] s[j]^-beta
    - 2 alpha beta / size x[j] sum(dy[i] y[i] / s[i]) over all i whose windows have j.

    Source: derived from the definition of Krizhevsky et al. (2012), section 3.3.
    """
    size, beta = node.int_attr("size"), node.float_attr("beta", 0.75)
    alpha = node.float_attr("alpha", 1e-4) / size
    before, after = (size - 1) // 2, size // 2
    scale = _window_sum(x * x, before, after) * alpha + node.float_attr("bias", 1.0)
    shares = _window_sum(dy * y / scale, after, before)
    return dy * scale.power(-beta) - x * shares * (2 * alpha * beta)


def _vjp_scale_shift(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    x, scale, dy = (Term(b, name) for name in (*node.inputs[:2], gradients[0]))
    axes = (0, *range(2, len(x.shape)))
    row = scale.reshape((x.shape[1], *(1,) * (len(x.shape) - 2)))
    of_scale, of_shift = (dy * x).sum(axes, keepdims=False), dy.sum(axes, keepdims=False)
    return (dy * row).name, of_scale.name, of_shift.name


# --- batch norm by the statistics of the batch ----------------------------------------------------

EPSILON = 1e-5
RUNNING = "running"
"""The attribute of a batch norm that names the states of its running mean and variance."""


def _infer_batch_norm(node: Node, types: Types) -> tuple[TensorType, ...]:
    (x,) = _infer_scale_shift(node, types)
    needs(node, "float" in x.dtype.name, "a float tensor", x.dtype)
    needs(node, node.float_attr("epsilon", EPSILON) >= 0, "an epsilon of 0 or more", node.attrs)
    row = TensorType(x.dtype, x.shape[1:2])
    return x, row, row


def _evaluate_batch_norm(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Source: Ioffe and Szegedy (2015); the variance is that of the batch, divided by its size."""
    x, scale, shift = (array(operands, index) for index in range(3))
    axes, row = (0, *range(2, x.ndim)), (-1, *(1,) * (x.ndim - 2))
    wide = x.astype(np.float64)
    mean = wide.mean(axes, keepdims=True)
    variance = np.square(wide - mean).mean(axes, keepdims=True)
    result = (wide - mean) / np.sqrt(variance + node.float_attr("epsilon", EPSILON))
    result = result * scale.reshape(row) + shift.reshape(row)
    return tuple(item.astype(x.dtype) for item in (result, mean.reshape(-1), variance.reshape(-1)))


def _vjp_batch_norm(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    x, mean, variance = (Term(b, name) for name in (node.inputs[0], *node.outputs[1:]))
    axes, row = (0, *range(2, len(x.shape))), (x.shape[1], *(1,) * (len(x.shape) - 2))
    of_y, of_mean, of_variance = (Term(b, name) if name else None for name in gradients)
    count = prod(x.shape[axis] for axis in axes)
    parts: list[Term] = []
    of_parameters: tuple[str, ...] = ("", "")
    if of_y is not None:
        given = (x.name, of_y.name, node.inputs[1], mean.name, variance.name)
        epsilon = node.float_attr("epsilon", EPSILON)
        found = b.node("batch_norm_gradient", given, {"epsilon": epsilon})
        parts.append(Term(b, found[0]))
        of_parameters = found[1:]
    if of_mean is not None:
        parts.append((of_mean / count).reshape(row).expand(x.shape))
    if of_variance is not None:
        parts.append((x - mean.reshape(row)) * (of_variance * (2 / count)).reshape(row))
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total.name, *of_parameters


def _infer_batch_norm_gradient(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, row, _ = _infer_batch_norm(node, (types[0], types[2], types[2]))
    given = tuple(tensor(node, types, index) for index in range(1, len(types)))
    rows = (row,) * (len(types) - 2)
    needs(node, given == (x, *rows), f"{x}, and {len(rows)} times {row}", given)
    low, high = _bounds(node)
    needs(node, low <= 0 <= high, "bounds on both sides of 0", (low, high))
    return x, row, row


def _bounds(node: Node) -> tuple[float, float]:
    return node.float_attr("low", -np.inf), node.float_attr("high", np.inf)


def _evaluate_batch_norm_gradient(node: Node, operands: Operands) -> tuple[Array, ...]:
    x, dy, scale, mean, variance = (array(operands, i).astype(np.float64) for i in range(5))
    axes, row = (0, *range(2, x.ndim)), (-1, *(1,) * (x.ndim - 2))
    inverse = 1 / np.sqrt(variance + node.float_attr("epsilon", EPSILON))
    normal = (x - mean.reshape(row)) * inverse.reshape(row)
    if len(operands) > _UNMASKED:
        result = normal * scale.reshape(row) + array(operands, 5).reshape(row)
        low, high = _bounds(node)
        dy = np.where((low < result) & (result < high), dy, 0)
    of_scale, of_shift = (dy * normal).sum(axes, keepdims=True), dy.sum(axes, keepdims=True)
    rest = dy - (normal * of_scale + of_shift) * (of_shift.size / x.size)
    dx = rest * (inverse * scale).reshape(row)
    dtype = array(operands, 0).dtype
    return tuple(found.astype(dtype) for found in (dx, of_scale.reshape(-1), of_shift.reshape(-1)))


_UNMASKED = 5
"""Inputs of a gradient that counts everywhere."""

register(
    "scale_shift", (3, 3), _infer_scale_shift, _evaluate_scale_shift, "anchor", vjp=_vjp_scale_shift
)
# Attributes ``epsilon`` and ``running``: the states that keep the statistics, for the graph of
# inference. Inputs: x, scale, shift. Outputs: y, mean and variance of each channel.
register(
    "batch_norm",
    (3, 3),
    _infer_batch_norm,
    _evaluate_batch_norm,
    "anchor",
    attributes={"epsilon": "number", RUNNING: "texts"},
    vjp=_vjp_batch_norm,
)
# Attribute ``epsilon``. Inputs: x, dy, scale, mean and variance of the batch. Outputs: the
# gradients of x, scale and shift. Axis 1 has the channels, whatever the data format of the graph.
#
# With the shift as another input, dy counts where the result of the norm lies between the
# attributes ``low`` and ``high``, which are infinite by default; elsewhere it is 0.
register(
    "batch_norm_gradient",
    (5, 6),
    _infer_batch_norm_gradient,
    _evaluate_batch_norm_gradient,
    "same",
    attributes=each("number", "epsilon", "high", "low"),
)
register(
    "lrn",
    (1, 1),
    _infer_lrn,
    _evaluate_lrn,
    "anchor",
    attributes={"size": "integer", **each("number", "alpha", "beta", "bias")},
    vjp=rule_of_term(_gradient_lrn),
)
