"""Plans for other shapes of a model, with the decisions of a plan that was made before.

Measurements for one shape are reused for others, and constants are packed in the same formats, so
that the programs can share them. Formats have no extents, so an option for one shape can be found
among the options for another.
"""

from __future__ import annotations

from collections.abc import Iterator

from stridewise.errors import PlanError
from stridewise.planner.plan import Decision, PlanData
from stridewise.planner.questions.restrict import P, restricted
from stridewise.targets.kernels import KernelOption, KernelSpec

__all__ = ["follow", "likeness"]


def _choice(option: KernelOption) -> tuple[object, ...]:
    """Return the part of an option that does not depend on the shape."""
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
    """Return a plan with the decisions of another plan for the same model and other shapes.

    Nodes are matched by name. Nodes that the other plan does not have, or whose choice does not
    exist for this shape, get the candidates with the least total cost.

    Args:
        plan: a plan for these shapes, which provides the candidates.
        leader: the plan whose decisions are used.

    Returns:
        The new plan; ``plan`` if no combination of kernels has these decisions.
    """
    try:
        return restricted(plan, "follows", dict(_followed(plan, leader)))
    except PlanError:
        return plan


def likeness(spec: KernelSpec) -> tuple[object, ...]:
    """Return the part of a kernel of a node that does not depend on extents.

    It includes the dimensions of weights, which do not depend on the shapes of inputs.
    """
    memories = tuple(
        (role, memory.tag, memory.dtype, memory.dims if role in ("weights", "bias") else ())
        for role, memory in spec.memories
    )
    return spec.kind, memories, spec.params, tuple(post.kind for post in spec.post_ops)
