"""New names in a graph."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, count

from stridewise.graph.graph import Graph

__all__ = ["Names", "fresh_name"]


def fresh_name(hint: str, is_taken: Callable[[str], bool]) -> str:
    """Return the first name of ``hint``, ``hint.1``, ``hint.2``, ... that is not taken."""
    names = chain((hint,), (f"{hint}.{number}" for number in count(1)))
    return next(name for name in names if not is_taken(name))


class Names:
    """The names of a graph's values and nodes, and those that were added to them."""

    def __init__(self, graph: Graph) -> None:
        """Start with the names of a graph."""
        self._taken = set(graph.values) | {node.name for node in graph.nodes}

    def fresh(self, hint: str) -> str:
        """Take a name like ``hint`` that was not taken yet, and return it."""
        name = fresh_name(hint, self._taken.__contains__)
        self._taken.add(name)
        return name
