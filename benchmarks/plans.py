"""Plans of the zoo and of the light models: proof, prediction, and times of uniform plans.

Run it on a quiet machine::

    .venv/bin/python benchmarks/plans.py

Every model is compiled with measured costs. Then the plan and the best uniform plan (all tensors
plain, channels-last or blocked, each with its cheapest kernels) run alternately in one process.
Results are medians. The table also lists the gap of the proof, the error of the prediction, and the
number of steps that only move bytes: in the plan, in the plan in which each operator chooses for
itself, and in the graph that ONNX Runtime makes of the model. Raw samples are written to
``benchmarks/results/plans.json``, the table to ``plans.md``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import onnx

import stridewise as sw
from stridewise.cli.console import measuring
from stridewise.cli.report import moves_of_onnxruntime
from stridewise.frontends.onnx import randomize, read_model
from stridewise.ops.geometry import storage_shape
from stridewise.report.movers import find_movers, find_placed

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
RESULTS = Path(__file__).parent / "results" / "plans.json"
TABLE = RESULTS.with_suffix(".md")
THREADS = 2


@dataclass(frozen=True, slots=True)
class Row:
    """Results of one model; times in nanoseconds."""

    model: str
    nodes: int
    reorders: int
    gap: float
    predicted_ns: float
    steps_ns: float
    uniform: str
    samples: dict[str, list[int]]
    movers: dict[str, int]
    placed: dict[str, tuple[int, int]]

    @property
    def ratio(self) -> float:
        """Time of the plan relative to the best uniform plan."""
        return median(self.samples["plan"]) / median(self.samples["uniform"])


def models() -> Iterator[tuple[str, Callable[[], sw.Graph]]]:
    """Yield names and functions that build the graphs."""
    for path in sorted(LIGHT.glob("*.onnx")):
        name = path.stem.removeprefix("light_")
        yield f"light {name}", lambda path=path: sw.load(randomize(read_model(path)))
    for name in sw.zoo.models():
        yield name, lambda name=name: sw.zoo.build(name)


def inputs_of(plan: sw.Plan) -> list[np.ndarray]:
    """Return standard normal inputs in the formats of the plan."""
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal(storage_shape(plan.graph.values[name], fmt), np.float32)
        for name, fmt in plan.input_formats.items()
    ]


def race(planned: sw.CompiledModel, uniform: sw.CompiledModel, runs: int) -> dict[str, list[int]]:
    """Run both models alternately. An untimed run before each timed one warms the caches."""
    inputs = inputs_of(planned.plan)
    contestants = {"plan": planned, "uniform": uniform}
    samples: dict[str, list[int]] = {name: [] for name in contestants}
    for turn in range(runs):
        order = list(contestants) if turn % 2 else list(contestants)[::-1]
        for name in order:
            contestants[name](*inputs)
            start = time.perf_counter_ns()
            contestants[name](*inputs)
            samples[name].append(time.perf_counter_ns() - start)
    return samples


def best_uniform(model: sw.CompiledModel) -> sw.Plan:
    """Return the fastest uniform plan by measurement, or by its costs if none was measured."""
    plan = model.plan
    kinds = [kind.name for kind in plan.target.kinds]
    compared = {
        item.name.removeprefix("all "): item.measured_ns or item.cost_ns
        for item in plan.compare()
        if item.name.removeprefix("all ") in kinds
    }
    kind = min(compared, key=lambda name: compared[name])
    return plan.uniform(kind)


def onnxruntime_moves(graph: sw.Graph) -> int:
    """Return the number of steps that only move bytes in ONNX Runtime's optimized graph."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        sw.save(graph, path)
        return sum(moves_of_onnxruntime(path, THREADS).values())


def look_at(name: str, graph: sw.Graph, runs: int) -> Row:
    """Compile and time one model, and count its steps."""
    with measuring() as progress:
        model = sw.compile(graph, threads=THREADS, tune="measure", progress=progress)
    uniform = best_uniform(model)
    samples = race(model, sw.compile(graph, threads=THREADS, plan=uniform), runs)
    plan = model.plan
    named = dict(zip(plan.graph.inputs, inputs_of(plan), strict=True))
    movers = {mover.name: mover.steps for mover in find_movers(plan, {})}
    movers["ONNX Runtime"] = onnxruntime_moves(graph)
    return Row(
        name,
        len(plan.graph.nodes),
        len(plan.reorders),
        plan.gap,
        plan.cost_ns,
        model.profile(named, runs).measured_ns,
        uniform.name,
        samples,
        movers,
        {item.op: (item.free, item.total) for item in find_placed(plan)},
    )


def line(row: Row) -> str:
    """Return one line of the table."""
    concats = row.placed.get("concat")
    cells = [
        row.model,
        str(row.nodes),
        f"{row.gap:.0e}" if row.gap > 1e-9 else "0",
        f"{median(row.samples['plan']) / 1e6:.2f}",
        f"{row.steps_ns / row.predicted_ns - 1:+.0%}",
        row.uniform,
        f"**{row.ratio:.2f}**",
        *(str(steps) for steps in row.movers.values()),
        "" if concats is None else f"{concats[0]} of {concats[1]}",
    ]
    return "| " + " | ".join(cells) + " |"


def report(rows: list[Row], machine: str) -> str:
    """Return the table."""
    heads = ["model", "nodes", "gap", "ms", "steps against prediction", "best uniform"]
    heads += [
        "plan / uniform",
        "moves: plan",
        "each for itself",
        "ONNX Runtime",
        "concats as views",
    ]
    return "\n".join(
        [
            "# Plans",
            "",
            f"Made by `benchmarks/plans.py`, batch 1, float32, {machine}.",
            "",
            "The gap is that of the plan in use. Where the clock preferred a uniform plan, it is",
            "how far that is from the bound by corrected costs; what was planned has none.",
            "",
            "| " + " | ".join(heads) + " |",
            "|" + "---|" * len(heads),
            *map(line, rows),
            "",
        ]
    )


def main() -> None:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="models, by default all")
    options = parser.parse_args()
    rows: list[Row] = []
    machine = ""
    for name, build in models():
        if options.only and name not in options.only:
            continue
        graph = build()
        rows.append(look_at(name, graph, options.runs))
        print(line(rows[-1]), flush=True)
        machine = machine or str(sw.plan(graph, threads=THREADS, tune="model").machine)
    document = {"date": date.today().isoformat(), "rows": [asdict(row) for row in rows]}
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    TABLE.write_text(report(rows, machine))


if __name__ == "__main__":
    main()
