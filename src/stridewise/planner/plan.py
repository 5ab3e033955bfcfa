"""A plan: which kernel computes each node, and how each tensor is stored.

The choice itself is made in ``solve.py``, in the terms of ``terms.py``; here the answer is kept
with everything that explains it. What a plan can be asked has a module each: ``why``, ``what_if``,
``moves``, ``document``, ``diff``, ``dot``.
"""

# The methods of Plan are the public face of modules that need this class to be defined.
# ruff: noqa: PLC0415

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import starmap
from typing import TYPE_CHECKING

from stridewise.errors import PlanError, describe
from stridewise.formats import Format
from stridewise.graph import Graph, Node, Refusal
from stridewise.ops.geometry import user_format
from stridewise.planner.alone import each_for_itself
from stridewise.planner.boundary import Boundary, boundary
from stridewise.planner.candidates import Candidate, Candidates, Storages, enumerate_candidates
from stridewise.planner.derive import Derived
from stridewise.planner.later import Later
from stridewise.planner.page import Page, framed
from stridewise.planner.solve import Solution
from stridewise.planner.split import WHOLE, Split
from stridewise.planner.terms import FREE, Only, Terms
from stridewise.targets.cost import KernelOracle, Progress
from stridewise.targets.machine import Machine
from stridewise.targets.target import Target
from stridewise.tensor import TensorDesc

if TYPE_CHECKING:
    from stridewise.planner.diff import PlanDiff
    from stridewise.planner.moves import Move
    from stridewise.planner.partitions import Partition
    from stridewise.planner.savings import Saving
    from stridewise.planner.weights import WinogradWeights
    from stridewise.planner.what_if import Pin, Regret
    from stridewise.planner.why import Why

__all__ = ["PAGE", "Comparison", "Decision", "Plan", "Reorder", "make_plan", "make_plans"]


