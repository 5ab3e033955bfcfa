"""Verification of compiled models: where the graph, its weights and the other results come from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Unpack, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stridewise.api.compiling import compile  # noqa: A004 (the public name)
from stridewise.api.models import ModelSource
from stridewise.api.modules import ModuleModel
from stridewise.compiler import import_model, simplified_graph
from stridewise.errors import InputError, PlanError
from stridewise.frontends.registry import TORCH, front_end_of, open_model
from stridewise.graph import Graph, Shapes
from stridewise.options import CompileOptions, Options, checked, documented
from stridewise.runtime.execution.dynamic import DynamicModel
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.model import Model, Source
from stridewise.runtime.verification.result import Verification
from stridewise.runtime.verification.verify import input_arrays, verified_rows

__all__ = ["Against", "verify"]

Array = NDArray[Any]
Against = Literal["reference", "onnxruntime", "pytorch"]
_AGAINST: tuple[Against, ...] = get_args(Against)


@documented(CompileOptions)
def verify(
    model: Model | ModelSource,
    example_inputs: Any = None,
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
            taken from the store. For a :class:`DynamicModel`, ``shapes`` and ``values`` select the
            program to verify if ``inputs`` are not given; other options are refused.
        example_inputs: positional arguments of a PyTorch module, as for :func:`compile`.
        inputs: arrays by name, in the user's axis order or as the model takes them; without them
            floats are standard normal, and all else is 0.
        seed: of inputs that are made up, and of perturbations.
        against: what outputs are compared with: ``"reference"``, the graph evaluated with NumPy, or
            ``"onnxruntime"`` or ``"pytorch"``, the model itself in the runtime for it, which checks
            the import, too.
        **options: see :class:`stridewise.options.Options`.

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
    if against not in _AGAINST:
        expected = " or ".join(map(repr, _AGAINST))
        raise InputError.at("against", expected=expected, found=repr(against))
    if not isinstance(cast("object", inputs), Mapping | None):
        expected, found = "a mapping from names to arrays", type(inputs).__name__
        raise InputError.at("inputs", expected=expected, found=found)
    if isinstance(model, Model):
        compiled, program_values = model, options.get("values")
    else:
        options["keep_originals"] = True
        compiled, program_values = compile(model, example_inputs, **options), None
    if isinstance(compiled, ModuleModel):
        inputs = None if inputs is None else compiled.named(inputs)
        compiled = compiled.model
    if isinstance(model, Model):
        _check_options(compiled, options)
    program, inputs = _program(compiled, inputs, options.get("shapes"), program_values)
    stored = input_arrays(program, inputs, seed)
    outputs = None
    if against != "reference":
        file = compiled.source.path if isinstance(model, Model) else model
        if example_inputs is not None:
            file = TORCH.with_inputs(model, example_inputs, options.get("shapes"))
        values = {**compiled.source.values, **(options.get("values") or {}), **(inputs or {})}
        feeds = {**values, **{name: item.array for name, item in stored.items()}}
        outputs = _others(program, file, feeds, against)
    graph = _graph(program, compiled.source)
    rows = verified_rows(program, graph, stored, np.random.default_rng(seed), outputs)
    notes = (_TAIL,) if program.has_tail else ()
    disk = compiled.source.from_disk
    return Verification(
        graph.name, against, program.call_signature.threads, disk, seed, rows, notes
    )


_TAIL = "what ONNX Runtime computes behind the program was not compared"


def _check_options(model: Model, options: CompileOptions) -> None:
    """Refuse options that mean nothing to a model that is compiled."""
    known = ("shapes", "values") if isinstance(model, DynamicModel) else ()
    unknown = [name for name in options if name not in known]
    if unknown:
        raise InputError.at(
            "verify",
            expected=f"{' and '.join(known) or 'no options'} for a model that is compiled",
            found=", ".join(unknown),
            fix="give them to stridewise.compile",
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
        raise InputError.at("verify", expected="a target whose kernels run here", found=found)
    changing = (*model.parameters, *model.states)
    if changing:
        raise InputError.at(
            f"model {model.call_signature.graph.name!r}",
            expected="values that do not change, as verification runs the model",
            found=f"parameters and states {', '.join(changing)}",
            fix="verify the graph without its updates, compiled without keep_parameters",
        )
    unknown = [name for name in inputs or () if name not in model.call_signature.graph.inputs]
    if unknown:
        raise InputError.at(
            f"model {model.call_signature.graph.name!r}",
            expected=f"inputs among {', '.join(model.call_signature.graph.inputs)}",
            found=", ".join(unknown),
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
    if source.path is None:
        raise InputError.at(
            f"model {graph.name!r}",
            expected="its weights, to compute what it should give",
            found="none, as packed ones have taken their place, and no file to read them from",
            fix="compile with keep_originals=True, or verify the model file or graph instead",
        )
    shapes = {name: graph.values[name].shape for name in graph.inputs}
    return _read(source, source.path, shapes)


def _read(source: Source, path: Path, shapes: Shapes) -> Graph:
    """Return the simplified graph of the file that a model was compiled from.

    Raises:
        PlanError: the file has changed since.
        ModelError: the file is gone.
    """
    file = open_model(path, fallback=source.fallback)
    options = Options(shapes=shapes, values=source.values, memory_limit=source.memory_limit)
    graph = simplified_graph(import_model(file, options), options).graph
    for part in (path, *file.paths):
        state = part.stat()
        if max(state.st_mtime, state.st_ctime) > source.compiled_at:
            raise PlanError.at(
                f"model {graph.name!r}",
                expected=f"{part.name} as it was when the model was compiled",
                found="a file that has changed since",
                fix="compile the model again",
            )
    return graph


def _others(
    model: CompiledModel, source: ModelSource | None, feeds: Mapping[str, Any], against: Against
) -> dict[str, Array]:
    """Return the outputs that another runtime computes for a model."""
    threads = model.call_signature.threads
    if source is None:
        raise InputError.at(
            f"model {model.call_signature.graph.name!r}",
            expected=f"a model that was compiled from a file, to run it in {against}",
            found="one that was in memory",
            fix="verify what it is compiled from, with the same options",
        )
    front_end = front_end_of(source)
    if front_end.runtime != against:
        expected = f"{front_end.runtime!r}, the runtime for this model"
        raise InputError.at("against", expected=expected, found=repr(against))
    return front_end.run(source, feeds, threads)
