"""What users call: the stages put together."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stridewise.errors import InputError, describe
from stridewise.graph import Graph
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.ops.demand import check_demand, memory_demand
from stridewise.passes import Simplified, simplify
from stridewise.planner import Plan, derive, make_plans
from stridewise.planner.boundary import Wanted, boundary
from stridewise.planner.cost import KernelOracle, Progress, Roofline
from stridewise.planner.targets import Machine, Target, onednn_cpu
from stridewise.runtime.cache import CostCache
from stridewise.runtime.demand import checked_limit, within_limit
from stridewise.runtime.executor import CompiledModel
from stridewise.runtime.machine import last_level_cache_nbytes, this_machine
from stridewise.runtime.oracle import MeasuringOracle
from stridewise.runtime.tuning import compile_tuned, remembered

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["Tune", "compile", "load", "plan"]

Tune = Literal["measure", "model"]

TARGETS = {"onednn-cpu": onednn_cpu}

# One AVX-512 core of today does about 100 GFLOP/s in float32 and shares some 40 GB/s.
_FLOPS_PER_CORE = {True: 1.0e11, False: 5.0e10}
_BANDWIDTH = 4.0e10


def load(
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    memory_limit: int | None = None,
) -> Graph:
    """Return the graph of a model, as the user wrote it.

    Args:
        source: path of an ONNX file, its bytes, an ``onnx.ModelProto``, or a graph.
        shapes: shapes of inputs, where the model leaves them open or others are wanted.
        memory_limit: bytes that the model may need to run; by default three quarters of the memory.

    Raises:
        ModelError: the model is damaged or uses something unsupported.
        MemoryLimitError: the model needs more memory than that; the message has the estimate.
        InputError: ``shapes`` names no input of the model, or does not fit it.
        GraphError: a given graph breaks an invariant.
    """
    limit = checked_limit(memory_limit)
    if isinstance(source, Graph):
        if shapes:
            raise InputError(
                describe(
                    "shapes",
                    expected="none for a graph, whose shapes are fixed",
                    found=", ".join(shapes),
                    fix="build the graph with those shapes",
                )
            )
        verify(source, infer)
        check_demand(f"graph {source.name!r}", memory_demand(source), limit)
        return source
    from stridewise.frontends.onnx import import_model  # noqa: PLC0415 (onnx takes time to load)

    if isinstance(source, os.PathLike):
        source = Path(source)
    return import_model(source, shapes=shapes, memory_limit=limit)


@dataclass(frozen=True, slots=True)
class _Request:
    """A model and how it is wanted; the arguments of :func:`plan`, checked."""

    source: str | os.PathLike[str] | bytes | Graph | ModelProto
    shapes: Mapping[str, Sequence[int]] | None
    threads: int | None
    target: str
    tune: Tune
    cache_dir: str | os.PathLike[str] | None
    input_formats: Wanted | None
    output_formats: Wanted | None
    progress: Progress | None
    memory_limit: int | None

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            known = ", ".join(TARGETS)
            raise InputError(
                describe("target", expected=f"one of {known}", found=f"{self.target!r}")
            )
        if self.tune not in ("measure", "model"):
            expected = "'measure' or 'model'"
            raise InputError(describe("tune", expected=expected, found=repr(self.tune)))

    def work(self) -> _Work:
        """Import and simplify the model, and prepare what knows its costs."""
        machine = this_machine(self.threads)
        cache = CostCache(machine, None if self.cache_dir is None else Path(self.cache_dir))
        target = TARGETS[self.target](machine)
        simplified = simplify(load(self.source, self.shapes, memory_limit=self.memory_limit))
        oracle: KernelOracle
        if self.tune == "measure":
            weights = sum(item.array.nbytes for item in simplified.graph.constants.values())
            cold = weights > last_level_cache_nbytes() // 2
            oracle = MeasuringOracle(machine, cache, cold_weights=cold)
        else:
            peak = machine.threads * _FLOPS_PER_CORE[machine.has_avx512]
            oracle = Roofline(peak, _BANDWIDTH, target.efficiency)
        return _Work(self, simplified, target, machine, cache, oracle)


@dataclass(frozen=True, slots=True)
class _Work:
    """A model on its way to a plan."""

    request: _Request
    simplified: Simplified
    target: Target
    machine: Machine
    cache: CostCache
    oracle: KernelOracle

    def plans(self, oracle: KernelOracle) -> tuple[Plan, ...]:
        """Return the cheapest plan by the costs of an oracle, and the uniform ones."""
        derived = derive(self.simplified.graph)
        request = self.request
        plans = make_plans(
            derived,
            self.target,
            self.machine,
            oracle,
            request.progress,
            self.simplified.refusals,
            boundary(derived.graph, request.input_formats, request.output_formats),
        )
        return within_limit(plans, checked_limit(request.memory_limit))


def plan(  # noqa: PLR0913 (keyword arguments of the public interface)
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    target: str = "onednn-cpu",
    tune: Tune = "measure",
    cache_dir: str | os.PathLike[str] | None = None,
    input_formats: Wanted | None = None,
    output_formats: Wanted | None = None,
    progress: Progress | None = None,
    memory_limit: int | None = None,
) -> Plan:
    """Decide how every tensor of a model is stored and which kernel computes each node.

    Args:
        source: path of an ONNX file, its bytes, an ``onnx.ModelProto``, or a graph.
        shapes: shapes of inputs, where the model leaves them open or others are wanted.
        threads: how many threads will run the model; all CPUs of this process by default.
        target: what to plan for; ``"onednn-cpu"``.
        tune: ``"measure"`` times the kernels that the cost cache lacks, and returns the plan that
            :func:`compile` settled on where it has run this model; ``"model"`` estimates all.
        cache_dir: folder of the cost cache; the user's cache folder by default.
        input_formats: for some inputs, the formats that the caller can give them in, by any name:
            ``{"x": ["NCHW", "NHWC"]}``. The plan picks one, ``Plan.input_formats`` says which, and
            arrays then have its storage shape. By default inputs come in the model's own order.
        output_formats: likewise, the formats that the caller can use outputs in.
        progress: called as ``progress(done, total, kind)`` while kernels are timed.
        memory_limit: bytes that the model may need to run; by default three quarters of the memory.

    Raises:
        ModelError: the model is damaged or uses something unsupported.
        MemoryLimitError: the model needs more memory than it may have.
        InputError: an argument does not fit.
        FormatError: a format of an input or output is unknown, or does not suit it.
        PlanError: no combination of kernels computes the model.
        LibraryError: libdnnl cannot be loaded.
    """
    work = _Request(
        source, shapes, threads, target, tune, cache_dir, input_formats, output_formats, progress,
        memory_limit,
    ).work()  # fmt: skip
    if tune == "measure":
        return remembered(work.plans, work.oracle, work.cache)
    return work.plans(work.oracle)[0]


def compile(  # noqa: A001, PLR0913 (the public name; keyword arguments as above)
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    target: str = "onednn-cpu",
    tune: Tune = "measure",
    cache_dir: str | os.PathLike[str] | None = None,
    input_formats: Wanted | None = None,
    output_formats: Wanted | None = None,
    progress: Progress | None = None,
    memory_limit: int | None = None,
) -> CompiledModel:
    """Make a model ready to run; the arguments are those of :func:`plan`.

    With ``tune="measure"`` the plan is run, its costs are corrected by what kernels take in place,
    and the graph is planned again until the plan stays. Uniform plans that promise to come near it
    run against it, and it gives way to one that is clearly faster on the clock. The outcome is kept
    in the cache.

    Raises:
        ModelError: the model is damaged or uses something unsupported.
        MemoryLimitError: the model needs more memory than it may have.
        InputError: an argument does not fit.
        FormatError: a format of an input or output is unknown, or does not suit it.
        PlanError: no combination of kernels computes the model.
        LibraryError: libdnnl cannot be loaded.
        ExecutionError: the library refuses a kernel that the plan counts on.
    """
    work = _Request(
        source, shapes, threads, target, tune, cache_dir, input_formats, output_formats, progress,
        memory_limit,
    ).work()  # fmt: skip
    if tune == "measure":
        return compile_tuned(work.plans, work.oracle, work.cache)
    return CompiledModel(work.plans(work.oracle)[0])
