"""Editing a frozen graph: collect the edits, then build the next graph once.

A pass asks a :class:`Rewriter` about uses and constants, replaces nodes and values through it,
and calls :meth:`Rewriter.finish`, which drops everything that no output needs any more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from math import prod
from types import MappingProxyType

from stridewise.graph.constant import Array, Constant
from stridewise.graph.graph import Graph, Node, TensorType, Value
from stridewise.graph.names import fresh_name

__all__ = ["Rewriter"]


class Rewriter:
    """A graph being rewritten. Nodes are visited in order and may be replaced one by one."""

    def __init__(self, graph: Graph) -> None:
        """Start from ``graph``, which is not changed."""
        self.graph = graph
        self._nodes: dict[str, Node] = {node.name: node for node in graph.nodes}
        self._values = dict(graph.values)
        self._constants = dict(graph.constants)
        self._sinks = frozenset(graph.sinks)
        self._producers = graph.producers()
        self._readers: dict[str, dict[str, None]] = {name: {} for name in graph.values}
        for node in graph.nodes:
            self._link(node)

    def _link(self, node: Node) -> None:
        for name in node.inputs:
            if name:
                self._readers.setdefault(name, {})[node.name] = None
        for name in node.outputs:
            self._producers[name] = node

    def _unlink(self, node: Node) -> None:
        for name in node.inputs:
            if name:
                self._readers[name].pop(node.name, None)
        for name in node.outputs:
            self._producers.pop(name, None)

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes that still exist, in order, each in its present state."""
        for name in list(self._nodes):
            if name in self._nodes:
                yield self._nodes[name]

    def value(self, name: str) -> Value:
        """Return the value of that name."""
        return self._values[name]

    def producer(self, name: str) -> Node | None:
        """Return the node that defines a value, or None for inputs and constants."""
        return self._producers.get(name)

    def readers(self, name: str) -> tuple[Node, ...]:
        """Return the nodes that read a value, each once."""
        return tuple(self._nodes[reader] for reader in self._readers.get(name, ()))

    def only_reader(self, name: str, *, once: bool = True) -> Node | None:
        """Return the node that alone reads a value; None if others or the caller see it.

        Args:
            name: of the value.
            once: whether a node does not count that reads it as several operands. A change of the
                value would change all of them.
        """
        readers = self.readers(name)
        if len(readers) != 1 or self.is_output(name):
            return None
        return None if once and readers[0].inputs.count(name) > 1 else readers[0]

    def is_output(self, name: str) -> bool:
        """Return whether a value must keep its name: a call returns it, or an update stores it."""
        return name in self._sinks

    def known(self, name: str) -> Constant | None:
        """Return a constant value, or None for any other."""
        return self._constants.get(name)

    def constant(self, name: str) -> Array | None:
        """Return the data of a constant value, or None for any other."""
        found = self._constants.get(name)
        return None if found is None else found.array

    def scalar(self, name: str) -> float | None:
        """Return the number that a constant of one element has, or None for any other value."""
        found = self._constants.get(name)
        return float(found.array.reshape(-1)[0]) if found and prod(found.shape) == 1 else None

    def add_constant(self, hint: str, data: Array | Constant) -> str:
        """Add a constant under a fresh name like ``hint`` and return the name."""
        name = fresh_name(hint, self._values.__contains__)
        constant = data if isinstance(data, Constant) else Constant(data)
        self._constants[name] = constant
        self._values[name] = Value(name, TensorType(constant.dtype, constant.shape))
        return name

    def define_constant(self, name: str, array: Array) -> None:
        """Make an existing value a constant; the node that defined it must be removed."""
        self._constants[name] = Constant(array)

    def add_value(self, hint: str, type_: TensorType) -> str:
        """Add a value under a fresh name like ``hint``, which a node has to define."""
        name = fresh_name(hint, self._values.__contains__)
        self._values[name] = Value(name, type_)
        return name

    def insert(self, new: Node, before: Node) -> Node:
        """Add a node in front of another one, under a fresh name like its own; return it."""
        name = fresh_name(new.name, self._nodes.__contains__)
        new = dataclasses.replace(new, name=name)
        nodes = list(self._nodes.items())
        position = list(self._nodes).index(before.name)
        self._nodes = dict([*nodes[:position], (name, new), *nodes[position:]])
        self._link(new)
        return new

    def replace(self, old: Node, new: Node) -> None:
        """Put ``new`` where ``old`` was; it must define the same values."""
        self._unlink(old)
        if new.name == old.name:
            self._nodes[new.name] = new
        else:
            self._nodes = {
                (new.name if name == old.name else name): (new if name == old.name else node)
                for name, node in self._nodes.items()
            }
        self._link(new)

    def remove(self, node: Node) -> None:
        """Remove a node whose results have no consumer, or are defined elsewhere."""
        self._unlink(node)
        del self._nodes[node.name]

    def bypass(self, node: Node, source: str) -> bool:
        """Remove a node whose only result equals ``source``; return False where it must stay.

        The caller knows results by name, so a node that defines an output of the graph can go only
        where the producer of ``source`` can define that name in its place.
        """
        result = node.outputs[0]
        producer = self.producer(source)
        if not self.is_output(result):
            self.remove(node)
            self._rename_reads(result, source)
            return True
        if producer is None or self.is_output(source):
            return False
        self.remove(node)
        self._rename_reads(source, result)
        outputs = tuple(result if name == source else name for name in producer.outputs)
        self._values[result] = dataclasses.replace(self._values[source], name=result)
        self.replace(producer, dataclasses.replace(self._nodes[producer.name], outputs=outputs))
        return True

    def _rename_reads(self, old: str, new: str) -> None:
        for reader in self.readers(old):
            inputs = tuple(new if name == old else name for name in reader.inputs)
            self.replace(reader, dataclasses.replace(reader, inputs=inputs))

    def finish(self) -> Graph:
        """Return the rewritten graph without dead nodes, values and constants."""
        needed = set(self._sinks)
        kept: list[Node] = []
        for node in reversed(list(self._nodes.values())):
            if needed.intersection(node.outputs):
                kept.append(node)
                needed.update(name for name in node.inputs if name)
        kept.reverse()
        needed.update((*self.graph.inputs, *self.graph.updates))
        needed.update(name for node in kept for name in node.outputs)
        return dataclasses.replace(
            self.graph,
            nodes=tuple(kept),
            values=MappingProxyType({k: v for k, v in self._values.items() if k in needed}),
            constants=MappingProxyType({k: v for k, v in self._constants.items() if k in needed}),
            parameters=_kept(self.graph.parameters, needed),
            states=_kept(self.graph.states, needed),
        )


def _kept(known: Mapping[str, Constant], needed: set[str]) -> Mapping[str, Constant]:
    return MappingProxyType({name: item for name, item in known.items() if name in needed})
