"""Graphs with gates: inputs that say which tensors and weights are rounded, and which are not.

A gate is 0, or 1 to round what it is named after: to bfloat16, or to the grid that a tensor is
offered. One compiled model gives the sensitivity of the outputs to each of its gates. A gate has no
effect on the nodes before it, so models of the ends of a graph need not compute these in each run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.dtypes import dtype_of
from stridewise.graph import Constant, Graph, Node, TensorType, Value
from stridewise.ops.activation import SNAPS
from stridewise.runtime.tuning.offers import bias_of

__all__ = ["ends", "gate_of", "gate_of_weights", "gated"]

Array = NDArray[Any]
_BF16, _F32 = dtype_of("bfloat16"), dtype_of("float32")
_PRODUCTS = ("conv", "conv_transpose", "matmul")
_SPLIT = np.float32(2**16 + 1)
"""Source: Dekker 1971: c - (c - x) with c = (2**16 + 1) x has the upper 8 bits of x, rounded."""
_SNAP = {short: op for op, short in SNAPS.items()}
_LEAST_NODES, _MOST_ENDS = 24, 8
"""Nodes with gates of one model: fewer take less time in runs than another model to compile."""


def gate_of(name: str) -> str:
    """Return the name of the gate of a tensor."""
    return f"round {name}"


def gate_of_weights(node: str) -> str:
    """Return the name of the gate of the constant weights of a node."""
    return f"round weights of {node}"


class _Gated:
    """The graph with gates, node by node."""

    def __init__(self, graph: Graph, *, to_integers: bool, only: Collection[str] | None) -> None:
        self.graph, self.to_integers, self.only = graph, to_integers, only
        self.values, self.constants = dict(graph.values), dict(graph.constants)
        self.nodes: list[Node] = []
        self.gates: dict[str, str] = {}
        """The names of gates, by the key of what they round."""
        self.read: dict[str, str] = {}
        self.split = self.constant("round/split", np.array(_SPLIT))
        for name in graph.inputs:
            self.round(name)
        for node in graph.nodes:
            inputs = tuple(self.read.get(name, name) for name in node.inputs)
            self.node(replace(node, inputs=inputs))
            for name in node.outputs:
                self.round(name)

    def constant(self, name: str, data: Array) -> str:
        found = Constant(data)
        self.constants[name] = found
        self.values[name] = Value(name, TensorType(found.dtype, found.shape))
        return name

    def gate(self, name: str) -> str:
        self.gates[name] = name
        self.values[name] = Value(name, TensorType(_F32, (1,)))
        return name

    def step(self, op: str, like: str, role: str, *operands: str, **attrs: float) -> str:
        """Add an elementwise node with a result like a value."""
        found = f"round/{role}/{like}"
        self.values[found] = replace(self.values[like], name=found)
        self.nodes.append(Node(found, op, operands, (found,), tuple(sorted(attrs.items()))))
        return found

    def round(self, name: str) -> None:
        """Add the rounding error of a tensor, times its gate, for all readers."""
        value = self.values[name]
        if self.only is not None and name not in self.only:
            return
        if value.dtype != _F32 or (self.to_integers and value.offer is None):
            return
        gate = self.gate(gate_of(name))
        if self.to_integers and value.offer is not None:
            scale, zero = value.offer.scales[0], float(value.offer.zero_points[0])
            op = _SNAP[value.offer.dtype]
            rounded = self.step(op, name, "snapped", name, alpha=scale, beta=zero)
        else:
            scaled = self.step("mul", name, "scaled", name, self.split)
            rest = self.step("sub", name, "rest", scaled, name)
            rounded = self.step("sub", name, "upper", scaled, rest)
        error = self.step("sub", name, "error", rounded, name)
        opened = self.step("mul", name, "opened", error, gate)
        self.read[name] = self.step("add", name, "result", name, opened)

    def node(self, node: Node) -> None:
        """Add a node; a product of float32 constants with the product of their rounding errors."""
        has_gate = self.only is None or node.outputs[0] in self.only
        weights = node.inputs[1] if has_gate and node.op in _PRODUCTS else ""
        error = self.error_of(weights)
        if error is None:
            self.nodes.append(node)
            return
        y = node.outputs[0]
        operands = {post.operand for post in node.post_ops}
        own = tuple(name for place, name in enumerate(node.inputs) if place not in operands)
        wrong = self.constant(f"round/weights/{node.name}", error)
        before = self.product(node, f"round/product/{y}", own)
        missing = self.product(node, f"round/missing/{y}", (own[0], wrong, *self.correction(node)))
        opened = self.step(
            "mul", y, "weights opened", missing, self.gate(gate_of_weights(node.name))
        )
        result = self.step("add", y, "product rounded", before, opened)
        for place, post in enumerate(node.post_ops):
            second = () if post.operand is None else (node.inputs[post.operand],)
            attrs = {"alpha": post.alpha, "beta": post.beta}
            result = self.step(post.op, y, f"post {place}", result, *second, **attrs)
        self.nodes.append(Node(node.name, "identity", (result,), (y,)))

    def error_of(self, weights: str) -> Array | None:
        """Return the rounding errors of constant weights; None where they are not rounded."""
        constant = self.graph.constants.get(weights)
        if constant is None or constant.dtype != _F32:
            return None
        data, grid = constant.array, self.graph.values[weights].offer
        if not self.to_integers:
            return data.astype(_BF16.numpy).astype(np.float32) - data
        return None if grid is None else grid.rounded(data) - data

    def correction(self, node: Node) -> tuple[str, ...]:
        """Return the change of the bias that goes with rounded weights, where there is one."""
        corrected = self.graph.values[node.inputs[1]].bias if self.to_integers else ()
        if not corrected:
            return ()
        bias = bias_of(node)
        own = self.graph.constants[bias].array.reshape(-1) if bias else 0.0
        change = np.asarray(corrected, np.float32) - own
        return (self.constant(f"round/bias/{node.name}", np.asarray(change, np.float32)),)

    def product(self, node: Node, name: str, inputs: tuple[str, ...]) -> str:
        self.values[name] = replace(self.values[node.outputs[0]], name=name)
        self.nodes.append(replace(node, name=name, inputs=inputs, outputs=(name,), post_ops=()))
        return name

    def built(self) -> Graph:
        """Return the graph."""
        return replace(
            self.graph,
            inputs=(*self.graph.inputs, *self.gates),
            outputs=tuple(self.read.get(name, name) for name in self.graph.outputs),
            nodes=tuple(self.nodes),
            values=MappingProxyType(self.values),
            constants=MappingProxyType(self.constants),
            tail=None,
        )


def gated(graph: Graph, *, to_integers: bool = False, only: Collection[str] | None = None) -> Graph:
    """Return a graph with a gate, a further input of (1,), for each tensor and each product.

    The tensor is rounded, or the constant weights of the product are, if the gate is 1.

    Args:
        graph: a graph of float32.
        to_integers: whether tensors and weights are rounded to the grids that they are offered;
            else to bfloat16.
        only: tensors that have a gate, as have the products that make them; None for all.
    """
    return _Gated(graph, to_integers=to_integers, only=only).built()


def ends(graph: Graph) -> Iterator[tuple[Graph, set[str]]]:
    """Yield the rest of a graph from several nodes on, and the tensors up to the next of these.

    The inputs of such a rest are the tensors that it reads; outputs that are known before are left
    out. The first one is the graph, and its inputs are among its tensors.
    """
    size = max(_LEAST_NODES, -(-len(graph.nodes) // _MOST_ENDS))
    for start in range(0, max(len(graph.nodes), 1), size):
        nodes, tensors = graph.nodes[start:], set[str]() if start else set(graph.inputs)
        tensors.update(name for node in nodes[:size] for name in node.outputs)
        made = {name for node in nodes for name in node.outputs}
        read = dict.fromkeys(name for node in nodes for name in node.inputs if name)
        inputs = tuple(name for name in read if name not in made and not graph.is_packed(name))
        outputs = tuple(name for name in graph.outputs if name in made)
        rest = replace(graph, inputs=inputs, outputs=outputs, nodes=nodes, tail=None)
        yield (rest if start else graph), tensors
