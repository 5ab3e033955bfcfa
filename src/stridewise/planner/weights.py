"""The memory of weights that Winograd convolution transforms, and the limit on it.

Transformed weights take 16/9 or 4 times the memory of plain ones, and more where channels are
padded. A limit is kept by offering fewer kernels, so that whatever the solver picks is within it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, prod
from typing import TYPE_CHECKING

from stridewise.errors import PlanError, describe
from stridewise.graph import Graph, Refusal
from stridewise.ops.demand import spelled
from stridewise.targets.kernels import KernelOption

if TYPE_CHECKING:
    from stridewise.planner.candidates import Candidate
    from stridewise.planner.plan import Plan

__all__ = [
    "WinogradWeights",
    "check_weight_limit",
    "granted",
    "winograd_weights",
    "within_weight_limit",
]

_RULE = "weight_memory_limit"


@dataclass(frozen=True, slots=True)
class WinogradWeights:
    """The weights that the Winograd kernels of a plan read, counted for each node.

    Attributes:
        nodes: how many nodes are computed so.
        nbytes: bytes of the transformed weights.
        plain_nbytes: bytes of the same weights as the model has them.
    """

    nodes: int
    nbytes: int
    plain_nbytes: int

    def __str__(self) -> str:
        noun = "node" if self.nodes == 1 else "nodes"
        return (
            f"Winograd convolution in {self.nodes} {noun}: transformed weights take "
            f"{spelled(self.nbytes)}, plain ones {spelled(self.plain_nbytes)}"
        )


def winograd_weights(plan: Plan) -> WinogradWeights:
    """Return the weights that the Winograd kernels of a plan read."""
    values, producers = plan.graph.values, plan.terms.producers
    transformed: list[int] = []
    plain: list[int] = []
    for node, decision in zip(plan.graph.nodes, plan.decisions, strict=True):
        option = decision.chosen.option
        nbytes = option.transformed_nbytes
        if nbytes:
            convolution = node if option.ahead is None else producers[node.inputs[0]]
            weights = values[convolution.inputs[1]]
            transformed.append(nbytes)
            plain.append(prod(weights.shape) * weights.dtype.itemsize)
    return WinogradWeights(len(transformed), sum(transformed), sum(plain))


def check_weight_limit(plan: Plan, limit: int | None, where: str) -> None:
    """Check a plan that was made before against a limit in bytes; None allows everything.

    Raises:
        PlanError: its transformed weights take more.
    """
    weights = winograd_weights(plan)
    if limit is not None and weights.nbytes > limit:
        raise PlanError(
            describe(
                where,
                expected=f"at most {spelled(limit)} of transformed weights",
                found=str(weights),
                fix="plan again with this weight_memory_limit, or give a higher one",
            )
        )


def granted(nodes: Mapping[str, tuple[Candidate, ...]], limit: int) -> dict[str, int]:
    """Return how many bytes of transformed weights each node may have, ``limit`` in total.

    Bytes go first where one of them saves most time over the node's cheapest other candidate. Nodes
    that are absent may have none.
    """
    wishes: list[tuple[float, str, int]] = []
    for name, group in nodes.items():
        costs: dict[int, float] = {}
        for candidate in group:
            nbytes = candidate.option.transformed_nbytes
            costs[nbytes] = min(costs.get(nbytes, inf), candidate.cost_ns)
        direct = costs.pop(0, inf)
        wishes += [((cost - direct) / nbytes, name, nbytes) for nbytes, cost in costs.items()]
    found: dict[str, int] = {}
    left = limit
    for rate, name, nbytes in sorted(wishes):
        more = nbytes - found.get(name, 0)
        if rate < 0 < more <= left:
            found[name] = nbytes
            left -= more
    return found


def within_weight_limit(
    graph: Graph,
    options: Mapping[str, tuple[KernelOption, ...]],
    nodes: Mapping[str, tuple[Candidate, ...]],
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
