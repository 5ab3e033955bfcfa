"""``stridewise report``: the plan as an HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from stridewise.cli.console import (
    OUT,
    Request,
    compile_options,
    measuring,
    plan_warnings,
    save_text,
    target_option,
)
from stridewise.cli.outputs import Command, OutputFile
from stridewise.cli.run import as_wanted, random_inputs
from stridewise.frontends.registry import WRITER
from stridewise.targets.target import NATIVE

__all__ = ["MOVING", "moves_of_onnxruntime", "report"]

MOVING = ("ReorderInput", "ReorderOutput", "Transpose", "Concat", "Split", "Slice")
"""Operators of ONNX Runtime's optimized graphs that only move bytes. Its Reshapes move none."""


def moves_of_onnxruntime(model: Path | bytes, threads: int) -> dict[str, int]:
    """Return how many steps of each kind only move bytes in the graph that ONNX Runtime runs.

    ONNX Runtime writes that graph itself when it loads a model.

    Raises:
        DependencyError: ONNX Runtime is not installed.
        ModelError: it cannot load the model.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "optimized.onnx"
        WRITER.session(model, threads, path)
        counts = WRITER.operators(path)
    return {op: counts[op] for op in MOVING if op in counts}


def _page(
    request: Request, target: str | None, runs: int | None, others: Mapping[str, Mapping[str, int]]
) -> str:
    """Return the page, with measured times if ``runs`` is given and the target runs here."""
    # jinja2 takes time to load.
    from stridewise.report import to_html  # noqa: PLC0415

    if target not in (None, NATIVE):
        with measuring() as progress, plan_warnings():
            return to_html(request.plan_model(target, progress), others=others)
    model = request.compile(quiet=False)
    profile = None
    if runs is not None:
        profile = model.profile(as_wanted(model, random_inputs(model.interface, 0)), runs)
    return to_html(model.plan, model.program, profile, others, model.memory)


@click.command(cls=Command)
@compile_options
@target_option
@click.option(
    "-o",
    "--output",
    type=OutputFile(path_type=Path),
    metavar="FILE",
    help="File to write; default: MODEL.html in the current folder.",
)
@click.option(
    "--no-run", is_flag=True, help="Do not run the model; the report then has no measured times."
)
@click.option(
    "--runs",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="Number of timed runs; the report shows medians.",
)
@click.option(
    "--vs-onnxruntime",
    is_flag=True,
    help="Also count the data movement in ONNX Runtime's own optimized graph.",
)
def report(
    request: Request,
    *,
    target: str | None,
    output: Path | None,
    no_run: bool,
    runs: int,
    vs_onnxruntime: bool,
) -> None:
    """Write an HTML page about the plan of a model.

    It shows the graph, the formats, all candidates with their costs, times and memory.
    Times are measured with random inputs (standard normal).
    """
    path = output or Path(f"{request.model.stem}.html")
    others: dict[str, dict[str, int]] = {}
    if vs_onnxruntime:
        others["ONNX Runtime"] = moves_of_onnxruntime(request.model, request.threads or 0)
    save_text(path, _page(request, target, None if no_run else runs, others), "--output")
    OUT.print(f"report in {path}", soft_wrap=True)
