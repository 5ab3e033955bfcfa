"""``stridewise report``: the plan as a page that can be opened, kept and shown to others."""

from __future__ import annotations

from pathlib import Path

import click

from stridewise import api
from stridewise.cli.console import (
    OUT,
    Request,
    compile_options,
    measuring,
    plan_warnings,
    save_text,
    target_option,
)
from stridewise.cli.run import random_inputs

__all__ = ["report"]


def _page(request: Request, target: str | None, runs: int | None) -> str:
    """Return the page, with times of single steps if it is asked for and the target runs here."""
    if target not in (None, api.NATIVE):
        with measuring() as progress, plan_warnings():
            return request.plan_model(target, progress).to_html()
    model = request.compile(quiet=False)
    inputs = None if runs is None else random_inputs(model.plan.graph, 0)
    return model.report_html(inputs, runs or 1)


@click.command()
@compile_options
@target_option
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
def report(
    request: Request, target: str | None, output: Path | None, no_run: bool, runs: int
) -> None:
    """Write a page with graph, formats, candidates, times and memory of a plan.

    Measured times are those of standard normal inputs.
    """
    path = output or Path(f"{request.model.stem}.html")
    save_text(path, _page(request, target, None if no_run else runs), "--output")
    OUT.print(f"report in {path}", soft_wrap=True)
