"""The state of one export: the ONNX nodes written so far, and the methods for exporters.

An exporter takes one node of a graph without post-ops and writes equivalent ONNX nodes. It is the
counterpart of a handler, and is in the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, NodeProto

from stridewise.graph import Graph, Node, TensorType
from stridewise.graph.names import Names
from stridewise.ops.registry import Array

__all__ = ["Exporter", "OnnxValue", "Writer"]

OnnxValue = int | float | str | tuple[int, ...] | tuple[str, ...]
"""Type of an ONNX attribute that is written. An empty tuple is a list of integers."""

_FIELDS: dict[type, tuple[AttributeProto.AttributeType, str]] = {
    int: (AttributeProto.INT, "i"),
    float: (AttributeProto.FLOAT, "f"),
    str: (AttributeProto.STRING, "s"),
    tuple: (AttributeProto.INTS, "ints"),
}


def _attribute(name: str, value: OnnxValue) -> AttributeProto:
    if isinstance(value, tuple) and value and isinstance(value[0], str):
        texts = [str(item).encode() for item in value]
        return AttributeProto(name=name, type=AttributeProto.STRINGS, strings=texts)
    kind, field = _FIELDS[type(value)]
    stored: Any = value.encode() if isinstance(value, str) else value
    return AttributeProto(name=name, type=kind, **{field: stored})


class Writer:
    """Collects ONNX nodes; exporters use its methods.

    Attributes:
        graph: the graph that is written.
        opset: version of the default domain that is written.
        least: the first version that has all operators so far.
        nodes: the ONNX nodes so far, in order.
        owners: for each ONNX node, the node of the graph that it belongs to.
        constants: the constants that the nodes read, by name.
    """

    def __init__(self, graph: Graph, opset: int) -> None:
        """Start without nodes, and with the constants that are outputs."""
        self.graph = graph
        self.opset = self.least = opset
        self.nodes: list[NodeProto] = []
        self.owners: list[str] = []
        self.constants: dict[str, Array] = {}
        self._fresh = Names(graph).fresh
        for name in graph.outputs:
            self._use(name)

    # --- asking ---------------------------------------------------------------------------------

    def type(self, name: str) -> TensorType:
        """Return the type of a value of the graph."""
        return self.graph.value(name).type

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value of the graph."""
        return self.graph.value(name).shape

    def is_constant(self, name: str) -> bool:
        """Return whether a value is known before the run."""
        return name in self.graph.constants

    # --- writing --------------------------------------------------------------------------------

    def needs(self, opset: int) -> None:
        """Record that a node needs a newer opset; the whole graph is then written again in it."""
        self.least = max(self.least, opset)

    def _use(self, name: str) -> None:
        constant = self.graph.constants.get(name)
        if constant is not None:
            self.constants[name] = constant.array

    def constant(self, node: Node, role: str, data: Array) -> str:
        """Add a constant that is an input in ONNX, and return its name."""
        name = self._fresh(f"{node.outputs[0]}/{role}")
        self.constants[name] = data
        return name

    def integers(self, node: Node, role: str, values: Sequence[int]) -> str:
        """Add a list of integers that is an input in ONNX, and return its name."""
        return self.constant(node, role, np.array(values, np.int64))

    def scalar(self, node: Node, role: str, value: float) -> str:
        """Add a scalar of the dtype of input 0, and return its name."""
        return self.constant(node, role, np.array(value, self.type(node.inputs[0]).dtype.numpy))

    def step(
        self,
        node: Node,
        role: str,
        op_type: str,
        inputs: Sequence[str],
        attrs: Mapping[str, OnnxValue] | None = None,
        others: Sequence[str] = (),
    ) -> str:
        """Write an intermediate ONNX node and return the name of its first result.

        Args:
            node: the node.
            role: what the result is, for its name.
            op_type: ONNX's operator.
            inputs: names of values, ``""`` for absent ones.
            attrs: the attributes.
            others: names of the further results, ``""`` for unused ones.
        """
        name = self._fresh(f"{node.outputs[0]}/{role}")
        self._write(node, name, op_type, inputs, (name, *others), attrs or {})
        return name

    def emit(
        self,
        node: Node,
        op_type: str,
        inputs: Sequence[str],
        attrs: Mapping[str, OnnxValue] | None = None,
        *,
        domain: str = "",
        unread: int = 0,
    ) -> None:
        """Write the ONNX node that has the outputs and the name of a node.

        Args:
            node: the node.
            op_type: ONNX's operator.
            inputs: names of values, ``""`` for absent ones.
            attrs: the attributes.
            domain: the domain of the operator.
            unread: number of outputs that the ONNX node has before those of the node.
        """
        before = [self._fresh(f"{node.outputs[0]}/unread") for _ in range(unread)]
        outputs = (*before, *node.outputs)
        self._write(node, node.name, op_type, inputs, outputs, attrs or {}, domain)

    def _write(
        self,
        node: Node,
        name: str,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attrs: Mapping[str, OnnxValue],
        domain: str = "",
    ) -> None:
        present = list(inputs)
        while present and not present[-1]:
            present.pop()
        for item in present:
            self._use(item)
        self.nodes.append(
            NodeProto(
                name=name,
                op_type=op_type,
                domain=domain,
                input=present,
                output=outputs,
                attribute=[_attribute(key, value) for key, value in attrs.items()],
            )
        )
        self.owners.append(node.name)


Exporter = Callable[[Writer, Node], None]
"""Writes ONNX nodes that are equivalent to one node of the graph.

Raises ModelError if ONNX has no operator for it.
"""
