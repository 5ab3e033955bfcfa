"""``stridewise info``: the machine, the library and the caches in use."""

from __future__ import annotations

import json

import click

from stridewise import __version__
from stridewise.runtime.cache import cache_path
from stridewise.runtime.library import library_info
from stridewise.runtime.machine import this_machine

__all__ = ["info"]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(as_json: bool) -> None:
    """Show machine, instruction set, threads, libdnnl and the cost cache."""
    machine, library = this_machine(), library_info()
    costs = cache_path()
    facts = {
        "stridewise": __version__,
        "cpu": machine.cpu,
        "isa": machine.isa,
        "threads": machine.threads,
        "libdnnl": str(library.path),
        "libdnnl version": library.version,
        "libdnnl threading": library.threading,
        "cost cache": str(costs),
        "cost cache bytes": costs.stat().st_size if costs.is_file() else 0,
    }
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    for key, value in facts.items():
        click.echo(f"{key:<18}{value}")
