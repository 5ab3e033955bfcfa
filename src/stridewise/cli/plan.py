"""``stridewise plan``: what would be stored how, and why."""

from __future__ import annotations

import click

from stridewise import api
from stridewise.cli.console import Request, compile_options, measuring

__all__ = ["plan"]


@click.command()
@compile_options
@click.option("--target", default="onednn-cpu", show_default=True, help="What to plan for.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--origins", is_flag=True, help="Also print what every tensor means, and why.")
@click.option("--annotated-onnx", metavar="FILE", help="Also write an ONNX file for viewers.")
@click.option("--refusals", is_flag=True, help="Also print what was not done, and why.")
def plan(
    request: Request,
    target: str,
    as_json: bool,
    origins: bool,
    annotated_onnx: str | None,
    refusals: bool,
) -> None:
    """Show the kernel of every node, the format of every tensor, and the reorders left."""
    with measuring(quiet=as_json) as progress:
        found = api.plan(
            request.model,
            shapes=request.shapes,
            threads=request.threads,
            target=target,
            tune=request.tune,
            cache_dir=request.cache_dir,
            progress=progress,
        )
    if annotated_onnx is not None:
        api.annotate(found, annotated_onnx)
    if as_json:
        click.echo(found.to_json())
        return
    click.echo(found.explain(), nl=False)
    if origins:
        click.echo("what every tensor means:")
        for name, provenance in found.derived.provenance.items():
            origin = found.graph.values[name].origin
            click.echo(
                f"  {name}: {provenance}" if origin is None else f"  {name}: {origin} {provenance}"
            )
    if refusals:
        click.echo("what was not done:")
        for refusal in found.refusals:
            click.echo(f"  {refusal}")
