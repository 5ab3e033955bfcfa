"""What happens to a model between its file and its first run: six stages, in :func:`compile_model`.

| stage    | result        |                                                    |
|----------|---------------|----------------------------------------------------|
| import   | Graph         | the model in the user's axis order                 |
| simplify | Simplified    | the graph folded and fused                         |
| derive   | Derived       | the meaning of the axes of every tensor            |
| plan     | Plan          | a kernel for each node, a format for each tensor   |
| lower    | Lowered       | steps with addresses in memory                     |
| load     | CompiledModel | native kernels and packed constants, ready to run  |

Each stage is a function from a value to a value, and each value prints as text. Everything else
wraps this function. Plan files (``api/restored.py``) and tuning (``runtime/tuning/``) are ways to
choose the plan. The compiled-model store (``api/stored.py``) skips the flow if it has the result.
``api/batches.py`` selects between the whole batch and its parts, and ``api/dynamic.py`` compiles
one model for many shapes.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, overload

from numpy.typing import ArrayLike

from stridewise.errors import InputError, describe
from stridewise.frontends.source import ModelReader
from stridewise.graph import Graph, Refusal, Shapes
from stridewise.options import Options
from stridewise.passes import Simplified, passes_for, simplify
from stridewise.planner import Derived, derive
from stridewise.planner.problem.error_budget import ErrorBudget
from stridewise.planner.problem.io_formats import boundary
from stridewise.planner.split import Split
from stridewise.planning import Plan, make_plans
from stridewise.runtime.binding.weights import ArrayStore, WeightStore
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.lowering.memory_limit import checked_limit, within_limit
from stridewise.runtime.machine.machine import cache_nbytes
from stridewise.runtime.tuning.accuracy import Reference, within_budget
from stridewise.runtime.tuning.calibrated import calibrated
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.kernel_times import KernelTimes
from stridewise.runtime.tuning.oracle import CalibratedOracle, MeasuringOracle, estimating_oracle
from stridewise.runtime.tuning.tuning import remembered, tuned
from stridewise.targets.cost import KernelOracle
from stridewise.targets.machine import Machine
from stridewise.targets.names import table_target
from stridewise.targets.onednn.target import ABILITY, onednn_cpu
from stridewise.targets.target import Target

__all__ = ["Choose", "Job", "Planner", "compile_model", "import_model"]

_RACE = 0.4
"""Part of the time for tuning that is left for running plans."""


@dataclass(frozen=True, slots=True)
class Job:
    """The input of the flow: a model, and how it is to be compiled.

    Attributes:
        source: the model, opened by its front end.
        options: the options of the call.
        costs: cache of measured costs; None if nothing is measured.
        until: time of ``time.monotonic`` at which measuring stops.
        arrays: constants of other programs of the model, shared if they are equal.
        weights: packed constants of other programs of the model.
    """

    source: ModelReader
    options: Options
    costs: CostCache | None = None
    until: float = 0.0
    arrays: ArrayStore | None = None
    weights: WeightStore | None = None

    @classmethod
    def of(cls, source: ModelReader, options: Options) -> Job:
        """Return the job of a call."""
        costs = CostCache(options.machine, options.cache_folder) if options.measures else None
        return cls(source, options, costs, _limit(options))

    def sized(self, shapes: Shapes, values: Mapping[str, ArrayLike] | None = None) -> Job:
        """Return the job for other shapes, with a time limit of its own, and for more values."""
        known = {**(self.options.values or {}), **(values or {})}
        options = dataclasses.replace(self.options, shapes=shapes, values=known)
        return dataclasses.replace(self, options=options, until=_limit(options))

    def part(self, split: Split, shapes: Mapping[str, tuple[int, ...]]) -> Job:
        """Return the job of one part of a batch whose inputs have some shapes as a whole."""
        threads = self.options.machine.threads * self.options.streams // split.lanes
        options = dataclasses.replace(self.options, shapes=split.shapes(shapes), threads=threads)
        part = Job.of(self.source, options)
        return dataclasses.replace(part, weights=self.weights, until=self.until)


def _limit(options: Options) -> float:
    return time.monotonic() + options.measuring_seconds


Choose = Callable[["Planner"], Plan]
"""A strategy of the stage plan: which of the plans that a planner can make is used."""


@overload
def compile_model(job: Job, choose: Choose) -> CompiledModel: ...


@overload
def compile_model(job: Job, choose: Choose, *, until: Literal["plan"]) -> Plan: ...


def compile_model(
    job: Job, choose: Choose, *, until: Literal["plan", "load"] = "load"
) -> CompiledModel | Plan:
    """Compile a model: the flow.

    Args:
        job: the model and its options.
        choose: selects the plan, such as ``Planner.tuned``.
        until: the last stage.

    Raises:
        StridewiseError: a stage fails; see :func:`stridewise.compile` for the kinds of errors.
    """
    graph = import_model(job.source, job.options)
    simplified = simplified_graph(graph, job.options, job.arrays)
    derived = derive(simplified.graph, job.options.origins)
    plan = choose(Planner.of(job, simplified, derived))
    if until == "plan":
        return plan
    lowered = lower_plan(plan)
    return load(lowered, job.weights)


def import_model(source: ModelReader, options: Options) -> Graph:
    """Return the graph of a model in the user's axis order.

    Raises:
        StridewiseError: an InputError if options do not fit, an UnsupportedError if an operator
            is not supported; see :func:`stridewise.load` for others.
    """
    if options.keep_parameters and not source.is_graph:
        found = "a model file, whose weights are constants"
        raise InputError(describe("keep_parameters", expected="a graph", found=found))
    limit = checked_limit(options.memory_limit)
    return source.graph(options.shapes, options.values, memory_limit=limit)


def simplified_graph(
    graph: Graph, options: Options, arrays: ArrayStore | None = None
) -> Simplified:
    """Return the graph after all passes; ``arrays`` replace equal constants.

    Without ``arrays`` the result has constants of its own, which may be dropped.
    """
    found = simplify(graph, passes_for(ABILITY, keep_parameters=options.keep_parameters))
    if arrays is not None:
        return dataclasses.replace(found, graph=arrays.shared(found.graph))
    constants = {name: item.shared() for name, item in found.graph.constants.items()}
    own = dataclasses.replace(found.graph, constants=MappingProxyType(constants))
    return dataclasses.replace(found, graph=own)


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
    """

    job: Job
    derived: Derived
    refusals: tuple[Refusal, ...]
    target: Target
    machine: Machine
    oracle: KernelOracle
    reference: Reference | None = None
    budget: ErrorBudget | None = None

    @classmethod
    def of(cls, job: Job, simplified: Simplified, derived: Derived) -> Planner:
        """Return the planner for the target that the options name."""
        options, refusals = job.options, simplified.refusals
        table = table_target(options.target)
        if table is not None:
            return cls(job, derived, refusals, table, table.machine, table)
        machine = options.machine
        is_auto = options.dtype == "auto"
        precision = "bfloat16" if options.dtype == "auto" else options.dtype
        target = onednn_cpu(machine, options.accuracy, precision)
        oracle: KernelOracle = estimating_oracle(machine, target)
        if job.costs is not None:
            weights = sum(item.nbytes for item in derived.graph.constants.values())
            cold = weights > cache_nbytes(3) // 2
            times = KernelTimes(machine, target, job.costs, cold=cold)
            oracle = CalibratedOracle(times)
            if options.tune == "measure":
                rest = job.until - _RACE * (job.until - time.monotonic())
                oracle = MeasuringOracle(times, rest)
        reference = None
        if is_auto:
            _check_stateless(derived.graph)
            reference = Reference(derived.graph, machine, options.calibration, job.costs)
        return cls(job, derived, refusals, target, machine, oracle, reference)

    def __call__(self, oracle: KernelOracle) -> Sequence[Plan]:
        """Return the cheapest plan by the costs of an oracle, then the uniform ones."""
        options, graph = self.job.options, self.derived.graph
        edge = boundary(graph, options.input_formats, options.output_formats)
        basis = (self.derived, self.target, self.machine, oracle, options.progress)
        limit = options.weight_memory_limit
        plans = make_plans(*basis, self.refusals, edge, limit, self.budget)
        return within_limit(plans, checked_limit(options.memory_limit), options.streams)

    def cheapest(self) -> Plan:
        """Return the cheapest plan by the costs of isolated kernels."""
        return self._checked(lambda planner: planner(planner.oracle)[0])

    def tuned(self) -> Plan:
        """Return the plan that is fastest when run, or by calibrated costs; else the cheapest."""
        return self._checked(_tuned)

    def remembered(self) -> Plan:
        """Return the plan that :meth:`tuned` selects, if it is known without running plans.

        Nothing runs, except to measure errors of plans with an error budget.
        """
        return self._checked(_remembered)

    def _checked(self, choose: Choose) -> Plan:
        """Return the plan that a strategy chooses; with an error budget, one that keeps it."""
        if self.reference is None:
            return choose(self)
        within = self.job.options.max_error
        return within_budget(
            lambda budget: choose(dataclasses.replace(self, budget=budget)), self.reference, within
        )


def _tuned(planner: Planner) -> Plan:
    job, oracle = planner.job, planner.oracle
    if job.costs is None or isinstance(oracle, CalibratedOracle):
        return _remembered(planner)
    return tuned(planner, oracle, job.costs, job.weights, job.until)


def _remembered(planner: Planner) -> Plan:
    job, oracle = planner.job, planner.oracle
    if job.costs is None:
        return planner(oracle)[0]
    if isinstance(oracle, CalibratedOracle):
        return calibrated(planner, oracle, job.options.progress, job.until)
    return remembered(planner, oracle, job.costs)


def _check_stateless(graph: Graph) -> None:
    """Check that a graph computes the same in each run, so that errors can be measured."""
    if graph.updates or graph.parameters:
        found = "parameters or states that change"
        where, fix = "dtype 'auto'", "choose 'float32' or 'bfloat16'"
        raise InputError(describe(where, expected="a graph of constants", found=found, fix=fix))
