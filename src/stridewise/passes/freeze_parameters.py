"""Make constants of the values that no run changes: parameters, and states without an update."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

from stridewise.graph import Graph, Refusal

__all__ = ["freeze_parameters"]


def freeze_parameters(
    graph: Graph, *, keep_parameters: bool = False
) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with parameters and states as constants, unless an update writes them.

    Args:
        graph: what to freeze.
        keep_parameters: whether parameters stay as they are.
    """
    known = {**graph.states} if keep_parameters else {**graph.parameters, **graph.states}
    frozen = {name: item for name, item in known.items() if name not in graph.updates}
    if not frozen:
        return graph, ()

    parameters = {name: item for name, item in graph.parameters.items() if name not in frozen}
    states = {name: item for name, item in graph.states.items() if name not in frozen}
    changed = dataclasses.replace(
        graph,
        constants=MappingProxyType({**graph.constants, **frozen}),
        parameters=MappingProxyType(parameters),
        states=MappingProxyType(states),
    )
    return changed, ()
