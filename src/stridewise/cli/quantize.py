"""``stridewise quantize``: make an int8 model of a float32 model and calibration data."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click
from rich.table import Table

from stridewise.cli.console import OUT, SAMPLE_FILES, measuring, parse_shapes
from stridewise.cli.outputs import Command, OutputFile
from stridewise.quantization import Quantized
from stridewise.quantization import quantize as quantized
from stridewise.quantization.settings import METHODS
from stridewise.tensor.ranges import Activations

__all__ = ["quantize"]


@click.command(cls=Command)
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--calibration",
    required=True,
    type=click.Path(path_type=Path),
    help=SAMPLE_FILES,
)
@click.option(
    "-o", "--output", required=True, type=OutputFile(path_type=Path), help="ONNX file to write."
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=1,3,224,224",
    help="Shape of an input that the model leaves open; the result has this shape.",
)
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default="auto",
    show_default=True,
    help="How ranges are derived from values; auto uses the method that gives the least error.",
)
@click.option(
    "--percentile",
    type=float,
    default=99.99,
    show_default=True,
    help="Percentile of the values at which --method percentile ends a range.",
)
@click.option(
    "--activations",
    type=click.Choice(get_args(Activations)),
    default="uint8",
    show_default=True,
    help="Type of activations: uint8 with any zero point, or int8 with zero point 0.",
)
@click.option(
    "--reduce-range",
    is_flag=True,
    help="Quantize weights to 7 bits, so that sums are exact on CPUs without VNNI.",
)
@click.option(
    "--max-error",
    type=float,
    metavar="ERROR",
    help="Limit on the relative error of the outputs; layers that would exceed it stay in float32.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    help="Number of threads; `stridewise info` shows the default.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def quantize(  # noqa: PLR0913 (one parameter an option)
    model: Path,
    *,
    calibration: Path,
    output: Path,
    shapes: tuple[str, ...],
    method: str,
    percentile: float,
    activations: Activations,
    reduce_range: bool,
    max_error: float | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Make an int8 model (QDQ) of a float32 model.

    ONNX Runtime and OpenVINO load the result, too.
    """
    with measuring(as_json, "quantizing") as progress:
        found = quantized(
            model,
            calibration,
            output,
            shapes=parse_shapes(shapes) or None,
            method=method,
            percentile=percentile,
            activations=activations,
            reduce_range=reduce_range,
            max_error=max_error,
            threads=threads,
            progress=progress,
        )
    if as_json:
        click.echo(found.to_json())
        return
    OUT.print(_table(found))
    OUT.print(f"{found.summary}; saved to {output}", soft_wrap=True)
    if found.left:
        OUT.print(
            "ONNX Runtime quantizes weights of layers that stay in float32, which can double the"
            ' error; disabled_optimizers=["WeightBiasQuantization"] of a session prevents that.',
            soft_wrap=True,
        )
    if max_error is not None and found.error > max_error:
        message = f"warning: the error is above {max_error:g} although all layers are in float32"
        click.echo(message, err=True)


def _table(found: Quantized) -> Table:
    table = Table("layer", "operator", "range", "error", "in float because")
    for row in found.rows:
        span = "" if row.low == row.high else f"{row.low:.4g} .. {row.high:.4g}"
        table.add_row(row.name, row.op, span, f"{row.error:.1e}", row.reason)
    return table
