"""From the arguments of a call to what plans the model: target, machine, cache and oracle."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from numpy.typing import ArrayLike

from stridewise.api.models import ModelSource, load
from stridewise.api.options import Later, PlanSource, TargetName, Tune
from stridewise.errors import InputError, PlanError, PlanWarning, describe
from stridewise.graph import Graph, Shapes
from stridewise.passes import Simplified, passes_for, simplify
from stridewise.planner import Derived, derive
from stridewise.planner.derivation.derive import Origins
from stridewise.planner.documents import files
from stridewise.planner.documents.document import PlanRecord
from stridewise.planner.problem.io_formats import Wanted, boundary
from stridewise.planner.questions.winograd_weights import check_weight_limit
from stridewise.planner.split import WHOLE, Split
from stridewise.planning import Plan, make_plans
from stridewise.runtime.binding.weights import WeightStore
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.streams import stream_threads
from stridewise.runtime.lowering.memory_limit import checked_limit, within_limit
from stridewise.runtime.machine.machine import cache_nbytes, this_machine
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.oracle import MeasuringOracle
from stridewise.runtime.tuning.tuning import compile_tuned, remembered
from stridewise.targets.cost import KernelOracle, Progress, Roofline
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import ABILITY, onednn_cpu
from stridewise.targets.tables.load import SHIPPED, load_target, shipped
from stridewise.targets.tables.table import TableTarget
from stridewise.targets.target import Accuracy, Precision, Target

__all__ = ["NATIVE", "TARGETS", "Request", "Work"]

NATIVE = "onednn-cpu"
"""The target that runs on this machine."""

TARGETS = (NATIVE, *SHIPPED)
"""Names of targets. The first runs on this machine; the others are simulated."""

# One AVX-512 core of today does about 100 GFLOP/s in float32 and shares some 40 GB/s.
_FLOPS_PER_CORE = {True: 1.0e11, False: 5.0e10}
_BANDWIDTH = 4.0e10
# Twice the products an instruction; without such instructions, elements are widened first.
_BFLOAT16_RATE = {True: 2.0, False: 0.8}

_CHOICES = {
    "tune": ("measure", "model"),
    "accuracy": ("fast", "exact"),
    "dtype": ("float32", "bfloat16"),
    "later": ("follow", "tune"),
}
"""Arguments that are one of some words."""

_CALLERS = 4
"""Frames between a warning and who called the public function."""


def _table(target: TargetName) -> TableTarget | None:
    """Return a target of formats and rates, or None for the one with kernels."""
    name = os.fspath(target)
    if name == NATIVE:
        return None
    if name in SHIPPED:
        return shipped(name)
    if isinstance(target, str) and not name.endswith(".toml"):
        raise InputError(
            describe(
                "target",
                expected=f"one of {', '.join(TARGETS)}, or a .toml file",
                found=repr(name),
            )
        )
    return load_target(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A model and how it is wanted: the arguments of the public functions, with their defaults."""

    source: ModelSource
    shapes: Shapes | None = None
    values: Mapping[str, ArrayLike] | None = None
    threads: int | None = None
    streams: int = 1
    target: TargetName | None = None
    tune: Tune = "measure"
    cache_dir: str | os.PathLike[str] | None = None
    origins: Origins | None = None
    input_formats: Wanted | None = None
    output_formats: Wanted | None = None
    progress: Progress | None = None
    memory_limit: int | None = None
    accuracy: Accuracy = "fast"
    dtype: Precision = "float32"
    weight_memory_limit: int | None = None
    fallback: bool = True
    plan: PlanSource | None = None
    max_programs: int = 8
    max_program_nbytes: int | None = None
    later: Later = "follow"
    ready_limit: int | None = None
    verify: bool = True
    keep_originals: bool = False

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            given = getattr(self, name)
            if given not in known:
                expected = " or ".join(map(repr, known))
                raise InputError(describe(name, expected=expected, found=repr(given)))
        limit = self.weight_memory_limit
        if limit is not None and (isinstance(limit, bool) or limit < 0):
            expected = "a number of bytes, 0 or more"
            raise InputError(describe("weight_memory_limit", expected=expected, found=repr(limit)))
        ready = self.ready_limit
        if ready is not None and (isinstance(ready, bool) or ready < 0):
            expected = "a number of bytes, 0 or more"
            raise InputError(describe("ready_limit", expected=expected, found=repr(ready)))

        if self.streams != 1:
            stream_threads(self.threads, self.streams)

    @property
    def has_formats(self) -> bool:
        """Whether the caller says in which formats inputs or outputs may be."""
        return bool(self.input_formats or self.output_formats)

    @property
    def machine(self) -> Machine:
        """This machine, with as many threads as each stream has."""
        return this_machine(stream_threads(self.threads, self.streams))

    def simplified(self) -> Simplified:
        """Import and simplify the model.

        The constants are this request's own, to be dropped without asking who else has the graph.
        """
        graph = load(
            self.source,
            self.shapes,
            self.values,
            memory_limit=self.memory_limit,
            fallback=self.fallback,
        )
        found = simplify(graph, passes_for(ABILITY))
        constants = {name: item.shared() for name, item in found.graph.constants.items()}
        owning = dataclasses.replace(found.graph, constants=MappingProxyType(constants))
        return dataclasses.replace(found, graph=owning)

    def part(self, split: Split, shapes: Mapping[str, tuple[int, ...]]) -> Request:
        """Return how one part of a batch is wanted: its shapes, and the threads that it has.

        Args:
            split: the parts.
            shapes: of all inputs, for the whole batch.
        """
        threads = self.machine.threads * self.streams // split.lanes
        return dataclasses.replace(self, shapes=split.shapes(shapes), threads=threads)

    def work(self, simplified: Simplified | None = None) -> Work:
        """Prepare what knows the costs of the model, or of one that is already simplified."""
        table = _table(self.target or NATIVE)
        simplified = simplified or self.simplified()
        if table is not None:
            self._check_dtype()
            return Work(self, simplified, table, table.machine, None, table)
        machine = self.machine
        cache = CostCache(machine, None if self.cache_dir is None else Path(self.cache_dir))
        target = onednn_cpu(machine, self.accuracy, self.dtype)
        oracle: KernelOracle
        if self.tune == "measure":
            weights = sum(item.nbytes for item in simplified.graph.constants.values())
            cold = weights > cache_nbytes(3) // 2
            oracle = MeasuringOracle(machine, cache, cold_weights=cold)
            return Work(self, simplified, target, machine, cache, oracle)
        peak = machine.threads * _FLOPS_PER_CORE[machine.has_avx512]
        rate = _BFLOAT16_RATE[machine.has_bfloat16]
        oracle = Roofline(peak, _BANDWIDTH, target.efficiency, bfloat16_rate=rate)
        return Work(self, simplified, target, machine, None, oracle)

    def _check_dtype(self) -> None:
        if self.dtype != "float32":
            fix = f"leave it out, or plan for {NATIVE}"
            found = f"{self.dtype!r}, with target {os.fspath(self.target or '')}"
            raise InputError(describe("dtype", expected="'float32'", found=found, fix=fix))

    def planned(self) -> Plan:
        """Return the plan: the one that is given, or the one that compiling would settle on."""
        return self.work().planned() if self.plan is None else self.restored(self.plan)

    def restored(self, decided: PlanSource) -> Plan:
        """Return a plan whose decisions were made before; nothing is measured.

        Raises:
            PlanError: the decisions are damaged, or do not fit the model or this release.
        """
        if isinstance(decided, Plan):
            where, record = f"plan {decided.name!r}", PlanRecord.of(decided)
        else:
            where, record = f"plan file {os.fspath(decided)!r}", files.read(decided)
        if self.target is None and record.target not in TARGETS:
            raise PlanError(
                describe(
                    where,
                    expected=f"a plan for target {', '.join(TARGETS)}",
                    found=record.target,
                    fix="give target= the TOML file of that target",
                )
            )
        table = _table(self.target or record.target)
        # Formats and kernels are those of the machine that the plan was made for.
        target = table or onednn_cpu(record.machine, self.accuracy, record.dtype)
        request = self if record.split == WHOLE else self._part_of(record.split, where)
        machine = table.machine if table else request.machine
        derived = derive(request.simplified().graph, self.origins)
        found = Plan.of(files.restore(record, derived, target, machine, where))
        check_weight_limit(found, self.weight_memory_limit, where)
        for note in found.notes[len(record.notes) :]:
            message = f"{where}: {note}; costs may not hold here"
            warnings.warn(message, PlanWarning, stacklevel=_CALLERS)
        return found

    def _part_of(self, split: Split, where: str) -> Request:
        """Return the request for one part of the model's batch.

        Raises:
            PlanError: there are no such parts.
        """
        if isinstance(self.source, Graph):
            found = "a graph, whose shapes are fixed"
        else:
            graph = load(self.source, self.shapes, self.values, fallback=self.fallback)
            shapes = {name: graph.values[name].shape for name in graph.inputs}
            if all(shape and shape[0] % split.parts == 0 for shape in shapes.values()):
                return self.part(split, shapes)
            found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        expected = f"a model file with a batch of {split.parts} parts"
        raise PlanError(describe(where, expected=expected, found=found))


