"""Remove nodes and constants that no output needs."""

from __future__ import annotations

from stridewise.graph import Graph, Refusal
from stridewise.graph.rewrite import Rewriter

__all__ = ["remove_dead"]


def remove_dead(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph without dead nodes; it refuses nothing."""
    return Rewriter(graph).finish(), ()
