"""Compiling: a model from the compiled-model store, or by the whole flow."""

from __future__ import annotations

import dataclasses
import os
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from stridewise.api.stored import StoreEntry
from stridewise.collecting import paused
from stridewise.interrupts import Deferred
from stridewise.options import (
    CompileOptions,
    GraphCompileOptions,
    Options,
    TargetName,
    checked,
    documented,
)
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.model import Model, Source
from stridewise.runtime.execution.streams import Streams
from stridewise.runtime.machine.machine import checked_limit

if TYPE_CHECKING:
    from stridewise.api.modules import ModuleModel
    from stridewise.frontends.registry import ArraySource, ModelSource, TorchSource
    from stridewise.graph import Graph
    from stridewise.runtime.binding.provision import Provision
    from stridewise.runtime.execution.dynamic import DynamicModel

__all__ = ["compile"]

_LARGE = 16 << 20
"""Bytes of a file from which its weights take memory that is slow to provide."""


@overload
def compile(  # noqa: A001 (the public name; the built-in is never wanted beside it)
    source: Graph,
    *,
    target: Literal["onednn-cpu"] | None = None,
    **options: Unpack[GraphCompileOptions],
) -> CompiledModel: ...


@overload
def compile(  # noqa: A001
    source: TorchSource,
    example_inputs: Any = None,
    *,
    target: TargetName | None = None,
    **options: Unpack[CompileOptions],
) -> ModuleModel: ...


@overload
def compile(  # noqa: A001
    source: ArraySource,
    *,
    target: Literal["onednn-cpu"] | None = None,
    **options: Unpack[CompileOptions],
) -> CompiledModel | DynamicModel: ...


@overload
def compile(  # noqa: A001
    source: ModelSource,
    example_inputs: Any = None,
    *,
    target: TargetName | None = None,
    **options: Unpack[CompileOptions],
) -> Model: ...


@documented(CompileOptions)
def compile(  # noqa: A001
    source: ModelSource,
    example_inputs: Any = None,
    *,
    target: TargetName | None = None,
    **options: Unpack[CompileOptions],
) -> Model:
    """Make a model ready to run.

    For ``"onednn-cpu"`` the result is a :class:`CompiledModel`; if shapes are open, or the model
    takes shapes or axes as inputs, it is a :class:`DynamicModel`. For other targets it is a
    :class:`SimulatedModel`, which stores every tensor as the plan says and computes with NumPy.
    For a PyTorch module it is a :class:`ModuleModel`, which takes and gives PyTorch tensors and has
    one of these as ``model``.

    With ``tune="auto"`` costs are predicted, and uncertain ones are measured, for at most a second.
    With ``tune="measure"`` the plan runs, its costs are corrected by the times of kernels in these
    runs, and the graph is planned again until the plan does not change. Uniform plans whose cost is
    not much higher run as well; of the fastest plans, the one with the fewest reorders is used. A
    batch of several items runs in parts if that is faster (``Plan.split``). The cost cache keeps
    the outcome. With ``plan``, its decisions are used as they are, and nothing is timed.

    Plans for other targets, with ``plan``, or with formats of inputs and outputs are for one shape,
    as for :func:`plan`.

    Args:
        source: path of an ONNX file, its bytes, an ``onnx.ModelProto``, a graph, a
            ``torch.nn.Module``, or a ``torch.export.ExportedProgram``.
        example_inputs: positional arguments of a module, which is exported for them. Where
            ``shapes`` leave an extent open, it is open in the exported program.
        target: see :class:`stridewise.options.Options`.
        **options: see :class:`stridewise.options.Options`.

    Raises:
        StridewiseError: as for :func:`plan`.
        ExecutionError: the library refuses a kernel that the plan uses.
        PlanError: the given plan uses kernels that do not exist here; or as for :func:`plan`.

    Warns:
        PlanWarning: the given plan was made for another machine, library or number of threads.
    """
    checked("compile", options, CompileOptions)
    found = Options(target=target, **options)
    begin, calls = time.time(), None
    entry = StoreEntry.of(source, found) if example_inputs is None else None
    with paused():
        model: Model | None = entry.find() if entry else None
    from_disk = model is not None
    if model is None:
        # What measures for long, or exports a module, may leave much garbage.
        is_short = found.tune != "measure" and isinstance(source, str | bytes | os.PathLike)
        with paused() if is_short else nullcontext():
            memory = _provided(source, found) if is_short else None
            # Front ends, passes and the planner are most of the code; a stored model needs none.
            with Deferred():
                from stridewise.api.plans import compiled, job_of  # noqa: PLC0415

            try:
                job = dataclasses.replace(job_of(source, found, example_inputs), memory=memory)
                model, calls = compiled(job), job.source.calls
            finally:
                if memory is not None:
                    memory.take(0)  # what no program took is given back
            if entry is not None:
                entry.keep(model, job)
            if isinstance(model, CompiledModel) and not found.keep_originals:
                model.drop_originals()
    if found.streams > 1:
        model.use_streams(Streams(found.streams))
    # A source in memory is not kept, because it holds the original weights.
    model.source = Source(from_disk)
    if isinstance(source, str | os.PathLike):
        path, values = Path(source).absolute(), found.values or {}
        model.source = Source(from_disk, path, values, found.fallback, found.memory_limit, begin)
    if calls is None:
        return model
    from stridewise.api.modules import ModuleModel  # noqa: PLC0415 (for models of PyTorch alone)

    return ModuleModel(model, calls)


def _provided(source: ModelSource, options: Options) -> Provision | None:
    """Return memory for the weights of a model file if these may be large, and stay as they are."""
    is_usual = options.is_native and options.dtype == "model" and options.memory_limit is None
    if not isinstance(source, str | os.PathLike) or not is_usual or options.machine.threads == 1:
        return None
    with suppress(OSError, ValueError, MemoryError):
        nbytes = Path(source).stat().st_size
        if _LARGE <= nbytes <= (checked_limit(None) or 0) // 8:
            from stridewise.runtime.binding.provision import Provision  # noqa: PLC0415 (as above)

            return Provision(nbytes)
    return None
