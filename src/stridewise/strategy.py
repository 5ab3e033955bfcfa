"""The stage plan: a planner for one derived graph, and the ways to choose among its plans."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cache

from stridewise.classes import dataclass
from stridewise.errors import InputError, PlanError
from stridewise.graph import Graph, Refusal
from stridewise.job import Job
from stridewise.options import MAX_ERROR
from stridewise.passes import Simplified
from stridewise.planner import Derived
from stridewise.planner.later import Once
from stridewise.planner.problem.candidates import Offers
from stridewise.planner.problem.error_budget import ErrorBudget
from stridewise.planner.problem.io_formats import Boundary, boundary
from stridewise.planner.questions.winograd_weights import winograd_weights
from stridewise.planning import Plan, make_plans
from stridewise.runtime.binding.kernels import Kernels
from stridewise.runtime.execution.loading import made_kernels
from stridewise.runtime.lowering.fitting import fitted, front
from stridewise.runtime.lowering.memory_limit import is_far_below, within_limit
from stridewise.runtime.machine.machine import cache_nbytes, checked_limit
from stridewise.runtime.tuning.accuracy import Reference, noted, with_budget, within_budget
from stridewise.runtime.tuning.calibrated import calibrated
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.finalists import fastest, in_integers
from stridewise.runtime.tuning.kernel_times import KernelTimes
from stridewise.runtime.tuning.oracle import CalibratedOracle, MeasuringOracle, estimating_oracle
from stridewise.runtime.tuning.tuning import remembered, tuned
from stridewise.targets.cost import KernelOracle
from stridewise.targets.machine import Machine
from stridewise.targets.names import table_target
from stridewise.targets.onednn.target import onednn_cpu
from stridewise.targets.target import PrecisionChoice, Target

__all__ = ["Choose", "Planner"]

_BY_ROUNDING = ("float32", "bfloat16", "auto", "int8")
"""Plans within an error budget, roughly those with the least rounding first."""

_RACE = 0.4
"""Part of the time for tuning that is left for running plans."""

Choose = Callable[["Planner"], Plan]
"""A strategy of the stage plan: which of the plans that a planner can make is used."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans one derived graph for one target, by any costs.

    Attributes:
        job: the model and its options.
        derived: the graph, with the meaning of axes.
        refusals: subgraphs that passes did not change, and why.
        target: formats and kernels on offer.
        machine: the machine that costs hold for.
        oracle: costs of isolated kernels.
        reference: the model in float32 to compare plans with; None if there is no error budget.
        budget: the limit on the predicted error of plans; None for no limit.
        prefers_integers: whether nodes compute with integers wherever they can, at any cost; with a
            limit of memory they choose freely.
        offers: what the target offers for graphs that were planned, as they are planned repeatedly.
    """

    job: Job
    derived: Derived
    refusals: tuple[Refusal, ...]
    target: Target
    machine: Machine
    oracle: KernelOracle
    reference: Reference | None = None
    budget: ErrorBudget | None = None
    prefers_integers: bool = False
    offers: list[Offers] = field(default_factory=list[Offers], repr=False, compare=False)

    @classmethod
    def of(cls, job: Job, simplified: Simplified, derived: Derived) -> Planner:
        """Return the planner for the target that the options name."""
        reference = None
        if job.options.dtype == "auto":
            _check_stateless(derived.graph)
            options = job.options
            machine, samples = options.machine, options.calibration
            has_integers = samples is not None and machine.has_int8
            reference = Reference(derived, machine, samples, job.costs, has_integers)
        return cls._of(job, simplified.refusals, derived, reference)

    @classmethod
    def _of(
        cls,
        job: Job,
        refusals: tuple[Refusal, ...],
        derived: Derived,
        reference: Reference | None = None,
    ) -> Planner:
        options = job.options
        table = table_target(options.target)
        if table is not None:
            return cls(job, derived, refusals, table, table.machine, table)
        machine = options.machine
        precision = "bfloat16" if options.dtype == "auto" else options.dtype
        target = onednn_cpu(machine, options.accuracy, precision)
        oracle: KernelOracle = estimating_oracle(machine, target)
        if job.costs is not None:
            cold = _nbytes(derived.graph) > cache_nbytes(3) // 2
            times = KernelTimes(machine, target, job.costs, cold=cold, memory=job.memory)
            oracle = CalibratedOracle(times)
            if options.tune == "measure":
                rest = job.until - _RACE * (job.until - time.monotonic())
                oracle = MeasuringOracle(times, rest)
        return cls(job, derived, refusals, target, machine, oracle, reference)

    def __call__(self, oracle: KernelOracle) -> Sequence[Plan]:
        """Return the cheapest plan by the costs of an oracle, then the uniform ones."""
        options, graph = self.job.options, self.derived.graph
        edge = boundary(graph, options.input_formats, options.output_formats)
        basis = (self.derived, self.target, self.machine, oracle, options.progress)
        limit = options.weight_memory_limit
        plans = make_plans(*basis, self.refusals, edge, limit, self.budget, self._offers(edge))
        if self.prefers_integers and (limit, options.memory_limit) == (None, None):
            plans = [in_integers(plans[0]) or plans[0]]
        if not graph.updates:  # see `fitted`
            plans = within_limit(plans, checked_limit(options.memory_limit), options.streams)
        if self.job.memory is not None:
            weights, winograd = _nbytes(graph), winograd_weights(plans[0])
            self.job.memory.expect(weights - winograd.plain_nbytes + winograd.nbytes)
        return plans

    def _offers(self, edge: Boundary) -> Offers:
        """Return what the target offers for the graph."""
        graph, target = self.derived.graph, self.target
        for known in self.offers:
            if known.graph is graph and known.target is target:
                return known
        self.offers.append(Offers.of(graph, target, edge))
        return self.offers[-1]

    def fitted(self, plan: Plan) -> Plan:
        """Return the plan within the limit of memory, by computing values again.

        That is for graphs whose runs change values, as steps of training do; plans of others are
        within their limit.

        Raises:
            MemoryLimitError: there is no such plan; the message has the least memory.
            ExecutionError: the library refuses a kernel of the plan.
        """
        if not plan.graph.updates or not self.job.options.is_native:
            return plan
        kernels: Callable[[], Kernels] = cache(lambda: made_kernels(plan))
        limit, found = checked_limit(self.job.options.memory_limit), plan
        if limit is not None and not is_far_below(plan, limit):
            found = fitted(plan, kernels(), limit)
        return dataclasses.replace(found, points=Once(lambda: front(plan, kernels())))

    def cheapest(self) -> Plan:
        """Return the cheapest plan by the costs of isolated kernels."""
        return self._checked(lambda planner: planner(planner.oracle)[0])

    def tuned(self) -> Plan:
        """Return the plan that is fastest when run, or by calibrated costs; else the cheapest."""
        return self._checked(_tuned, may_run=True)

    def remembered(self) -> Plan:
        """Return the plan that :meth:`tuned` selects, if it is known without running plans.

        Nothing runs, except to measure errors of plans with an error budget.
        """
        return self._checked(_remembered)

    def _checked(self, choose: Choose, *, may_run: bool = False) -> Plan:
        """Return the plan that a strategy chooses; with an error budget, the fastest that keeps it.

        Plans of one precision are those that the other values of ``dtype`` give, and the one with
        integers wherever there are kernels for them.
        """
        reference, limit = self.reference, self.job.options.max_error
        if reference is None:
            return choose(self)
        reference.measure()  # before the time to measure kernels begins
        derived, failure = reference.offered, None
        found, plans = dict[str, Plan](), dict[str, Plan]()
        joint = dataclasses.replace(self._again("auto"), derived=derived)
        try:
            found["auto"] = within_budget(
                lambda budget: choose(dataclasses.replace(joint, budget=budget)), reference, limit
            )
        except PlanError as error:
            failure = error
        uniform: tuple[PrecisionChoice, ...] = ("float32",)
        if derived is not self.derived:
            plans["int8"] = choose(dataclasses.replace(joint, prefers_integers=True))
            uniform = ("bfloat16", "float32")
        plans |= {dtype: choose(self._again(dtype)) for dtype in uniform}
        for dtype, plan in plans.items():
            if reference.error(plan).expected <= limit:
                found[dtype] = with_budget(plan, reference.budget(limit))
        if failure is not None and not found:
            raise failure
        # Of plans that take the same time, the one with less rounding.
        ranked = {dtype: found[dtype] for dtype in _BY_ROUNDING if dtype in found}
        plan = fastest(ranked, self.job.costs, may_run=may_run)
        return noted(plan, reference, limit)

    def _again(self, dtype: PrecisionChoice) -> Planner:
        """Return the planner for another ``dtype``, with its whole time to measure."""
        limit = self.job.options.max_error if dtype == "auto" else MAX_ERROR
        job = self.job.renewed(dtype=dtype, calibration=None, max_error=limit)
        return Planner._of(job, self.refusals, self.derived, self.reference)


def _nbytes(graph: Graph) -> int:
    """Return the bytes of all constants of a graph."""
    return sum(item.nbytes for item in graph.constants.values())


def _tuned(planner: Planner) -> Plan:
    job, oracle = planner.job, planner.oracle
    if job.costs is None or isinstance(oracle, CalibratedOracle):
        return _remembered(planner)
    if planner.derived.graph.updates and job.options.memory_limit is not None:
        return planner(oracle)[0]  # plans that race would need more memory than the limit
    return _noted(tuned(planner, oracle, job.costs, job.weights, job.until), job.costs)


def _remembered(planner: Planner) -> Plan:
    job, oracle = planner.job, planner.oracle
    if job.costs is None:
        return planner(oracle)[0]
    if isinstance(oracle, CalibratedOracle):
        return calibrated(planner, oracle, job.options.progress, job.until)
    return _noted(remembered(planner, oracle, job.costs), job.costs)


_DISTURBED = (
    "other work on the machine disturbed measurements; after an hour, the next compilation makes "
    "them again"
)


def _noted(plan: Plan, costs: CostCache) -> Plan:
    """Return the plan, with a note if some of its costs hold for a time only."""
    return (
        dataclasses.replace(plan, notes=(*plan.notes, _DISTURBED)) if costs.is_provisional else plan
    )


def _check_stateless(graph: Graph) -> None:
    """Check that a graph computes the same in each run, so that errors can be measured."""
    if graph.updates or graph.parameters:
        found = "parameters or states that change"
        where, fix = "dtype 'auto'", "choose 'float32' or 'bfloat16'"
        raise InputError.at(where, expected="a graph of constants", found=found, fix=fix)
