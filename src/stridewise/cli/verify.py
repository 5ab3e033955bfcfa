"""``stridewise verify``: compare every tensor of a compiled model with a reference."""

from __future__ import annotations

import click

from stridewise.api.verify import Against
from stridewise.api.verify import verify as verified
from stridewise.cli.console import Request, compile_options, measuring, plan_warnings
from stridewise.cli.outputs import Command
from stridewise.cli.run import given_arrays
from stridewise.frontends.registry import open_model

__all__ = ["verify"]


@click.command(cls=Command)
@compile_options
@click.option(
    "--against",
    type=click.Choice(["reference", "onnxruntime"]),
    default="reference",
    show_default=True,
    help="Compare every tensor with the NumPy reference, or the outputs with ONNX Runtime.",
)
@click.option(
    "--input", "given", multiple=True, metavar="NAME=FILE.npy", help="Array for an input."
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed for random inputs."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(
    request: Request, *, against: Against, given: tuple[str, ...], seed: int, as_json: bool
) -> None:
    """Run a model and compare every tensor with a reference.

    The model is compiled, or loaded from the store. If a node is wrong, the command names the first
    one and exits with status 1.
    """
    arrays = None
    if given:
        file = open_model(request.model, fallback=request.fallback)
        arrays = given_arrays(file, given, random=True)
    with measuring(as_json) as progress, plan_warnings():
        found = verified(
            request.model,
            inputs=arrays,
            seed=seed,
            against=against,
            shapes=request.shapes,
            values=request.values,
            fallback=request.fallback,
            **request.options(progress),
        )
    click.echo(found.to_json() if as_json else str(found), nl=as_json)
    found.check()
