"""Planning, compiling by the whole flow, and checking plans."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from numpy.typing import ArrayLike

from stridewise.api.dynamic import ModelSpecializer, compile_file, plan_file
from stridewise.api.restored import name_of, restored
from stridewise.compiler import compile_model
from stridewise.errors import ExecutionError, InputError, PlanError, describe
from stridewise.formats import Format
from stridewise.frontends.registry import TORCH, ModelSource, open_model
from stridewise.graph import Shapes
from stridewise.job import Job
from stridewise.options import Options, PlanOptions, TargetName, checked, documented
from stridewise.planner import Expectations, check
from stridewise.planner.derivation.derive import Origins
from stridewise.planning import Plan
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.model import Model
from stridewise.strategy import Planner

__all__ = ["assert_plan", "compiled", "job_of", "load_plan", "plan"]


@documented(PlanOptions)
def plan(
    source: ModelSource,
    example_inputs: Any = None,
    *,
    target: TargetName | None = None,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Decide how every tensor of a model is stored and which kernel computes each node.

    Args:
        source: path of an ONNX file, its bytes, an ``onnx.ModelProto``, a graph, a
            ``torch.nn.Module``, or a ``torch.export.ExportedProgram``.
        example_inputs: positional arguments of a module, which is exported for them.
        target: see :class:`stridewise.options.Options`.
        **options: see :class:`stridewise.options.Options`.

    Raises:
        ModelError: the model is damaged.
        UnsupportedError: it uses something unsupported, without ``fallback`` or there as well.
        DependencyError: it needs ONNX Runtime, which is not installed.
        MemoryLimitError: the model needs more memory than it may have; the message says how much.
        InputError: an argument does not fit.
        FormatError: a format of an input or output is unknown, or does not suit it.
        TargetError: the file of a target is damaged.
        PlanError: no combination of kernels computes the model; or the given plan is damaged, of
            another model, or decides what does not exist here.
        LibraryError: libdnnl cannot be loaded.

    Warns:
        PlanWarning: the given plan was made for another machine, library or number of threads.
    """
    checked("plan", options, PlanOptions)
    found = Options(target=target, **options)
    return _planned(job_of(source, found, example_inputs))


def job_of(source: ModelSource, options: Options, example_inputs: Any = None) -> Job:
    """Return the job of a call: the opened model, with shapes and values of arrays.

    Args:
        source: as for :func:`plan`.
        options: how it is compiled.
        example_inputs: positional arguments of a module, which is exported for them.

    Raises:
        StridewiseError: as :func:`open_model`.
    """
    if example_inputs is not None:
        source = TORCH.with_inputs(source, example_inputs, options.shapes)
    reader = open_model(source, fallback=options.fallback)
    if reader.calls is not None:
        shapes, values = options.shapes or {}, options.values or {}
        options = dataclasses.replace(
            options, shapes=reader.calls.stored(shapes), values=reader.calls.named(values)
        )
    return Job.of(reader, options)


def reopened(path: Path, options: Options, leader: Plan) -> ModelSpecializer:
    """Return what makes more programs of a model whose first program comes from the store.

    Args:
        path: the model's file.
        options: how the model is compiled.
        leader: the plan of the first program.
    """
    return ModelSpecializer.again(job_of(path, options), leader)


def _planned(job: Job) -> Plan:
    """Return the plan by the wrapper of the flow that the options need."""
    if job.options.plan is not None:
        return compile_model(*restored(job), until="plan")
    if job.source.is_graph or not job.options.is_native:
        return compile_model(job, Planner.remembered, until="plan")
    return plan_file(job)


def compiled(job: Job) -> Model:
    """Return the model by the wrapper of the flow that the options need.

    Raises:
        InputError: the options have streams for a simulated target.
        PlanError: the given plan uses kernels that do not exist here.
        StridewiseError: as for :func:`stridewise.compile`.
    """
    decided = job.options.plan
    if decided is None and job.options.is_native:
        is_graph = job.source.is_graph
        return compile_model(job, Planner.tuned) if is_graph else compile_file(job)
    job, choose = (job, Planner.cheapest) if decided is None else restored(job)
    if not job.options.is_native:
        plan = compile_model(job, choose, until="plan")
        if job.options.streams > 1:
            expected = f"1, as target {plan.target.name} is simulated"
            raise InputError.at("streams", expected=expected, found=str(job.options.streams))
        from stridewise.runtime.simulation.simulate import SimulatedModel  # noqa: PLC0415 (rare)

        return SimulatedModel(plan)
    try:
        return compile_model(job, choose)
    except ExecutionError as error:
        expected, reason = "kernels that this library has", str(error).partition("; ")[0]
        fix = "plan again on this machine: stridewise plan MODEL --save FILE"
        message = describe(name_of(job.options), expected=expected, found=reason, fix=fix)
        raise PlanError(message) from error


def load_plan(
    path: str | os.PathLike[str],
    source: ModelSource,
    *,
    shapes: Shapes | None = None,
    values: Mapping[str, ArrayLike] | None = None,
    threads: int | None = None,
    origins: Origins | None = None,
) -> Plan:
    """Return the plan in a file that :meth:`stridewise.Plan.save` wrote, for its model.

    The model is needed, because files hold decisions and costs, but neither graph nor weights.
    Nothing is measured. If the plan was made for another machine, ``Plan.notes`` says so.

    Args:
        path: the plan file.
        source: the model, as for :func:`plan`.
        shapes: as for :func:`plan`.
        values: as for :func:`plan`.
        threads: as for :func:`plan`.
        origins: the meaning of axes that was declared when the plan was made.

    Raises:
        PlanError: the file is damaged, of another version, of another model (the message names the
            first node that differs), or decides what does not exist here.
        ModelError: the model is damaged or uses something unsupported.
        InputError: an argument does not fit.
        LibraryError: libdnnl cannot be loaded.

    Warns:
        PlanWarning: the plan was made for another machine, library or number of threads.
    """
    if not isinstance(path, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError.at("load_plan", expected="the path of a plan file", found=repr(path))
    options = Options(shapes=shapes, values=values, threads=threads, origins=origins, plan=path)
    return _planned(job_of(source, options))


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
    """Check, in a test, that a plan has some required properties.

    Args:
        plan_or_model: the plan, or a compiled model, for its plan.
        max_reorders: the most reorders that are acceptable.
        max_moved_nbytes: the most bytes that steps may write which only move them.
        no_fallback: whether the library's naive reference loops, and parts that ONNX Runtime
            computes, are unacceptable.
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
        raise InputError.at(
            "assert_plan",
            expected="a plan or a compiled model",
            found=type(found).__name__,
            fix="give sw.plan(...) or sw.compile(...)",
        )
    wanted = Expectations(
        max_reorders, max_moved_nbytes, no_fallback, formats or {}, max_gap, max_cost_ns
    )
    check(found, wanted)
