"""``stridewise plan``: kernels, formats and costs, and the reasons."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from stridewise.api import models
from stridewise.cli.console import (
    Request,
    compile_options,
    measuring,
    plan_warnings,
    save_text,
    split_assignments,
    target_option,
)
from stridewise.cli.outputs import Command, OutputFile
from stridewise.planner import Regret, Why
from stridewise.planning import Plan
from stridewise.records import finite

__all__ = ["plan"]


def _why_json(why: Why) -> dict[str, Any]:
    return {
        "node": why.node,
        "algorithm": why.chosen.algorithm,
        "total_ns": why.total_ns,
        "alternatives": [
            {
                "algorithm": other.candidate.algorithm,
                "node_delta_ns": other.node_delta_ns,
                "total_delta_ns": finite(other.total_delta_ns),
            }
            for other in why.alternatives
        ],
        "refusals": [
            {"rule": r.rule, "subject": r.subject, "reason": r.reason} for r in why.refusals
        ],
    }


def _regret_json(regret: Regret) -> dict[str, Any]:
    return {
        "tensor": regret.tensor,
        "format": str(regret.storage),
        "total_ns": finite(regret.total_ns),
        "kernel_ns": finite(regret.kernel_ns),
        "reorder_ns": regret.reorder_ns,
    }


def _refusals(found: Plan) -> None:
    click.echo("what was not done:")
    for refusal in found.refusals:
        click.echo(f"  {refusal}")


def _print_json(found: Plan, whys: Sequence[Why], regrets: Sequence[Regret] | None) -> None:
    document = json.loads(found.to_json())
    if whys:
        document["why"] = [_why_json(why) for why in whys]
    if regrets is not None:
        document["regrets"] = [_regret_json(regret) for regret in regrets]
    click.echo(json.dumps(document, indent=2))


def _print_text(found: Plan, whys: Sequence[Why], regrets: Sequence[Regret] | None) -> None:
    """Print the answers to the questions, or the plan if there are none."""
    for why in whys:
        click.echo(str(why), nl=False)
    for regret in regrets or ():
        click.echo(str(regret))
    if not whys and regrets is None:
        click.echo(found.explain(), nl=False)


@click.command(cls=Command)
@compile_options
@target_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--origins",
    is_flag=True,
    help="Also print the meaning of the axes of every tensor, with the reason.",
)
@click.option(
    "--annotated-onnx",
    type=OutputFile(path_type=Path),
    metavar="FILE",
    help="Write the plan as an ONNX file for viewers.",
)
@click.option("--refusals", is_flag=True, help="Also print what was not done, with the reasons.")
@click.option(
    "--why",
    "nodes",
    multiple=True,
    metavar="NODE",
    help="Print the alternatives for a node and their costs.",
)
@click.option(
    "--what-if",
    "wanted",
    multiple=True,
    metavar="TENSOR=FORMAT",
    help="Store a tensor in the given format.",
)
@click.option(
    "--regret", is_flag=True, help="For each tensor, print the extra cost of every other format."
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="With --regret: only the N largest tensors.",
)
@click.option("--save", type=OutputFile(path_type=Path), metavar="FILE", help="Write a plan file.")
@click.option(
    "--html",
    type=OutputFile(path_type=Path),
    metavar="FILE",
    help="Write the plan as an HTML page.",
)
@click.option(
    "--dot", type=OutputFile(), metavar="FILE", help="Write a drawing for Graphviz; - prints it."
)
def plan(  # noqa: PLR0913 (one parameter an option)
    request: Request,
    *,
    target: str | None,
    as_json: bool,
    origins: bool,
    refusals: bool,
    annotated_onnx: Path | None,
    nodes: tuple[str, ...],
    wanted: tuple[str, ...],
    regret: bool,
    limit: int | None,
    save: Path | None,
    html: Path | None,
    dot: str | None,
) -> None:
    """Show the kernel of every node and the format of every tensor.

    The output also lists the remaining reorders, and the costs of other plans.

    With --what-if, all outputs describe the plan with the given formats.
    """
    formats = split_assignments(wanted, "--what-if")
    with measuring(quiet=as_json or dot == "-") as progress, plan_warnings():
        cheapest = request.plan_model(target, progress)
    found = cheapest.what_if(formats) if formats else cheapest
    if save is not None:
        found.save(save)
    if annotated_onnx is not None:
        models.annotate(found, annotated_onnx)
    if html is not None:
        save_text(html, found.to_html(), "--html")
    if dot is not None and dot != "-":
        save_text(Path(dot), found.to_dot(), "--dot")
    whys = [found.why(node) for node in nodes]
    regrets = found.regrets(limit=limit) if regret else None
    if as_json:
        _print_json(found, whys, regrets)
    elif dot == "-":
        click.echo(found.to_dot(), nl=False)
    else:
        _print_text(found, whys, regrets)
        if formats:
            click.echo(f"beside the plan without {', '.join(formats)}:")
            click.echo(str(cheapest.diff(found)), nl=False)
        if origins:
            click.echo(found.derived.explain(), nl=False)
        if refusals:
            _refusals(found)
        for path in (save, annotated_onnx, html, dot):
            if path is not None:
                click.echo(f"saved to {path}")
