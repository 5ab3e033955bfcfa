"""``stridewise report``: the plan as a page that can be opened, kept and shown to others."""

from __future__ import annotations

from pathlib import Path

import click

from stridewise import api
from stridewise.cli.console import OUT, Request, compile_options, measuring, save_text
from stridewise.cli.run import random_inputs

__all__ = ["report"]


@click.command()
@compile_options
@click.option("--target", default="onednn-cpu", show_default=True, help="What to plan for.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write; by default MODEL.html in this folder.",
)
@click.option("--no-run", is_flag=True, help="Leave out measured times: do not run the model.")
@click.option(
    "--runs",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="Runs that measured times are medians of.",
)
def report(request: Request, target: str, output: Path | None, no_run: bool, runs: int) -> None:
    """Write a page with graph, formats, candidates, times and memory of a plan.

    Measured times are those of standard normal inputs.
    """
    path = output or Path(f"{request.model.stem}.html")
    with measuring() as progress:
        model = api.compile(
            request.model,
            shapes=request.shapes,
            threads=request.threads,
            target=target,
            tune=request.tune,
            cache_dir=request.cache_dir,
            progress=progress,
        )
    inputs = None if no_run else random_inputs(model.plan.graph, 0)
    save_text(path, model.report_html(inputs, runs), "--output")
    OUT.print(f"report in {path}", soft_wrap=True)
