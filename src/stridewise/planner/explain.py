"""A plan as text and as JSON: what was decided, what it costs, what else there was."""

from __future__ import annotations

import json

from stridewise.planner.plan import Decision, Plan

__all__ = ["explain", "to_json"]

_MICRO = 1e3


def _formats(plan: Plan, decision: Decision) -> str:
    option = decision.chosen.option
    sources = {plan.target.spell(fmt) for fmt in option.inputs if fmt is not None}
    results = {plan.target.spell(fmt) for fmt in option.outputs}
    if sources == results or not sources:
        return ", ".join(sorted(results))
    return f"{', '.join(sorted(sources))} -> {', '.join(sorted(results))}"


def _reorders(plan: Plan, number: int) -> str:
    """Return a number of reorders by the target's word for them, a name of its own or not."""
    noun = plan.target.reorder
    return f"{number} {noun}s" if noun == "reorder" and number != 1 else f"{number} {noun}"


def _node_lines(plan: Plan) -> list[str]:
    lines: list[str] = []
    for node, decision in zip(plan.graph.nodes, plan.decisions, strict=True):
        chosen = decision.chosen
        post = "".join(f"+{post.op}" for post in node.post_ops)
        sources = ", ".join(dict.fromkeys(cost.source for cost in chosen.costs)) or "free"
        lines.append(
            f"{chosen.cost_ns / _MICRO:9.1f} us  {node.op + post:<28} "
            f"{_formats(plan, decision):<18} {chosen.algorithm} "
            f"[{chosen.implementation}; {sources}]  {node.name}"
        )
    return lines


def _reorder_lines(plan: Plan) -> list[str]:
    noun, spell = plan.target.reorder, plan.target.spell
    return [
        f"{r.cost_ns / _MICRO:9.1f} us  {noun} {r.tensor}: {spell(r.source)} -> "
        f"{spell(r.target)}, {r.nbytes} bytes [{r.implementation or 'library choice'}]"
        for r in plan.reorders
    ]


def explain(plan: Plan) -> str:
    """Return the plan as text for people."""
    proof = "proved optimal" if plan.gap < 1e-9 else f"within {plan.gap:.2%} of the optimum"
    lines = [
        f"plan of {plan.graph.name!r} for {plan.target.name} ({plan.machine})",
        *_node_lines(plan),
        f"{_reorders(plan, len(plan.reorders))} left:",
        *_reorder_lines(plan),
        f"total {plan.cost_ns / 1e6:.3f} ms, lower bound {plan.lower_bound_ns / 1e6:.3f} ms: "
        f"{proof} for these candidates and costs",
    ]
    for other in plan.compare():
        ratio = other.cost_ns / plan.cost_ns if plan.cost_ns else 1.0
        measured = "" if other.measured_ns is None else f", {other.measured_ns / 1e6:.3f} ms run"
        used = ", used" if other.name == plan.name else ""
        lines.append(
            f"  {other.name:<24} {other.cost_ns / 1e6:9.3f} ms  {ratio:5.2f} x  "
            f"{_reorders(plan, other.reorders)} of {other.nbytes} bytes{measured}{used}"
        )
    lines += [f"conflict: {conflict}" for conflict in plan.derived.conflicts]
    return "\n".join(lines) + "\n"


def to_json(plan: Plan) -> str:
    """Return the plan as JSON; ``docs/plan-json.md`` describes the fields."""
    nodes = [
        {
            "name": node.name,
            "op": node.op,
            "post_ops": [post.op for post in node.post_ops],
            "inputs": list(node.inputs),
            "outputs": list(node.outputs),
            "input_formats": [None if f is None else str(f) for f in d.chosen.option.inputs],
            "output_formats": [str(f) for f in d.chosen.option.outputs],
            "algorithm": d.chosen.algorithm,
            "implementations": [cost.implementation for cost in d.chosen.costs],
            "cost_ns": d.chosen.cost_ns,
            "cost_sources": [cost.source for cost in d.chosen.costs],
            "rejected": [{"algorithm": c.algorithm, "cost_ns": c.cost_ns} for c in d.rejected],
        }
        for node, d in zip(plan.graph.nodes, plan.decisions, strict=True)
    ]
    reorders = [
        {
            "tensor": r.tensor,
            "from": str(r.source),
            "to": str(r.target),
            "nbytes": r.nbytes,
            "cost_ns": r.cost_ns,
            "implementation": r.implementation,
        }
        for r in plan.reorders
    ]
    document = {
        "version": 1,
        "graph": plan.graph.name,
        "plan": plan.name,
        "target": plan.target.name,
        "machine": str(plan.machine),
        "cost_ns": plan.cost_ns,
        "lower_bound_ns": plan.lower_bound_ns,
        "nodes": nodes,
        "reorders": reorders,
        "comparisons": [
            {
                "name": item.name,
                "cost_ns": item.cost_ns,
                "reorders": item.reorders,
                "nbytes": item.nbytes,
                "measured_ns": item.measured_ns,
            }
            for item in plan.compare()
        ],
        "refusals": [
            {"rule": r.rule, "subject": r.subject, "reason": r.reason} for r in plan.refusals
        ],
        "conflicts": [str(conflict) for conflict in plan.derived.conflicts],
    }
    return json.dumps(document, indent=2)
