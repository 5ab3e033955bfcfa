"""The memory of transformed weights of Winograd convolutions in a plan."""

from __future__ import annotations

from math import prod

from stridewise.classes import dataclass
from stridewise.errors import PlanError
from stridewise.ops.demand import spelled
from stridewise.planner.plan import PlanData

__all__ = ["WinogradWeights", "check_weight_limit", "winograd_weights"]


@dataclass(frozen=True, slots=True)
class WinogradWeights:
    """The weights that the Winograd kernels of a plan read, summed over nodes.

    Attributes:
        nodes: number of nodes with a Winograd kernel.
        nbytes: bytes of the transformed weights.
        plain_nbytes: bytes of the same weights in the model.
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


def winograd_weights(plan: PlanData) -> WinogradWeights:
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


def check_weight_limit(plan: PlanData, limit: int | None, where: str) -> None:
    """Check the transformed weights of an existing plan against a limit.

    Args:
        plan: the plan.
        limit: limit in bytes; None for no limit.
        where: the object that messages name.

    Raises:
        PlanError: the transformed weights exceed the limit.
    """
    weights = winograd_weights(plan)
    if limit is not None and weights.nbytes > limit:
        raise PlanError.at(
            where,
            expected=f"at most {spelled(limit)} of transformed weights",
            found=str(weights),
            fix="plan again with this weight_memory_limit, or give a higher one",
        )
