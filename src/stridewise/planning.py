"""The public plan: plain data with methods, and how it is made.

Each method of :class:`Plan` is a function of :mod:`stridewise.planner`, or of the report.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import starmap

from stridewise.errors import PlanError
from stridewise.graph import Graph, Refusal
from stridewise.planner.choice import comparison, decisions, of_kind, of_own_types, reorders
from stridewise.planner.derivation.provenance import Derived
from stridewise.planner.documents import files
from stridewise.planner.documents.diff import PlanDiff, diff
from stridewise.planner.documents.document import PlanRecord
from stridewise.planner.documents.dot import to_dot
from stridewise.planner.documents.listing import listing
from stridewise.planner.documents.text import explain
from stridewise.planner.later import Later
from stridewise.planner.plan import Comparison, Pin, PlanData, Point
from stridewise.planner.problem.alone import each_for_itself
from stridewise.planner.problem.candidates import Offers, enumerate_candidates
from stridewise.planner.problem.error_budget import ErrorBudget
from stridewise.planner.problem.formulation import Only, Terms
from stridewise.planner.problem.io_formats import Boundary, boundary
from stridewise.planner.questions.errors import find_contributions, find_predicted_error
from stridewise.planner.questions.lookup import StorageName
from stridewise.planner.questions.moves import Move, find_moves, find_views
from stridewise.planner.questions.partitions import Partition, find_partitions
from stridewise.planner.questions.restrict import restricted, under, uniform
from stridewise.planner.questions.savings import Saving, find_savings
from stridewise.planner.questions.what_if import Regret, regrets, what_if
from stridewise.planner.questions.why import Why, find_refusals, why
from stridewise.planner.questions.winograd_weights import WinogradWeights, winograd_weights
from stridewise.planner.solver.solve import Solution
from stridewise.targets.cost import KernelOracle, Progress
from stridewise.targets.machine import Machine
from stridewise.targets.target import Target

__all__ = ["Plan", "make_plan", "make_plans"]

_CLOSING_S = 10.0
"""Seconds for the gap that an error budget may leave; plans state what remains of it."""


class Plan(PlanData):
    """All decisions about the storage and the kernels of a graph.

    Attributes:
        name: ``"planned"`` for the cheapest plan, the name of a uniform plan, or the formats that
            the caller fixed.
        graph: the derived graph.
        target: what it was planned for.
        machine: what the costs hold for.
        decisions: one for each node, in the graph's order.
        reorders: every step that only moves bytes.
        cost_ns: predicted time of one run, or of one part of it; see ``split``.
        lower_bound_ns: no plan over these candidates and costs is faster.
        refusals: formats and kernels that were not offered, and why.
        derived: the Origin of every tensor, and the reasons.
        comparisons: the cheapest plan, and the cheapest uniform plan for each kind of format.
        input_formats: the format that the caller gives each input in.
        output_formats: the format that the caller gets each output in.
        terms: the formulation, that is, all candidates and reorders; :meth:`why` and others use it.
        pins: tensors whose formats were given; see :meth:`what_if`.
        notes: remarks, such as that costs were measured on another machine.
        split: how the caller's batch is divided into parts; the graph is that of one part.
        repeats: nodes that run a second time to save memory, with the nodes that they repeat.
        points: computes :meth:`front`; None for a plan without one.
    """

    __slots__ = ()

    @classmethod
    def of(cls, data: PlanData) -> Plan:
        """Return the plan of plain data."""
        return cls(**{item.name: getattr(data, item.name) for item in dataclasses.fields(data)})

    def __str__(self) -> str:
        return self.explain()

    @property
    def winograd_weights(self) -> WinogradWeights:
        """The memory of transformed weights of Winograd kernels, beside the plain ones."""
        return winograd_weights(self)

    @property
    def predicted_error(self) -> float:
        """The predicted relative error of the outputs; 0 for plans without an error budget.

        It is the norm of the difference to float32 over the norm of the float32 result.
        """
        return find_predicted_error(self)

    @property
    def error_contributions(self) -> dict[str, float]:
        """The predicted error that each node causes alone; their squares add up.

        It is empty for plans without an error budget (``dtype="auto"``). Reorders belong to the
        node that makes their tensor, those of inputs to the input.
        """
        return find_contributions(self)

    def compare(self) -> tuple[Comparison, ...]:
        """Return the cheapest plan, the cheapest uniform ones, and each operator for itself."""
        return tuple(self.comparisons)

    @property
    def moves(self) -> tuple[Move, ...]:
        """Every step that only moves bytes: reorders, copies and fills."""
        return find_moves(self)

    @property
    def views(self) -> tuple[str, ...]:
        """The nodes for which nothing runs, because their results are views of other tensors."""
        return find_views(self)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """Native parts and parts of another runtime, in order; one part if all is native."""
        return find_partitions(self)

    def savings(self) -> tuple[Saving, ...]:
        """Return what other formats of inputs and outputs would save, if they were acceptable.

        Each figure comes from solving the whole graph again.
        """
        return find_savings(self)

    def refusals_of(self, subject: str) -> tuple[Refusal, ...]:
        """Return the refusals about a node or tensor.

        Raises:
            PlanError: nothing has that name; the message names what comes close.
        """
        return find_refusals(self, subject)

    def why(self, node: str) -> Why:
        """Return every way to compute a node, and what the whole plan would cost with each.

        Each figure comes from solving the whole graph again. A uniform plan that measured times
        selected is not the cheapest by these costs, so figures about it may be negative.

        Raises:
            PlanError: there is no node of that name; the message names those that come close.
        """
        return why(self, node)

    def what_if(self, wanted: Mapping[str, StorageName]) -> Plan:
        """Return the cheapest plan in which some tensors are produced in given formats.

        Args:
            wanted: for each tensor, or node for its first output, a kind of the target
                (``"blocked"``), a name in any dialect (``"nhwc"``, ``"NCHW16c"``), or a format;
                with an element type after it (``"nhwc bf16"``) where it is not the tensor's own;
                or an element type alone (``"bfloat16"``), in the format that suits best.

        Raises:
            PlanError: a name is unknown, a format is not on offer (the message lists those that
                are), or no plan has all of these formats.
        """
        return what_if(self, wanted)

    def regret(self, tensor: str) -> tuple[Regret, ...]:
        """Return what each other format of a tensor would cost in total, the cheapest first.

        Raises:
            PlanError: there is no tensor or node of that name, or it is a constant.
        """
        return self.regrets((tensor,))

    def regrets(
        self, tensors: Iterable[str] | None = None, limit: int | None = None
    ) -> tuple[Regret, ...]:
        """Return what each other format of every tensor would cost in total.

        The graph is solved again for each tensor, so ``tensors`` or ``limit`` save time.

        Args:
            tensors: which tensors (or nodes); by default all that nodes produce.
            limit: of these, only so many, those of most bytes.

        Raises:
            PlanError: a tensor is unknown, or the limit is below 0.
        """
        return regrets(self, tensors, limit)

    def under(self, pins: tuple[Pin, ...]) -> Plan:
        """Return the cheapest plan with these pins and no others; PlanError where there is none."""
        return under(self, pins)

    def uniform(self, kind: str) -> Plan:
        """Return the cheapest plan, by the same costs, with all tensors in one kind of format.

        Tensors that have no format of the kind may have any format.

        Args:
            kind: ``"plain"``, ``"channels-last"``, ``"blocked"``, or another kind of the target.

        Raises:
            PlanError: the target has no such kind, or the graph cannot do without others.
        """
        return uniform(self, kind)

    def restricted(self, name: str, only: Only) -> Plan:
        """Return the cheapest plan over some candidates; PlanError where there is none."""
        return restricted(self, name, only)

    def front(self) -> tuple[Point, ...]:
        """Return predicted time against memory of a training step, the least memory first.

        ``memory_limit=point.nbytes`` of :class:`stridewise.Trainer` gives the plan of a point. To
        need less memory, a step computes values again for its backward part. Graphs without updates
        and plans with formats that the caller fixed have no points. The first call plans the step
        several times.
        """
        return self.points() if self.points is not None else ()

    def diff(self, other: Plan) -> PlanDiff:
        """Return the differences from this plan to another one."""
        return diff(PlanRecord.of(self), PlanRecord.of(other))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file that :func:`stridewise.load_plan` reads.

        The same plan gives the same file, which is made for version control. A file of that name
        is replaced at once, or not at all.

        Raises:
            PlanError: the file cannot be written, or nodes run twice to save memory
                (:attr:`repeats`).
        """
        files.save(self, path)

    def explain(self) -> str:
        """Return the plan as text: kernels, formats, reorders, costs and proof."""
        return explain(self)

    def to_text(self) -> str:
        """Return every decision as text to debug from: formats, kernels, arguments, shared bytes.

        :meth:`explain` is shorter and is about costs and alternatives.
        """
        return listing(self)

    def to_json(self) -> str:
        """Return the plan as JSON, what :meth:`save` writes; see ``docs/plan-json.md``."""
        return PlanRecord.of(self).to_json()

    def to_dot(self) -> str:
        """Return the plan as a drawing for Graphviz, with a color for each format."""
        return to_dot(self)

    def to_html(self) -> str:
        """Return the plan as one HTML page without external resources."""
        from stridewise.report import to_html  # noqa: PLC0415 (jinja2 takes time to load)

        return to_html(self)

    def _repr_html_(self) -> str:
        from stridewise.report import framed  # noqa: PLC0415 (as above)

        return framed(self.to_html())


