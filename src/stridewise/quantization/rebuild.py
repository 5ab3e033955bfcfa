"""Graphs of a quantization: with QuantizeLinear and DequantizeLinear, or simulated in float.

Both walk over the nodes of the float graph and replace operands. The simulated graph has a gate for
each tensor and each layer: an input that is 1 where it is quantized and 0 where it is in float. One
compiled model thus computes all partial quantizations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.graph import Attr, Graph, Node
from stridewise.ops import GraphBuilder
from stridewise.ops.activation import bounds, parameters
from stridewise.quantization.scheme import Layer, Scheme
from stridewise.quantization.selection import select
from stridewise.tensor.ranges import Parameters

__all__ = ["gate_of_layer", "gate_of_tensor", "quantized_graph", "simulated_graph"]

Array = NDArray[Any]
_MATRIX = 2
_RELU = ("relu", "clip")


class _Rebuilt:
    """A graph that is built again, node by node."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.b = GraphBuilder(graph.name)
        self.read: dict[str, str] = {}
        for name in graph.inputs:
            value = graph.values[name]
            self.read[name] = self.b.input(name, value.shape, value.dtype)

        self._taken = set(graph.values) | {node.name for node in graph.nodes}

    def operand(self, name: str) -> str:
        """Return what a reader reads for a value; constants are added at their first reader."""
        if name and name not in self.read:
            self.read[name] = self.b.constant(self.graph.constants[name].array, name)
        return self.read.get(name, "")

    def _name(self, hint: str) -> str:
        """Return a name that neither the float graph nor this one has."""
        number, name = 0, hint
        while name in self._taken or self.b.fresh(name) != name:
            number += 1
            name = f"{hint}.{number}"
        return name

    def constant(self, array: Array, hint: str) -> str:
        """Add a constant that the float graph does not have."""
        return self.b.constant(array, self._name(hint))

    def step(
        self, hint: str, op: str, inputs: Sequence[str], attrs: Mapping[str, Attr] | None = None
    ) -> str:
        """Add a node that the float graph does not have, and return its result."""
        name = self._name(hint)
        return self.b.op(op, inputs, attrs, name=name, output=name)

    def copy(self, node: Node, inputs: tuple[str, ...], outputs: tuple[str, ...] = ()) -> None:
        names = outputs or node.outputs
        self.b.node(node.op, inputs, dict(node.attrs), name=node.name, outputs=names)
        self.read |= zip(node.outputs, names, strict=True)

    def built(self) -> Graph:
        """Return the graph with the outputs of the float graph."""
        for name in self.graph.outputs:
            self.operand(name)
        return self.b.build(self.graph.outputs)


# --- stored as integers ---------------------------------------------------------------------------


class _Stored(_Rebuilt):
    """The graph with nodes that quantize and dequantize."""

    def __init__(self, scheme: Scheme, left: Collection[str]) -> None:
        super().__init__(scheme.graph)
        self.scheme, self.chosen = scheme, select(scheme.graph, left)
        self.clips = self._clips()
        for name in scheme.graph.inputs:
            self.store(name, name)
        for node in scheme.graph.nodes:
            self.node(node)

    def _clips(self) -> frozenset[str]:
        """Return the names of clips that saturation replaces: those whose bounds it has, too."""
        found: set[str] = set()
        for node in self.graph.nodes:
            name = node.outputs[0]
            if (
                node.op not in _RELU
                or name not in self.chosen.tensors
                or name in self.graph.outputs
            ):
                continue
            if self.scheme.tensors[name].saturates(*bounds(node.op, *parameters(node))):
                found.add(node.name)
        return frozenset(found)

    def node(self, node: Node) -> None:
        """Add a node, with integers for its constants if it is quantized, and what follows it."""
        if node.name in self.clips:
            self.store(node.outputs[0], self.operand(node.inputs[0]))
            return
        layer = self.scheme.layers.get(node.name) if node.name in self.chosen.layers else None
        inputs = tuple(self.operand(name) for name in node.inputs[:1])
        inputs += (
            tuple(map(self.operand, node.inputs[1:])) if layer is None else self.layer(node, layer)
        )
        self.copy(node, inputs)
        for name in node.outputs:
            self.store(name, name)

    def layer(self, node: Node, layer: Layer) -> tuple[str, ...]:
        """Return weights and bias behind nodes that dequantize."""
        weights = layer.weights
        axis = 0 if weights.axis is None else weights.axis
        names = (self.dequantized(f"{node.name}/weight", weights.integers, weights.scales, axis),)
        if layer.bias is None:
            return names
        # ONNX Runtime has integer biases in Conv and Gemm; MatMul has none.
        if node.op == "matmul" and len(self.graph.values[node.inputs[0]].shape) != _MATRIX:
            return (*names, self.constant(layer.bias.real, f"{node.name}/bias"))
        bias = layer.bias
        return (*names, self.dequantized(f"{node.name}/bias", bias.integers, bias.scales, 0))

    def dequantized(self, name: str, integers: Array, scales: Array, axis: int) -> str:
        stored = self.constant(integers, f"{name}/quantized")
        scale = self.constant(scales, f"{name}/scale")
        zero = self.constant(np.zeros(scales.shape, integers.dtype), f"{name}/zero_point")
        return self.step(name, "dequantize_linear", [stored, scale, zero], {"axis": axis})

    def store(self, name: str, source: str) -> None:
        """Store a tensor as integers if it is quantized; its readers then dequantize them."""
        if name not in self.chosen.tensors:
            return
        found = self.scheme.tensors[name]
        scale = self.constant(np.array(found.scale, np.float32), f"{name}/scale")
        zero = self.constant(np.array(found.zero_point, found.dtype), f"{name}/zero_point")
        stored = self.step(f"{name}/quantized", "quantize_linear", [source, scale, zero])
        self.read[name] = self.step(
            f"{name}/dequantized", "dequantize_linear", [stored, scale, zero]
        )


