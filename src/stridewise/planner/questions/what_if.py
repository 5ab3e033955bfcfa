"""Costs of other formats: plans with pinned formats, and the regret of every tensor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from math import fsum, inf, isinf

from stridewise.classes import dataclass
from stridewise.errors import PlanError
from stridewise.planner.plan import Pin, PlanData
from stridewise.planner.problem.formulation import FREE
from stridewise.planner.questions.lookup import (
    Offer,
    StorageName,
    find_format,
    find_tensor,
    of_element,
    offers,
)
from stridewise.planner.questions.restrict import P, allowed, narrowed, under
from stridewise.planner.questions.why import difference, duration
from stridewise.tensor import Spell, Storage

__all__ = ["Regret", "regrets", "what_if"]


@dataclass(frozen=True, slots=True)
class Regret:
    """The extra cost of a tensor in another format, with the whole plan adapted to it.

    Attributes:
        tensor: the tensor.
        storage: how else it could be stored.
        total_ns: how much longer the cheapest such plan takes; ``inf`` where there is none.
        kernel_ns: how much of it is kernels; negative where they are faster.
        reorder_ns: how much of it is reorders; negative where there are fewer.
        spell: returns the target's name of a format.
    """

    tensor: str
    storage: Storage
    total_ns: float
    kernel_ns: float
    reorder_ns: float
    spell: Spell = field(default=str, compare=False, repr=False)

    def __str__(self) -> str:
        name = self.storage.spelled(self.spell)
        if isinf(self.total_ns):
            return f"{self.tensor}: {name} here is impossible"
        size = max(map(abs, (self.total_ns, self.kernel_ns, self.reorder_ns)))
        total = duration(self.total_ns, like=size)
        parts = (duration(part, like=size) for part in (self.kernel_ns, self.reorder_ns))
        kernel, reorder = (part.partition(" ")[0] for part in parts)
        sign = "" if self.total_ns < 0 else "+"
        return (
            f"{self.tensor}: {name} here would cost {sign}{total}: "
            f"{kernel} kernel, {reorder} reorder"
        )


def what_if(plan: P, wanted: Mapping[str, StorageName]) -> P:
    """Return the cheapest plan with some formats given; see :meth:`stridewise.Plan.what_if`.

    Pins of earlier calls remain, unless a tensor is named again.

    Raises:
        PlanError: as for that method.
    """
    pins = {pin.tensor: pin for pin in plan.pins}
    for name, spelled in wanted.items():
        tensor = find_tensor(plan, name)
        typed = of_element(plan, tensor, spelled)
        offer = _cheapest(plan, pins, tensor, typed) if typed else None
        offer = offer or find_format(plan, tensor, spelled)[1]
        pins[tensor] = Pin(tensor, offer.storage, offer.spell)
    try:
        return under(plan, tuple(pins.values()))
    except PlanError as error:
        choices = "; ".join(
            f"{tensor}: {', '.join(map(str, offers(plan, tensor).values()))}" for tensor in pins
        )
        raise PlanError.at(
            f"what if {', '.join(map(str, pins.values()))}",
            expected=f"formats that go together (on offer for {choices})",
            found="no combination of kernels",
            fix="give fewer tensors",
        ) from error


def _cheapest(
    plan: PlanData, pins: Mapping[str, Pin], tensor: str, group: Iterable[Offer]
) -> Offer | None:
    """Return the offer of the cheapest plan beside some pins; None if no plan has one."""
    found: dict[Offer, float] = {}
    for offer in group:
        kept = (*pins.values(), Pin(tensor, offer.storage, offer.spell))
        with suppress(PlanError):
            found[offer] = plan.terms.solve(narrowed(plan, FREE, kept)).cost
    return min(found, key=lambda offer: found[offer], default=None)


def _regret(plan: PlanData, tensor: str, offer: Offer) -> Regret:
    only = narrowed(plan, allowed(plan), (Pin(tensor, offer.storage),))
    try:
        found = plan.terms.solve(only)
    except PlanError:
        return Regret(tensor, offer.storage, inf, inf, 0.0, offer.spell)
    chosen = plan.terms.chosen(found).values()
    reorders = plan.candidates.reorders
    kernel = difference(
        fsum(candidate.cost_ns for candidate in chosen),
        fsum(decision.chosen.cost_ns for decision in plan.decisions),
    )
    reorder = difference(
        fsum(reorders[key].cost_ns for key in found.reorders),
        fsum(reorder.cost_ns for reorder in plan.reorders),
    )
    total = difference(kernel, -reorder)
    return Regret(tensor, offer.storage, total, kernel, reorder, offer.spell)


def _produced(plan: PlanData) -> list[str]:
    return [name for node in plan.graph.nodes for name in node.outputs if name]


def _largest(plan: PlanData, tensors: list[str], limit: int) -> list[str]:
    """Return the largest tensors, in their order, because their formats matter most."""
    ranked = sorted(tensors, key=lambda name: -plan.storage(name).nbytes)
    kept = set(ranked[:limit])
    return [name for name in tensors if name in kept]


def regrets(
    plan: PlanData, tensors: Iterable[str] | None = None, limit: int | None = None
) -> tuple[Regret, ...]:
    """Return the extra cost of every other format; see :meth:`stridewise.Plan.regrets`.

    Results are in the order of the tensors; for one tensor, the cheapest comes first. Pinned
    tensors have no other format and are omitted.

    Args:
        plan: the plan.
        tensors: the tensors; by default all.
        limit: largest number of tensors, by size; by default no limit.

    Raises:
        PlanError: a tensor is unknown, or the limit is below 0.
    """
    if limit is not None and limit < 0:
        raise PlanError.at("limit", expected="0 or more tensors", found=str(limit))
    names = _produced(plan) if tensors is None else [find_tensor(plan, name) for name in tensors]
    names = list(dict.fromkeys(names))
    if limit is not None:
        names = _largest(plan, names, limit)
    pinned = {pin.tensor for pin in plan.pins}
    found: list[Regret] = []
    for name in names:
        if name in pinned:
            continue
        own = plan.storages.key(name, plan.made(name))
        others = [_regret(plan, name, o) for key, o in offers(plan, name).items() if key != own]
        found += sorted(others, key=lambda regret: regret.total_ns)
    return tuple(found)
