"""Results of a graph that are views of one tensor, or of an input: they share its memory."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stridewise.frontends.torch.library import submodule

__all__ = ["Aliases", "beyond_views", "is_restrided"]


@dataclass(frozen=True, slots=True)
class Aliases:
    """How results that share memory are made after a run.

    Attributes:
        computed: nodes whose results a run has to give; views are taken of some of them.
        views: nodes to run afterwards, in order.
        of_inputs: the placeholder of each node among them that is a view of an input.
    """

    computed: tuple[Any, ...]
    views: tuple[Any, ...]
    of_inputs: Mapping[Any, Any]

    @classmethod
    def of(cls, results: Sequence[Any]) -> Aliases:
        """Find them among the results of a graph, which are nodes, numbers, and None.

        PyTorch makes views of inputs anew, but where it takes them from an offset that it does not
        know beforehand, it reads the offset of the result.
        """
        nodes = dict.fromkeys(x for x in results if isinstance(x, submodule("torch.fx").Node))
        chains = {node: _chain(node) for node in nodes}
        roots = [chain[0] for chain in chains.values()]
        views: dict[Any, None] = {}
        computed: dict[Any, None] = {}
        of_inputs: dict[Any, Any] = {}
        for node, (root, *chain) in chains.items():
            if chain and root.op == "placeholder":
                of_inputs.update(dict.fromkeys(chain, root))
                views.update(dict.fromkeys(chain))
                continue
            shares = chain and roots.count(root) > 1 and root.op == "call_function"
            computed[root if shares else node] = None
            views.update(dict.fromkeys(chain if shares else ()))
        return cls(tuple(computed), tuple(views), of_inputs)


def is_restrided(node: Any, values: Mapping[Any, Any]) -> bool:
    """Return whether a node sets strides so that elements are at other indices.

    Strides of axes of one element may differ. An offset counts from the begin of the storage.

    Args:
        node: of a graph.
        values: the type of every node's result.
    """
    if str(node.target) != "aten.as_strided.default":
        return False
    x, found = values[node.args[0]], values[node]
    offsets = [at for at in (*node.args[3:], *node.kwargs.values()) if at is not None]
    start = node.args[0].meta["val"].storage_offset()
    if x.shape != found.shape or any(type(start) is not int or at != start for at in offsets):
        return True
    steps = zip(x.shape, x.stride(), found.stride(), strict=True)
    return any(extent != 1 and old != new for extent, old, new in steps)


def beyond_views(graph: Any, values: Mapping[Any, Any]) -> list[str]:
    """Return the names of nodes that read memory of which their operand is a part.

    A part of a graph passes on the elements of a view, without the memory around them.

    Args:
        graph: a ``torch.fx`` graph of aten operators.
        values: the type of every node's result.
    """
    found = [node for node in graph.nodes if is_restrided(node, values) and _is_view(node.args[0])]
    return [node.name for node in found]


def _chain(node: Any) -> list[Any]:
    """Return what a node is a view of, and the views from there to the node."""
    found = [node]
    while _is_view(found[0]):
        found.insert(0, found[0].args[0])
    return found


def _is_view(node: Any) -> bool:
    if node.target is operator.getitem:
        return _is_view(node.args[0])
    if node.op != "call_function" or not hasattr(node.target, "_schema"):
        return False
    aliases = [item.alias_info for item in node.target._schema.returns]
    return any(info is not None and not info.is_write for info in aliases)
