"""What a target may ask about a node while it describes the kernels.

Nodes are looked at in a graph whose values know their Origin, against the formats of a target.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Hashable, Mapping

from stridewise.classes import dataclass
from stridewise.formats import Format, same_bytes
from stridewise.graph import Graph, Node, Value
from stridewise.ops.geometry import canonical_shape, user_format
from stridewise.targets.target import Target
from stridewise.tensor import Storage

__all__ = ["NodeContext", "Pairs", "Storages", "placing"]


def _name(fmt: Format) -> str:
    return fmt.name


class Storages:
    """The ways to store each value, those of equal bytes under one name."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self._graph = graph
        self._target = target
        self._alike: dict[Hashable, int] = {}
        self._groups: dict[str, int] = {}
        self._offers: dict[int, Mapping[str, Format]] = {}
        self._known: dict[int, dict[str, Storage]] = {}
        self._keys: dict[tuple[int, Storage | Format], str] = {}

    def of(self, graph: Graph) -> Storages:
        """Return the same names for the values of a graph with more of them."""
        found = copy.copy(self)
        found._graph = graph
        return found

    def group(self, name: str) -> int:
        """Return a number that values share where type, Origin, grids and exactness are equal."""
        found = self._groups.get(name)
        if found is None:
            value = self._graph.values[name]
            alike = (value.type, value.origin, value.grid, value.offer, value.bias, value.exact)
            found = self._alike.setdefault(alike, len(self._alike))
            self._groups[name] = found
        return found

    def formats(self, name: str) -> Mapping[str, Format]:
        """Return the formats that the target offers for a value, by kind."""
        group = self.group(name)
        found = self._offers.get(group)
        if found is None:
            found = self._offers[group] = self._target.formats(self._graph.values[name])
        return found

    def key(self, name: str, stored: Storage | Format) -> str:
        """Return the name under which a storage of a value counts; like ones share a name.

        A format stands for the storage in it with elements of the value's own type.
        """
        group = self.group(name)
        found = self._keys.get((group, stored))
        if found is None:
            storage = stored if isinstance(stored, Storage) else Storage(stored)
            found = self._keys[group, stored] = self._find(name, storage)
        return found

    def _find(self, name: str, storage: Storage) -> str:
        group, value = self.group(name), self._graph.values[name]
        if group not in self._known:
            self._known[group] = self._distinct(value)
        return self._added(self._known[group], value, storage)

    def storage(self, name: str, key: str) -> Storage:
        """Return a storage of that name."""
        return self._known[self.group(name)][key]

    def _distinct(self, value: Value) -> dict[str, Storage]:
        distinct: dict[str, Storage] = {}
        for storage in (Storage(user_format(value)), *self._target.storages(value).values()):
            self._added(distinct, value, storage)
        return distinct

    @staticmethod
    def _added(known: dict[str, Storage], value: Value, storage: Storage) -> str:
        """Return the name of a storage among others, of a new one after adding it."""
        shape = canonical_shape(value, storage.format)
        for key, other in known.items():
            if (
                storage.element(value.dtype) == other.element(value.dtype)
                and storage.quantization == other.quantization
                and same_bytes(storage.format, other.format, shape)
            ):
                return key
        name = storage.spelled(_name)
        known[name] = storage
        return name


class NodeContext:
    """What a target may ask; see :class:`stridewise.targets.kernels.KernelContext`."""

    def __init__(
        self, graph: Graph, storages: Storages, node: Node, placing: Mapping[str, str], pairs: Pairs
    ) -> None:
        self._graph, self._storages, self._node = graph, storages, node
        self._placing, self._pairs = placing, pairs

    @property
    def node(self) -> Node:
        """The node."""
        return self._node

    def value(self, name: str) -> Value:
        """Return a value of the graph."""
        return self._graph.value(name)

    def is_constant(self, name: str) -> bool:
        """Return whether a value is known before the run."""
        return self._graph.is_packed(name)

    def is_parameter(self, name: str) -> bool:
        """Return whether a value may change between runs."""
        return name in self._graph.parameters

    def formats(self, name: str) -> Mapping[str, Format]:
        """Return the storage formats that the target offers for a value, by kind."""
        return self._storages.formats(name)

    def may_place(self, index: int) -> bool:
        """Return whether input ``index`` may be produced inside an output of this node."""
        name = self._node.inputs[index]
        return self._placing.get(name) == self._node.name

    def ahead(self) -> NodeContext | None:
        """Return the context of the node whose result one kernel could compute with this one's."""
        return self._of(self._pairs.ahead.get(self._node.name))

    def behind(self) -> NodeContext | None:
        """Return the context of the node of which this one is ahead."""
        return self._of(self._pairs.behind.get(self._node.name))

    def _of(self, node: Node | None) -> NodeContext | None:
        if node is None:
            return None
        return NodeContext(self._graph, self._storages, node, self._placing, self._pairs)

    def signature(self) -> Hashable:
        """Return all that a target may learn here, names aside.

        Nodes of one signature have the same options, so whatever else a context may tell one day
        belongs in here.
        """
        neighbors = (self.ahead(), self.behind())
        return (self._own(), *(None if other is None else other._own() for other in neighbors))

    def _own(self) -> Hashable:
        node = self._node
        names = (*node.inputs, *node.outputs)
        first: dict[str, int] = {}
        return (
            (node.op, node.attrs, node.post_ops, len(node.inputs)),
            tuple([first.setdefault(name, index) for index, name in enumerate(names)]),
            tuple([self._storages.group(name) if name else -1 for name in names]),
            tuple([self.is_constant(name) for name in node.inputs]),
            tuple([self.is_parameter(name) for name in node.inputs]),
            tuple([self.may_place(index) for index in range(len(node.inputs))]),
        )


@dataclass(frozen=True, slots=True)
class Pairs:
    """Which nodes one kernel could compute together, by the name of either.

    Attributes:
        ahead: the node that makes input 0.
        behind: the only reader.
    """

    ahead: Mapping[str, Node]
    behind: Mapping[str, Node]

    @classmethod
    def of(cls, graph: Graph, target: Target) -> Pairs:
        """Return the nodes that only a node reads whose kernels may compute both."""
        producers, readers = graph.producers(), Counter[str]()
        for node in graph.nodes:
            readers.update(node.inputs)
        readers.update(graph.sinks)
        ahead: dict[str, Node] = {}
        for node in graph.nodes:
            joins = target.joins(node.op)
            producer = producers.get(node.inputs[0]) if joins else None
            if producer is not None and producer.op in joins and readers[node.inputs[0]] == 1:
                ahead[node.name] = producer
        by_name = {node.name: node for node in graph.nodes}
        behind = {producer.name: by_name[name] for name, producer in ahead.items()}
        return cls(ahead, behind)


def placing(graph: Graph) -> dict[str, str]:
    """Return, for each value, the one concat that it may be produced inside of.

    Inputs of the graph lie in the caller's memory, and outputs must.
    """
    producers, outputs = graph.producers(), frozenset(graph.sinks)
    found: dict[str, str] = {}
    for node in graph.nodes:
        if node.op != "concat":
            continue
        for name in node.inputs:
            producer = producers.get(name)
            movable = producer is not None and name not in outputs
            if movable and node.inputs.count(name) == 1:
                found.setdefault(name, node.name)
    return found
