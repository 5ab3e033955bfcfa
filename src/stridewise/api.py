"""What users call: the stages put together."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stridewise.errors import ExecutionError, InputError, PlanError, PlanWarning, describe
from stridewise.formats import Format
from stridewise.graph import Graph
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.passes import simplify
from stridewise.planner import Expectations, Plan, check, derive, files, make_plans
from stridewise.planner.cost import KernelOracle, Progress, Roofline
from stridewise.planner.document import PlanRecord
from stridewise.planner.targets import Machine, Target, onednn_cpu
from stridewise.runtime.cache import CostCache
from stridewise.runtime.contest import fastest
from stridewise.runtime.executor import CompiledModel
from stridewise.runtime.machine import last_level_cache_nbytes, this_machine
from stridewise.runtime.oracle import MeasuringOracle

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["PlanSource", "Tune", "assert_plan", "compile", "load", "load_plan", "plan"]

Tune = Literal["measure", "model"]

PlanSource = str | os.PathLike[str] | Plan
"""Decisions to use again: a plan file, or a plan of the same graph."""

TARGETS = {"onednn-cpu": onednn_cpu}

# One AVX-512 core of today does about 100 GFLOP/s in float32 and shares some 40 GB/s.
_FLOPS_PER_CORE = {True: 1.0e11, False: 5.0e10}
_BANDWIDTH = 4.0e10


def load(
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Graph:
    """Return the graph of a model, as the user wrote it.

    Args:
        source: path of an ONNX file, its bytes, an ``onnx.ModelProto``, or a graph.
        shapes: shapes of inputs, where the model leaves them open or others are wanted.

    Raises:
        ModelError: the model is damaged or uses something unsupported.
        InputError: ``shapes`` names no input of the model, or does not fit it.
        GraphError: a given graph breaks an invariant.
    """
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
        return source
    from stridewise.frontends.onnx import import_model  # noqa: PLC0415 (onnx takes time to load)

    if isinstance(source, os.PathLike):
        source = Path(source)
    return import_model(source, shapes=shapes)


def _target(name: str, machine: Machine) -> Target:
    if name not in TARGETS:
        raise InputError(
            describe("target", expected=f"one of {', '.join(TARGETS)}", found=repr(name))
        )
    return TARGETS[name](machine)


def _restored(
    decided: PlanSource,
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    shapes: Mapping[str, Sequence[int]] | None,
    target: str | None,
    machine: Machine,
) -> Plan:
    """Return a plan of a model whose decisions were made before; nothing is measured."""
    if isinstance(decided, Plan):
        where, record = f"plan {decided.name!r}", PlanRecord.of(decided)
    else:
        where, record = f"plan file {os.fspath(decided)!r}", files.read(decided)
    # Formats and kernels are those of the machine that the plan was made for.
    wanted = _target(target or record.target, record.machine)
    derived = derive(simplify(load(source, shapes)).graph)
    found = files.restore(record, derived, wanted, machine, where)
    for note in found.notes[len(record.notes) :]:
        # The levels are this function and the public one that called it.
        warnings.warn(f"{where}: {note}; costs may not hold here", PlanWarning, stacklevel=3)
    return found


def _compiled(decided: PlanSource, plan: Plan) -> CompiledModel:
    try:
        return CompiledModel(plan)
    except ExecutionError as error:
        name = decided.name if isinstance(decided, Plan) else os.fspath(decided)
        raise PlanError(
            describe(
                f"plan {name!r}",
                expected="kernels that this library has",
                found=str(error).partition("; ")[0],
                fix="plan again on this machine: stridewise plan MODEL --save FILE",
            )
        ) from error


def _plans(
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    shapes: Mapping[str, Sequence[int]] | None,
    target: str,
    machine: Machine,
    tune: Tune,
    cache: CostCache,
    progress: Progress | None,
) -> tuple[Plan, ...]:
    """Return the cheapest plan, and the cheapest in each kind of format."""
    chosen = _target(target, machine)
    if tune not in ("measure", "model"):
        raise InputError(describe("tune", expected="'measure' or 'model'", found=repr(tune)))
    simplified = simplify(load(source, shapes))
    oracle: KernelOracle
    if tune == "measure":
        weights = sum(item.array.nbytes for item in simplified.graph.constants.values())
        cold = weights > last_level_cache_nbytes() // 2
        oracle = MeasuringOracle(machine, cache, cold_weights=cold)
    else:
        peak = machine.threads * _FLOPS_PER_CORE[machine.has_avx512]
        oracle = Roofline(peak, _BANDWIDTH, chosen.efficiency)
    return make_plans(
        derive(simplified.graph), chosen, machine, oracle, progress, simplified.refusals
    )


def plan(
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    target: str = "onednn-cpu",
    tune: Tune = "measure",
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    plan: PlanSource | None = None,
) -> Plan:
    """Decide how every tensor of a model is stored and which kernel computes each node.

    Args:
        source: path of an ONNX file, its bytes, an ``onnx.ModelProto``, or a graph.
        shapes: shapes of inputs, where the model leaves them open or others are wanted.
        threads: how many threads will run the model; all CPUs of this process by default.
        target: what to plan for; ``"onednn-cpu"``.
        tune: ``"measure"`` times the kernels that the cost cache lacks, ``"model"`` estimates all.
        cache_dir: folder of the cost cache; the user's cache folder by default.
        progress: called as ``progress(done, total, kind)`` while kernels are timed.
        plan: a plan file, or a plan of the same graph, whose decisions and costs are used again;
            nothing is decided or timed then, and ``tune`` means nothing.

    Raises:
        ModelError: the model is damaged or uses something unsupported.
        InputError: an argument does not fit.
        PlanError: no combination of kernels computes the model; or the given plan is damaged, of
            another model, or decides what does not exist here.
        LibraryError: libdnnl cannot be loaded.

    Warns:
        PlanWarning: the given plan was made for another machine, library or number of threads.
    """
    machine = this_machine(threads)
    if plan is not None:
        return _restored(plan, source, shapes, target, machine)
    cache = CostCache(machine, None if cache_dir is None else Path(cache_dir))
    return _plans(source, shapes, target, machine, tune, cache, progress)[0]


def compile(  # noqa: A001 (the public name; the built-in is never wanted beside it)
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    target: str = "onednn-cpu",
    tune: Tune = "measure",
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    plan: PlanSource | None = None,
) -> CompiledModel:
    """Make a model ready to run; the arguments are those of :func:`plan`.

    With ``tune="measure"`` the plan is run against the uniform ones that promise to come near it,
    and gives way to one that is clearly faster on the clock. The outcome is kept in the cache. With
    ``plan``, its decisions are used as they are: nothing is timed and no plan runs against others.

    Raises:
        ModelError: the model is damaged or uses something unsupported.
        InputError: an argument does not fit.
        PlanError: no combination of kernels computes the model; or the given plan is damaged, of
            another model, or counts on kernels that do not exist here.
        LibraryError: libdnnl cannot be loaded.
        ExecutionError: the library refuses a kernel that the plan counts on.

    Warns:
        PlanWarning: the given plan was made for another machine, library or number of threads.
    """
    machine = this_machine(threads)
    if plan is not None:
        return _compiled(plan, _restored(plan, source, shapes, target, machine))
    cache = CostCache(machine, None if cache_dir is None else Path(cache_dir))
    plans = _plans(source, shapes, target, machine, tune, cache, progress)
    return fastest(plans, cache) if tune == "measure" else CompiledModel(plans[0])


def load_plan(
    path: str | os.PathLike[str],
    source: str | os.PathLike[str] | bytes | Graph | ModelProto,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
) -> Plan:
    """Return the plan in a file that :meth:`stridewise.Plan.save` wrote, for its model.

    The model is needed, as files hold decisions and costs, and neither graph nor weights. Nothing
    is measured. A plan that was made for another machine says so in ``Plan.notes``.

    Args:
        path: the plan file.
        source: the model, as for :func:`plan`.
        shapes: shapes of inputs, where the model leaves them open or others are wanted.
        threads: how many threads will run the model; all CPUs of this process by default.

    Raises:
        PlanError: the file is damaged, of another version, of another model (the message names the
            first node that differs), or decides what does not exist here.
        ModelError: the model is damaged or uses something unsupported.
        InputError: an argument does not fit.
        LibraryError: libdnnl cannot be loaded.

    Warns:
        PlanWarning: the plan was made for another machine, library or number of threads.
    """
    return _restored(path, source, shapes, None, this_machine(threads))


def assert_plan(
    plan_or_model: Plan | CompiledModel,
    *,
    max_reorders: int | None = None,
    max_moved_nbytes: int | None = None,
    no_fallback: bool | None = None,
    formats: Mapping[str, str | Format] | None = None,
    max_gap: float | None = 0.0,
    max_cost_ns: float | None = None,
) -> None:
    """Check in a test of your own that a plan is what you count on.

    Args:
        plan_or_model: the plan, or a compiled model, for its plan.
        max_reorders: the most reorders that are acceptable.
        max_moved_nbytes: the most bytes that steps may write which only move them.
        no_fallback: whether the library's naive reference loops are unacceptable.
        formats: the format that each of some tensors (or nodes, for their first output) is produced
            in: a kind of the target, a name in any dialect, or a format.
        max_gap: how far from the optimum the plan may be, as a part of its cost; None for any.
        max_cost_ns: the longest predicted time of a run.

    Raises:
        PlanAssertionError: something does not hold; the message names every such thing, with the
            nodes and tensors.
        InputError: neither a plan nor a compiled model is given.

    >>> import stridewise as sw
    >>> b = sw.GraphBuilder("double")
    >>> x = b.input("x", (1, 2))
    >>> model = sw.compile(b.build([b.op("add", [x, x], output="y")]), tune="model")
    >>> sw.assert_plan(model, max_reorders=0, formats={"y": "plain"})
    """
    found = getattr(plan_or_model, "plan", plan_or_model)
    if not isinstance(found, Plan):
        raise InputError(
            describe(
                "assert_plan",
                expected="a plan or a compiled model",
                found=type(found).__name__,
                fix="give sw.plan(...) or sw.compile(...)",
            )
        )
    wanted = Expectations(
        max_reorders, max_moved_nbytes, no_fallback, formats or {}, max_gap, max_cost_ns
    )
    check(found, wanted)
