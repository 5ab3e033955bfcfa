"""Turn Reshape, Transpose, Reshape into ``channel_shuffle`` where they are one."""

from __future__ import annotations

from collections.abc import Mapping

from stridewise.formats import Format
from stridewise.graph import Attr, Graph, Node, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops import OPS
from stridewise.ops.data_format import (
    ATTRIBUTE,
    CHANNELS_FIRST,
    CHANNELS_LAST,
    DATA_FORMATS,
    inverse,
)

__all__ = ["recognize_shuffle"]

Family = Mapping[int, Format]


def _groups(rewriter: Rewriter, nodes: tuple[Node, Node, Node], family: Family) -> int | str:
    """Return the number of groups, or why the three nodes are no shuffle of the channels."""
    first, middle, last = nodes
    before = rewriter.value(first.inputs[0]).shape
    if rewriter.value(last.outputs[0]).shape != before:
        return "the shape after it differs from the one before"
    split = first.ints_attr("shape")
    if len(before) not in family or len(split) != len(before) + 1:
        return "the first reshape does not split the channels in two"
    channel = family[len(before)].order.index("C")
    if (*split[:channel], split[channel] * split[channel + 1], *split[channel + 2 :]) != before:
        return "the first reshape does not split the channels in two"
    axes = tuple(range(len(split)))
    if middle.ints_attr("perm") != (*axes[:channel], channel + 1, channel, *axes[channel + 2 :]):
        return "the transpose does not swap the two halves of the channels"
    return split[channel]


def _has_turned_maps(graph: Graph, anchors: list[Node]) -> bool:
    """Return whether transposes take channels-last feature maps to anchors, or from them."""
    inputs = {node.inputs[0] for node in anchors}
    outputs = {node.outputs[0] for node in anchors}
    for node in graph.nodes:
        last = CHANNELS_LAST.get(len(node.ints_attr("perm"))) if node.op == "transpose" else None
        if last is None:
            continue
        perm, to_last = node.ints_attr("perm"), last.permutation
        if perm == to_last and node.inputs[0] in outputs:
            return True
        if perm == inverse(to_last) and node.outputs[0] in inputs:
            return True
    return False


def _families(graph: Graph) -> list[Family]:
    """Return the data formats of the model's feature maps; channels-first where it has none.

    Which axis holds the channels is known only from operators that say so, and from transposes
    beside them.
    """
    anchors = [node for node in graph.nodes if OPS[node.op].origin == "anchor"]
    names = {str(node.get(ATTRIBUTE)) for node in anchors}
    last = {name for name in names if DATA_FORMATS.get(name) is CHANNELS_LAST}
    first = [CHANNELS_FIRST] if names - last or not last else []
    both = bool(last) or _has_turned_maps(graph, anchors)
    return [*first, *([CHANNELS_LAST] if both else [])]


def _shuffle(rewriter: Rewriter, nodes: tuple[Node, Node, Node], family: Family) -> Node | str:
    first, _, last = nodes
    groups = _groups(rewriter, nodes, family)
    if isinstance(groups, str):
        return groups
    attrs: dict[str, Attr] = {"groups": groups}
    if family is CHANNELS_LAST:
        attrs[ATTRIBUTE] = str(family[len(rewriter.value(last.outputs[0]).shape)])
    return Node(
        last.name, "channel_shuffle", first.inputs, last.outputs, tuple(sorted(attrs.items()))
    )


def recognize_shuffle(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with channel shuffles as single nodes."""
    rewriter = Rewriter(graph)
    refusals: list[Refusal] = []
    families = _families(graph)
    for last in rewriter.nodes():
        middle = rewriter.producer(last.inputs[0]) if last.op == "reshape" else None
        if middle is None or middle.op != "transpose":
            continue
        first = rewriter.producer(middle.inputs[0])
        if first is None or first.op != "reshape":
            continue
        found = [_shuffle(rewriter, (first, middle, last), family) for family in families]
        shuffles = [item for item in found if isinstance(item, Node)]
        if shuffles:
            rewriter.replace(last, shuffles[0])
        else:
            refusals.append(Refusal("recognize_shuffle", last.name, str(found[0])))
    return rewriter.finish(), tuple(refusals)
