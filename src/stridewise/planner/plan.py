"""A plan: which kernel computes each node, and how each tensor is stored.

The choice itself is made in ``solve.py``; here the graph is put into its terms and the answer is
kept with everything that explains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stridewise.formats import Format
from stridewise.graph import Graph, Node, Refusal
from stridewise.ops.geometry import user_format
from stridewise.ops.kernels import KernelOption
from stridewise.planner.candidates import Candidate, Candidates, Storages, enumerate_candidates
from stridewise.planner.cost import KernelOracle, Progress
from stridewise.planner.derive import Derived
from stridewise.planner.page import Page, framed
from stridewise.planner.solve import Choice, Problem, Solution, solve
from stridewise.planner.targets import Machine, Target
from stridewise.tensor import TensorDesc

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
        name: ``"planned"``, ``"all plain"``, ``"all channels-last"`` or ``"all blocked"``.
        cost_ns: predicted time of the whole graph.
        reorders: how many tensors change their format.
        measured_ns: median time of the whole program, where it was run; else None.
    """

    name: str
    cost_ns: float
    reorders: int
    measured_ns: float | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """Everything that was decided about a graph.

    Attributes:
        name: ``"planned"`` for the cheapest plan, or that of a uniform one.
        graph: the derived graph.
        target: what it was planned for.
        machine: what the costs hold for.
        decisions: one for each node, in the graph's order.
        reorders: every step that only moves bytes.
        cost_ns: predicted time of one run.
        lower_bound_ns: no plan over these candidates and costs is faster.
        refusals: formats and kernels that were not offered, and why.
        derived: what every tensor means, and why.
        comparisons: the cheapest plan, and the cheapest in one format each.
        storages: names of formats of equal bytes.
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
    comparisons: tuple[Comparison, ...]
    storages: Storages

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
        for decision in self.decisions:
            if decision.node == node:
                return decision
        raise KeyError(node)

    def storage(self, value: str) -> TensorDesc:
        """Return Origin and Storage of a value as its producer leaves it."""
        found = self.graph.value(value)
        fmt = user_format(found)
        for node, decision in zip(self.graph.nodes, self.decisions, strict=True):
            if value in node.outputs:
                fmt = decision.chosen.option.outputs[node.outputs.index(value)]
        return TensorDesc(found.shape, found.dtype, user_format(found), fmt)

    def compare(self) -> tuple[Comparison, ...]:
        """Return the cheapest plan beside the cheapest uniform ones, itself first."""
        return self.comparisons

    def explain(self) -> str:
        """Return the plan as text: kernels, formats, reorders, costs and proof."""
        from stridewise.planner.explain import explain  # noqa: PLC0415 (it reads this module)

        return explain(self)

    def to_json(self) -> str:
        """Return the plan as JSON, for other tools; the schema is in ``docs/plan-json.md``."""
        from stridewise.planner.explain import to_json  # noqa: PLC0415 (it reads this module)

        return to_json(self)

    def to_html(self) -> str:
        """Return the plan as a page in HTML of its own and whole, for any browser."""
        return PAGE(self)

    def _repr_html_(self) -> str:
        return framed(self.to_html())


PAGE: Page[[Plan]] = Page()
"""Draws a plan; :mod:`stridewise.api` hands in what does."""


class _Terms:
    """The graph in the solver's terms."""

    def __init__(self, graph: Graph, candidates: Candidates) -> None:
        self.graph, self.candidates = graph, candidates

    def _stored(
        self, names: tuple[str, ...], formats: tuple[Format | None, ...]
    ) -> frozenset[tuple[str, str]]:
        key = self.candidates.storages.key
        return frozenset(
            (name, key(name, fmt))
            for name, fmt in zip(names, formats, strict=True)
            if fmt is not None
        )

    def problem(self, allowed: Mapping[str, tuple[Candidate, ...]]) -> Problem:
        nodes = {
            node.name: tuple(
                Choice(
                    candidate.cost_ns,
                    self._stored(node.inputs, candidate.option.inputs),
                    self._stored(node.outputs, candidate.option.outputs),
                )
                for candidate in allowed[node.name]
            )
            for node in self.graph.nodes
        }
        key = self.candidates.storages.key
        values = self.graph.values
        return Problem(
            nodes,
            {stored: cost.cost_ns for stored, cost in self.candidates.reorders.items()},
            {name: key(name, user_format(values[name])) for name in self.graph.inputs},
            {
                name: frozenset({key(name, user_format(values[name]))})
                for name in self.graph.outputs
                if name not in self.graph.constants
            },
        )


