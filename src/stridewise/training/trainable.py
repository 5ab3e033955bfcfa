"""Graphs for training, and what they are for inference once they are trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.graph import Constant, Graph, Node
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.norm import EPSILON, RUNNING

__all__ = ["evaluation_graph", "trainable"]

Array = NDArray[Any]

_LAYERS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("conv", "conv_transpose"), (1, 2)),
    **dict.fromkeys(("batch_norm", "group_norm", "layer_norm", "scale_shift"), (1, 2)),
    "matmul": (0, 1, 2),
    "prelu": (1,),
}
"""The operands of layers that are learned."""


def trainable(graph: Graph) -> Graph:
    """Return a graph whose parameters are the weights of its layers, if it has no parameters.

    Weights are float32 constants that convolutions, matrix products, normalizations and ``prelu``
    read as their parameters.
    """
    if graph.parameters:
        return graph
    learned = {
        node.inputs[index]: None
        for node in graph.nodes
        for index in _LAYERS.get(node.op, ())
        if index < len(node.inputs) and node.inputs[index] in graph.constants
        if graph.value(node.inputs[index]).dtype.name == "float32"
    }
    left = {name: item for name, item in graph.constants.items() if name not in learned}
    return dataclasses.replace(
        graph,
        constants=MappingProxyType(left),
        parameters=MappingProxyType({name: graph.constants[name] for name in learned}),
    )


def _running(node: Node) -> tuple[str, ...]:
    """Return the states that keep the statistics of a batch norm."""
    found = node.get(RUNNING) if node.op == "batch_norm" else None
    return tuple(map(str, found)) if isinstance(found, tuple) else ()


def evaluation_graph(graph: Graph, values: Mapping[str, Array]) -> Graph:
    """Return a graph for inference: batch norms have their running statistics, nothing is updated.

    Args:
        graph: that was trained.
        values: of parameters and states.
    """
    stored = {
        kind: MappingProxyType(
            {n: Constant(values[n]) if n in values else c for n, c in known.items()}
        )
        for kind, known in (("parameters", graph.parameters), ("states", graph.states))
    }
    still = dataclasses.replace(graph, updates=MappingProxyType({}), **stored)
    rewriter = Rewriter(Rewriter(still).finish())
    known = {**still.constants, **still.parameters, **still.states}
    for node in rewriter.nodes():
        rows = [*node.inputs[1:3], *_running(node)]
        statistics = node.outputs[1:]
        if not _running(node) or any(row not in known for row in rows):
            continue
        if any(rewriter.readers(name) or rewriter.is_output(name) for name in statistics):
            continue
        scale, shift, mean, variance = (known[row].array.astype(np.float64) for row in rows)
        factor = scale / np.sqrt(variance + node.float_attr("epsilon", EPSILON))
        pair = [
            rewriter.add_constant(f"{node.name}.{role}", row.astype(np.float32))
            for role, row in (("factor", factor), ("offset", shift - mean * factor))
        ]
        attrs = tuple(item for item in node.attrs if item[0] not in ("epsilon", RUNNING))
        inputs, outputs = (node.inputs[0], *pair), node.outputs[:1]
        norm = dataclasses.replace(
            node, op="scale_shift", inputs=inputs, outputs=outputs, attrs=attrs
        )
        rewriter.replace(node, norm)
    return rewriter.finish()
