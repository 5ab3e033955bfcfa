"""Verification of compiled models: where the graph, its weights and the other results come from."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stridewise.api.models import ModelSource, save
from stridewise.api.options import CompileOptions, checked, documented
from stridewise.api.plans import compile  # noqa: A004 (the public name)
from stridewise.api.request import Request
from stridewise.errors import InputError, describe
from stridewise.graph import Graph, Shapes
from stridewise.runtime.execution.dynamic import DynamicModel
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.model import Model, Source
from stridewise.runtime.execution.onnx_runtime import run_model
from stridewise.runtime.verification.result import Verification
from stridewise.runtime.verification.verify import input_arrays, verified_rows

__all__ = ["Against", "verify"]

Array = NDArray[Any]
Against = Literal["reference", "onnxruntime"]


@documented(Request, CompileOptions)
def verify(
    model: Model | ModelSource,
    *,
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    against: Against = "reference",
    **options: Unpack[CompileOptions],
) -> Verification:
    """Run a compiled model, and compare every tensor that it stores with what it should be.

    What a node stored is compared with what NumPy makes of the operands that the node had, so that
    the first wrong tensor is that of the node which is wrong. See ``docs/verify.md`` for what a
    kernel may round.

    Args:
        model: what :func:`compile` returned; or a model, which is compiled with the options, or
            taken from disk where an earlier process has compiled it.
        inputs: arrays by name, in the user's axis order or as the model takes them; without them
            floats are standard normal, and all else is 0.
        seed: of inputs that are made up, and of perturbations.
        against: what outputs are compared with: ``"reference"``, the graph evaluated with NumPy, or
            ``"onnxruntime"``, the model itself in ONNX Runtime, which checks the import, too.
        shapes: as for :func:`compile`; of a :class:`DynamicModel`, which of its programs to verify,
            where ``inputs`` do not tell.
        values: likewise.
        threads: as for :func:`compile`, like all that follow.
        streams: see there.
        tune: see there.
        cache_dir: see there.
        input_formats: see there.
        output_formats: see there.
        progress: see there.
        memory_limit: see there.
        accuracy: see there.
        dtype: see there.
        weight_memory_limit: see there.
        fallback: see there.
        plan: see there.
        max_programs: see there.
        max_program_nbytes: see there.
        later: see there.
        ready_limit: see there.
        keep_originals: means nothing here, as the weights are needed.

    Raises:
        InputError: an argument does not fit, the model is simulated, or its weights are gone.
        PlanError: the file of a compiled model has changed since.
        DependencyError: ONNX Runtime is asked for, and not installed.
        StridewiseError: the model cannot be compiled or run; see :func:`compile`.

    >>> import stridewise as sw
    >>> b = sw.GraphBuilder("double")
    >>> x = b.input("x", (1, 2))
    >>> sw.verify(b.build([b.op("add", [x, x], output="y")]), tune="model").ok
    True
    """
    checked("verify", options, CompileOptions)
    if against not in ("reference", "onnxruntime"):
        expected = "'reference' or 'onnxruntime'"
        raise InputError(describe("against", expected=expected, found=repr(against)))
    if isinstance(model, Model):
        _check_options(model, options)
        compiled, program_values = model, options.get("values")
    else:
        options["keep_originals"] = True
        compiled, program_values = compile(model, **options), None
    program, inputs = _program(compiled, inputs, options.get("shapes"), program_values)
    stored = input_arrays(program, inputs, seed)
    outputs = None
    if against == "onnxruntime":
        file = compiled.source.path if isinstance(model, Model) else model
        values = {**compiled.source.values, **(options.get("values") or {}), **(inputs or {})}
        feeds = {**values, **{name: item.array for name, item in stored.items()}}
        outputs = _others(program, file, feeds)
    graph = _graph(program, compiled.source)
    rows = verified_rows(program, graph, stored, np.random.default_rng(seed), outputs)
    face = program.face
    notes = (_TAIL,) if program.has_tail else ()
    disk = compiled.source.from_disk
    return Verification(graph.name, against, face.threads, disk, seed, rows, notes)


_TAIL = "what ONNX Runtime computes behind the program was not compared"


def _check_options(model: Model, options: CompileOptions) -> None:
    """Refuse options that mean nothing to a model that is compiled."""
    known = ("shapes", "values") if isinstance(model, DynamicModel) else ()
    unknown = [name for name in options if name not in known]
    if unknown:
        raise InputError(
            describe(
                "verify",
                expected=f"{' and '.join(known) or 'no options'} for a model that is compiled",
                found=", ".join(unknown),
                fix="give them to stridewise.compile",
            )
        )


def _program(
    model: Model,
    inputs: Mapping[str, Any] | None,
    shapes: Shapes | None,
    values: Mapping[str, ArrayLike] | None,
) -> tuple[CompiledModel, Mapping[str, Any] | None]:
    """Return the program to verify, and the inputs as it takes them."""
    if isinstance(model, DynamicModel):
        if inputs is not None:
            return model.program_of(inputs)
        sized = model.signature.narrowed(shapes or {}).default()
        return model.program_for(
            {n: s for n, s in sized.items() if n not in (values or {})}, values
        ), None
    if not isinstance(model, CompiledModel):
        found = f"{model.plan.target.name}, which is simulated"
        raise InputError(
            describe("verify", expected="a target whose kernels run here", found=found)
        )
    unknown = [name for name in inputs or () if name not in model.face.graph.inputs]
    if unknown:
        raise InputError(
            describe(
                f"model {model.face.graph.name!r}",
                expected=f"inputs among {', '.join(model.face.graph.inputs)}",
                found=", ".join(unknown),
            )
        )
    return model, inputs


def _graph(model: CompiledModel, source: Source) -> Graph:
    """Return the graph of a program with all of its weights.

    Raises:
        InputError: they are gone, and no file has them.
    """
    graph = model.plan.graph
    if not any(constant.is_dropped for constant in graph.constants.values()):
        return graph
    if source.read is None:
        raise InputError(
            describe(
                f"model {graph.name!r}",
                expected="its weights, to compute what it should give",
                found="none, as packed ones have taken their place, and no file to read them from",
                fix="compile with keep_originals=True, or verify what the model is compiled from",
            )
        )
    return source.read({name: graph.values[name].shape for name in graph.inputs})


def _others(
    model: CompiledModel, source: ModelSource | None, feeds: Mapping[str, Any]
) -> dict[str, Array]:
    """Return the outputs that ONNX Runtime computes for a model."""
    threads = model.face.threads
    if source is None:
        raise InputError(
            describe(
                f"model {model.face.graph.name!r}",
                expected="a model that was compiled from a file, to run it in ONNX Runtime",
                found="one that was in memory",
                fix="verify what it is compiled from, with the same options",
            )
        )
    if isinstance(source, Graph):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            save(source, path)
            return run_model(str(path), feeds, threads)
    if isinstance(source, str | os.PathLike):
        return run_model(os.fspath(source), feeds, threads)
    content = source if isinstance(source, bytes) else source.SerializeToString()
    return run_model(content, feeds, threads)
