"""The invariants of a graph, checked between passes and after every edit in tests."""

from __future__ import annotations

from collections.abc import Callable

from stridewise.errors import GraphError
from stridewise.graph.graph import Graph, Node, TensorType, data_of

__all__ = ["verify"]

_KINDS = {"const": "constant", "param": "parameter", "state": "state"}

Infer = Callable[[Node, tuple[TensorType | None, ...]], tuple[TensorType, ...]]


class _Checker:
    """The checks that need no operator: names, order of definitions, attributes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.defined = set(graph.sources)
        self.names: set[str] = set()

    def fail(self, where: str, expected: str, found: object) -> GraphError:
        place = f"graph {self.graph.name!r}, {where}"
        return GraphError.at(place, expected=expected, found=str(found))

    def run(self) -> None:
        if len(self.defined) != len(self.graph.sources):
            raise self.fail("values", "each of one kind", "a name of two kinds")
        for node in self.graph.nodes:
            self.node(node)
        for name in self.graph.outputs:
            if name not in self.defined:
                raise self.fail("outputs", "defined values", repr(name))
        self.updates()
        self.tail()
        if set(self.graph.values) != self.defined:
            difference = sorted(set(self.graph.values) ^ self.defined)
            raise self.fail("values", "exactly the defined ones", difference)
        for name, value in self.graph.values.items():
            if value.name != name:
                raise self.fail(f"value {name!r}", "its own name", repr(value.name))

    def updates(self) -> None:
        graph = self.graph
        for name, value in graph.updates.items():
            where = f"update of {name!r}"
            if name not in graph.parameters and name not in graph.states:
                raise self.fail(where, "a parameter or a state", "neither")
            if value not in self.defined or value not in graph.values:
                raise self.fail(where, "a defined value", repr(value))
            if graph.values[name].type != graph.values[value].type:
                found = f"{value!r}, {graph.values[value].type}"
                raise self.fail(where, f"a value of type {graph.values[name].type}", found)

    def tail(self) -> None:
        tail = self.graph.tail
        if tail is None:
            return
        given = {*tail.arguments, *self.graph.outputs}
        for name in tail.inputs:
            if name not in given:
                raise self.fail("tail", "inputs of the call and outputs of the graph", repr(name))
        for name in tail.results:
            if name not in given and name not in tail.outputs:
                raise self.fail("tail", "results that the graph or the tail gives", repr(name))
        if not set(self.graph.inputs) <= set(tail.arguments):
            raise self.fail("tail", "the graph's inputs among those of a call", tail.arguments)

    def node(self, node: Node) -> None:
        where = f"node {node.name!r}"
        if node.name in self.names:
            raise self.fail(where, "a name used once", "a second node of that name")
        self.names.add(node.name)
        for name in node.inputs:
            if name and name not in self.defined:
                raise self.fail(where, "inputs defined before it", repr(name))
        for name in node.outputs:
            if name in self.defined:
                raise self.fail(where, "results defined once", repr(name))
            self.defined.add(name)
        for post in node.post_ops:
            if post.operand is not None and not 0 <= post.operand < len(node.inputs):
                raise self.fail(where, "post-ops that read inputs of the node", post)
        if tuple(sorted(node.attrs, key=lambda item: item[0])) != node.attrs:
            raise self.fail(where, "attributes sorted by name", node.attrs)


def verify(graph: Graph, infer: Infer | None = None) -> None:
    """Check every invariant of a graph.

    Args:
        graph: what to check.
        infer: shape inference; when given, the type of every result is checked against it.

    Raises:
        GraphError: an invariant is broken; the message names the node or value.
    """
    _Checker(graph).run()
    for kind, known in data_of(graph):
        for name, constant in known.items():
            value = graph.values[name]
            if (value.shape, value.dtype) != (constant.shape, constant.dtype):
                where = f"{_KINDS[kind]} {name!r}"
                raise GraphError.at(where, expected=str(value.type), found=repr(constant))
    for value in graph.values.values():
        if value.origin is not None and value.origin.rank != len(value.shape):
            raise GraphError.at(
                f"value {value.name!r}",
                expected=f"an origin of rank {len(value.shape)}",
                found=str(value.origin),
            )
    if infer is None:
        return
    for node in graph.nodes:
        expected = infer(node, graph.types(node.inputs))
        found = tuple(graph.values[name].type for name in node.outputs)
        if expected != found:
            raise GraphError.at(
                f"node {node.name!r} ({node.op})",
                expected=", ".join(map(str, expected)),
                found=", ".join(map(str, found)),
            )
