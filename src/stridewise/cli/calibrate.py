"""``stridewise calibrate``: measured rates of kernels, from which those of all networks follow."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click
from rich.table import Table

from stridewise.api import calibration
from stridewise.cli.console import OUT, measuring
from stridewise.cli.outputs import Command
from stridewise.runtime.tuning.calibrate import Calibration

__all__ = ["calibrate"]


@click.command(cls=Command)
@click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    help="Number of threads; `stridewise info` shows the default.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=55.0,
    show_default=True,
    help="Time limit of the measurements.",
)
@click.option("--cache-dir", type=click.Path(path_type=Path), help="Folder of the cost cache.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def calibrate(threads: int | None, seconds: float, cache_dir: Path | None, as_json: bool) -> None:
    """Measure this machine once, so that models compile quickly."""
    with measuring(as_json, "calibrating") as progress:
        found = calibration.calibrate(
            threads=threads, seconds=seconds, cache_dir=cache_dir, progress=progress
        )
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found), indent=2))
        return
    OUT.print(f"{found.machine}: {found.measured} kernels in {found.seconds:.0f} s")
    if found.warning:
        OUT.print(found.warning)
    OUT.print(_table(found))


def _table(found: Calibration) -> Table:
    table = Table(box=None)
    for name in ("kind", "storages"):
        table.add_column(name, overflow="fold")
    for name in ("samples", "measured / estimate", "error of predictions"):
        table.add_column(name, justify="right", overflow="fold")
    for rate in found.rates:
        figures = (str(rate.samples), f"{rate.factor:.2f}", f"{rate.error:.0%}")
        table.add_row(rate.kind, rate.family, *figures)
    return table