@dataclass(frozen=True, slots=True)
class Reorder:
    """One step that only moves bytes.

    Attributes:
        tensor: the value.
        source: its storage before.
        target: its storage after.
        nbytes: bytes written.
        cost_ns: predicted time.
        implementation: the library's name of the kernel.
    """

    tensor: str
    source: Format
    target: Format
    nbytes: int
    cost_ns: float
    implementation: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What was chosen for one node.

    Attributes:
        node: the node's name.
        chosen: its kernel.
        rejected: the others.
    """

    node: str
    chosen: Candidate
    rejected: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one way of planning would cost.

    Attributes:
        name: ``"planned"``; ``"planned alone"``, by the costs of isolated kernels; ``"all plain"``,
            ``"all channels-last"``, ..., in which every node that has kernels of this kind uses
            one, and the others what they have; or ``"each operator for itself"``, in which no two
            operators agree on a format.
        cost_ns: predicted time of the whole graph.
        reorders: how many steps change the format of a tensor.
        measured_ns: time of the whole program, where it was run; else None.
        nbytes: bytes written by these steps.
    """

    name: str
    cost_ns: float
    reorders: int
    measured_ns: float | None = None
    nbytes: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """Everything that was decided about a graph.

    Attributes:
        name: ``"planned"`` for the cheapest plan, that of a uniform one, or what was pinned.
        graph: the derived graph.
        target: what it was planned for.
        machine: what the costs hold for.
        decisions: one for each node, in the graph's order.
        reorders: every step that only moves bytes.
        cost_ns: predicted time of one run, or of one part of it; see ``split``.
        lower_bound_ns: no plan over these candidates and costs is faster.
        refusals: formats and kernels that were not offered, and why.
        derived: what every tensor means, and why.
        comparisons: the cheapest plan, and the cheapest in one format each.
        input_formats: the format that the caller gives each input in.
        output_formats: the format that the caller gets each output in.
        terms: all that there was to choose from, to answer other questions.
        pins: tensors whose formats were given; see :meth:`what_if`.
        notes: what a reader must know, such as that costs were measured on another machine.
        split: the graph is that of a part of the caller's batch, and runs once for each.
    """

    name: str
    graph: Graph
    target: Target
    machine: Machine
    decisions: tuple[Decision, ...]
    reorders: tuple[Reorder, ...]
    cost_ns: float
    lower_bound_ns: float
    refusals: tuple[Refusal, ...]
    derived: Derived
    comparisons: Sequence[Comparison]
    input_formats: Mapping[str, Format]
    output_formats: Mapping[str, Format]
    terms: Terms = field(compare=False)
    pins: tuple[Pin, ...] = ()
    notes: tuple[str, ...] = ()
    split: Split = WHOLE

    @property
    def candidates(self) -> Candidates:
        """Every way to compute each node, every reorder, and what they cost."""
        return self.terms.candidates

    @property
    def storages(self) -> Storages:
        """Names of formats of equal bytes."""
        return self.terms.candidates.storages

    @property
    def winograd_weights(self) -> WinogradWeights:
        """What the weights of Winograd kernels take in memory, beside the plain ones."""
        from stridewise.planner.weights import winograd_weights

        return winograd_weights(self)

    @property
    def gap(self) -> float:
        """How far the plan may be from the optimum, as a part of its cost; 0 if proved optimal."""
        return 0.0 if not self.cost_ns else max(0.0, 1 - self.lower_bound_ns / self.cost_ns)

    def __repr__(self) -> str:
        return (
            f"Plan({self.graph.name!r}, {self.name}, {len(self.decisions)} nodes, "
            f"{len(self.reorders)} reorders, {self.cost_ns / 1e6:.3f} ms)"
        )

    def __str__(self) -> str:
        return self.explain()

    def decision(self, node: str) -> Decision:
        """Return what was decided for a node.

        Raises:
            KeyError: there is no node of that name.
        """
        return self.decisions[self.terms.positions[node]]

    def storage(self, value: str) -> TensorDesc:
        """Return Origin and Storage of a value as its producer leaves it."""
        found = self.graph.value(value)
        fmt = self.input_formats.get(value, user_format(found))
        producer = self.terms.producers.get(value)
        if producer is not None:
            option = self.decision(producer.name).chosen.option
            fmt = option.outputs[producer.outputs.index(value)]
        return TensorDesc(found.shape, found.dtype, user_format(found), fmt)

    def compare(self) -> tuple[Comparison, ...]:
        """Return the cheapest plan, the cheapest uniform ones, and each operator for itself."""
        return tuple(self.comparisons)

    @property
    def moves(self) -> tuple[Move, ...]:
        """Every step that only moves bytes: reorders, copies and fills."""
        from stridewise.planner.moves import find_moves

        return find_moves(self)

    @property
    def views(self) -> tuple[str, ...]:
        """The nodes for which nothing runs, as their results lie in bytes that are there."""
        from stridewise.planner.moves import find_views

        return find_views(self)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """What runs natively and what in another runtime, in order; one where all is native."""
        from stridewise.planner.partitions import find_partitions

        return find_partitions(self)

    def savings(self) -> tuple[Saving, ...]:
        """Return what other formats of inputs and outputs would save, if they were acceptable.

        Each figure comes from solving the whole graph again.
        """
        from stridewise.planner.savings import find_savings

        return find_savings(self)

    def refusals_of(self, subject: str) -> tuple[Refusal, ...]:
        """Return what was not done to a node or tensor, and why.

        Raises:
            PlanError: nothing has that name; the message names what comes close.
        """
        from stridewise.planner.why import find_refusals

        return find_refusals(self, subject)

    def why(self, node: str) -> Why:
        """Return every way to compute a node, and what the whole plan would cost with each.

        Each figure comes from solving the whole graph again. A uniform plan that won on the clock
        is not the cheapest by these costs, so figures about it may be negative.

        Raises:
            PlanError: there is no node of that name; the message names those that come close.
        """
        from stridewise.planner.why import why

        return why(self, node)

    def what_if(self, wanted: Mapping[str, str | Format]) -> Plan:
        """Return the cheapest plan in which some tensors are produced in given formats.

        Args:
            wanted: for each tensor, or node for its first output, a kind of the target
                (``"blocked"``), a name in any dialect (``"nhwc"``, ``"NCHW16c"``), or a format.

        Raises:
            PlanError: a name is unknown, a format is not on offer (the message lists those that
                are), or no plan has all of these formats.
        """
        from stridewise.planner.what_if import what_if

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

        The graph is solved again for each, so large ones want ``tensors`` or ``limit``.

        Args:
            tensors: which tensors (or nodes); by default all that nodes produce.
            limit: of these, only so many, those of most bytes.

        Raises:
            PlanError: a tensor is unknown.
        """
        from stridewise.planner.what_if import regrets

        return regrets(self, tensors, limit)

    def only(self) -> Only:
        """Return which candidates the pins leave to the nodes that produce pinned tensors."""
        from stridewise.planner.what_if import narrowed

        return narrowed(self, FREE, self.pins)

    def under(self, pins: tuple[Pin, ...]) -> Plan:
        """Return the cheapest plan of the same graph with these pins and no others.

        Raises:
            PlanError: there is none.
        """
        pinned = dataclasses.replace(self, pins=pins)
        name = f"what if {', '.join(map(str, pins))}" if pins else "planned"
        return pinned._solved(name, pinned.only())

    def uniform(self, kind: str) -> Plan:
        """Return the cheapest plan, by the same costs, with all tensors in one kind of format.

        Tensors that have no format of the kind are stored as suits best.

        Args:
            kind: ``"plain"``, ``"channels-last"``, ``"blocked"``, or another kind of the target.

        Raises:
            PlanError: the target has no such kind, or the graph cannot do without others.
        """
        kinds = [known.name for known in self.target.kinds]
        if kind not in kinds:
            where = f"target {self.target.name}"
            raise PlanError(
                describe(where, expected=f"one of {', '.join(kinds)}", found=repr(kind))
            )
        free = dataclasses.replace(self, pins=())
        return free._solved(f"all {kind}", _uniform(self.terms, self.target, kind))

    def restricted(self, name: str, only: Only) -> Plan:
        """Return the cheapest plan in which some nodes may not choose freely, under a name.

        Raises:
            PlanError: there is none.
        """
        return self._solved(name, only)

    def _solved(self, name: str, only: Only) -> Plan:
        solution = self.terms.solve(only)
        reorders = _reorders(self.terms, solution)
        own = Comparison(name, solution.cost, len(reorders), nbytes=_written(reorders))
        others = tuple(item for item in self.comparisons if item.name != name)
        return dataclasses.replace(
            self,
            name=name,
            decisions=_decisions(self.terms, solution),
            reorders=reorders,
            cost_ns=solution.cost,
            lower_bound_ns=solution.lower_bound,
            comparisons=(own, *others),
            input_formats=self.terms.inputs(solution),
            output_formats=self.terms.outputs(solution),
        )

    def diff(self, other: Plan) -> PlanDiff:
        """Return where another plan decides otherwise, from this one to the other."""
        from stridewise.planner.diff import diff
        from stridewise.planner.document import PlanRecord

        return diff(PlanRecord.of(self), PlanRecord.of(other))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file that :func:`stridewise.load_plan` reads.

        The same plan gives the same file, which is made for version control. A file of that name
        is replaced at once, or not at all.

        Raises:
            PlanError: the file cannot be written.
        """
        from stridewise.planner.files import save

        save(self, path)

    def explain(self) -> str:
        """Return the plan as text: kernels, formats, reorders, costs and proof."""
        from stridewise.planner.explain import explain

        return explain(self)

    def to_json(self) -> str:
        """Return the plan as JSON, what :meth:`save` writes; see ``docs/plan-json.md``."""
        from stridewise.planner.document import PlanRecord

        return PlanRecord.of(self).to_json()

    def to_dot(self) -> str:
        """Return the plan as a drawing for Graphviz: a color a format, reorders marked."""
        from stridewise.planner.dot import to_dot

        return to_dot(self)

    def to_html(self) -> str:
        """Return the plan as a page in HTML of its own and whole, for any browser."""
        return PAGE(self)

    def _repr_html_(self) -> str:
        return framed(self.to_html())


