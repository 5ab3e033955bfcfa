"""Plans for other shapes of a model that was planned before: they decide alike where they can.

What was measured for one shape then serves the others, nothing is timed again, and constants are
packed alike, so that the programs can share them. Formats have no extents, so that an option for
one shape can be found again among those for another.
"""

from __future__ import annotations

from collections.abc import Iterator

from stridewise.errors import PlanError
from stridewise.planner.plan import Decision, PlanData
from stridewise.planner.questions.restrict import P, restricted
from stridewise.targets.kernels import KernelOption, KernelSpec

__all__ = ["follow", "likeness"]


def _choice(option: KernelOption) -> tuple[object, ...]:
    """Return what options for several shapes have in common."""
    kinds = tuple(call.spec.kind for call in option.calls)
    aliases = tuple((alias.input, alias.output, alias.kind) for alias in option.aliases)
    return option.algorithm, option.needs, option.makes, kinds, aliases


def _followed(plan: PlanData, leader: PlanData) -> Iterator[tuple[str, tuple[int, ...]]]:
    decided: dict[str, Decision] = {item.node: item for item in leader.decisions}
    ops = {node.name: node.op for node in leader.graph.nodes}
    for node in plan.graph.nodes:
        if ops.get(node.name) != node.op:
            continue
        wanted = _choice(decided[node.name].chosen.option)
        candidates = plan.candidates.nodes[node.name]
        kept = tuple(i for i, item in enumerate(candidates) if _choice(item.option) == wanted)
        if kept:
            yield node.name, kept


def follow(plan: P, leader: PlanData) -> P:
    """Return a plan that decides as another one did, for the same model and other shapes.

    Nodes are matched by name. Those that the other plan does not have, or whose choice does not
    exist here, are decided as is cheapest around the others.

    Args:
        plan: a plan for these shapes, for what there is to choose from.
        leader: the plan to follow.

    Returns:
        The plan; ``plan`` itself where no combination of kernels follows the other.
    """
    try:
        return restricted(plan, "follows", dict(_followed(plan, leader)))
    except PlanError:
        return plan


def likeness(spec: KernelSpec) -> tuple[object, ...]:
    """Return what kernels for several shapes of one node have in common: all but extents.

    The dimensions of weights, which depend on no shape of an input, count.
    """
    memories = tuple(
        (role, memory.tag, memory.dtype, memory.dims if role in ("weights", "bias") else ())
        for role, memory in spec.memories
    )
    return spec.kind, memories, spec.params, tuple(post.kind for post in spec.post_ops)
