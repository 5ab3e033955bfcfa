"""Fuse the mask of an activation after a batch norm into the gradient of the batch norm.

The gradient of ``relu(batch_norm(x))`` is that of the batch norm where its result is positive. The
kernel computes the result again of x, which it reads anyway; neither the mask nor the masked
gradient is stored, and the result need not be kept. ``clip`` has two bounds instead of one.
"""

from __future__ import annotations

import dataclasses
from math import inf

import numpy as np

from stridewise.classes import dataclass
from stridewise.graph import Attr, Graph, Node, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.activation import parameters
from stridewise.passes.ability import Ability

__all__ = ["fuse_norm_masks"]

_UNMASKED = 5
"""Inputs of a gradient without a mask."""


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The condition that a value lies between two numbers."""

    value: str
    low: float = -inf
    high: float = inf

    def both(self, other: _Bounds | None) -> _Bounds | None:
        if other is None or other.value != self.value:
            return None
        return _Bounds(self.value, max(self.low, other.low), min(self.high, other.high))


def _next(bound: float, towards: float) -> float:
    return float(np.nextafter(np.float32(bound), np.float32(towards)))


def _compared(rewriter: Rewriter, name: str) -> _Bounds | None:
    """Return the bounds that a condition is about."""
    node = rewriter.producer(name)
    if node is None or node.op not in ("greater", "greater_equal", "less", "less_equal"):
        return None
    value, other = node.inputs
    bound = rewriter.scalar(other)
    if bound is None:
        return None
    return {
        "greater": _Bounds(value, low=bound),
        "greater_equal": _Bounds(value, low=_next(bound, -inf)),
        "less": _Bounds(value, high=bound),
        "less_equal": _Bounds(value, high=_next(bound, inf)),
    }[node.op]


def _masked(rewriter: Rewriter, name: str) -> tuple[str, _Bounds] | None:
    """Match a gradient that is 0 beyond bounds; return the whole gradient, and these."""
    node = rewriter.producer(name)
    if node is None or node.op != "where" or rewriter.scalar(node.inputs[2]) != 0:
        return None
    bounds, inner = _compared(rewriter, node.inputs[0]), _masked(rewriter, node.inputs[1])
    if bounds is not None and inner is not None:
        both = bounds.both(inner[1])
        return (inner[0], both) if both else (node.inputs[1], bounds)
    return (node.inputs[1], bounds) if bounds else None


def _normed(rewriter: Rewriter, bounds: _Bounds) -> Node | None:
    """Return the batch norm whose result lies between bounds where a value does."""
    node = rewriter.producer(bounds.value)
    if node is None or node.post_ops:
        return None
    if node.op in ("relu", "clip"):
        low, high = (0.0, inf) if node.op == "relu" else parameters(node)
        same = bounds.low == -inf or low <= bounds.low < high
        if not same or not (bounds.high == inf or low < bounds.high <= high):
            return None
        node = rewriter.producer(node.inputs[0])
    return node if node is not None and node.op == "batch_norm" and not node.post_ops else None


def _fused(rewriter: Rewriter, node: Node) -> Node | str:
    found = _masked(rewriter, node.inputs[1])
    if found is None:
        return "its gradient has no mask"
    gradient, bounds = found
    if rewriter.value(gradient).type != rewriter.value(node.inputs[0]).type:
        return "the gradient behind the mask has another shape"
    if rewriter.only_reader(node.inputs[1]) is None:
        return "other nodes read the masked gradient"
    norm = _normed(rewriter, bounds)
    if norm is None or norm.inputs[0] != node.inputs[0]:
        return "its mask is not that of the batch norm's result"
    given = (norm.inputs[1], *norm.outputs[1:])
    if given != node.inputs[2:] or norm.get("epsilon") != node.get("epsilon"):
        return "it is the gradient of another batch norm"
    if not bounds.low <= 0 <= bounds.high:
        return "0 is beyond the bounds of the mask"
    attrs: dict[str, Attr] = dict(node.attrs)
    attrs |= {} if bounds.low == -inf else {"low": bounds.low}
    attrs |= {} if bounds.high == inf else {"high": bounds.high}
    inputs = (node.inputs[0], gradient, *node.inputs[2:], norm.inputs[2])
    return dataclasses.replace(node, inputs=inputs, attrs=tuple(sorted(attrs.items())))


def fuse_norm_masks(graph: Graph, ability: Ability) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with masks fused into the gradients of batch norms."""
    rewriter, refusals = Rewriter(graph), list[Refusal]()
    for node in rewriter.nodes():
        if node.op != "batch_norm_gradient" or len(node.inputs) > _UNMASKED:
            continue
        if rewriter.value(node.inputs[0]).dtype.name not in ability.dtypes:
            continue  # no kernel computes in this dtype
        fused = _fused(rewriter, node)
        if isinstance(fused, str):
            refusals.append(Refusal("fuse_norm_masks", node.name, fused))
        else:
            rewriter.replace(node, fused)
    return rewriter.finish(), tuple(refusals)
