"""The entry point: the group of subcommands, and what becomes of errors.

Exit status: 0 done, 1 the work failed (one line on standard error), 2 wrong usage.
"""

from __future__ import annotations

import logging
import os
import sys

import click

from stridewise import __version__
from stridewise.cli.bench import bench
from stridewise.cli.calibrate import calibrate
from stridewise.cli.capability import capability
from stridewise.cli.check import check
from stridewise.cli.compile import compile_, passes
from stridewise.cli.diff import diff
from stridewise.cli.formats import formats
from stridewise.cli.info import info
from stridewise.cli.plan import plan
from stridewise.cli.quantize import quantize
from stridewise.cli.reorder import reorder
from stridewise.cli.report import report
from stridewise.cli.run import run
from stridewise.cli.train import train
from stridewise.cli.verify import verify
from stridewise.errors import StridewiseError

__all__ = ["main"]

LOG_VARIABLE = "STRIDEWISE_LOG"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="stridewise")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Compile and run convolutional networks on CPUs, and inspect their plans."""
    del debug  # read by main(), which handles errors


for _command in (
    run, compile_, quantize, passes, verify, plan, diff, report, capability, bench, calibrate, info,
    formats, reorder, train, check,
):  # fmt: skip
    cli.add_command(_command)


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
