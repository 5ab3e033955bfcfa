"""Checks of expectations about a plan, for the tests of users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from types import MappingProxyType

from stridewise.classes import dataclass
from stridewise.errors import PlanAssertionError, PlanError, describe
from stridewise.formats import Format
from stridewise.ops.capability import graph_capability
from stridewise.planner.plan import PlanData
from stridewise.planner.questions.lookup import find_format, find_tensor
from stridewise.planner.questions.moves import find_moves
from stridewise.planner.questions.why import duration

__all__ = ["Expectations", "check"]

_ROUNDING = 1e-9
"""Gaps below this value are rounding errors of a sum of costs."""


def _no_formats() -> Mapping[str, str | Format]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Expectations:
    """Expectations about a plan; None disables a check.

    Attributes:
        max_reorders: largest number of reorders.
        max_moved_nbytes: largest number of bytes written by steps that only move bytes.
        no_fallback: whether no node or reorder may run oneDNN's reference loops and no part may run
            in another runtime.
        formats: expected formats of tensors (or of the outputs of nodes), by name in any notation.
        max_gap: largest proved distance from the optimum, relative to the cost.
        max_cost_ns: largest predicted time of one run, in nanoseconds.
    """

    max_reorders: int | None = None
    max_moved_nbytes: int | None = None
    no_fallback: bool | None = None
    formats: Mapping[str, str | Format] = field(default_factory=_no_formats)
    max_gap: float | None = 0.0
    max_cost_ns: float | None = None


def _few_reorders(plan: PlanData, most: int) -> Iterator[str]:
    if len(plan.reorders) > most:
        names = ", ".join(f"{r.tensor} ({r.source} -> {r.target})" for r in plan.reorders)
        yield describe(
            "reorders", expected=f"at most {most}", found=f"{len(plan.reorders)}: {names}"
        )


def _few_bytes(plan: PlanData, most: int) -> Iterator[str]:
    moves = find_moves(plan)
    total = sum(move.nbytes for move in moves)
    if total > most:
        largest = sorted(moves, key=lambda move: -move.nbytes)
        names = ", ".join(f"{m.kind} {m.node_or_tensor} ({m.nbytes})" for m in largest)
        yield describe("bytes moved", expected=f"at most {most}", found=f"{total}: {names}")


def _no_fallback(plan: PlanData) -> Iterator[str]:
    for segment in graph_capability(plan.graph).segments:
        if segment.support != "native":
            yield describe("partitions", expected="one, native", found=str(segment))
    for decision in plan.decisions:
        if any(cost.is_reference for cost in decision.chosen.costs):
            yield describe(
                f"node {decision.node!r}",
                expected="an optimized kernel",
                found=decision.chosen.implementation,
            )
    for reorder in plan.reorders:
        if reorder.implementation.startswith("ref"):
            yield describe(
                f"reorder of {reorder.tensor!r}",
                expected="an optimized kernel",
                found=reorder.implementation,
            )


def _formats(plan: PlanData, wanted: Mapping[str, str | Format]) -> Iterator[str]:
    for name, spelled in wanted.items():
        try:
            tensor = find_tensor(plan, name)
            key, offer = find_format(plan, tensor, spelled)
        except PlanError as error:
            yield str(error)
            continue
        made = plan.made(tensor)
        if plan.storages.key(tensor, made) != key:
            expected, found = (s.spelled(plan.target.spell) for s in (offer.storage, made))
            yield describe(f"tensor {tensor!r}", expected=expected, found=found)


def _violations(plan: PlanData, wanted: Expectations) -> Iterator[str]:
    if wanted.max_reorders is not None:
        yield from _few_reorders(plan, wanted.max_reorders)
    if wanted.max_moved_nbytes is not None:
        yield from _few_bytes(plan, wanted.max_moved_nbytes)
    if wanted.no_fallback:
        yield from _no_fallback(plan)
    yield from _formats(plan, wanted.formats)
    if wanted.max_gap is not None and plan.gap > wanted.max_gap + _ROUNDING:
        yield describe("gap", expected=f"at most {wanted.max_gap:.2%}", found=f"{plan.gap:.2%}")
    if wanted.max_cost_ns is not None and plan.cost_ns > wanted.max_cost_ns:
        limit = duration(wanted.max_cost_ns)
        yield describe("cost", expected=f"at most {limit}", found=duration(plan.cost_ns))


def check(plan: PlanData, wanted: Expectations) -> None:
    """Check a plan against expectations.

    Raises:
        PlanAssertionError: an expectation is not met. The message has one line for each of them.
    """
    found = list(_violations(plan, wanted))
    if found:
        head = f"plan of {plan.graph.name!r}: {len(found)} unmet expectation"
        lines = [f"{head}{'' if len(found) == 1 else 's'}", *(f"  {line}" for line in found)]
        raise PlanAssertionError("\n".join(lines))
