"""Which kernels are worth a measurement: those whose predicted costs may have misled the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import erfc, exp, hypot, pi, sqrt

from stridewise.planner.problem.candidates import Candidate
from stridewise.planning import Plan
from stridewise.targets.kernels import KernelSpec
from stridewise.targets.rates import UNKNOWN

__all__ = ["doubts", "unknown"]

Deviations = Mapping[KernelSpec, float]

_NEGLIGIBLE = 0.0003
"""Expected gain of a measurement, as a part of the time of the plan, that is not worth it."""


def _deviation_ns(costs: Mapping[KernelSpec, float], deviations: Deviations) -> float:
    return hypot(*(cost * deviations.get(spec, 0.0) for spec, cost in costs.items()))


def _gain(difference: float, deviation: float) -> float:
    """Return the mean of max(0, -x) of a normal variable: the expected gain of an alternative.

    Args:
        difference: how much more the alternative should cost: the mean of x.
        deviation: standard deviation of x.
    """
    if deviation <= 0:
        return 0.0
    z = difference / deviation
    density = exp(-0.5 * z * z) / sqrt(2.0 * pi)
    return deviation * (density - z * 0.5 * erfc(z / sqrt(2.0)))


def _kernels(candidates: Sequence[Candidate]) -> dict[KernelSpec, float]:
    """Return the kernels of some candidates and the time that all calls of each take."""
    found: dict[KernelSpec, float] = {}
    for candidate in candidates:
        for call, cost in zip(candidate.option.calls, candidate.costs, strict=True):
            found[call.spec] = found.get(call.spec, 0.0) + cost.cost_ns
    return found


def _alternatives(plans: Sequence[Plan]) -> Iterator[tuple[list[Candidate], list[Candidate]]]:
    """Yield what the cheapest plan runs, and what could run instead.

    These are the kernels of single nodes between the same storages, those of two nodes that one
    kernel may compute, and those of whole plans.
    """
    cheapest = plans[0]
    for decision in cheapest.decisions:
        now = decision.chosen
        ends = _ends(now)
        for other in decision.rejected if _is_alone(now) else ():
            if _is_alone(other) and _ends(other) == ends:
                yield [now], [other]
    yield from _joined_or_apart(cheapest)
    for plan in plans[1:]:
        pairs = zip(cheapest.decisions, plan.decisions, strict=True)
        changed = [(a.chosen, b.chosen) for a, b in pairs if a.chosen.option != b.chosen.option]
        yield [a for a, _ in changed], [b for _, b in changed]


def _is_alone(candidate: Candidate) -> bool:
    """Return whether kernels compute a node, and no other one."""
    return candidate.option.ahead is None and not candidate.option.held


def _ends(*candidates: Candidate) -> tuple[object, object]:
    """Return what the first of some candidates in a row reads, and what the last one makes."""
    first, last = candidates[0].option, candidates[-1].option
    return (first.ahead or first).needs, last.makes


def _joined_or_apart(plan: Plan) -> Iterator[tuple[list[Candidate], list[Candidate]]]:
    """Yield the kernels of two nodes, and what one kernel of both takes, or the other way round."""
    makers = {name: node.name for node in plan.graph.nodes for name in node.outputs}
    decided = {decision.node: decision for decision in plan.decisions}
    for node in plan.graph.nodes:
        maker = makers.get(node.inputs[0], "") if node.inputs else ""
        if maker not in decided or node.name not in decided:
            continue
        first, second = decided[maker], decided[node.name]
        ways = (second.chosen, *second.rejected)
        joined = [way for way in ways if way.option.ahead is not None]
        if not joined:
            continue
        apart = (
            [one, two]
            for one in (first.chosen, *first.rejected)
            for two in ways
            if _is_alone(one) and _is_alone(two) and one.option.makes[0] == two.option.needs[0]
        )
        is_joined = second.chosen.option.ahead is not None
        now = [second.chosen] if is_joined else [first.chosen, second.chosen]
        others = [[way] for way in joined if way is not second.chosen]
        others += apart if is_joined else ()
        yield from ((now, other) for other in others if _ends(*other) == _ends(*now))


def unknown(plan: Plan, deviations: Deviations) -> list[KernelSpec]:
    """Return kernels of a plan of whose kind no sample exists, the one that takes longest first.

    Their costs may be wrong by any factor, and so may the library's first choice of an
    implementation.
    """
    times = _kernels([decision.chosen for decision in plan.decisions])
    found = (spec for spec in times if deviations.get(spec, 0.0) >= UNKNOWN.deviation)
    return sorted(found, key=lambda spec: -times[spec])


def doubts(plans: Sequence[Plan], deviations: Deviations) -> list[KernelSpec]:
    """Return the kernels to measure, the one with the largest expected gain first.

    Args:
        plans: the cheapest plan, then the uniform ones.
        deviations: standard deviation of the logarithm of each predicted cost.
    """
    gains: dict[KernelSpec, float] = {}
    for now, instead in _alternatives(plans):
        costs = (_kernels(now), _kernels(instead))
        spreads = [_deviation_ns(found, deviations) for found in costs]
        difference = sum(c.cost_ns for c in instead) - sum(c.cost_ns for c in now)
        gain = _gain(difference, hypot(*spreads))
        for spec, cost in ((spec, cost) for found in costs for spec, cost in found.items()):
            share = (cost * deviations.get(spec, 0.0)) ** 2 / (hypot(*spreads) ** 2 or 1.0)
            gains[spec] = gains.get(spec, 0.0) + gain * share
    least = _NEGLIGIBLE * plans[0].cost_ns
    return sorted((s for s, gain in gains.items() if gain > least), key=lambda s: -gains[s])
