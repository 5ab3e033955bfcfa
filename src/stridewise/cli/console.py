"""What the subcommands share: the console, progress bars, and options that several take."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stridewise import api
from stridewise.api import Tune
from stridewise.errors import InputError, PlanWarning, describe
from stridewise.graph import Graph
from stridewise.planner import Plan
from stridewise.runtime.executor import CompiledModel

__all__ = [
    "OUT",
    "Request",
    "compile_options",
    "measuring",
    "parse_nbytes",
    "parse_shapes",
    "plan_warnings",
    "save_text",
    "split_assignments",
    "target_option",
]

OUT = Console(highlight=False)
_ERR = Console(stderr=True, highlight=False)

Callback = Callable[[int, int, str], None]


@contextmanager
def measuring(quiet: bool = False) -> Generator[Callback | None]:
    """Yield a callback that shows a progress bar on a terminal, or None elsewhere."""
    if quiet or not _ERR.is_terminal:
        yield None
        return
    columns = (
        TextColumn("measuring kernels"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.description}"),
    )
    with Progress(*columns, console=_ERR, transient=True) as bar:
        task = bar.add_task("", total=None)

        def advance(done: int, total: int, kind: str) -> None:
            bar.update(task, completed=done, total=total, description=kind)

        yield advance


@contextmanager
def plan_warnings() -> Generator[None]:
    """Print warnings about plan files in one line each, without the place in our code."""
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
            raise InputError(
                describe(option, expected="NAME=VALUE, each name once", found=repr(item))
            )
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
        raise InputError(describe("a number of bytes", expected="one like 2GiB", found=repr(text)))
    return nbytes


def _limit(ctx: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """Return the bytes of ``--memory-limit``; a text that means none is wrong usage."""
    try:
        return None if text is None else parse_nbytes(text)
    except InputError as error:
        raise click.BadParameter(str(error), ctx, option) from error


def save_text(path: Path, text: str, option: str) -> None:
    """Write a file.

    Raises:
        InputError: it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            describe(option, expected="a file that can be written", found=str(error))
        ) from error


def parse_shapes(items: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of ``--shape NAME=1,3,224,224`` arguments.

    Raises:
        InputError: an argument does not have that form.
    """
    found: dict[str, tuple[int, ...]] = {}
    for name, text in split_assignments(items, "--shape").items():
        extents = text.split(",")
        if not all(extent.strip().isdecimal() for extent in extents):
            raise InputError(
                describe("--shape", expected="NAME=1,3,224,224", found=f"{name}={text}")
            )
        found[name] = tuple(int(extent) for extent in extents)
    return found


@dataclass(frozen=True, slots=True)
class Request:
    """What the options that compile a model say."""

    model: Path
    shapes: Mapping[str, tuple[int, ...]]
    threads: int | None
    tune: Tune
    cache_dir: Path | None
    plan: Path | None = None
    memory_limit: int | None = None

    def load(self) -> Graph:
        """Return the graph of the model, with the shapes asked for."""
        return api.load(self.model, self.shapes, memory_limit=self.memory_limit)

    def compile(self, *, quiet: bool, source: Path | bytes | Graph | None = None) -> CompiledModel:
        """Compile the model, or ``source`` in its place, with a progress bar unless ``quiet``."""
        with measuring(quiet) as progress, plan_warnings():
            return api.compile(
                source or self.model,
                shapes=None if isinstance(source, Graph) else self.shapes,
                threads=self.threads,
                tune=self.tune,
                cache_dir=self.cache_dir,
                progress=progress,
                memory_limit=self.memory_limit,
                plan=self.plan,
            )

    def plan_model(self, target: str | None, progress: Callback | None) -> Plan:
        """Return the plan of the model, or the one of the plan file that was given."""
        return api.plan(
            self.model,
            shapes=self.shapes,
            threads=self.threads,
            target=target,
            tune=self.tune,
            cache_dir=self.cache_dir,
            progress=progress,
            memory_limit=self.memory_limit,
            plan=self.plan,
        )


_OPTIONS = (
    click.argument("model", type=click.Path(path_type=Path)),
    click.option(
        "--shape", "shapes", multiple=True, metavar="NAME=1,3,224,224", help="Shape of an input."
    ),
    click.option("--threads", type=click.IntRange(1, 1024), help="Threads; by default all CPUs."),
    click.option(
        "--tune",
        type=click.Choice(["measure", "model"]),
        default="measure",
        show_default=True,
        help="Time kernels on this machine, or estimate them.",
    ),
    click.option("--cache-dir", type=click.Path(path_type=Path), help="Folder of the cost cache."),
    click.option(
        "--plan",
        "plan_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Use the decisions of a plan file; nothing is timed.",
    ),
    click.option(
        "--memory-limit",
        callback=_limit,
        metavar="SIZE",
        help="What the model may need, like 2GiB; by default three quarters of the memory.",
    ),
)


target_option = click.option(
    "--target",
    metavar="|".join((*api.TARGETS, "FILE.toml")),
    help=f"What to plan for; by default {api.NATIVE}.",
)
"""The option that names a target."""


def compile_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the model argument and the options of compiling; the command gets a ``Request``."""

    @wraps(command)
    def with_request(
        model: Path,
        shapes: tuple[str, ...],
        threads: int | None,
        tune: Tune,
        cache_dir: Path | None,
        plan_file: Path | None,
        memory_limit: int | None,
        **others: Any,
    ) -> None:
        known = parse_shapes(shapes)
        request = Request(model, known, threads, tune, cache_dir, plan_file, memory_limit)
        command(request, **others)

    decorated: Callable[..., None] = with_request
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