def quantized_graph(scheme: Scheme, left: Collection[str]) -> Graph:
    """Return the graph that stores integers.

    Args:
        scheme: the parameters.
        left: names of nodes that stay in float.
    """
    return _Stored(scheme, left).built()


# --- simulated ------------------------------------------------------------------------------------


def gate_of_tensor(name: str) -> str:
    """Return the name of the gate of a tensor."""
    return f"gate of tensor {name}"


def gate_of_layer(name: str) -> str:
    """Return the name of the gate of the weights of a node."""
    return f"gate of weights {name}"


class _Simulated(_Rebuilt):
    """The graph in float, with the errors of rounding times gates."""

    def __init__(self, scheme: Scheme) -> None:
        super().__init__(scheme.graph)
        self.scheme = scheme
        self.gates = {
            gate: self.b.input(gate, (1,))
            for gate in (*map(gate_of_tensor, scheme.tensors), *map(gate_of_layer, scheme.layers))
        }
        for name in scheme.graph.inputs:
            self.round(name)
        for node in scheme.graph.nodes:
            self.node(node)

    def node(self, node: Node) -> None:
        layer = self.scheme.layers.get(node.name)
        inputs = tuple(map(self.operand, node.inputs))
        if layer is None:
            self.copy(node, inputs)
        else:
            self.layer(node, inputs, layer)
        for name in node.outputs:
            self.round(name)

    def layer(self, node: Node, inputs: tuple[str, ...], layer: Layer) -> None:
        """Add a product, and a second one of the errors of its weights and bias."""
        constants, attrs, hint = self.graph.constants, dict(node.attrs), node.name
        own = self.step(f"{hint}/float", node.op, inputs, attrs)
        weights = layer.weights.real - constants[node.inputs[1]].array
        wrong = [inputs[0], self.constant(weights, f"{hint}/weight error")]
        if layer.bias is not None:
            before = constants[node.inputs[2]].array if node.inputs[2:] and node.inputs[2] else 0
            bias = (layer.bias.real - before).astype(np.float32)
            wrong.append(self.constant(bias, f"{hint}/bias error"))
        error = self.step(f"{hint}/error", node.op, wrong, attrs)
        gated = self.step(f"{hint}/gated", "mul", [error, self.gates[gate_of_layer(node.name)]])
        result = self.b.op("add", [own, gated], name=hint, output=node.outputs[0])
        self.read[node.outputs[0]] = result

    def round(self, name: str) -> None:
        """Add the error of rounding a tensor, if it is quantized."""
        found = self.scheme.tensors.get(name)
        if found is None:
            return
        error = self.step(f"{name}/error", "sub", [self._rounded(name, found), name])
        gated = self.step(f"{name}/gated", "mul", [error, self.gates[gate_of_tensor(name)]])
        self.read[name] = self.step(f"{name}/rounded", "add", [name, gated])

    def _rounded(self, name: str, found: Parameters) -> str:
        scale = self.constant(np.array([found.scale], np.float32), f"{name}/scale")
        first, last = (limit - found.zero_point for limit in found.limits)
        steps = self.step(f"{name}/quotient", "div", [name, scale])
        steps = self.step(f"{name}/steps", "round", [steps])
        bounds = {"alpha": float(first), "beta": float(last)}
        steps = self.step(f"{name}/clipped", "clip", [steps], bounds)
        return self.step(f"{name}/real", "mul", [steps, scale])


def simulated_graph(scheme: Scheme) -> Graph:
    """Return a float graph that computes any part of a quantization; its further inputs are gates.

    An input is (1,) of float32 with the name of :func:`gate_of_tensor` or :func:`gate_of_layer`.
    """
    return _Simulated(scheme).built()
