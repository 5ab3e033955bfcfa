"""Graphs for training, and what they are for inference once they are trained."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import TrainingWarning, describe
from stridewise.graph import Constant, Graph, Node
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.norm import EPSILON, RUNNING

__all__ = ["evaluation_graph", "trainable"]

Array = NDArray[Any]

_NAMED = 5
"""How many constants a warning names."""

_LAYERS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("conv", "conv_transpose"), (1, 2)),
    **dict.fromkeys(("batch_norm", "group_norm", "layer_norm", "scale_shift"), (1, 2)),
    "gather": (0,),
    "matmul": (0, 1, 2),
    "prelu": (1,),
}
"""The operands of layers that are learned."""

_AFFINE = ("add", "mul", "sub")
"""Operators with a constant that belongs to the layer before them, as its bias does."""

_MOVES = ("reshape", "slice", "transpose")


def trainable(graph: Graph, train: Iterable[str] = ()) -> Graph:
    """Return a graph whose parameters are the weights of its layers, if it has no parameters.

    Weights are float32 constants that convolutions, matrix products, normalizations, ``prelu`` and
    ``gather`` read as their parameters. They are also constants of several elements that are added
    to or multiplied with a result of these, or from which such operands are computed.

    Args:
        graph: the graph.
        train: names of further float32 constants that are to be parameters.

    Warns:
        TrainingWarning: other float32 constants of several elements are read, and not named.
    """
    if graph.parameters:
        return graph
    found = _Weights(graph)
    learned = dict.fromkeys((*found.learned(), *(name for name in train if found.may_be(name))))
    if not train:
        _tell(graph, [name for name in graph.constants if found.is_weight(name)], learned)
    left = {name: item for name, item in graph.constants.items() if name not in learned}
    return dataclasses.replace(
        graph,
        constants=MappingProxyType(left),
        parameters=MappingProxyType({name: graph.constants[name] for name in learned}),
    )


def _tell(graph: Graph, weights: Sequence[str], learned: Container[str]) -> None:
    others = [name for name in weights if name not in learned]
    if others:
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        message = describe(
            f"graph {graph.name!r}, training",
            expected="weights of layers",
            found=f"constants that no layer reads: {', '.join(others[:_NAMED])}{more}",
            fix="name them in train= if they are to be trained; they stay as they are",
        )
        warnings.warn(message, TrainingWarning, stacklevel=4)


class _Weights:
    """The constants of a graph that may be weights."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._producers = graph, graph.producers()
        self._roots: dict[str, tuple[str, ...] | None] = {}

    def may_be(self, name: str) -> bool:
        """Return whether a name is that of a float32 constant."""
        return name in self._graph.constants and self._graph.value(name).dtype.name == "float32"

    def is_weight(self, name: str) -> bool:
        """Return whether it is a float32 constant of several elements."""
        return self.may_be(name) and prod(self._graph.value(name).shape) > 1

    def roots(self, name: str) -> tuple[str, ...] | None:
        """Return the constants that a value is computed from, None if it is from others, too."""
        if name in self._graph.constants:
            return (name,)
        if name not in self._roots:
            node = self._producers.get(name)
            operands = [self.roots(item) for item in node.inputs if item] if node else [None]
            known = [item for item in operands if item is not None]
            whole = bool(operands) and len(known) == len(operands)
            self._roots[name] = tuple(root for own in known for root in own) if whole else None
        return self._roots[name]

    def learned(self) -> list[str]:
        """Return the weights of layers, in the order of the nodes."""
        found: list[str] = []
        layers: set[str] = set()
        for node in self._graph.nodes:
            own = [self.roots(name) if name else None for name in node.inputs]
            if node.op in _LAYERS:
                chosen = [index for index in _LAYERS[node.op] if index < len(own)]
                layers.update(node.outputs)
            elif node.op in _AFFINE and layers & set(node.inputs):
                chosen = [index for index, roots in enumerate(own) if roots is not None]
                layers.update(node.outputs if chosen else ())
            else:
                chosen = []
                if node.op in _MOVES and node.inputs[0] in layers:
                    layers.update(node.outputs)
            for index in chosen:
                roots = own[index] or ()
                is_layer = node.op in _LAYERS and len(roots) == 1
                found += filter(self.may_be if is_layer else self.is_weight, roots)
        return found


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
