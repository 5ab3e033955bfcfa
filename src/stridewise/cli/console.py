"""Parts of several subcommands: the console, progress bars, shared options."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import wraps
from io import BufferedRandom
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from stridewise.api import compiling, models, plans
from stridewise.errors import InputError, PlanWarning
from stridewise.graph import Graph
from stridewise.graph.extents import is_fixed, parse_shape
from stridewise.options import GraphOptions, Tune
from stridewise.planning import Plan
from stridewise.quantization.samples import checked_samples
from stridewise.replacing import reason, replacing
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.targets.names import NATIVE, TARGETS
from stridewise.targets.target import Accuracy, PrecisionChoice

__all__ = [
    "OUT",
    "SAMPLE_FILES",
    "Request",
    "compile_options",
    "measuring",
    "output_file",
    "parse_nbytes",
    "parse_shapes",
    "parse_values",
    "plan_warnings",
    "save_text",
    "split_assignments",
    "streams_option",
    "target_option",
    "training_options",
]

OUT = Console(highlight=False)
_ERR = Console(stderr=True, highlight=False)

Array = NDArray[Any]
Callback = Callable[[int, int, str], None]


@contextmanager
def measuring(quiet: bool = False, title: str = "measuring kernels") -> Generator[Callback | None]:
    """Yield a callback that shows a progress bar on a terminal, or None elsewhere."""
    if quiet or not _ERR.is_terminal:
        yield None
        return
    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]left"),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.description}"),
    )
    with Progress(*columns, console=_ERR, transient=True) as bar:
        task = bar.add_task("", total=None)

        def advance(done: int, total: int, kind: str) -> None:
            # A total of 0 is one that is not known.
            bar.update(task, completed=done, total=total or None, description=kind)

        yield advance


@contextmanager
def plan_warnings() -> Generator[None]:
    """Print warnings about plan files in one line each, without the line of code that warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PlanWarning)
        yield
    for item in caught:
        if issubclass(item.category, PlanWarning):
            click.echo(f"warning: {item.message}", err=True)
        else:
            warnings.showwarning(item.message, item.category, item.filename, item.lineno)


def split_assignments(items: Sequence[str], option: str) -> dict[str, str]:
    """Return ``NAME=VALUE`` arguments as a mapping.

    Raises:
        InputError: an argument has no ``=``, or a name comes twice.
    """
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name or name in found:
            raise InputError.at(option, expected="NAME=VALUE, each name once", found=repr(item))
        found[name] = value
    return found


_NBYTES = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt]?)(i?)b)?", re.ASCII | re.IGNORECASE)


def parse_nbytes(text: str) -> int:
    """Return a number of bytes that is given with a unit or without.

    >>> parse_nbytes("1.5 KiB"), parse_nbytes("2GB"), parse_nbytes("4096")
    (1536, 2000000000, 4096)

    Raises:
        InputError: it is not of that form, or less than a byte.
    """
    found = _NBYTES.fullmatch(text.strip())
    nbytes = 0
    if found is not None:
        number, prefix, binary = found.groups(default="")
        power = " kmgt".index(prefix.lower() or " ")
        nbytes = int(Decimal(number) * (1024 if binary else 1000) ** power)
    if nbytes < 1:
        raise InputError.at("a number of bytes", expected="one like 2GiB", found=repr(text))
    return nbytes


