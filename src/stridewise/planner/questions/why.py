"""Reasons for the choice of a node: all alternatives with the cost of the whole plan."""

from __future__ import annotations

from dataclasses import field
from math import inf, isinf, sqrt

from stridewise.classes import dataclass
from stridewise.errors import PlanError
from stridewise.graph import Node, Refusal
from stridewise.planner.plan import PlanData
from stridewise.planner.problem.candidates import Candidate
from stridewise.planner.questions.lookup import find_node, unknown
from stridewise.planner.questions.restrict import allowed
from stridewise.tensor import Spell

__all__ = ["Alternative", "Why", "difference", "duration", "find_refusals", "formats_of", "why"]

_NOISE = 1e-9
"""Relative differences of sums below this value are rounding errors."""

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))


def difference(after: float, before: float) -> float:
    """Return ``after - before``, or exactly 0 if they differ only by rounding."""
    more = after - before
    return 0.0 if abs(more) <= _NOISE * max(abs(after), abs(before)) else more


def duration(ns: float, *, like: float | None = None) -> str:
    """Format nanoseconds as text, in the unit that fits ``like``.

    >>> duration(310_000.0), duration(50_000.0, like=310_000.0), duration(7e6)
    ('310.0 us', '50.0 us', '7.000 ms')
    """
    size = abs(ns if like is None else like)
    scale, unit = next(((scale, unit) for scale, unit in _UNITS if size >= scale), (1.0, "ns"))
    return f"{ns / scale:.{3 if unit in ('s', 'ms') else 1}f} {unit}"


def formats_of(candidate: Candidate, spell: Spell = str) -> str:
    """Return the storages that a candidate takes and gives, once where they are the same."""
    option = candidate.option
    sources = {s.spelled(spell, brief=True) for s in option.needs if s is not None}
    results = {s.spelled(spell, brief=True) for s in option.makes}
    if sources == results or not sources:
        return ", ".join(sorted(results))
    return f"{', '.join(sorted(sources))} -> {', '.join(sorted(results))}"


@dataclass(frozen=True, slots=True)
class Alternative:
    """A candidate of a node that was not chosen.

    Attributes:
        candidate: the candidate.
        node_delta_ns: extra time of the node alone, in nanoseconds; may be negative.
        total_delta_ns: extra time of the cheapest plan with this candidate, in nanoseconds; ``inf``
            if there is no such plan.
        error: predicted relative error of the outputs that it causes; None without error budget.
        spell: returns the target's name of a format.
    """

    candidate: Candidate
    node_delta_ns: float
    total_delta_ns: float
    error: float | None = None
    spell: Spell = field(default=str, compare=False, repr=False)

    def __str__(self) -> str:
        total = self.total_delta_ns
        more = "impossible" if isinf(total) else f"+{duration(total)}".replace("+-", "-")
        alone = f"+{duration(self.node_delta_ns)}".replace("+-", "-")
        return (
            f"{more:>12}  {self.candidate.algorithm} [{self.candidate.implementation}], "
            f"{formats_of(self.candidate, self.spell)}; the node alone {alone}{_error(self.error)}"
        )


def _error(error: float | None) -> str:
    return "" if error is None else f", error {error:.1e}"


@dataclass(frozen=True, slots=True)
class Why:
    """Reasons for the choice of a node.

    Attributes:
        node: the node.
        chosen: the chosen candidate.
        total_ns: cost of the whole plan in nanoseconds.
        alternatives: the other candidates, by increasing cost of the whole plan.
        refusals: refused kernels and formats of the node and its results.
        error: predicted relative error of the outputs that the node causes; None without an error
            budget. Plans that exceed the budget are impossible.
        spell: returns the target's name of a format.
    """

    node: str
    chosen: Candidate
    total_ns: float
    alternatives: tuple[Alternative, ...]
    refusals: tuple[Refusal, ...]
    error: float | None = None
    spell: Spell = field(default=str, compare=False, repr=False)

    def __str__(self) -> str:
        lines = [
            f"{self.node}: {self.chosen.algorithm} [{self.chosen.implementation}], "
            f"{formats_of(self.chosen, self.spell)}: {duration(self.chosen.cost_ns)} "
            f"of the plan's {duration(self.total_ns)}{_error(self.error)}"
        ]
        if self.alternatives:
            lines.append("otherwise the whole plan would cost more:")
            lines += [f"  {other}" for other in self.alternatives]
        else:
            lines.append("there is no other way to compute it")
        if self.refusals:
            lines.append("not offered:")
            lines += [f"  {refusal}" for refusal in self.refusals]
        return "\n".join(lines) + "\n"


def find_refusals(plan: PlanData, subject: str) -> tuple[Refusal, ...]:
    """Return the refusals of a node or tensor, including conflicts about its axes.

    Raises:
        PlanError: no node or tensor has that name.
    """
    every = (*plan.refusals, *plan.derived.conflicts)
    found = tuple(refusal for refusal in every if refusal.subject == subject)
    names = [node.name for node in plan.graph.nodes]
    known = dict.fromkeys((*names, *plan.graph.values, *(refusal.subject for refusal in every)))
    if subject not in known:
        where = f"plan of {plan.graph.name!r}"
        raise unknown(where, "the name of a node or tensor", subject, known)
    return found


def _total_delta_ns(plan: PlanData, node: str, index: int) -> float:
    only = allowed(plan)
    if index not in only.get(node, (index,)):
        return inf
    try:
        found = plan.terms.solve({**only, node: (index,)})
    except PlanError:
        return inf
    return difference(found.cost, plan.cost_ns)


def _error_of(plan: PlanData, node: Node, candidate: Candidate) -> float | None:
    budget = plan.terms.budget
    return None if budget is None else sqrt(budget.of_option(node, candidate.option))


def why(plan: PlanData, name: str) -> Why:
    """Return all candidates of a node, each with the extra cost of the whole plan.

    Raises:
        PlanError: no node has that name. The message lists similar names.
    """
    position = find_node(plan, name)
    node, chosen = plan.graph.nodes[position], plan.decisions[position].chosen
    alternatives = [
        Alternative(
            candidate,
            difference(candidate.cost_ns, chosen.cost_ns),
            _total_delta_ns(plan, name, index),
            _error_of(plan, node, candidate),
            plan.target.spell,
        )
        for index, candidate in enumerate(plan.candidates.nodes[name])
        if candidate is not chosen
    ]
    alternatives.sort(key=lambda other: (other.total_delta_ns, other.node_delta_ns))
    subjects = dict.fromkeys((name, *node.outputs))
    refusals = tuple(item for subject in subjects for item in find_refusals(plan, subject))
    others = tuple(alternatives)
    error = _error_of(plan, node, chosen)
    return Why(name, chosen, plan.cost_ns, others, refusals, error, plan.target.spell)
