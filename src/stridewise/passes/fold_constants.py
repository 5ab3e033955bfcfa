"""Compute, once and for all, the nodes whose inputs are all constants."""

from __future__ import annotations

from math import prod

from stridewise.graph import Graph, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops import evaluate

__all__ = ["fold_constants"]

LIMIT_ELEMENTS = 1 << 26
"""Results above this are left to the run: a small model must not grow without bound at load."""


def fold_constants(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with constant nodes evaluated."""
    rewriter = Rewriter(graph)
    refusals: list[Refusal] = []
    for node in rewriter.nodes():
        operands = [rewriter.constant(name) if name else None for name in node.inputs]
        if any(name and data is None for name, data in zip(node.inputs, operands, strict=True)):
            continue
        size = max(prod(rewriter.value(name).shape) for name in node.outputs)
        if size > LIMIT_ELEMENTS:
            refusals.append(Refusal("fold_constants", node.name, f"it has {size} elements"))
            continue
        for name, result in zip(node.outputs, evaluate(node, operands), strict=True):
            rewriter.define_constant(name, result)
        rewriter.remove(node)
    return rewriter.finish(), tuple(refusals)