PAGE: Page[[Plan]] = Page()
"""Draws a plan; :mod:`stridewise.api` hands in what does."""


def _is_uniform(terms: Terms, target: Target, node: Node, candidate: Candidate, kind: str) -> bool:
    """Return whether all that a candidate makes is stored in one kind of format."""
    key = terms.candidates.storages.key
    for name, fmt in zip(node.outputs, candidate.option.outputs, strict=True):
        wanted = target.formats(terms.graph.values[name]).get(kind)
        if wanted is not None and key(name, fmt) != key(name, wanted):
            return False
    return True


def _uniform(terms: Terms, target: Target, kind: str) -> Only:
    """Return the candidates of one kind of format; nodes that have none of it stay free."""
    found: dict[str, tuple[int, ...]] = {}
    for node in terms.graph.nodes:
        kept = tuple(
            index
            for index, candidate in enumerate(terms.candidates.nodes[node.name])
            if _is_uniform(terms, target, node, candidate, kind)
        )
        if kept:
            found[node.name] = kept
    return found


def _reorders(terms: Terms, solution: Solution) -> tuple[Reorder, ...]:
    """Return the reorders of a solution, in the order of the tensors in the graph."""
    storages = terms.candidates.storages
    places = {name: place for place, name in enumerate(terms.graph.values)}
    found: list[Reorder] = []
    for name, source, goal in sorted(
        solution.reorders, key=lambda key: (places[key[0]], key[1], key[2])
    ):
        value = terms.graph.values[name]
        fmt = storages.format(name, goal)
        cost = terms.candidates.reorders[name, source, goal]
        nbytes = TensorDesc(value.shape, value.dtype, user_format(value), fmt).nbytes
        before = storages.format(name, source)
        found.append(Reorder(name, before, fmt, nbytes, cost.cost_ns, cost.implementation))
    return tuple(found)


