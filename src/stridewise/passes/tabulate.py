"""Join what is computed of one quantized tensor, element by element, into one function of it.

A function between two grids of 8 bits has 256 results, so a kernel can look them up. The pass comes
before ``fuse_post_ops``, which would give parts of such functions to other kernels.
"""

from __future__ import annotations

from stridewise.graph import Graph, Node, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.activation import SNAPS, UNARY
from stridewise.ops.quantize import with_grids
from stridewise.passes.ability import Ability
from stridewise.passes.fuse_pointwise import expression, inputs_of, is_step, why_apart

__all__ = ["tabulate"]


def _function(
    rewriter: Rewriter, ability: Ability, graph: Graph, last: Node
) -> dict[str, Node] | None:
    """Return the nodes between a quantized tensor and a rounding; None where others are read."""
    group = {last.name: last}
    while True:
        names = inputs_of(rewriter, group)
        if len(names) == 1 and graph.values[names[0]].grid is not None:
            return group
        for name in names:
            node = rewriter.producer(name)
            if node is None or not is_step(rewriter, ability, node):
                continue
            if not why_apart(rewriter, group, node, last):
                group[node.name] = node
                break
        else:
            return None


def tabulate(graph: Graph, ability: Ability) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with functions of quantized tensors as expressions; it refuses nothing.

    Chains of functions stay as they are where the kernel that makes the tensor can apply them.
    """
    if not any(node.op in SNAPS for node in graph.nodes):
        return graph, ()
    graph = with_grids(graph)
    rewriter = Rewriter(graph)
    order = {node.name: position for position, node in enumerate(graph.nodes)}
    for node in reversed(graph.nodes):
        is_there = rewriter.producer(node.outputs[0]) == node
        if not is_there or node.op not in SNAPS or not is_step(rewriter, ability, node):
            continue
        found = _function(rewriter, ability, graph, node)
        if found is None or len(found) == 1 or all(item.op in UNARY for item in found.values()):
            continue
        group = tuple(sorted(found.values(), key=lambda item: order[item.name]))
        joined = expression(rewriter, group)
        for item in group[:-1]:
            rewriter.remove(item)
        rewriter.replace(node, joined)
    return rewriter.finish(), ()
