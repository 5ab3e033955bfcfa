"""Fold per-channel scales and shifts (batch norm, bias additions) into their neighbors.

Five rules, each applied where the intermediate value has no other reader:

- adding, subtracting, multiplying or dividing by one constant per channel is a ``scale_shift``;
- ``scale_shift`` after ``scale_shift`` is one;
- ``scale_shift`` after a convolution or matrix product with constant weights is other weights;
- after a norm of groups, or of one axis, it is another scale and shift of that;
- ``scale_shift`` before a convolution without padding is other weights. With padding it is not,
  because the zeros at the border are not shifted.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from stridewise.graph import Graph, Node, Refusal
from stridewise.graph.constant import Array
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.data_format import channel_axis

__all__ = ["fold_scale"]

_FOLDS_INTO = ("conv", "conv_transpose", "group_norm", "layer_norm", "matmul", "scale_shift")
_AFFINE = ("group_norm", "layer_norm", "scale_shift")
"""Operators that have a scale and a shift of their own; those of norms may be absent."""
_BIAS = 2


def _channel_axis(producer: Node, rank: int) -> int:
    if producer.op == "layer_norm":
        axes = producer.ints_attr("axes")
        return axes[0] if len(axes) == 1 else -1
    return rank - 1 if producer.op == "matmul" else channel_axis(producer, rank)


def _per_channel(array: Array, rank: int, axis: int, channels: int) -> Array | None:
    """Return the constant as one number per channel, or None where it varies otherwise."""
    if array.ndim > rank:
        return None
    shape = (1,) * (rank - array.ndim) + array.shape
    if any(extent != 1 for i, extent in enumerate(shape) if i != axis):
        return None
    return np.broadcast_to(array.reshape(-1), (channels,)).astype(np.float64)


def _as_scale(rewriter: Rewriter, node: Node, producer: Node) -> tuple[Array, Array] | None:
    """Return the scale and the shift that a node applies to its producer's output."""
    x = producer.outputs[0]
    shape = rewriter.value(x).shape
    axis = _channel_axis(producer, len(shape))
    if node.op == "scale_shift" and node.inputs[0] == x and not node.post_ops:
        scale, shift = (rewriter.constant(name) for name in node.inputs[1:])
        if scale is None or shift is None or axis != channel_axis(node, len(shape)):
            return None
        return scale.astype(np.float64), shift.astype(np.float64)
    if node.op not in ("add", "sub", "mul", "div") or x not in node.inputs:
        return None
    if rewriter.value(node.outputs[0]).shape != shape or not 0 <= axis < len(shape):
        return None
    position = 1 - node.inputs.index(x)
    data = rewriter.constant(node.inputs[position])
    row = None if data is None else _per_channel(data, len(shape), axis, shape[axis])
    if row is None or (node.op in ("sub", "div") and position == 0):
        return None
    one, zero = np.ones_like(row), np.zeros_like(row)
    return {
        "add": lambda: (one, row),
        "sub": lambda: (one, -row),
        "mul": lambda: (row, zero),
        "div": lambda: (1 / row, zero),
    }[node.op]()


def _fold_scale_shift(rewriter: Rewriter, producer: Node, scale: Array, shift: Array) -> Node | str:
    given = [*producer.inputs[1:], "", ""][:2]
    neutral = (np.ones_like(scale), np.zeros_like(shift))
    own = [
        rewriter.constant(name) if name else row for name, row in zip(given, neutral, strict=True)
    ]
    if own[0] is None or own[1] is None:
        return "the scale before it is not constant"
    merged = (own[0] * scale, own[1] * scale + shift)
    hints = (given[0] or f"{producer.name}.scale", given[1] or f"{producer.name}.shift")
    names = tuple(
        rewriter.add_constant(name, array.astype(np.float32))
        for name, array in zip(hints, merged, strict=True)
    )
    return dataclasses.replace(producer, inputs=(producer.inputs[0], *names))