def _alone(terms: Terms) -> tuple[Comparison, ...]:
    found = each_for_itself(terms.graph, terms.candidates)
    if found is None:
        return ()
    name = "each operator for itself"
    return (Comparison(name, found.cost_ns, found.reorders, found.nbytes, None),)


def make_plans(  # noqa: PLR0913, PLR0917 (all that a plan depends on)
    derived: Derived,
    target: Target,
    machine: Machine,
    oracle: KernelOracle,
    progress: Progress | None = None,
    refusals: tuple[Refusal, ...] = (),
    edge: Boundary | None = None,
    weight_limit: int | None = None,
    budget: ErrorBudget | None = None,
    offers: Offers | None = None,
) -> Sequence[Plan]:
    """Plan a derived graph, and again with every tensor in one kind of format.

    Args:
        derived: the graph, with the Origin of its values.
        target: formats and kernels on offer.
        machine: what the oracle's costs hold for; kept in the plan.
        oracle: which kernels exist and how long they take.
        progress: called while kernels are being measured.
        refusals: of earlier stages, to be kept in the plan.
        edge: acceptable formats of inputs and outputs; by default those of the user's axis order.
        weight_limit: the most bytes that transformed weights of Winograd kernels may take.
        budget: the limit on the predicted error of the plans; None for no limit.
        offers: those of the target for this graph and edge, if they are known.

    Returns:
        The cheapest plan, then the cheapest plan of each kind of format of the target that has one;
        with a budget also the cheapest in which nothing is rounded.
        Those, and what plans are compared with, are found when they are first needed.

    Raises:
        ModelError: a node has no kernel on this target.
        PlanError: no combination of kernels computes the graph.
    """
    graph = derived.graph
    edge = edge or boundary(graph)
    candidates = enumerate_candidates(graph, target, oracle, edge, progress, weight_limit, offers)
    terms = Terms(graph, candidates, edge, budget)
    all_refusals = (*refusals, *candidates.refusals, *_over_budget(graph, budget))
    solved = _Solved(derived, target, machine, all_refusals, terms)
    return Later(
        solved.plan("planned", solved.cheapest),
        lambda: starmap(solved.plan, solved.uniform.items()),
    )


