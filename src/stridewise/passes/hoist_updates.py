"""Compute updates, and store results as the caller takes them, as soon as they are known.

Gradients of weights are needed until the weights are updated. A graph of a training step has its
updates at its end; where they stand is free, because all nodes read what a parameter was before the
run. Gradients that are results are needed until they are stored in the caller's order.
"""

from __future__ import annotations

import dataclasses

from stridewise.graph import Graph, Node, Refusal
from stridewise.ops import OPS

__all__ = ["hoist_updates"]


_MOVES = frozenset({"cast", "identity", "reshape", "transpose"})
"""Operators whose results have as many elements as their operands."""


def _only_for_sinks(graph: Graph) -> set[str]:
    """Return the nodes of updates and moves of results, and what computes nothing else.

    That is, elementwise nodes for updates, and moves.
    """
    sinks, read = set(graph.updates.values()), set[str]()
    wanted = dict.fromkeys(sinks, True)
    wanted |= dict.fromkeys(graph.outputs, False)
    found: set[str] = set()
    for node in reversed(graph.nodes):
        is_own = all(wanted.get(name, False) for name in node.outputs)
        is_new = not sinks.isdisjoint(node.outputs)
        is_move = node.op in _MOVES and read.isdisjoint(node.outputs)
        if is_new or is_move or (is_own and OPS[node.op].origin == "elementwise"):
            found.add(node.name)
        else:
            read.update(node.inputs)
        for name in node.inputs:
            wanted[name] = wanted.get(name, True) and node.name in found
    return found


class _Places:
    """Behind which position each node of a graph goes."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._early = graph, _only_for_sinks(graph)
        self._makers = {n: i for i, node in enumerate(graph.nodes) for n in node.outputs}
        self._readers: dict[str, list[int]] = {}
        for position, node in enumerate(graph.nodes):
            for name in dict.fromkeys(node.inputs):
                self._readers.setdefault(name, []).append(position)
        self._written: dict[str, list[str]] = {}
        for name, value in graph.updates.items():
            self._written.setdefault(value, []).append(name)
        self.places: list[int] = []
        self._free: set[int] = set()

    def _before(self, position: int, node: Node) -> list[int]:
        """Return the nodes that a node has to stand behind."""
        made = [self._makers[name] for name in node.inputs if name in self._makers]
        old = [name for value in node.outputs for name in self._written.get(value, ())]
        reading = [reader for name in old for reader in self._readers.get(name, ())]
        return [other for other in (*made, *reading) if other not in (position, *self._free)]

    def order(self) -> list[int]:
        """Return the positions of the nodes in their new order."""
        for position, node in enumerate(self._graph.nodes):
            place = position
            if node.name in self._early:
                before = self._before(position, node)
                if not before:
                    self._free.add(position)
                behind = [self.places[i] if i < position else i for i in before]
                place = min(max(behind, default=position), position)
            self.places.append(place)
        for position in sorted(self._free, reverse=True):
            names = self._graph.nodes[position].outputs
            later = [
                self.places[reader] for name in names for reader in self._readers.get(name, ())
            ]
            self.places[position] = min(later, default=position)
        return sorted(range(len(self.places)), key=lambda index: (self.places[index], index))


def hoist_updates(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with updates and moves of results directly behind what they depend on.

    It refuses nothing.

    A node that computes new values of parameters or states stays behind the last node that reads
    the old ones, so that it can overwrite them. What depends on no node stands before its reader.
    """
    nodes = tuple(graph.nodes[position] for position in _Places(graph).order())
    return dataclasses.replace(graph, nodes=nodes), ()