def _spread(producer: Node, weights: tuple[int, ...], scale: Array) -> Array:
    """Return the scale of each output channel in a shape that multiplies the weights."""
    if producer.op == "matmul" and not producer.int_attr("trans_b", 0):
        return scale
    rest = (1,) * (len(weights) - 2)
    if producer.op != "conv_transpose":
        return scale.reshape(-1, 1, *rest)
    groups = producer.int_attr("groups", 1)
    rows = scale.reshape(groups, 1, -1).repeat(weights[0] // groups, axis=1)
    return rows.reshape(*weights[:2], *rest)


def _fold_weights(rewriter: Rewriter, producer: Node, scale: Array, shift: Array) -> Node | str:
    weights = rewriter.known(producer.inputs[1])
    if weights is None:
        return "the weights are not constant"
    bias_name = producer.inputs[_BIAS] if len(producer.inputs) > _BIAS else ""
    bias = rewriter.constant(bias_name) if bias_name else np.zeros_like(shift)
    if bias is None:
        return "the bias is not constant"
    if producer.op == "matmul" and len(weights.shape) != 2:
        return "the weights are not one matrix"
    names = [producer.inputs[1]]
    if not (scale == 1).all():
        scaled = weights.scaled(_spread(producer, weights.shape, scale.astype(np.float32)))
        names = [rewriter.add_constant(producer.inputs[1], scaled)]
    shifted = (bias * scale + shift).astype(np.float32)
    names.append(rewriter.add_constant(bias_name or f"{producer.name}.bias", shifted))
    return dataclasses.replace(producer, inputs=(producer.inputs[0], *names))


def _fold_into_reader(rewriter: Rewriter, node: Node, before: Node) -> Node | None:
    """Return a convolution that reads what a scale_shift reads; None if there is none."""
    scale, shift = (rewriter.constant(name) for name in before.inputs[1:])
    weights = rewriter.constant(node.inputs[1])
    bias_name = node.inputs[_BIAS] if len(node.inputs) > _BIAS else ""
    bias = rewriter.constant(bias_name) if bias_name else np.zeros(1)
    rank = len(rewriter.value(before.outputs[0]).shape)
    if scale is None or shift is None or weights is None or bias is None:
        return None
    if before.post_ops or any(node.ints_attr("pads", (0,))):
        return None
    if channel_axis(node, rank) != channel_axis(before, rank):
        return None
    groups, each = node.int_attr("groups", 1), weights.shape[1]
    rest = (1,) * (rank - 2)

    def inputs_of(row: Array) -> Array:
        rows = row.astype(np.float64).reshape(groups, each)
        return rows.repeat(weights.shape[0] // groups, axis=0).reshape(-1, each, *rest)

    more = (weights * inputs_of(shift)).sum(axis=tuple(range(1, rank)))
    names = (
        rewriter.add_constant(node.inputs[1], (weights * inputs_of(scale)).astype(np.float32)),
        rewriter.add_constant(bias_name or f"{node.name}.bias", (bias + more).astype(np.float32)),
    )
    return dataclasses.replace(node, inputs=(before.inputs[0], *names))


def fold_scale(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with per-channel scales folded into their producers or readers."""
    rewriter = Rewriter(graph)
    refusals: list[Refusal] = []
    for node in rewriter.nodes():
        for name in node.inputs:
            producer = rewriter.producer(name)
            if producer is None or producer.op not in _FOLDS_INTO or producer.post_ops:
                continue
            if rewriter.value(name).dtype.name != "float32":
                continue
            if node.op == "conv" and producer.op == "scale_shift" and rewriter.only_reader(name):
                merged = _fold_into_reader(rewriter, node, producer)  # its weights are constant
                if merged is not None:
                    rewriter.replace(node, merged)
                    rewriter.remove(producer)
                    break
            parameters = _as_scale(rewriter, node, producer)
            if parameters is None:
                continue
            if rewriter.only_reader(name) is None:
                reason = f"{producer.name!r} has other readers"
                refusals.append(Refusal("fold_scale", node.name, reason))
                continue
            fold = _fold_scale_shift if producer.op in _AFFINE else _fold_weights
            folded = fold(rewriter, producer, *parameters)
            if isinstance(folded, str):
                refusals.append(Refusal("fold_scale", node.name, folded))
                continue
            rewriter.remove(producer)
            rewriter.replace(node, dataclasses.replace(folded, outputs=node.outputs))
            break
    return rewriter.finish(), tuple(refusals)
