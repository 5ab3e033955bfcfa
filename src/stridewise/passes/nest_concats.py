"""Read tensors that are joined already instead of their parts.

Each layer of a dense network joins the results of all layers before it. A tensor can lie in place
in one concatenation only; every other one copies it. If a concatenation reads the earlier one
instead, all of them can lie in one another.
"""

from __future__ import annotations

import dataclasses

from stridewise.graph import Attr, Graph, Node, Refusal

__all__ = ["nest_concats"]

_Attrs = tuple[tuple[str, Attr], ...]


class _Nester:
    def __init__(self) -> None:
        self.joined: dict[tuple[_Attrs, tuple[str, ...]], str] = {}
        self.starts: dict[tuple[_Attrs, str], list[int]] = {}  # lengths by the first part

    def note(self, node: Node, parts: tuple[str, ...]) -> None:
        if len(parts) > 1 and (node.attrs, parts) not in self.joined:
            self.joined[node.attrs, parts] = node.outputs[0]
            self.starts.setdefault((node.attrs, parts[0]), []).append(len(parts))

    def nested(self, node: Node) -> Node:
        """Return a concatenation that reads the longest ones before it."""
        parts: list[str] = []
        at = 0
        while at < len(node.inputs):
            lengths = self.starts.get((node.attrs, node.inputs[at]), ())
            for length in sorted(lengths, reverse=True):
                found = self.joined.get((node.attrs, node.inputs[at : at + length]))
                if found is not None:
                    parts.append(found)
                    at += length
                    break
            else:
                parts.append(node.inputs[at])
                at += 1
        return dataclasses.replace(node, inputs=tuple(parts))


def nest_concats(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph in which concatenations read earlier ones of the same parts."""
    nester = _Nester()
    nodes: list[Node] = []
    for node in graph.nodes:
        found = node
        if node.op == "concat" and not node.post_ops:
            found = nester.nested(node)
            nester.note(node, node.inputs)
            nester.note(node, found.inputs)
        nodes.append(found)
    return dataclasses.replace(graph, nodes=tuple(nodes)), ()
