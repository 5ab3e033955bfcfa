"""The reason why a value has no axis names: the nearest node that stops their propagation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stridewise.graph import Graph, Node, Refusal
from stridewise.ops import OPS
from stridewise.planner.derivation.provenance import Direction, Provenance

__all__ = ["interruptions"]


def _direction(node: Node, name: str, other: str) -> Direction:
    """Return the direction from a value to another value of a node."""
    if name in node.inputs and other in node.outputs:
        return "up"
    return "down" if name in node.outputs and other in node.inputs else "aside"


def _stop(node: Node) -> Provenance:
    if OPS[node.op].origin in ("elementwise", "same"):
        return Provenance(reason=f"{node.op} {node.name!r} broadcasts it to another rank")
    return Provenance(reason=f"{node.op} {node.name!r} interrupts")


def _untied(ties: Mapping[str, Sequence[str]], node: Node, names: Sequence[str]) -> tuple[str, ...]:
    """Return the values of a node whose axes it does not relate to others."""
    tied = ties[node.name] if len(ties[node.name]) > 1 else ()
    return tuple(name for name in names if name and name not in tied)


def _seeds(
    graph: Graph, ties: Mapping[str, Sequence[str]], torn: Mapping[str, Refusal]
) -> Iterator[tuple[str, Provenance]]:
    """Yield the values at which names stop: at conflicts, after a node, then before a node."""
    for name, conflict in torn.items():
        yield name, Provenance(reason=conflict.reason)
    for node in graph.nodes:
        yield from ((name, _stop(node)) for name in _untied(ties, node, node.outputs))
    for node in graph.nodes:
        yield from ((name, _stop(node)) for name in _untied(ties, node, node.inputs))


def interruptions(
    graph: Graph,
    ties: Mapping[str, Sequence[str]],
    touching: Mapping[str, Sequence[Node]],
    known: Mapping[str, object],
    torn: Mapping[str, Refusal],
) -> dict[str, Provenance]:
    """Return the provenance of each value whose names are stopped by a node or a conflict.

    Args:
        graph: the values.
        ties: the values whose axes each node relates to each other.
        touching: the nodes that relate each value to others.
        known: the values with names.
        torn: the values about which anchors disagree.
    """
    found: dict[str, Provenance] = {}
    for name, stop in _seeds(graph, ties, torn):
        if name not in known and not graph.is_packed(name):
            found.setdefault(name, stop)
    passed: set[str] = set()
    queue = list(found)
    for name in queue:
        stop = found[name]
        if name in torn:
            stop = Provenance(reason=f"the conflict about {name!r} interrupts")
        for node in touching[name]:
            if node.name in passed:
                continue
            passed.add(node.name)
            for other in ties[node.name]:
                if other not in found and other not in known:
                    found[other] = stop.through(node.name, _direction(node, name, other))
                    queue.append(other)
    return found
