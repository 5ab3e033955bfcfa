"""Write a resize without a kernel as one matrix product per axis."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

import numpy as np

from stridewise.dtypes import dtype_of
from stridewise.graph import Constant, Graph, Node, Refusal, TensorType, Value
from stridewise.graph.names import Names
from stridewise.ops.registry import Array
from stridewise.ops.resize import extrapolates, has_matrices, interpolation, resized_axes
from stridewise.passes.ability import Ability

__all__ = ["split_resize"]


class _Splitter:
    """The graph as it grows: values and constants are added beside those that are there."""

    def __init__(self, graph: Graph) -> None:
        self.values, self.constants = dict(graph.values), dict(graph.constants)
        self._fresh = Names(graph).fresh

    def _constant(self, hint: str, data: Array) -> str:
        name = self._fresh(hint)
        self.constants[name] = Constant(data)
        self.values[name] = Value(name, TensorType(dtype_of(data.dtype), data.shape))
        return name

    def split(self, node: Node) -> list[Node]:
        """Return a chain of ``interpolate`` that gives what a ``resize`` gives.

        What lies outside of the input is zero after the products; a border of another value is
        added.
        """
        (x,), (result,) = node.inputs, node.outputs
        type_ = self.values[x].type
        shape = list(type_.shape)
        wanted = node.ints_attr("shape")
        # What shrinks most comes first, so that the rest has less to do.
        axes = sorted(resized_axes(node, type_.shape), key=lambda a: wanted[a] / shape[a])
        border = _border(node, type_.shape) if extrapolates(node, type_.shape) else None
        chain: list[Node] = []
        for axis in axes:
            matrix = interpolation(node, type_.shape, axis).matrix().astype(type_.dtype.numpy)
            constant = self._constant(f"{result}/matrix", matrix)
            shape[axis] = wanted[axis]
            last = axis == axes[-1] and border is None
            y = result if last else self._fresh(f"{result}/axis{axis}")
            self.values[y] = Value(y, TensorType(type_.dtype, tuple(shape)))
            name = node.name if last else y
            chain.append(Node(name, "interpolate", (x, constant), (y,), (("axis", axis),)))
            x = y
        if border is not None:
            constant = self._constant(f"{result}/border", border)
            chain.append(Node(node.name, "add", (x, constant), (result,)))
        return chain


def _border(node: Node, shape: tuple[int, ...]) -> Array:
    """Return what is added to outputs that lie outside of the input along any axis."""
    beyond = np.zeros((1,) * len(shape), bool)
    for axis in resized_axes(node, shape):
        outside = interpolation(node, shape, axis).outside()
        if outside.any():
            beyond = beyond | outside.reshape((-1,) + (1,) * (len(shape) - axis - 1))
    return np.where(beyond, node.float_attr("extrapolation"), 0).astype(np.float32)


def _is_kept(node: Node, type_: TensorType, ability: Ability) -> bool:
    """Return whether a ``resize`` stays: as it is, for a kernel, or for the host."""
    return (
        not resized_axes(node, type_.shape)
        or ability.resamples(node, type_.shape)
        or type_.dtype.name not in ability.dtypes
        or not has_matrices(node, type_.shape)
    )


def split_resize(graph: Graph, ability: Ability) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with every ``resize`` that has no kernel as ``interpolate``."""
    splitter = _Splitter(graph)
    nodes: list[Node] = []
    refusals: list[Refusal] = []
    for node in graph.nodes:
        if node.op != "resize" or _is_kept(node, graph.values[node.inputs[0]].type, ability):
            nodes.append(node)
            continue
        how = f"{node.str_attr('mode')}, {node.str_attr('coordinates', 'half_pixel')}"
        reason = f"{ability.library} has no kernel for {how}; it becomes a matrix product an axis"
        refusals.append(Refusal("split_resize", node.name, reason))
        nodes += splitter.split(node)
    changed = dataclasses.replace(
        graph,
        nodes=tuple(nodes),
        values=MappingProxyType(splitter.values),
        constants=MappingProxyType(splitter.constants),
    )
    return changed, tuple(refusals)
