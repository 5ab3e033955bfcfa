"""The limit on the memory of weights that Winograd convolution transforms.

Weights transformed for F(2x2), F(4x4) and F(6x6) take 16/9, 4 and 64/9 times the memory of plain
ones, and more where channels are padded. A limit is kept by offering fewer kernels, so that
whatever the solver picks is within it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Protocol

from stridewise.graph import Graph, Refusal
from stridewise.ops.demand import spelled
from stridewise.targets.kernels import KernelOption

__all__ = ["granted", "within_weight_limit"]

_RULE = "weight_memory_limit"


class Priced(Protocol):
    """An option with its cost, as candidates have them."""

    @property
    def option(self) -> KernelOption:
        """Formats and calls."""
        ...

    @property
    def cost_ns(self) -> float:
        """The whole node."""
        ...


def granted(nodes: Mapping[str, Sequence[Priced]], limit: int) -> dict[str, int]:
    """Return how many bytes of transformed weights each node may have, ``limit`` in total.

    Bytes go first where one of them saves most time over the node's cheapest other candidate. Nodes
    that are absent may have none.
    """
    requests: list[tuple[float, str, int]] = []
    for name, group in nodes.items():
        costs: dict[int, float] = {}
        for candidate in group:
            nbytes = candidate.option.transformed_nbytes
            costs[nbytes] = min(costs.get(nbytes, inf), candidate.cost_ns)
        direct = costs.pop(0, inf)
        requests += [((cost - direct) / nbytes, name, nbytes) for nbytes, cost in costs.items()]
    found: dict[str, int] = {}
    left = limit
    for rate, name, nbytes in sorted(requests):
        more = nbytes - found.get(name, 0)
        if rate < 0 < more <= left:
            found[name] = nbytes
            left -= more
    return found


def within_weight_limit(
    graph: Graph,
    options: Mapping[str, tuple[KernelOption, ...]],
    nodes: Mapping[str, Sequence[Priced]],
    limit: int,
) -> tuple[dict[str, tuple[KernelOption, ...]], tuple[Refusal, ...]]:
    """Return the options of each node that keep to a limit, and what was refused.

    Args:
        graph: what is planned.
        options: all options of each node.
        nodes: the same with their costs.
        limit: bytes of transformed weights of the whole graph, each node counted for itself.
    """
    allowed = granted(nodes, limit)
    kept: dict[tuple[int, int], tuple[KernelOption, ...]] = {}
    found: dict[str, tuple[KernelOption, ...]] = {}
    refusals: list[Refusal] = []
    for node in graph.nodes:
        group, most = options[node.name], allowed.get(node.name, 0)
        refused = [option for option in group if option.transformed_nbytes > most]
        # Nodes of one signature share the tuple, as they did before.
        key = id(group), most
        if key not in kept:
            kept[key] = (
                tuple(o for o in group if o.transformed_nbytes <= most) if refused else group
            )
        found[node.name] = kept[key]
        for option in refused:
            reason = (
                f"{option.algorithm}: transformed weights of {spelled(option.transformed_nbytes)}"
            )
            refusals.append(Refusal(_RULE, node.name, reason))
    return found, tuple(refusals)
