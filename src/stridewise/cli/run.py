"""``stridewise run``: compile a model, run it once, show or save its outputs."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from stridewise.api import compiling, models
from stridewise.cli.console import (
    OUT,
    Request,
    compile_options,
    output_file,
    save_text,
    split_assignments,
    streams_option,
    target_option,
)
from stridewise.cli.outputs import Command, OutputFile
from stridewise.errors import InputError, UnknownValueError
from stridewise.frontends.source import ModelReader
from stridewise.graph import Graph
from stridewise.ops.geometry import user_format
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.inputs import as_array, made_up
from stridewise.runtime.execution.model import Model
from stridewise.runtime.machine.machine import checked_limit
from stridewise.runtime.reorder.reorder import reorder
from stridewise.targets.target import NATIVE
from stridewise.tensor import TensorDesc

__all__ = ["as_wanted", "given_arrays", "random_inputs", "run"]

Array = NDArray[Any]


def random_inputs(graph: Graph, seed: int) -> dict[str, Array]:
    """Return standard normal inputs for a graph, zeros where they are no floats.

    Raises:
        InputError: the graph has an input that is no tensor.
    """
    others = [name for name in graph.arguments if name not in graph.inputs]
    if others:
        raise InputError.at(
            f"model {graph.name!r}",
            expected="inputs that are tensors of numbers",
            found=", ".join(map(repr, others)),
            fix="call the model from Python",
        )
    rng = np.random.default_rng(seed)
    values = [graph.values[name] for name in graph.inputs]
    return {value.name: made_up(value, value.shape, rng) for value in values}


def _load(name: str, path: Path) -> Array:
    where = f"input {name!r} from {path}"
    try:
        with path.open("rb") as file:
            loaded: Any = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        found = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise InputError.at(where, expected="a .npy file", found=found) from error
    if not hasattr(loaded, "dtype"):
        raise InputError.at(
            where, expected="one array", found="an archive", fix="save it with numpy.save"
        )
    # Files may have the other byte order.
    array: Array = np.asarray(loaded, loaded.dtype.newbyteorder("="))
    return array


def given_arrays(file: ModelReader, given: tuple[str, ...], *, random: bool) -> dict[str, Array]:
    """Return the inputs from files, before any time is spent on the model.

    Args:
        file: the model.
        given: ``NAME=FILE`` or, for a model of one input, ``FILE``.
        random: whether some may be missing.

    Raises:
        InputError: a name is none of the model's, or missing; or a file has no array.
    """
    names = tuple(item.name for item in file.signature)
    if len(given) == 1 and "=" not in given[0] and len(names) == 1:
        given = (f"{names[0]}={given[0]}",)
    paths = split_assignments(given, "--input")
    missing = [] if random else [name for name in names if name not in paths]
    if missing or not set(paths) <= set(names):
        raise InputError.at(
            f"model {file.name!r}",
            expected=f"inputs {', '.join(names)}",
            found=", ".join(paths) or "none",
            fix=f"give --input {names[0]}=FILE.npy, or --random",
        )
    return {name: _load(name, Path(path)) for name, path in paths.items()}


def _graph(request: Request, file: ModelReader, arrays: Mapping[str, Array]) -> Graph:
    """Return the graph for these inputs: they tell shapes and values that are open."""
    signature = file.signature.narrowed(request.shapes)
    free = {item.name for item in signature if not item.is_fixed}
    own = {name: array.shape for name, array in arrays.items() if name in free}
    signature.fitted(own)
    values = dict(request.values)
    while True:
        shapes = {**request.shapes, **{n: s for n, s in own.items() if n not in values}}
        try:
            return models.load_file(file, shapes, values, checked_limit(None))
        except UnknownValueError as error:
            known = {name: arrays[name] for name in error.inputs if name in arrays}
            if not known.keys() - values.keys():
                raise
            values.update(known)


def _save(path: Path, outputs: dict[str, Array]) -> None:
    """Write what ``numpy.savez`` would, which has no place for an output named ``file``."""
    with output_file(path, "--output") as goal, zipfile.ZipFile(goal, "w") as archive:
        for name, array in outputs.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def _summary(outputs: dict[str, Array]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "min": float(array.min()) if array.size else None,
            "max": float(array.max()) if array.size else None,
            "mean": float(array.mean()) if array.size else None,
            "argmax": int(array.argmax()) if array.size else None,
        }
        for name, array in outputs.items()
    ]


def as_wanted(model: Model, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return inputs in the user's order in the formats of a plan, which may come from a file."""
    found = dict(inputs)
    if not isinstance(model, CompiledModel):
        return found
    for name, fmt in model.call_signature.input_formats.items():
        value = model.interface.values[name]
        own = user_format(value)
        if name in found and fmt != own:
            desc = TensorDesc(value.shape, value.dtype, own, own)
            found[name] = reorder(found[name], desc, desc.stored_as(fmt))
    return found


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("output", "shape", "dtype", "min", "max", "mean", "argmax")
    for row in rows:
        numbers = ("-" if row[key] is None else f"{row[key]:.6g}" for key in ("min", "max", "mean"))
        shape = "x".join(map(str, row["shape"])) or "scalar"
        table.add_row(row["name"], shape, row["dtype"], *numbers, str(row["argmax"]))
    return table


