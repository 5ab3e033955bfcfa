"""Planning, compiling, and checking plans."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, Unpack, overload

from numpy.typing import ArrayLike

from stridewise.api.dynamic import compile_file, plan_file
from stridewise.api.models import ModelSource, model_file
from stridewise.api.options import (
    CompileOptions,
    GraphCompileOptions,
    PlanOptions,
    PlanSource,
    TargetName,
    checked,
    documented,
)
from stridewise.api.ready import find_ready
from stridewise.api.request import NATIVE, Request
from stridewise.api.sources import source_of
from stridewise.errors import ExecutionError, InputError, PlanError, describe
from stridewise.formats import Format
from stridewise.graph import Graph, Shapes
from stridewise.planner import Expectations, check
from stridewise.planner.derivation.derive import Origins
from stridewise.planning import Plan
from stridewise.runtime.execution.dynamic import DynamicModel
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.model import Model, Source
from stridewise.runtime.execution.streams import Streams
from stridewise.runtime.simulation.simulate import SimulatedModel

__all__ = ["assert_plan", "compile", "load_plan", "plan"]


@documented(Request, PlanOptions)
def plan(
    source: ModelSource, *, target: TargetName | None = None, **options: Unpack[PlanOptions]
) -> Plan:
    """Decide how every tensor of a model is stored and which kernel computes each node.

    Args:
        source: path of an ONNX file, its bytes, an ``onnx.ModelProto``, or a graph.
        shapes: shapes of inputs, where the model leaves them open or others are wanted. Extents
            that are open, ranges or choices get their least number.
        values: values of inputs that become constants, and are inputs no longer.
        threads: how many threads will run the model; by default what CPUs, their quotas
            and OpenMP's variables allow (docs/environment.md).
        target: what to plan for: ``"onednn-cpu"`` (the default), ``"ascend"``,
            ``"openvino-gpu"``, or a TOML file that describes a target. All but the first have
            costs of their own; ``threads``, ``tune`` and ``cache_dir`` mean nothing to them.
        tune: ``"measure"`` times the kernels that the cost cache lacks, and returns the plan that
            :func:`compile` settled on where it has run this model; ``"model"`` estimates all.
        cache_dir: folder of the cost cache; the user's cache folder by default.
        origins: for some inputs, what their axes mean, in the model's own order, where operators do
            not tell: ``{"x": "NHWC"}``. What operators say is an error to contradict.
        input_formats: for some inputs, the formats that the caller can give them in, by any name:
            ``{"x": ["NCHW", "NHWC"]}``. The plan picks one, ``Plan.input_formats`` says which, and
            arrays then have its storage shape. By default inputs come in the model's own order.
        output_formats: likewise, the formats that the caller can use outputs in.
        progress: called as ``progress(done, total, kind)`` while kernels are timed.
        memory_limit: bytes that the model may need to run; by default three quarters of the memory.
        accuracy: ``"fast"``, or ``"exact"`` to leave out Winograd convolution, which has rounding
            errors of its own; see ``docs/winograd.md``.
        dtype: ``"bfloat16"`` lets float32 tensors be stored in it where that is not slower; inputs
            and outputs keep their types; see ``docs/precision.md``.
        weight_memory_limit: bytes that the weights which Winograd kernels transform may take, each
            node counted for itself; ``Plan.winograd_weights`` says what they do take.
        fallback: whether ONNX Runtime may compute what Stridewise has no operator for.
        plan: a plan file, or a plan of the same graph, whose decisions and costs are used again;
            nothing is decided or timed then, and ``tune`` and the formats mean nothing.

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
    request = Request(source=source, target=target, **options)
    if request.plan is None and request.target in (None, NATIVE) and not isinstance(source, Graph):
        return plan_file(request, model_file(source, fallback=request.fallback))
    return request.planned()


@overload
def compile(  # noqa: A001 (the public name; the built-in is never wanted beside it)
    source: Graph,
    *,
    target: Literal["onednn-cpu"] | None = None,
    **options: Unpack[GraphCompileOptions],
) -> CompiledModel: ...


@overload
def compile(  # noqa: A001
    source: ModelSource,
    *,
    target: Literal["onednn-cpu"] | None = None,
    **options: Unpack[CompileOptions],
) -> CompiledModel | DynamicModel: ...


@overload
def compile(  # noqa: A001
    source: ModelSource, *, target: TargetName, **options: Unpack[CompileOptions]
) -> Model: ...


