"""Turn Reshape, Transpose, Reshape into ``channel_shuffle`` where they are one."""

from __future__ import annotations

from stridewise.graph import Graph, Node, Refusal
from stridewise.graph.rewrite import Rewriter

__all__ = ["recognize_shuffle"]


def _groups(rewriter: Rewriter, first: Node, middle: Node, last: Node) -> int | str:
    """Return the number of groups, or why the three nodes are no channel shuffle."""
    before = rewriter.value(first.inputs[0]).shape
    if rewriter.value(last.outputs[0]).shape != before:
        return "the shape after it differs from the one before"
    split = first.ints_attr("shape")
    if len(before) < 3 or split[:1] != before[:1] or len(split) != len(before) + 1:
        return "the first reshape does not split the channels in two"
    if split[3:] != before[2:] or split[1] * split[2] != before[1]:
        return "the first reshape does not split the channels in two"
    if middle.ints_attr("perm") != (0, 2, 1, *range(3, len(split))):
        return "the transpose does not swap the two halves of the channels"
    return split[1]


def recognize_shuffle(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with channel shuffles as single nodes."""
    rewriter = Rewriter(graph)
    refusals: list[Refusal] = []
    for last in rewriter.nodes():
        middle = rewriter.producer(last.inputs[0]) if last.op == "reshape" else None
        first = rewriter.producer(middle.inputs[0]) if middle is not None else None
        if middle is None or first is None or (middle.op, first.op) != ("transpose", "reshape"):
            continue
        groups = _groups(rewriter, first, middle, last)
        if isinstance(groups, str):
            refusals.append(Refusal("recognize_shuffle", last.name, groups))
            continue
        shuffle = Node(
            last.name, "channel_shuffle", first.inputs, last.outputs, (("groups", groups),)
        )
        rewriter.replace(last, shuffle)
    return rewriter.finish(), tuple(refusals)
