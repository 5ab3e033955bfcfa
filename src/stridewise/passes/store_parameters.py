"""Keep parameters in plain memory that nodes read as data: kernels take weights alone packed."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

from stridewise.graph import Graph, Node, Refusal

__all__ = ["store_parameters"]

_ANY_OPERAND = frozenset({"add", "concat", "div", "maximum", "minimum", "mul", "sub"})
"""Operators whose kernels take a packed operand in any place; others take none as the first."""


def _wants_stored(node: Node, name: str) -> bool:
    return node.inputs[:1] == (name,) and node.op not in _ANY_OPERAND


def store_parameters(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with an update to itself for each parameter that is not packed.

    Parameters with an update live in the user's order of axes, where every node can read them.
    """
    stored = dict(graph.updates)
    refusals: list[Refusal] = []
    for name in graph.parameters:
        reader = next((node for node in graph.nodes if _wants_stored(node, name)), None)
        if reader is not None and name not in stored:
            stored[name] = name
            reason = f"it is not packed, as {reader.op} {reader.name!r} reads it as data"
            refusals.append(Refusal("store_parameters", name, reason))
    changed = dataclasses.replace(graph, updates=MappingProxyType(stored))
    return changed, tuple(refusals)
