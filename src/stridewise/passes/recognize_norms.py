"""Join normalizations that exporters write as several nodes.

- ``(x - mean) / sqrt(mean((x - mean) * (x - mean)) + epsilon)`` is ``layer_norm``, which ONNX has
  only since opset 17.
- A norm of every channel of an image that is seen as one of other channels is a ``group_norm``.

Scales and shifts after them are left to ``fold_scale``.
"""

from __future__ import annotations

import dataclasses
from math import prod

import numpy as np

from stridewise.graph import Attr, Graph, Node, Refusal
from stridewise.graph.constant import Array
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.data_format import is_turned

__all__ = ["recognize_norms"]

_LEAST_RANK = 3


def _produced(rewriter: Rewriter, name: str, op: str) -> Node | None:
    """Return the node of one operator that gives a value, without post-ops."""
    node = rewriter.producer(name)
    return node if node is not None and node.op == op and not node.post_ops else None


def _divided(rewriter: Rewriter, node: Node) -> tuple[str, str] | None:
    """Match ``a / b`` or ``a * reciprocal(b)`` and return a and b."""
    if node.op == "div":
        return node.inputs[0], node.inputs[1]
    if node.op == "mul":
        for own, other in (node.inputs, node.inputs[::-1]):
            inverse = _produced(rewriter, other, "reciprocal")
            if inverse is not None:
                return own, inverse.inputs[0]
    return None


def _centered(rewriter: Rewriter, name: str) -> tuple[str, tuple[int, ...]] | None:
    """Match ``x - mean(x)`` and return x and the axes of the mean."""
    sub = _produced(rewriter, name, "sub")
    mean = _produced(rewriter, sub.inputs[1], "reduce_mean") if sub else None
    if sub is None or mean is None or mean.inputs[0] != sub.inputs[0]:
        return None
    kept = mean.int_attr("keepdims", 1) and mean.ints_attr("axes")
    return (sub.inputs[0], tuple(sorted(mean.ints_attr("axes")))) if kept else None


def _deviation(rewriter: Rewriter, name: str) -> tuple[str, tuple[int, ...], float] | None:
    """Match ``sqrt(mean(c * c) + epsilon)`` of c = x - mean; return x, the axes and epsilon."""
    root = _produced(rewriter, name, "sqrt")
    raised = _produced(rewriter, root.inputs[0], "add") if root else None
    for value, other in (raised.inputs, raised.inputs[::-1]) if raised else ():
        epsilon = rewriter.scalar(other)
        variance = _produced(rewriter, value, "reduce_mean")
        if epsilon is None or variance is None or not variance.int_attr("keepdims", 1):
            continue
        square = _produced(rewriter, variance.inputs[0], "mul")
        if square is None or square.inputs[0] != square.inputs[1]:
            continue
        found = _centered(rewriter, square.inputs[0])
        if found is not None and found[1] == tuple(sorted(variance.ints_attr("axes"))):
            return (*found, epsilon)
    return None


def _layer_norm(rewriter: Rewriter, node: Node) -> Node | None:
    divided = _divided(rewriter, node)
    found = _deviation(rewriter, divided[1]) if divided else None
    if divided is None or found is None:
        return None
    x, axes, epsilon = found
    same = rewriter.value(x).type == rewriter.value(node.outputs[0]).type
    if not same or epsilon < 0 or _centered(rewriter, divided[0]) != (x, axes):
        return None
    attrs: tuple[tuple[str, Attr], ...] = (("axes", axes), ("epsilon", epsilon))
    return Node(node.name, "layer_norm", (x,), node.outputs, attrs)


def _group_norm(rewriter: Rewriter, node: Node) -> Node | None:
    """Match ``reshape(group_norm(reshape(x)))`` where all channels in between are groups."""
    norm = _produced(rewriter, node.inputs[0], "group_norm") if node.op == "reshape" else None
    narrow = _produced(rewriter, norm.inputs[0], "reshape") if norm else None
    if norm is None or narrow is None or is_turned(norm):
        return None
    x = narrow.inputs[0]
    shape, inner = rewriter.value(x).shape, rewriter.value(norm.inputs[0]).shape
    groups = norm.int_attr("groups")
    if rewriter.value(node.outputs[0]).shape != shape or len(shape) < _LEAST_RANK:
        return None
    whole = shape[0] == inner[0] and shape[1] % groups == 0
    if groups != inner[1] or not whole or prod(shape[2:]) * shape[1] != prod(inner[1:]):
        return None
    rows = [rewriter.constant(name) if name else None for name in norm.inputs[1:]]
    if any(row is None for row, name in zip(rows, norm.inputs[1:], strict=True) if name):
        return None
    own = tuple(
        _repeated(rewriter, name, row, shape[1] // groups)
        for name, row in zip(norm.inputs[1:], rows, strict=True)
    )
    return dataclasses.replace(norm, name=node.name, inputs=(x, *own), outputs=node.outputs)


def _repeated(rewriter: Rewriter, name: str, row: Array | None, count: int) -> str:
    """Return a parameter of groups as one of channels."""
    return "" if row is None else rewriter.add_constant(name, np.repeat(row, count))


def recognize_norms(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with composite normalizations as single nodes; it refuses nothing."""
    rewriter = Rewriter(graph)
    for match in (_layer_norm, _group_norm):
        for node in rewriter.nodes():
            found = match(rewriter, node) if not node.post_ops else None
            if found is not None:
                rewriter.replace(node, found)
    return rewriter.finish(), ()
