"""``stridewise diff``: the decisions in which two plan files differ."""

from __future__ import annotations

import json
from pathlib import Path

import click

from stridewise.cli.outputs import Command
from stridewise.planner.documents import files
from stridewise.planner.documents.diff import diff as compare
from stridewise.records import encode

__all__ = ["diff"]


@click.command(cls=Command)
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def diff(before: Path, after: Path, as_json: bool) -> None:
    """Compare two plan files: decisions that differ, and the costs."""
    found = compare(files.read(before), files.read(after))
    if as_json:
        click.echo(json.dumps(encode(found), indent=2))
    else:
        click.echo(str(found), nl=False)
