"""Values whose elements must not be rounded to a smaller type."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from stridewise.graph import Graph, Node
from stridewise.ops import OPS
from stridewise.ops.element_types import FLOATS
from stridewise.ops.quantize import MOVES

__all__ = ["exact_values"]

_COMPARISONS = frozenset({"equal", "greater", "greater_equal", "less", "less_equal"})
_SELECTIONS = MOVES | {
    *("abs", "clip", "expand", "gather", "gather_elements", "gather_nd", "max_pool_indices"),
    *("maximum", "minimum", "neg", "pad", "rearrange", "reduce_max", "reduce_min", "relu"),
    *("scatter_elements", "scatter_nd", "top_k", "trilu", "where"),
}
"""Operators whose results are elements of their operands, their negatives, or limits."""


def _updated(graph: Graph) -> set[str]:
    """Return the new values of states and parameters, and what is elementwise before them.

    Rounded to bfloat16, a sum would lose steps below one part in 256 of a parameter.
    """
    return _before(graph, graph.updates.values(), frozenset())


def _converted(graph: Graph) -> set[str]:
    """Return what becomes integers or booleans, and what is elementwise or moved before it.

    Integers above 256 are no numbers of bfloat16, and limits such as 32767 would be exceeded.
    """
    casts = (node for node in graph.nodes if node.op == "cast")
    given = (c.inputs[0] for c in casts if graph.values[c.outputs[0]].dtype.name not in FLOATS)
    return _before(graph, given, _SELECTIONS)


def _before(graph: Graph, names: Iterable[str], others: Collection[str]) -> set[str]:
    """Return values, and what they are computed from by elementwise and other given operators."""
    producers, found = graph.producers(), set[str]()
    left = list(names)
    while left:
        name = left.pop()
        node = producers.get(name)
        if node is None or name in found:
            continue
        found.add(name)
        if node.op in others or OPS[node.op].origin == "elementwise":
            left += filter(None, node.inputs)
    return found


def _operators(node: Node) -> set[str]:
    """Return a node's operator, or those of its expression."""
    steps = node.get("expression")
    texts = steps if isinstance(steps, tuple) else (node.op,)
    return {str(text).partition("(")[0] for text in texts}


def _compares(node: Node) -> bool:
    return not _COMPARISONS.isdisjoint(_operators(node))


def _selected(graph: Graph) -> Iterator[set[str]]:
    """Yield compared values that were selected from one value, such as its maximum, and that value.

    If only some of them were rounded, no element would equal its own maximum.
    """
    producers = graph.producers()

    def sources(name: str) -> set[str]:
        found, left = set[str](), [name]
        while left:
            name = left.pop()
            if name in found or graph.is_packed(name):
                continue
            found.add(name)
            node = producers.get(name)
            if node is not None and _operators(node) <= _SELECTIONS:
                left += filter(None, node.inputs)
        return found

    for node in filter(_compares, graph.nodes):
        reached = [sources(name) for name in dict.fromkeys(node.inputs) if name]
        for index, own in enumerate(reached):
            others = set[str]().union(*reached[:index], *reached[index + 1 :])
            if not own.isdisjoint(others):
                yield own


def exact_values(graph: Graph) -> set[str]:
    """Return the values that plans must not round, with what other exact values come from."""
    return _updated(graph).union(_converted(graph), *_selected(graph))
