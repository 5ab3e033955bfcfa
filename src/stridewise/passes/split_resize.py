"""Write resizing that oneDNN has no kernel for as one matrix product an axis."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

from stridewise.graph import Constant, Graph, Node, Refusal, TensorType, Value
from stridewise.ops.resize import is_resampling, resize_matrix, resized_axes

__all__ = ["split_resize"]


class _Splitter:
    """The graph as it grows: values and constants are added beside those that are there."""

    def __init__(self, graph: Graph) -> None:
        self.values, self.constants = dict(graph.values), dict(graph.constants)
        self._taken = set(graph.values) | {node.name for node in graph.nodes}

    def _fresh(self, hint: str) -> str:
        name, number = hint, 0
        while name in self._taken:
            number += 1
            name = f"{hint}.{number}"
        self._taken.add(name)
        return name

    def split(self, node: Node) -> list[Node]:
        """Return a chain of ``interpolate`` that gives what a ``resize`` gives."""
        (x,), (result,) = node.inputs, node.outputs
        type_ = self.values[x].type
        shape = list(type_.shape)
        wanted = node.ints_attr("shape")
        # What shrinks most comes first, so that the rest has less to do.
        axes = sorted(resized_axes(node, type_.shape), key=lambda a: wanted[a] / shape[a])
        chain: list[Node] = []
        for axis in axes:
            matrix = resize_matrix(node, type_.shape, axis).astype(type_.dtype.numpy)
            constant = self._fresh(f"{result}/matrix")
            self.constants[constant] = Constant(matrix)
            self.values[constant] = Value(constant, TensorType(type_.dtype, matrix.shape))
            shape[axis] = wanted[axis]
            last = axis == axes[-1]
            y = result if last else self._fresh(f"{result}/axis{axis}")
            self.values[y] = Value(y, TensorType(type_.dtype, tuple(shape)))
            name = node.name if last else y
            chain.append(Node(name, "interpolate", (x, constant), (y,), (("axis", axis),)))
            x = y
        return chain


def split_resize(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with every ``resize`` that is no resampling as ``interpolate``."""
    splitter = _Splitter(graph)
    nodes: list[Node] = []
    refusals: list[Refusal] = []
    for node in graph.nodes:
        shape = graph.values[node.inputs[0]].shape if node.op == "resize" else ()
        if node.op != "resize" or not resized_axes(node, shape) or is_resampling(node, shape):
            nodes.append(node)
            continue
        how = f"{node.str_attr('mode')}, {node.str_attr('coordinates', 'half_pixel')}"
        reason = f"oneDNN has no kernel for {how}; it becomes a matrix product an axis"
        refusals.append(Refusal("split_resize", node.name, reason))
        nodes += splitter.split(node)
    changed = dataclasses.replace(
        graph,
        nodes=tuple(nodes),
        values=MappingProxyType(splitter.values),
        constants=MappingProxyType(splitter.constants),
    )
    return changed, tuple(refusals)
