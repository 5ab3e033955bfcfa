"""``stridewise capability``: the native nodes of a model, and those for ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import click

from stridewise.api import models
from stridewise.cli.console import parse_shapes
from stridewise.cli.outputs import Command

__all__ = ["capability"]


@click.command(cls=Command)
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--shape", "shapes", multiple=True, metavar="NAME=1,3,224,224", help="Shape of an input."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def capability(model: Path, shapes: tuple[str, ...], as_json: bool) -> None:
    """Show which nodes are native, and why the others are not."""
    found = models.capability(model, parse_shapes(shapes))
    click.echo(found.to_json() if as_json else str(found), nl=as_json)
