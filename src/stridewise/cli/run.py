"""``stridewise run``: compile a model, run it once, show or save what it gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from stridewise.cli.console import OUT, Request, compile_options, split_assignments
from stridewise.errors import InputError, describe
from stridewise.runtime.executor import CompiledModel

__all__ = ["random_inputs", "run"]

Array = NDArray[Any]


def random_inputs(model: CompiledModel, seed: int) -> dict[str, Array]:
    """Return standard normal inputs for a model."""
    rng = np.random.default_rng(seed)
    values = model.plan.graph.values
    return {name: rng.standard_normal(values[name].shape, np.float32) for name in model.input_names}


def _load(name: str, path: Path) -> Array:
    where = f"input {name!r} from {path}"
    try:
        loaded: Any = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        found = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise InputError(describe(where, expected="a .npy file", found=found)) from error
    if not hasattr(loaded, "dtype"):
        raise InputError(
            describe(where, expected="one array", found="an archive", fix="save it with numpy.save")
        )
    return loaded


def _gather(
    model: CompiledModel, given: tuple[str, ...], random: bool, seed: int
) -> dict[str, Array]:
    if len(given) == 1 and "=" not in given[0] and len(model.input_names) == 1:
        given = (f"{model.input_names[0]}={given[0]}",)
    inputs: dict[str, Array] = random_inputs(model, seed) if random else {}
    for name, path in split_assignments(given, "--input").items():
        inputs[name] = _load(name, Path(path))
    missing = [name for name in model.input_names if name not in inputs]
    if missing:
        raise InputError(
            describe(
                f"model {model.plan.graph.name!r}",
                expected=f"inputs {', '.join(model.input_names)}",
                found=f"no {', '.join(missing)}",
                fix=f"give --input {missing[0]}=FILE.npy, or --random",
            )
        )
    return inputs


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


@click.command()
@compile_options
@click.option("--input", "given", multiple=True, metavar="NAME=FILE.npy", help="An input.")
@click.option("--random", is_flag=True, help="Standard normal inputs where none are given.")
@click.option("--seed", default=0, show_default=True, help="Seed of the random inputs.")
@click.option("--output", type=click.Path(path_type=Path), help="Save all outputs as .npz.")
@click.option("--profile", is_flag=True, help="Also print the time of every step.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def run(
    request: Request,
    given: tuple[str, ...],
    random: bool,
    seed: int,
    output: Path | None,
    profile: bool,
    as_json: bool,
) -> None:
    """Compile a model, run it once, and show what its outputs look like."""
    compiled = request.compile(quiet=as_json)
    inputs = _gather(compiled, given, random, seed)
    outputs = compiled.run(inputs)
    if output is not None:
        with output.open("wb") as file:
            np.savez(file, allow_pickle=False, **outputs)
    rows = _summary(outputs)
    if as_json:
        click.echo(json.dumps({"outputs": rows}, indent=2))
        return
    table = Table("output", "shape", "dtype", "min", "max", "mean", "argmax")
    for row in rows:
        numbers = ("-" if row[key] is None else f"{row[key]:.6g}" for key in ("min", "max", "mean"))
        shape = "x".join(map(str, row["shape"])) or "scalar"
        table.add_row(row["name"], shape, row["dtype"], *numbers, str(row["argmax"]))
    OUT.print(table)
    if output is not None:
        OUT.print(f"saved to {output}", soft_wrap=True)
    if profile:
        click.echo(str(compiled.profile(inputs)), nl=False)