@click.command(cls=Command)
@compile_options
@target_option
@streams_option
@click.option(
    "--input", "given", multiple=True, metavar="NAME=FILE.npy", help="Array for an input."
)
@click.option(
    "--random", is_flag=True, help="Use random numbers (standard normal) for inputs without a file."
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed for --random inputs."
)
@click.option("--output", type=OutputFile(path_type=Path), help="Save all outputs as .npz.")
@click.option("--profile", is_flag=True, help="Also print the time of every step.")
@click.option(
    "--trace",
    type=OutputFile(path_type=Path),
    metavar="FILE",
    help="Save the time of every step for Perfetto and chrome://tracing.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def run(  # noqa: PLR0913 (one parameter an option)
    request: Request,
    *,
    target: str | None,
    streams: int,
    given: tuple[str, ...],
    random: bool,
    seed: int,
    output: Path | None,
    profile: bool,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Compile a model, run it once, and summarize its outputs."""
    request = replace(request, streams=streams)
    file = models.open_model(request.model, fallback=request.fallback)
    arrays = given_arrays(file, given, random=random)
    graph = _graph(request, file, arrays)
    loaded = {
        name: as_array(graph.values[name], array)
        for name, array in arrays.items()
        if name in graph.inputs
    }
    if target in (None, NATIVE):
        # Where no input became a constant, the file itself is compiled, and found in the store.
        is_whole = len(graph.inputs) == len(tuple(file.signature))
        fixed = {name: graph.values[name].shape for name in graph.inputs}
        shaped = replace(request, shapes=fixed)
        compiled: Model = shaped.compile(quiet=as_json, source=None if is_whole else graph)
    else:
        limit, origins = request.memory_limit, request.origins
        compiled = compiling.compile(
            graph, target=target, streams=streams, memory_limit=limit, origins=origins
        )
    inputs = {**random_inputs(graph, seed), **loaded} if random else loaded
    inputs = as_wanted(compiled, inputs)
    outputs = compiled.run(inputs)
    if output is not None:
        _save(output, outputs)
    rows = _summary(outputs)
    profiled = compiled.profile(inputs) if profile or trace is not None else None
    if trace is not None and profiled is not None:
        save_text(trace, profiled.to_chrome_trace(), "--trace")
    if as_json:
        document: dict[str, Any] = {"outputs": rows}
        if profile and profiled is not None:
            document["profile"] = [asdict(row) for row in profiled.rows]
        click.echo(json.dumps(document, indent=2))
        return
    OUT.print(_table(rows))
    if output is not None:
        OUT.print(f"saved to {output}", soft_wrap=True)
    if trace is not None:
        OUT.print(f"trace in {trace}", soft_wrap=True)
    if profile and profiled is not None:
        click.echo(str(profiled), nl=False)
