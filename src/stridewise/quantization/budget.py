"""Which layers stay in float so that the error of the outputs keeps a limit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from stridewise.graph import Graph
from stridewise.quantization.observe import Simulation
from stridewise.quantization.scheme import Scheme
from stridewise.quantization.selection import Selection, select

__all__ = ["contributions", "within_budget"]

_SAMPLES = 2
"""Samples for the contribution of a single layer."""


def contributions(
    simulation: Simulation, scheme: Scheme, advance: Callable[[], None]
) -> dict[str, float]:
    """Return the relative error of the outputs if one layer alone is quantized, for each layer.

    Args:
        simulation: of the scheme.
        scheme: the quantization.
        advance: called after each layer.
    """
    found: dict[str, float] = {}
    operands = {node.name: node.inputs[0] for node in scheme.graph.nodes}
    for name in scheme.layers:
        alone = Selection((name,), {operands[name]: operands[name]})
        found[name] = simulation.error(alone, _SAMPLES)
        advance()
    return found


def within_budget(
    simulation: Simulation,
    graph: Graph,
    errors: Mapping[str, float],
    max_error: float,
) -> tuple[str, ...]:
    """Return layers to leave in float so that the error is at most a limit.

    The layers of greatest contribution are left until the limit holds, by bisection. Then each of
    them is quantized again, the least contribution first, if the limit still holds.

    Args:
        simulation: computes the error of any choice.
        graph: the float graph.
        errors: the contribution of each layer.
        max_error: the limit.
    """

    def holds(left: Collection[str]) -> bool:
        return simulation.error(select(graph, left)) <= max_error

    order = sorted(errors, key=lambda name: -errors[name])
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(order[:middle]) else (middle + 1, high)
    left = order[:high]
    for name in reversed(left[:-1]):
        fewer = [other for other in left if other != name]
        left = fewer if holds(fewer) else left
    return tuple(left)
