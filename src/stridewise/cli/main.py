"""The entry point: the group of subcommands, and what becomes of errors.

Exit status: 0 done, 1 the work failed (one line on standard error), 2 wrong usage.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, cast

import click

from stridewise import __version__
from stridewise.errors import StridewiseError

__all__ = ["main"]

LOG_VARIABLE = "STRIDEWISE_LOG"


_ATTRIBUTES = {"compile": "compile_"}
"""Names of the functions of commands, where they are not those of the commands."""

_COMMANDS = {
    "bench": ("bench", "Time a model in Stridewise and in other runtimes."),
    "calibrate": ("calibrate", "Measure this machine once, so that models compile quickly."),
    "capability": ("capability", "Show which nodes are native, and why the others are not."),
    "check": ("check", "Run a PyTorch model and print where it loses channels-last."),
    "compile": ("compile", "Compile a model and print a summary, or the texts of stages."),
    "diff": ("diff", "Compare two plan files: decisions that differ, and the costs."),
    "formats": ("formats", "Explain and translate the names of memory formats."),
    "info": ("info", "Show the machine, its threads, libdnnl and the cost cache."),
    "passes": ("compile", "List the passes over the graph in the order in which they run."),
    "plan": ("plan", "Show the kernel of every node and the format of every tensor."),
    "quantize": ("quantize", "Make an int8 model (QDQ) of a float32 model."),
    "reorder": ("reorder", "Convert the array in a .npy file to another memory format."),
    "report": ("report", "Write an HTML page about the plan of a model."),
    "run": ("run", "Compile a model, run it once, and summarize its outputs."),
    "train": ("train", "Train the weights of MODEL to classify DATA."),
    "verify": ("verify", "Run a model and compare every tensor with a reference."),
}
"""The module of each command, and the first sentence of its help, for a list of all commands."""


class _Commands(Mapping[str, click.Command]):
    """The commands, each imported when it is needed: most starts need one."""

    def __getitem__(self, name: str) -> click.Command:
        module = import_module(f"stridewise.cli.{_COMMANDS[name][0]}")
        return getattr(module, _ATTRIBUTES.get(name, name))

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class _Group(click.Group):
    """The group of the commands, which lists them without importing them."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        texts = [click.Command(name, help=text) for name, (_, text) in _COMMANDS.items()]
        click.Group(commands=texts).format_commands(ctx, formatter)


@click.group(
    cls=_Group,
    commands=cast("Any", _Commands()),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="stridewise")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Compile and run convolutional networks on CPUs, and inspect their plans."""
    del debug  # read by main(), which handles errors


def _configure_log() -> None:
    level = os.environ.get(LOG_VARIABLE, "WARNING").upper()
    known = level in logging.getLevelNamesMapping()
    logging.basicConfig(level=level if known else "WARNING", format="%(levelname)s: %(message)s")


def main(command: click.Command = cli) -> None:
    """Run the command line and exit.

    Args:
        command: what to run; by default the group of all subcommands.
    """
    _configure_log()
    debug = "--debug" in sys.argv[1:]
    try:
        status = command.main(standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; measured costs are kept", err=True)
        sys.exit(130)
    except (StridewiseError, OSError, MemoryError) as error:
        if debug:
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        click.echo(f"error: {message}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
