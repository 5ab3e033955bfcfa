"""Compute the nodes whose inputs are all constants."""

from __future__ import annotations

from stridewise.graph import Graph, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops import evaluate
from stridewise.ops.effort import Budget, effort
from stridewise.ops.fallback import OP as FALLBACK

__all__ = ["fold_constants"]


def fold_constants(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with constant nodes evaluated.

    Nodes with large results or much work stay: a small model must not grow without bound at load.
    """
    rewriter = Rewriter(graph)
    refusals: list[Refusal] = []
    budget = Budget()
    budget.grow(sum(item.nbytes for item in graph.constants.values()))
    for node in rewriter.nodes():
        if node.op == FALLBACK:
            continue  # computed by another runtime, perhaps with another result in each run
        if any(name and rewriter.known(name) is None for name in node.inputs):
            continue
        results = tuple(rewriter.value(name).type for name in node.outputs)
        wanted = effort(node, graph.types(node.inputs), results)
        if not budget.take(wanted):
            reason = f"it takes {wanted.nbytes} bytes and {wanted.operations} operations"
            refusals.append(Refusal("fold_constants", node.name, reason))
            continue
        operands = [rewriter.constant(name) if name else None for name in node.inputs]
        for name, result in zip(node.outputs, evaluate(node, operands), strict=True):
            rewriter.define_constant(name, result)
        rewriter.remove(node)
    return rewriter.finish(), tuple(refusals)
