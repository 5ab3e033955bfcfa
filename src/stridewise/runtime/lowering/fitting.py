"""Plans of training steps within a limit of memory: what is kept, and what is computed again.

A step keeps values of its forward part for its backward part. Where the memory is most, the plan is
divided in two, and values that pass from one part to the other are computed again instead
(``planner/recompute/``). The memory may then be most elsewhere, and the plan is divided there. All
kernels and formats stay those of the plan without a limit, so results have the same bits.

Candidates are tried in an order that does not depend on the limit. So each point of the front is
what its number of bytes as the limit gives.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from stridewise.errors import MemoryLimitError
from stridewise.ops.demand import spelled
from stridewise.planner.plan import Point
from stridewise.planner.recompute.repeat import repeated
from stridewise.planner.recompute.saving import Passage
from stridewise.planning import Plan
from stridewise.runtime.binding.kernels import Kernels
from stridewise.runtime.binding.program import program_nbytes
from stridewise.runtime.lowering.arena import Life, lower_bound
from stridewise.runtime.lowering.lower import Tenants, lower
from stridewise.runtime.lowering.schedule import Schedule, make_schedule

__all__ = ["fitted", "front"]

_ROUNDS = 5
_CHOICES = 12
"""How many choices are tried where a plan is divided."""
_PROGRESS = 0.98
"""Part of the memory that a round must fall below, to go on from the plan of least memory."""
_DETOUR = 1.05
"""How much more memory a plan may need that is divided elsewhere, to go on from it."""


def _peak(plan: Plan, schedule: Schedule, lives: tuple[Life, ...]) -> int:
    """Return the position of the node that runs when most memory of the arena is needed."""
    changes: dict[int, int] = {}
    for life in lives:
        changes[life.first] = changes.get(life.first, 0) + life.nbytes
        changes[life.last + 1] = changes.get(life.last + 1, 0) - life.nbytes
    level, highest, peak = 0, 0, 0
    for step in sorted(changes):
        level += changes[step]
        if level > highest:
            highest, peak = level, step
    positions = plan.terms.positions
    behind = (action.node for action in schedule.actions[peak:])
    return next((positions[name] for name in behind if name in positions), len(positions) - 1)


class _Try:
    """A plan, and how much memory it needs.

    Attributes:
        plan: the plan.
        least: bytes of the arena that no arrangement of its tensors is below.
        split: position of the node that runs when most memory is needed.
    """

    def __init__(self, plan: Plan, kernels: Kernels) -> None:
        self.plan = plan
        schedule = make_schedule(plan)
        lives = Tenants.of(schedule, kernels).lives
        self.least = lower_bound(lives)
        self.split = _peak(plan, schedule, lives)


def _tries(base: _Try, kernels: Kernels) -> Iterator[_Try]:
    """Yield plans that compute more and more again, from the given one on."""
    best = base
    yield best
    for _ in range(_ROUNDS):
        plan, least, places = best.plan, best.least, {best.split}
        passage, others = Passage(plan, best.split), list[_Try]()
        for kept in passage.hull(_CHOICES)[1:]:
            found = _Try(repeated(plan, passage.split, kept.again), kernels)
            yield found
            if found.least < best.least:
                best = found
            if found.split not in places:
                others.append(found)
        if best.least > _PROGRESS * least:
            # Another place may need nearly as much, and once it is divided less is needed there.
            best = min(others, key=lambda item: item.least, default=best)
            if not others or best.least > _DETOUR * least:
                return


def _records(base: _Try, kernels: Kernels) -> Iterator[tuple[Plan, Point, int]]:
    """Yield plans that need less memory than all before them, what they need, and their arena."""
    fixed, least = 0, float("inf")
    for found in _tries(base, kernels):
        if fixed + found.least >= least:
            continue
        program = lower(found.plan, kernels)
        total, repeats = program_nbytes(found.plan.graph, program, kernels), len(found.plan.repeats)
        fixed = total - program.arena_nbytes
        if total < least:
            least = total
            yield found.plan, Point(total, found.plan.cost_ns, repeats), program.arena_nbytes


def front(plan: Plan, kernels: Kernels) -> tuple[Point, ...]:
    """Return time against memory of a plan, the least memory first.

    No point is beaten by another one in both. A limit of the bytes of a point gives its plan.

    Args:
        plan: the plan without a limit.
        kernels: what is known of its kernels.
    """
    found: list[Point] = []
    for _, point, _ in reversed(list(_records(_Try(plan, kernels), kernels))):
        if not found or point.cost_ns < found[-1].cost_ns:
            found.append(point)
    return tuple(found)


def fitted(plan: Plan, kernels: Kernels, limit: int) -> Plan:
    """Return a plan that needs no more memory than a limit: the given one, if it does not.

    The lower bound of its time is that of the given plan, and what computing again takes at least
    while the node runs that divides it, with the cheapest kernels and the smallest formats.

    Args:
        plan: the plan without a limit.
        kernels: what is known of its kernels.
        limit: of bytes, see :func:`program_nbytes`.

    Raises:
        MemoryLimitError: no plan was found; the message has the least memory of those tried.
    """
    base, least, whole = _Try(plan, kernels), limit, 0
    for found, point, arena in _records(base, kernels):
        whole, least = whole or point.nbytes, point.nbytes
        if point.nbytes > limit:
            continue
        if not point.repeats:
            return found
        bound = Passage(plan, base.split, every=True).bound(limit - (point.nbytes - arena))
        note = (
            f"{point.repeats} nodes run again: {spelled(point.nbytes)} instead of "
            f"{spelled(whole)}, {found.cost_ns / plan.cost_ns - 1:+.1%} of predicted time"
        )
        lower_bound_ns = min(plan.lower_bound_ns + bound, found.cost_ns)
        return dataclasses.replace(found, lower_bound_ns=lower_bound_ns, notes=(*plan.notes, note))
    raise MemoryLimitError.at(
        f"plan of {plan.graph.name!r}",
        expected=f"at most {limit} bytes ({spelled(limit)}) of memory",
        found=f"at least {least} ({spelled(least)}), with values computed again",
        fix=f"give a smaller batch, or a memory_limit of {least} or more",
    )