def _over_budget(graph: Graph, budget: ErrorBudget | None) -> tuple[Refusal, ...]:
    if budget is None:
        return ()
    reason = f"plans with a predicted error above {budget.limit:.3g} are not offered"
    return (Refusal("max_error", graph.name, reason),)


class _Solved:
    """The solutions of a formulation, and the plans that are made of them."""

    def __init__(
        self,
        derived: Derived,
        target: Target,
        machine: Machine,
        refusals: tuple[Refusal, ...],
        terms: Terms,
    ) -> None:
        """Find the cheapest solution; the others are found when they are first needed."""
        self._derived, self._target, self._machine = derived, target, machine
        self._refusals, self._terms = refusals, terms
        self.cheapest = _cheapest(terms)
        own = comparison("planned", self.cheapest.cost, reorders(terms, self.cheapest))
        self._comparisons = Later(own, self._others)

    @cached_property
    def uniform(self) -> dict[str, Solution]:
        """The cheapest solution of each kind of format that has one."""
        return _uniform_solutions(self._terms, self._target)

    def _others(self) -> Iterator[Comparison]:
        for name, solution in self.uniform.items():
            yield comparison(name, solution.cost, reorders(self._terms, solution))
        yield from _alone(self._terms)

    def plan(self, name: str, solution: Solution) -> Plan:
        """Return the plan of a solution."""
        terms = self._terms
        return Plan(
            name,
            self._derived.graph,
            self._target,
            self._machine,
            decisions(terms, solution),
            reorders(terms, solution),
            solution.cost,
            self.cheapest.lower_bound,
            self._refusals,
            self._derived,
            self._comparisons,
            terms.inputs(solution),
            terms.outputs(solution),
            terms,
        )


def _cheapest(terms: Terms) -> Solution:
    """Return the cheapest solution; with an error budget, never above one without rounding."""
    found = terms.solve(time_limit=_CLOSING_S)
    if terms.budget is not None and found.gap:
        with suppress(PlanError):
            whole = terms.solve(of_own_types(terms))
            if whole.cost < found.cost:
                return dataclasses.replace(whole, lower_bound=found.lower_bound)
    return found


def _uniform_solutions(terms: Terms, target: Target) -> dict[str, Solution]:
    found: dict[str, Solution] = {}
    for kind in target.kinds:
        with suppress(PlanError):  # some graphs need other formats, or break the budget
            found[f"all {kind.name}"] = terms.solve(of_kind(terms, target, kind.name))
    if terms.budget is not None:
        with suppress(PlanError):
            found["all float32"] = terms.solve(of_own_types(terms))
    return found


def make_plan(
    derived: Derived,
    target: Target,
    machine: Machine,
    oracle: KernelOracle,
    progress: Progress | None = None,
    refusals: tuple[Refusal, ...] = (),
    edge: Boundary | None = None,
) -> Plan:
    """Return the cheapest plan of a derived graph; see :func:`make_plans`.

    Raises:
        ModelError: a node has no kernel on this target.
        PlanError: no combination of kernels computes the graph.
    """
    return make_plans(derived, target, machine, oracle, progress, refusals, edge)[0]
