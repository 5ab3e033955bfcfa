"""Remove nodes that change nothing: identities, empty pads, full slices, lone concats, dropout.

Chains of reshapes shrink to their last one, and elementwise operators, which broadcast by
themselves, read what an expansion reads.
"""

from __future__ import annotations

import dataclasses

from stridewise.graph import Graph, Node, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops import infer
from stridewise.ops.pointwise import OPERANDS
from stridewise.ops.reduce import REDUCTIONS
from stridewise.ops.resize import resized_axes

__all__ = ["remove_no_ops"]

_BROADCASTING = frozenset(op for op, count in OPERANDS.items() if count > 1) - {"prelu"}
"""Operators whose operands may have any shapes that broadcast."""


def _is_no_op(rewriter: Rewriter, node: Node) -> bool:
    source = rewriter.value(node.inputs[0]).type if node.inputs and node.inputs[0] else None
    if source is None or source != rewriter.value(node.outputs[0]).type:
        return False
    if node.op == "transpose":
        perm = node.ints_attr("perm")
        return perm == tuple(range(len(perm)))
    if node.op == "concat":
        return len(node.inputs) == 1
    if node.op == "slice":
        # The result has the source's shape, so the slice does something only if it reverses.
        return min(node.ints_attr("steps"), default=1) > 0
    if node.op == "resize":
        return not resized_axes(node, source.shape)
    if node.op == "dropout":
        return len(node.inputs) == 1
    if node.op in REDUCTIONS:
        return REDUCTIONS[node.op].keeps_one
    return node.op in ("identity", "reshape", "pad", "expand", "cast", "tile")


def _unexpanded(rewriter: Rewriter, node: Node) -> Node:
    """Return an elementwise operator that reads the sources of expansions where it can."""
    for index, name in enumerate(node.inputs):
        before = rewriter.producer(name)
        if before is None or before.op != "expand":
            continue
        inputs = (*node.inputs[:index], before.inputs[0], *node.inputs[index + 1 :])
        types = tuple(rewriter.value(item).type for item in inputs)
        direct = dataclasses.replace(node, inputs=inputs)
        if infer(direct, types) == (rewriter.value(node.outputs[0]).type,):
            node = direct
    return node


def remove_no_ops(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph without nodes that only pass their input on."""
    rewriter = Rewriter(graph)
    refusals: list[Refusal] = []
    for node in rewriter.nodes():
        if node.op == "reshape":
            before = rewriter.producer(node.inputs[0])
            if before is not None and before.op == "reshape":
                merged = dataclasses.replace(node, inputs=before.inputs)
                rewriter.replace(node, merged)
                node = merged  # noqa: PLW2901 (go on with the merged node)
        if node.op in _BROADCASTING:
            direct = _unexpanded(rewriter, node)
            if direct is not node:
                rewriter.replace(node, direct)
        if _is_no_op(rewriter, node) and not rewriter.bypass(node, node.inputs[0]):
            reason = "the caller asks for its result by name"
            refusals.append(Refusal("remove_no_ops", node.name, reason))
    return rewriter.finish(), tuple(refusals)