def _is_uniform(
    graph: Graph, target: Target, storages: Storages, node: Node, option: KernelOption, kind: str
) -> bool:
    """Return whether all that an option makes is stored in one kind of format."""
    for name, fmt in zip(node.outputs, option.outputs, strict=True):
        wanted = target.formats(graph.values[name]).get(kind)
        if wanted is not None and storages.key(name, fmt) != storages.key(name, wanted):
            return False
    return True


def _restricted(
    graph: Graph, target: Target, candidates: Candidates, kind: str
) -> dict[str, tuple[Candidate, ...]]:
    """Return the candidates of one kind of format; all, for nodes that have none of it."""
    found: dict[str, tuple[Candidate, ...]] = {}
    for node in graph.nodes:
        group = candidates.nodes[node.name]
        kept = tuple(
            candidate
            for candidate in group
            if _is_uniform(graph, target, candidates.storages, node, candidate.option, kind)
        )
        found[node.name] = kept or group
    return found


def _reorders(graph: Graph, candidates: Candidates, solution: Solution) -> tuple[Reorder, ...]:
    found: list[Reorder] = []
    for name, source, goal in solution.reorders:
        value = graph.values[name]
        fmt = candidates.storages.format(name, goal)
        cost = candidates.reorders[name, source, goal]
        nbytes = TensorDesc(value.shape, value.dtype, user_format(value), fmt).nbytes
        before = candidates.storages.format(name, source)
        found.append(Reorder(name, before, fmt, nbytes, cost.cost_ns, cost.implementation))
    return tuple(found)


def _decisions(
    graph: Graph,
    candidates: Candidates,
    allowed: Mapping[str, tuple[Candidate, ...]],
    solution: Solution,
) -> tuple[Decision, ...]:
    found: list[Decision] = []
    for node in graph.nodes:
        chosen = allowed[node.name][solution.picks[node.name]]
        others = tuple(c for c in candidates.nodes[node.name] if c is not chosen)
        found.append(Decision(node.name, chosen, others))
    return tuple(found)


def make_plans(
    derived: Derived,
    target: Target,
    machine: Machine,
    oracle: KernelOracle,
    progress: Progress | None = None,
    refusals: tuple[Refusal, ...] = (),
) -> tuple[Plan, ...]:
    """Plan a derived graph, and again with every tensor in one kind of format.

    Args:
        derived: the graph, with the Origin of its values.
        target: formats and kernels on offer.
        machine: what the oracle's costs hold for; kept in the plan.
        oracle: which kernels exist and how long they take.
        progress: called while kernels are being measured.
        refusals: of earlier stages, to be kept in the plan.

    Returns:
        The cheapest plan, then the cheapest plan of each kind of format of the target.

    Raises:
        ModelError: a node has no kernel on this target.
        PlanError: no combination of kernels computes the graph.
    """
    graph = derived.graph
    candidates = enumerate_candidates(graph, target, oracle, progress)
    terms = _Terms(graph, candidates)
    choices = {"planned": dict(candidates.nodes)}
    for kind in target.kinds:
        choices[f"all {kind.name}"] = _restricted(graph, target, candidates, kind.name)
    solutions = {name: solve(terms.problem(allowed)) for name, allowed in choices.items()}
    comparisons = tuple(
        Comparison(name, solution.cost, len(solution.reorders))
        for name, solution in solutions.items()
    )
    return tuple(
        Plan(
            name,
            graph,
            target,
            machine,
            _decisions(graph, candidates, choices[name], solution),
            _reorders(graph, candidates, solution),
            solution.cost,
            solutions["planned"].lower_bound,
            (*refusals, *candidates.refusals),
            derived,
            comparisons,
            candidates.storages,
        )
        for name, solution in solutions.items()
    )


def make_plan(
    derived: Derived,
    target: Target,
    machine: Machine,
    oracle: KernelOracle,
    progress: Progress | None = None,
    refusals: tuple[Refusal, ...] = (),
) -> Plan:
    """Return the cheapest plan of a derived graph; see :func:`make_plans`.

    Raises:
        ModelError: a node has no kernel on this target.
        PlanError: no combination of kernels computes the graph.
    """
    return make_plans(derived, target, machine, oracle, progress, refusals)[0]
