"""The reference executor: every node with NumPy, in the user's own axis order, unplanned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from stridewise.graph import Graph
from stridewise.graph.graph import data_of
from stridewise.ops import evaluate

__all__ = ["run_reference"]

Array = NDArray[Any]


def run_reference(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of a graph by name, and the values that its updates store.

    Args:
        graph: at any stage before planning.
        inputs: one array for each input of the graph; parameters and states that are not given
            have their initial value.
    """
    known = (item for _, group in data_of(graph) for item in group.items())
    values: dict[str, Array] = {name: item.array for name, item in known}
    values |= inputs
    for node in graph.nodes:
        operands = [values[name] if name else None for name in node.inputs]
        values |= dict(zip(node.outputs, evaluate(node, operands), strict=True))
    return {name: values[name] for name in graph.sinks}