@dataclass(frozen=True, slots=True)
class Work:
    """A model on its way to a plan.

    Attributes:
        request: what was asked for.
        simplified: the graph, and what the passes left alone.
        target: what to plan for.
        machine: what the costs hold for.
        cache: where measured costs are kept; None where nothing is measured.
        oracle: knows the costs.
    """

    request: Request
    simplified: Simplified
    target: Target
    machine: Machine
    cache: CostCache | None
    oracle: KernelOracle

    def planned(self) -> Plan:
        """Return the plan that compiling settled on where it has run the model, else the cheapest.

        Nothing is run for it.
        """
        if self.cache is None:
            return self.plans(self.oracle)[0]
        return remembered(self.plans, self.oracle, self.cache)

    def compiled(self, weights: WeightStore | None = None) -> CompiledModel:
        """Return the model that is ready to run, tuned if that was asked for.

        Args:
            weights: packed constants of other programs; see :class:`CompiledModel`.
        """
        if self.cache is None:
            return self.untuned(weights)
        return compile_tuned(self.plans, self.oracle, self.cache, weights)

    def untuned(self, weights: WeightStore | None = None) -> CompiledModel:
        """Return the model of the cheapest plan by the costs of isolated kernels.

        Args:
            weights: as for :meth:`compiled`.
        """
        return CompiledModel(self.plans(self.oracle)[0], weights)

    def plans(self, oracle: KernelOracle) -> Sequence[Plan]:
        """Return the cheapest plan by the costs of an oracle, and the uniform ones."""
        derived: Derived = derive(self.simplified.graph, self.request.origins)
        request = self.request
        plans = make_plans(
            derived,
            self.target,
            self.machine,
            oracle,
            request.progress,
            self.simplified.refusals,
            boundary(derived.graph, request.input_formats, request.output_formats),
            request.weight_memory_limit,
        )
        return within_limit(plans, checked_limit(request.memory_limit), request.streams)