@documented(Request, CompileOptions)
def compile(  # noqa: A001
    source: ModelSource, *, target: TargetName | None = None, **options: Unpack[CompileOptions]
) -> Model:
    """Make a model ready to run; the arguments that are not below are those of :func:`plan`.

    For ``"onednn-cpu"`` the result is a :class:`CompiledModel`, or where shapes are open, or the
    model takes shapes or axes as inputs, a :class:`DynamicModel`. For other targets it is a
    :class:`SimulatedModel`, which stores every tensor as the plan says and computes with NumPy.

    With ``tune="measure"`` the plan is run, its costs are corrected by what kernels take in place,
    and the graph is planned again until the plan stays. Uniform plans that promise to come near it
    run against it, and it gives way to one that is clearly faster on the clock. A batch of several
    items runs in parts where that is faster (``Plan.split``). The outcome is kept in the cache.
    With ``plan``, its decisions are used as they are, and nothing is timed.

    Plans for other targets, with ``plan``, or with formats of inputs and outputs are for one shape,
    where :func:`plan` has its least extents.

    Args:
        source: as for :func:`plan`.
        shapes: shapes of inputs. An extent may be a number; a symbol ``"N"``, the same number
            wherever it appears in a call; a range ``"1..16"`` or ``(1, 16)``, both ends included;
            or a choice ``"1|4|16"`` or ``[1, 4, 16]``; a list of tuples is a choice of whole
            shapes. A batch, the first extent, that is between choices is padded to the next one
            where the model computes its items one by one.
        values: as for :func:`plan`.
        threads: how many threads run the model; by default what CPUs, their quotas
            and OpenMP's variables allow (docs/environment.md).
        streams: how many requests run at the same time, each with an equal share of the threads
            and an arena of its own, all with the same weights. Plans are made for that share. See
            :meth:`CompiledModel.submit` and :meth:`CompiledModel.map`, and ``docs/streams.md``.
        target: as for :func:`plan`, like all up to ``plan``.
        tune: how the plan for the first shape is made.
        cache_dir: see above.
        origins: see above.
        input_formats: see above.
        output_formats: see above.
        progress: see above.
        memory_limit: see above.
        accuracy: see above.
        dtype: see above.
        weight_memory_limit: see above.
        fallback: see above.
        plan: see above.
        ready_limit: bytes that ready models may take beside the cost cache, where a model that was
            tuned for one shape is found again by the next process; by default 4 GiB, and 0 to
            neither use nor keep any. See ``docs/environment.md``.
        verify: whether a model that an earlier process compiled runs once before it is used, to
            compare its outputs for seeded inputs with those of that process. Where they differ, the
            model is compiled again, with a warning in the log.
        keep_originals: whether the model keeps its weights beside the packed ones. Without them the
            graph of its plan cannot be saved, annotated or compiled again; ``explain()``, ``why()``
            and the report do without. A :class:`DynamicModel` keeps them either way, as it packs
            further shapes from them.
        max_programs: of a :class:`DynamicModel`, for how many shapes it stays ready.
        max_program_nbytes: bytes that its programs may take, weights and arenas; by default the
            number alone is limited.
        later: how it plans shapes after the first: ``"follow"`` decides as for the first one and
            times nothing, ``"tune"`` plans each as the first.

    Raises:
        ModelError: the model is damaged.
        UnsupportedError: it uses something unsupported, without ``fallback`` or there as well.
        DependencyError: it needs ONNX Runtime, which is not installed.
        MemoryLimitError: the model needs more memory than it may have; the message says how much.
        InputError: an argument does not fit.
        FormatError: a format of an input or output is unknown, or does not suit it.
        TargetError: the file of a target is damaged.
        PlanError: no combination of kernels computes the model; or the given plan is damaged, of
            another model, or counts on kernels that do not exist here.
        LibraryError: libdnnl cannot be loaded.
        ExecutionError: the library refuses a kernel that the plan counts on.

    Warns:
        PlanWarning: the given plan was made for another machine, library or number of threads.
    """
    checked("compile", options, CompileOptions)
    request = Request(source=source, target=target, **options)
    known = source_of(request)
    model = _compiled(request, source)
    if request.streams > 1:
        if isinstance(model, SimulatedModel):
            raise InputError(
                describe(
                    "streams",
                    expected=f"1, as target {model.plan.target.name} is simulated",
                    found=str(request.streams),
                )
            )
        model.use_streams(Streams(request.streams))
    model.source = replace(known, from_disk=model.source.from_disk)
    return model


def _compiled(request: Request, source: ModelSource) -> Model:
    simulated = request.target not in (None, NATIVE)
    if request.plan is None and not simulated and not isinstance(source, Graph):
        ready = find_ready(request)
        if ready is not None:
            ready.source = Source(from_disk=True)
            return ready
        return compile_file(request, model_file(source, fallback=request.fallback))
    if request.plan is not None:
        model = _restored(request, request.plan)
    else:
        work = request.work()
        model = SimulatedModel(work.planned()) if simulated else work.compiled()
    if isinstance(model, CompiledModel) and not request.keep_originals:
        model.drop_originals()
    return model


def _restored(request: Request, decided: PlanSource) -> Model:
    found = request.restored(decided)
    if found.target.name != NATIVE:
        return SimulatedModel(found)
    try:
        return CompiledModel(found)
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

    The model is needed, as files hold decisions and costs, and neither graph nor weights. Nothing
    is measured. A plan that was made for another machine says so in ``Plan.notes``.

    Args:
        path: the plan file.
        source: the model, as for :func:`plan`.
        shapes: shapes of inputs, where the model leaves them open or others are wanted. Extents
            that are open, ranges or choices get their least number.
        values: values of inputs that become constants, and are inputs no longer.
        threads: how many threads will run the model; by default what CPUs, their quotas
            and OpenMP's variables allow (docs/environment.md).
        origins: what axes of inputs were declared to mean when the plan was made.

    Raises:
        PlanError: the file is damaged, of another version, of another model (the message names the
            first node that differs), or decides what does not exist here.
        ModelError: the model is damaged or uses something unsupported.
        InputError: an argument does not fit.
        LibraryError: libdnnl cannot be loaded.

    Warns:
        PlanWarning: the plan was made for another machine, library or number of threads.
    """
    request = Request(
        source=source, shapes=shapes, values=values, threads=threads, origins=origins, plan=path
    )
    return request.planned()


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