def _limit(ctx: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """Return the bytes of ``--memory-limit``; other texts are wrong usage."""
    try:
        return None if text is None else parse_nbytes(text)
    except InputError as error:
        raise click.BadParameter(str(error), ctx, option) from error


def save_text(path: Path, text: str, option: str) -> None:
    """Write a file, or to a device.

    Raises:
        InputError: it cannot be written; what was there before is as it was.
    """
    with _written(path, option):
        if path.is_char_device() or path.is_fifo():
            path.write_text(text, encoding="utf-8")
            return
    with output_file(path, option) as file:
        file.write(text.encode())


@contextmanager
def output_file(path: Path, option: str) -> Generator[BufferedRandom]:
    """Open a new file that takes the place of ``path`` when all went well.

    Args:
        path: the file, or a link to it.
        option: what messages call it.

    Raises:
        InputError: it cannot be written; what was there before is as it was.
    """
    with _written(path, option), replacing(Path(os.path.realpath(path))) as file:
        yield file


@contextmanager
def _written(path: Path, option: str) -> Generator[None]:
    """Raise an InputError if a file cannot be written."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise InputError.at(
            f"{option} {str(path)!r}", expected="a file that can be written", found=reason(error)
        ) from error


def parse_shapes(items: Sequence[str]) -> dict[str, tuple[int | str, ...]]:
    """Return the shapes of ``--shape NAME=1,3,224,224`` arguments.

    An extent may also be a symbol, a range or a choice: ``NAME=1..16,3,H,W``.

    Raises:
        InputError: an argument does not have that form.
    """
    found: dict[str, tuple[int | str, ...]] = {}
    for name, text in split_assignments(items, "--shape").items():
        extents = [extent.strip() for extent in text.split(",")]
        shape = tuple(int(item) if item.isdecimal() else item for item in extents)
        try:
            if not is_fixed(shape):
                parse_shape(shape)
        except InputError:
            expected = "NAME=1,3,224,224, or with ranges NAME=1..16,3,H,W"
            found_ = f"{name}={text}"
            raise InputError.at("--shape", expected=expected, found=found_) from None
        found[name] = shape
    return found


def parse_values(items: Sequence[str]) -> dict[str, Array]:
    """Return the values of ``--value NAME=1,-1,64`` arguments.

    Raises:
        InputError: an argument does not have that form.
    """
    found: dict[str, Array] = {}
    for name, text in split_assignments(items, "--value").items():
        try:
            found[name] = np.array(json.loads(f"[{text}]"))
        except ValueError:
            expected, given = "NAME=1,-1,64", f"{name}={text}"
            raise InputError.at("--value", expected=expected, found=given) from None
    return found


@dataclass(frozen=True, slots=True)
class Request:
    """The values of the options that compile a model."""

    model: Path
    shapes: Mapping[str, tuple[int | str, ...]]
    values: Mapping[str, Array]
    threads: int | None
    tune: Tune
    cache_dir: Path | None
    plan: Path | None = None
    accuracy: Accuracy = "fast"
    dtype: PrecisionChoice = "model"
    max_error: float = 1e-2
    calibration: Path | None = None
    weight_memory_limit: int | None = None
    memory_limit: int | None = None
    fallback: bool = True
    streams: int = 1
    tune_seconds: float = 30.0
    origins: Mapping[str, str] | None = None

    def load(self, source: Path | bytes | None = None, *, training: bool = False) -> Graph:
        """Return the graph of the model, or of ``source``, with the shapes asked for."""
        return models.load(
            source or self.model,
            self.shapes,
            self.values,
            memory_limit=self.memory_limit,
            fallback=self.fallback,
            training=training,
        )

    def options(
        self, progress: Callback | None, source: Path | bytes | Graph | None = None
    ) -> GraphOptions:
        """Return the options that planning and compiling the model, or ``source``, have in common.

        Raises:
            InputError: the samples cannot be read, or do not fit the model.
        """
        return {
            "threads": self.threads,
            "tune": self.tune,
            "tune_seconds": self.tune_seconds,
            "cache_dir": self.cache_dir,
            "progress": progress,
            "accuracy": self.accuracy,
            "dtype": self.dtype,
            "max_error": self.max_error,
            "calibration": self._samples(self.model if source is None else source),
            "weight_memory_limit": self.weight_memory_limit,
            "memory_limit": self.memory_limit,
            "plan": self.plan,
            "origins": self.origins,
        }

    def _samples(self, source: Path | bytes | Graph) -> list[dict[str, Array]] | None:
        """Return the samples in files, for the shapes that the model is compiled for first."""
        if self.calibration is None:
            return None
        graph = source if isinstance(source, Graph) else self.load(source)
        return list(checked_samples(self.calibration, graph))

    def compile(self, *, quiet: bool, source: Path | bytes | Graph | None = None) -> CompiledModel:
        """Compile the model, or ``source`` in its place, with a progress bar unless ``quiet``."""
        given = self.model if source is None else source
        with measuring(quiet) as progress, plan_warnings():
            if not isinstance(given, Graph):
                model = compiling.compile(
                    given,
                    shapes=self._fixed_shapes(given),
                    values=self.values,
                    fallback=self.fallback,
                    streams=self.streams,
                    **self.options(progress, given),
                )
                if isinstance(model, CompiledModel):
                    return model
                given = self.load(given)  # its error names the inputs whose values the plan needs
            return compiling.compile(given, streams=self.streams, **self.options(progress, given))

    def _fixed_shapes(self, source: Path | bytes) -> dict[str, tuple[int, ...]]:
        """Return shapes for inputs with open shapes: those of the options, or the least ones.

        Shapes that equal those of the model are left out, so that it is stored under one name.
        """
        signature = models.open_model(source, fallback=self.fallback).signature
        given = {name: value.shape for name, value in self.values.items()}
        fixed = signature.narrowed({**self.shapes, **given}).without(self.values).default()
        own = {item.name for item in signature if item.is_fixed}
        known = signature.default()
        return {n: shape for n, shape in fixed.items() if n not in own or shape != known[n]}

    def plan_model(self, target: str | None, progress: Callback | None) -> Plan:
        """Return the plan of the model, or the one of the plan file that was given."""
        return plans.plan(
            self.model,
            shapes=self.shapes,
            values=self.values,
            target=target,
            fallback=self.fallback,
            **self.options(progress),
        )


SAMPLE_FILES = (
    ".npz with arrays by input name, samples along their first axis; .npy for a single input; or a "
    "folder of such files."
)
"""What ``--calibration`` takes."""


_SOURCE = (
    click.argument("model", type=click.Path(path_type=Path)),
    click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="NAME=1,3,224,224",
        help="Shape of an input; an extent may be a number, a range 1..16 or a symbol N.",
    ),
    click.option(
        "--value",
        "values",
        multiple=True,
        metavar="NAME=1,-1,64",
        help="Value of an input that the plan depends on, such as a shape or axes.",
    ),
    click.option(
        "--input-origin",
        "input_origins",
        multiple=True,
        metavar="NAME=NHWC",
        help="Meaning of the axes of an input, if no operator defines it.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(1, 1024),
        help="Number of threads; `stridewise info` shows the default.",
    ),
    click.option(
        "--tune",
        type=click.Choice(["auto", "measure", "model"]),
        default="auto",
        show_default=True,
        help="auto predicts kernel times from measured ones; measure times the kernels of the "
        "model; model estimates them and times nothing.",
    ),
    click.option(
        "--tune-seconds",
        type=click.FloatRange(0, min_open=True),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="Time limit of --tune measure.",
    ),
    click.option(
        "--accuracy",
        type=click.Choice(["fast", "exact"]),
        default="fast",
        show_default=True,
        help="fast allows Winograd convolution, whose rounding errors are larger; exact does not.",
    ),
)


def _dtype_option(*more: str, others: str = "") -> Callable[..., Any]:
    return click.option(
        "--dtype",
        type=click.Choice(["model", "float32", "bfloat16", *more]),
        default="model",
        show_default=True,
        help="model uses integer kernels for quantized tensors; float32 computes them in float32; "
        "bfloat16 also allows float32 tensors to be stored as bfloat16 where that is not slower"
        f"{others}.",
    )


_TYPES = (
    _dtype_option("auto", others="; auto chooses types so that the error is within --max-error"),
    click.option(
        "--max-error",
        type=float,
        default=1e-2,
        show_default=True,
        metavar="ERROR",
        help="With --dtype auto, the limit on the relative error of the outputs.",
    ),
    click.option(
        "--calibration",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="With --dtype auto, samples that also allow tensors to be stored as integers of 8 "
        f"bits: {SAMPLE_FILES}",
    ),
)
_LIMITS = (
    click.option(
        "--weight-memory-limit",
        type=click.IntRange(0),
        metavar="BYTES",
        help="Limit on the memory of transformed weights for Winograd convolution.",
    ),
    click.option(
        "--cache-dir",
        type=click.Path(path_type=Path),
        help="Folder of the cost cache and of stored models.",
    ),
    click.option(
        "--plan",
        "plan_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Use the decisions of a plan file; nothing is measured.",
    ),
    click.option(
        "--memory-limit",
        callback=_limit,
        metavar="SIZE",
        help="Limit on the memory of the model, such as 2GiB; default: 3/4 of all memory.",
    ),
    click.option(
        "--no-fallback", is_flag=True, help="Refuse models that need ONNX Runtime for some nodes."
    ),
)


target_option = click.option(
    "--target",
    metavar="|".join((*TARGETS, "FILE.toml")),
    help=f"Target of the plan; default: {NATIVE}.",
)
"""The option that names a target."""


streams_option = click.option(
    "--streams",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Number of requests that run at the same time; each has an equal share of the threads.",
)
"""The option for the number of simultaneous requests."""


_AS_GIVEN = (
    *("threads", "tune", "tune_seconds", "cache_dir", "accuracy", "dtype", "max_error"),
    *("calibration", "weight_memory_limit", "memory_limit"),
)
"""Options with the same name in a request."""


def compile_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the model argument and the options of compiling; the command gets a ``Request``."""
    return _with_request((*_SOURCE, *_TYPES, *_LIMITS), command)


def training_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the model argument and those options that training has as well."""
    return _with_request((*_SOURCE, _dtype_option(), *_LIMITS), command)


def _with_request(
    options: Sequence[Callable[..., Any]], command: Callable[..., None]
) -> Callable[..., None]:
    @wraps(command)
    def with_request(
        model: Path,
        shapes: tuple[str, ...],
        values: tuple[str, ...],
        input_origins: tuple[str, ...],
        plan_file: Path | None,
        no_fallback: bool,
        **others: Any,
    ) -> None:
        own = {key: others.pop(key) for key in _AS_GIVEN if key in others}
        own |= {"plan": plan_file, "fallback": not no_fallback}
        own |= {"origins": split_assignments(input_origins, "--input-origin")}
        request = Request(model, parse_shapes(shapes), parse_values(values), **own)
        command(request, **others)

    return with_options(options, with_request)


def with_options(options: Sequence[Callable[..., Any]], command: Callable[..., None]) -> Any:
    """Add options to a command; help lists them in their order."""
    for option in reversed(options):
        command = option(command)
    return command
