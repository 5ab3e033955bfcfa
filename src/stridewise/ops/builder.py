"""Building a graph node by node, with types inferred as it grows.

Methods for whole layers are in ``layers.py``, which makes :class:`GraphBuilder` of this.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Self

from stridewise.dtypes import DType, dtype_of
from stridewise.errors import FormatError, GraphError
from stridewise.graph import Attr, Constant, Graph, Node, Tail, TensorType, Value
from stridewise.graph.names import fresh_name
from stridewise.ops.attributes import attribute
from stridewise.ops.data_format import ATTRIBUTE, CHANNELS_FIRST, DATA_FORMATS
from stridewise.ops.registry import OPS, Array, check_data_format, infer
from stridewise.tensor import Grid

__all__ = ["NodeBuilder"]


class NodeBuilder:
    """Collects inputs, constants and nodes; values are referred to by name."""

    def __init__(self, name: str = "graph", data_format: str = "NCHW") -> None:
        """Start an empty graph.

        Args:
            name: of the graph.
            data_format: the order of feature maps: ``"NCHW"`` or ``"NHWC"``, or their siblings of
                other rank, which mean the same: one name holds for feature maps of every rank.

        Raises:
            FormatError: there is no such data format.
        """
        if data_format not in DATA_FORMATS:
            raise FormatError.at(
                f"graph {name!r}, data_format",
                expected=f"one of {', '.join(DATA_FORMATS)}",
                found=repr(data_format),
            )
        self.name = name
        self.data_format = data_format
        self._inputs: list[str] = []
        self._nodes: dict[str, Node] = {}
        self._values: dict[str, Value] = {}
        self._constants: dict[str, Constant] = {}
        self._parameters: dict[str, Constant] = {}
        self._states: dict[str, Constant] = {}
        self._updates: dict[str, str] = {}

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """Return a builder that has a graph's values and nodes already.

        Args:
            graph: without a tail; its outputs are not kept, :meth:`build` names others.
        """
        found = cls(graph.name)
        found._inputs = list(graph.inputs)
        found._nodes = {node.name: node for node in graph.nodes}
        found._values = dict(graph.values)
        found._constants = dict(graph.constants)
        found._parameters, found._states = dict(graph.parameters), dict(graph.states)
        found._updates = dict(graph.updates)
        return found

    def _define(self, name: str, tensor_type: TensorType) -> str:
        if not name or name in self._values:
            raise GraphError.at(
                f"graph {self.name!r}", expected="a new value name", found=repr(name)
            )
        self._values[name] = Value(name, tensor_type)
        return name

    def fresh(self, hint: str) -> str:
        """Return a name like ``hint`` that neither a value nor a node has yet."""
        return fresh_name(hint, lambda name: name in self._values or name in self._nodes)

    def input(self, name: str, shape: Sequence[int], dtype: str | DType = "float32") -> str:
        """Declare an input of the graph and return its name.

        Raises:
            GraphError: the name is taken, or an extent is negative.
        """
        if any(extent < 0 for extent in shape):
            raise GraphError.at(
                f"input {name!r}", expected="extents from 0 on", found=f"{tuple(shape)}"
            )
        self._inputs.append(name)
        return self._define(name, TensorType(dtype_of(dtype), tuple(shape)))

    def constant(self, array: Array, name: str = "constant", grid: Grid | None = None) -> str:
        """Add a constant; the array is not copied and must not change any more.

        Args:
            array: the elements, of any shape.
            name: of the value, if no other one has it.
            grid: the numbers that the elements are among, where they were quantized.
        """
        constant = Constant(array)
        chosen = self.fresh(name)
        self._constants[chosen] = constant
        self._define(chosen, TensorType(constant.dtype, constant.shape))
        self._values[chosen] = dataclasses.replace(self._values[chosen], grid=grid)
        return chosen

    def parameter(self, array: Array, name: str) -> str:
        """Declare a parameter, which may change between runs, and return its name.

        Compiling freezes parameters into constants, unless ``keep_parameters`` is set.

        Args:
            array: initial value, of any shape; it is not copied and must not change any more.
            name: of the parameter, under which ``model.parameters`` has it.

        Raises:
            GraphError: the name is taken.
        """
        constant = Constant(array)
        self._define(name, TensorType(constant.dtype, constant.shape))
        self._parameters[name] = constant
        return name

    def state(self, array: Array, name: str) -> str:
        """Declare a state, which runs change, and return its name; see :meth:`update`.

        Args:
            array: initial value, of any shape; it is not copied and must not change any more.
            name: of the state, under which ``model.states`` has it.

        Raises:
            GraphError: the name is taken.
        """
        constant = Constant(array)
        self._define(name, TensorType(constant.dtype, constant.shape))
        self._states[name] = constant
        return name

    def update(self, name: str, value: str) -> None:
        """Say which value a state or a parameter has after a run.

        All nodes read what it is before the run.

        Args:
            name: the state or parameter.
            value: a value of the same type.

        Raises:
            GraphError: there is no such state or parameter, it has an update already, or the types
                differ.

        >>> import numpy as np
        >>> b = NodeBuilder("count")
        >>> count = b.state(np.zeros(1, np.float32), "count")
        >>> b.update(count, b.op("add", [count, b.constant(np.ones(1, np.float32))]))
        """
        where = f"graph {self.name!r}, update of {name!r}"
        if name not in self._parameters and name not in self._states:
            raise GraphError.at(where, expected="a state or a parameter", found=repr(name))
        if name in self._updates:
            found = repr(self._updates[name])
            raise GraphError.at(where, expected="one update", found=f"a second, {found}")
        if self.type(name) != self.type(value):
            expected, found = f"a value of type {self.type(name)}", str(self.type(value))
            raise GraphError.at(where, expected=expected, found=found)
        self._updates[name] = value

    def op(
        self,
        op: str,
        inputs: Sequence[str],
        attrs: Mapping[str, Attr] | None = None,
        *,
        name: str = "",
        output: str = "",
    ) -> str:
        """Add a node with one output and return the output's name.

        Operators on feature maps get the builder's data format, unless ``attrs`` has another.

        Args:
            op: a key of :data:`stridewise.ops.OPS`.
            inputs: names of values; ``""`` for an absent optional input.
            attrs: the operator's attributes.
            name: the node's name; by default a fresh one like the operator's.
            output: the output's name; by default the node's.

        Raises:
            GraphError: an input is unknown, or the operator does not take these inputs.
        """
        return self.node(op, inputs, attrs, name=name, outputs=(output,))[0]

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        attrs: Mapping[str, Attr] | None = None,
        *,
        name: str = "",
        outputs: Sequence[str] = (),
    ) -> tuple[str, ...]:
        """Add a node with any number of outputs and return their names; see :meth:`op`.

        Args:
            op: a key of :data:`stridewise.ops.OPS`.
            inputs: names of values; ``""`` for an absent optional input.
            attrs: the operator's attributes.
            name: the node's name; by default a fresh one like the operator's.
            outputs: names of the outputs; those that are left out or ``""`` get fresh ones.

        Raises:
            GraphError: an input is unknown, or the operator does not take these inputs.
        """
        node_name = self.fresh(name or op) if not name or name in self._nodes else name
        given = {**self._format_of(op, inputs), **(attrs or {})}
        stored = tuple((key, attribute(value)) for key, value in sorted(given.items()))
        bare = Node(node_name, op, tuple(inputs), tuple(outputs), stored)
        types = infer(bare, tuple(self.type(item) if item else None for item in inputs))
        wanted = (*outputs, *("",) * (len(types) - len(outputs)))
        results = tuple(
            self._define(result or self.fresh(node_name), type_)
            for result, type_ in zip(wanted, types, strict=True)
        )
        self._nodes[node_name] = dataclasses.replace(bare, outputs=results)
        return results

    def _format_of(self, op: str, inputs: Sequence[str]) -> dict[str, Attr]:
        """Return the attribute that an anchor needs in channels-last; matrices need none."""
        family = DATA_FORMATS[self.data_format]
        if family is CHANNELS_FIRST or op not in OPS or OPS[op].origin != "anchor" or not inputs:
            return {}
        found = family.get(len(self.type(inputs[0]).shape))
        return {} if found is None else {ATTRIBUTE: str(found)}

    def type(self, name: str) -> TensorType:
        """Return the type of a value.

        Raises:
            GraphError: there is no such value.
        """
        if name not in self._values:
            raise GraphError.at(f"graph {self.name!r}", expected="a known value", found=repr(name))
        return self._values[name].type

    def data(self, name: str) -> Array | None:
        """Return the data of a constant, or None for any other value."""
        constant = self._constants.get(name)
        return None if constant is None else constant.array

    def sources(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the inputs of the graph that some values are computed from, in their order."""
        producers = {output: node for node in self._nodes.values() for output in node.outputs}
        found, waiting = set[str](), list(names)
        while waiting:
            name = waiting.pop()
            if name and name not in found:
                found.add(name)
                waiting += producers[name].inputs if name in producers else ()
        return tuple(name for name in self._inputs if name in found)

    def build(self, outputs: Sequence[str], tail: Tail | None = None) -> Graph:
        """Return the graph with these outputs, and what another runtime computes afterwards.

        Raises:
            GraphError: an output is unknown, or there is none.
            FormatError: nodes have different data formats.
        """
        if not outputs and tail is None and not self._updates:
            raise GraphError.at(
                f"graph {self.name!r}", expected="at least one output", found="none"
            )
        for name in outputs:
            self.type(name)
        graph = Graph(
            self.name,
            tuple(self._inputs),
            tuple(outputs),
            tuple(self._nodes.values()),
            MappingProxyType(dict(self._values)),
            MappingProxyType(dict(self._constants)),
            tail,
            MappingProxyType(dict(self._parameters)),
            MappingProxyType(dict(self._states)),
            MappingProxyType(dict(self._updates)),
        )
        check_data_format(graph)
        return graph
