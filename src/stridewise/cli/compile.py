"""``stridewise compile`` and ``stridewise passes``: the stages of compilation, and their texts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from stridewise.cli.console import Request, compile_options, measuring
from stridewise.cli.formats import columns
from stridewise.cli.outputs import Command
from stridewise.frontends.registry import open_model
from stridewise.graph import Graph
from stridewise.job import Job
from stridewise.options import Options
from stridewise.passes import Pass, Simplified, check_passes, passes_for, select, simplify
from stridewise.planner import derive
from stridewise.program import CopyStep, FillStep, Step
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.strategy import Planner
from stridewise.targets.onednn.target import ABILITY

__all__ = ["compile_", "passes"]

_STAGES = ("graph", "simplified", "plan", "program")
_ALL = "all"


def _print(title: str, text: str) -> None:
    click.echo(f"--- {title} ---\n{text}", nl=False)


def _simplified(graph: Graph, chosen: Sequence[Pass], print_after: Sequence[str]) -> Simplified:
    """Run passes, and print the graph after some of them."""

    def after(item: Pass, found: Graph) -> None:
        if _ALL in print_after or item.name in print_after:
            _print(f"after {item.name}", str(found))

    return simplify(graph, chosen, after=after)


def _compiled(request: Request, simplified: Simplified | None, *, quiet: bool) -> CompiledModel:
    """Return the compiled model, of a graph that is already simplified if one is given."""
    if simplified is None:
        return request.compile(quiet=quiet)
    with measuring(quiet) as progress:
        graph = simplified.graph
        job = Job.of(open_model(graph), Options(**request.options(progress, graph)))
        derived = derive(graph, job.options.origins)
        return load(lower_plan(Planner.of(job, simplified, derived).tuned()))


def _kind(step: Step) -> str:
    if isinstance(step, CopyStep | FillStep):
        return "copy" if isinstance(step, CopyStep) else "fill"
    return step.spec.kind


def _facts(model: CompiledModel) -> dict[str, Any]:
    program, plan = model.program, model.plan
    return {
        "machine": str(plan.machine),
        "nodes": len(plan.graph.nodes),
        "steps": dict(Counter(map(_kind, program.steps)).most_common()),
        "parts": program.split.parts,
        "memory": asdict(model.memory),
        "predicted_ns": plan.cost_ns,
    }


def _summary(facts: dict[str, Any]) -> str:
    steps, memory = facts["steps"], facts["memory"]
    kinds = ", ".join(f"{count} {kind}" for kind, count in steps.items())
    arena = f"{memory['arena']} bytes, at least {memory['arena_lower_bound']} are needed"
    each = "" if facts["parts"] == 1 else f" for each of {facts['parts']} parts of the batch"
    rows = [
        ("machine", facts["machine"]),
        ("nodes", f"{facts['nodes']} after simplification"),
        ("steps", f"{sum(steps.values())}: {kinds}{each}"),
        ("arena", arena),
        ("weights", f"{memory['packed_weights']} bytes packed"),
        ("predicted", f"{facts['predicted_ns'] / 1e6:.3f} ms{each}"),
    ]
    return columns(rows)


@click.command("compile", cls=Command)
@compile_options
@click.option(
    "--passes",
    "only",
    metavar="PASS,PASS",
    help="Run only these passes, in the order of the table; `stridewise passes` lists them.",
)
@click.option("--skip-pass", "skip", multiple=True, metavar="PASS", help="Do not run this pass.")
@click.option(
    "--print",
    "stages",
    multiple=True,
    type=click.Choice(_STAGES),
    help="Print the text of a stage instead of the summary.",
)
@click.option(
    "--print-after",
    multiple=True,
    metavar="PASS",
    help=f"Print the graph after a pass; {_ALL} selects every pass.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def compile_(
    request: Request,
    *,
    only: str | None,
    skip: tuple[str, ...],
    stages: tuple[str, ...],
    print_after: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compile a model and print a summary, or the texts of stages.

    The stages are the imported graph, the simplified graph, the plan and the program. A model that
    is compiled with selected passes is not stored.
    """
    selects = only is not None or bool(skip)
    if selects and request.plan is not None:
        raise click.UsageError("--plan fits only the graph after all passes")
    if as_json and (stages or print_after):
        raise click.UsageError("--json prints the summary; it does not go with --print")
    table = passes_for(ABILITY)
    names = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
    chosen = select(table, names, skip)
    check_passes("--print-after", [name for name in print_after if name != _ALL], table)
    simplified: Simplified | None = None
    if selects or print_after or {"graph", "simplified"} & set(stages):
        graph = request.load()
        if "graph" in stages:
            _print("graph", str(graph))
        simplified = _simplified(graph, chosen, print_after)
        if "simplified" in stages:
            _print("simplified", str(simplified.graph))
    if (stages or print_after) and not {"plan", "program"} & set(stages):
        return
    model = _compiled(request, simplified if selects else None, quiet=as_json)
    if "plan" in stages:
        _print("plan", model.plan.to_text())
    if "program" in stages:
        _print("program", model.program.text())
    if not stages:
        facts = _facts(model)
        click.echo(json.dumps(facts, indent=2) if as_json else _summary(facts))


@click.command(cls=Command)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def passes(as_json: bool) -> None:
    """List the passes over the graph in the order in which they run."""
    table = passes_for(ABILITY)
    if as_json:
        rows = [{"name": item.name, "help": item.help, "needs": item.needs} for item in table]
        click.echo(json.dumps(rows, indent=2))
        return
    asks = {item.name: f" (asks the target {item.needs})" if item.needs else "" for item in table}
    click.echo(columns([(item.name, item.help + asks[item.name]) for item in table]))
