"""What of a graph is native, and what another runtime computes."""

from __future__ import annotations

from stridewise.graph import Capability, Graph, Node, NodeSupport, Segment, Support
from stridewise.ops.fallback import OP

__all__ = ["graph_capability"]


def _texts(node: Node, key: str) -> tuple[str, ...]:
    found = node.get(key)
    return tuple(map(str, found)) if isinstance(found, tuple) else ()


def graph_capability(graph: Graph) -> Capability:
    """Return what runs where: native nodes, clusters in the order of the graph, and the tail."""
    nodes: list[NodeSupport] = []
    segments: list[Segment] = []
    native: list[Node] = []

    def close() -> None:
        if native:
            names = tuple(node.name for node in native)
            segments.append(Segment("native", names, tuple(node.op for node in native)))
            native.clear()

    def leave(
        support: Support,
        names: tuple[str, ...],
        operators: tuple[str, ...],
        reasons: tuple[str, ...],
    ) -> None:
        close()
        nodes.extend(
            NodeSupport(name, operator, support, reason)
            for name, operator, reason in zip(names, operators, reasons, strict=False)
        )
        segments.append(Segment(support, names, operators, tuple(dict.fromkeys(reasons))))

    for node in graph.nodes:
        if node.op == OP:
            leave("fallback", *(_texts(node, key) for key in ("nodes", "operators", "reasons")))
        else:
            native.append(node)
            nodes.append(NodeSupport(node.name, node.op, "native"))
    close()
    if graph.tail is not None:
        leave("tail", graph.tail.nodes, graph.tail.operators, graph.tail.reasons)
    return Capability(graph.name, tuple(nodes), tuple(segments))
