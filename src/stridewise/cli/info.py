"""``stridewise info``: the machine, the library and the caches in use."""

from __future__ import annotations

import json

import click

from stridewise import __version__
from stridewise.cli.outputs import Command
from stridewise.runtime.binding.library import library_info
from stridewise.runtime.machine.cpus import cpu_limits
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.tuning.cost_file import cache_path

__all__ = ["info"]


@click.command(cls=Command)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(as_json: bool) -> None:
    """Show the machine, its threads, libdnnl and the cost cache."""
    limits = cpu_limits()
    source = limits.decisive.source
    machine, library = this_machine(limits.decisive.threads), library_info()
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
        facts |= {
            "threads source": source,
            "thread limits": {limit.source: limit.threads for limit in limits.found},
            "thread limits ignored": limits.ignored,
        }
        click.echo(json.dumps(facts, indent=2))
        return
    ignored = "".join(f"; {item} is ignored" for item in limits.ignored)
    facts["threads"] = f"{machine.threads} ({source}{ignored})"
    for key, value in facts.items():
        click.echo(f"{key:<18}{value}")