def _written(reorders: tuple[Reorder, ...]) -> int:
    return sum(reorder.nbytes for reorder in reorders)


def _alone(terms: Terms) -> tuple[Comparison, ...]:
    found = each_for_itself(terms.graph, terms.candidates)
    if found is None:
        return ()
    name = "each operator for itself"
    return (Comparison(name, found.cost_ns, found.reorders, nbytes=found.nbytes),)


def _decisions(terms: Terms, solution: Solution) -> tuple[Decision, ...]:
    chosen = terms.chosen(solution)
    found: list[Decision] = []
    for node in terms.graph.nodes:
        own = chosen[node.name]
        others = tuple(c for c in terms.candidates.nodes[node.name] if c is not own)
        found.append(Decision(node.name, own, others))
    return tuple(found)


def make_plans(
    derived: Derived,
    target: Target,
    machine: Machine,
    oracle: KernelOracle,
    progress: Progress | None = None,
    refusals: tuple[Refusal, ...] = (),
    edge: Boundary | None = None,
    weight_limit: int | None = None,
) -> Sequence[Plan]:
    """Plan a derived graph, and again with every tensor in one kind of format.

    Args:
        derived: the graph, with the Origin of its values.
        target: formats and kernels on offer.
        machine: what the oracle's costs hold for; kept in the plan.
        oracle: which kernels exist and how long they take.
        progress: called while kernels are being measured.
        refusals: of earlier stages, to be kept in the plan.
        edge: acceptable formats of inputs and outputs; by default the user's own axis orders.
        weight_limit: the most bytes that transformed weights of Winograd kernels may take.

    Returns:
        The cheapest plan, then the cheapest plan of each kind of format of the target that has one.
        Those, and what plans are compared with, are found when somebody first looks at them.

    Raises:
        ModelError: a node has no kernel on this target.
        PlanError: no combination of kernels computes the graph.
    """
    graph = derived.graph
    edge = edge or boundary(graph)
    candidates = enumerate_candidates(graph, target, oracle, edge, progress, weight_limit)
    terms = Terms(graph, candidates, edge)
    cheapest = terms.solve()
    moved = _reorders(terms, cheapest)
    own = Comparison("planned", cheapest.cost, len(moved), nbytes=_written(moved))
    uniform: Callable[[], dict[str, Solution]] = cache(lambda: _uniform_solutions(terms, target))

    def others() -> Iterator[Comparison]:
        for name, solution in uniform().items():
            steps = _reorders(terms, solution)
            yield Comparison(name, solution.cost, len(steps), nbytes=_written(steps))
        yield from _alone(terms)

    comparisons = Later(own, others)

    def plan(name: str, solution: Solution) -> Plan:
        return Plan(
            name,
            graph,
            target,
            machine,
            _decisions(terms, solution),
            _reorders(terms, solution),
            solution.cost,
            cheapest.lower_bound,
            (*refusals, *candidates.refusals),
            derived,
            comparisons,
            terms.inputs(solution),
            terms.outputs(solution),
            terms,
        )

    return Later(plan("planned", cheapest), lambda: starmap(plan, uniform().items()))


def _uniform_solutions(terms: Terms, target: Target) -> dict[str, Solution]:
    found: dict[str, Solution] = {}
    for kind in target.kinds:
        with suppress(PlanError):  # some graphs cannot do without other formats
            found[f"all {kind.name}"] = terms.solve(_uniform(terms, target, kind.name))
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
