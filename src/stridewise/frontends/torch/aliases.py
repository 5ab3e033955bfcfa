"""Results of a graph that are views of one tensor, or of an input: they share its memory."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stridewise.frontends.torch.library import submodule

__all__ = ["Aliases"]


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
