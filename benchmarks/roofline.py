"""Steps of models compared with the limits of the machine, and shares of the total time.

Run it on a quiet machine::

    .venv/bin/python benchmarks/roofline.py                     # batch 1, all of the list
    .venv/bin/python benchmarks/roofline.py resnet50 --batch 1 16

First the limits of the machine are measured (``machine.py``). Then each model is compiled, called
through the public API, and timed step by step. The times are compared with lower limits
(``work.py``): operations over the measured peak, bytes over the measured bandwidth, and the sum
over all steps of the larger of both. Raw data are written to ``benchmarks/results/roofline.json``,
tables to ``roofline.md``, the plot of some models to ``roofline.svg``. Rows of other models are
kept.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from charts import Axis, Panel, Ruler, Series, chart
from machine import Limits, Machine, measure, table
from models import MODELS
from work import CLASSES, Bound, StepWork, Way, bound, works

import stridewise as sw
from stridewise.cli.console import measuring
from stridewise.cli.run import random_inputs

RESULTS = Path(__file__).parent / "results" / "roofline.json"
PLOTTED = ("resnet50", "vgg16", "mobilenet_v2")
WARMUP = 2


@dataclass(frozen=True, slots=True)
class Timed:
    """A step, and the median of its times in nanoseconds."""

    work: StepWork
    ns: float


@dataclass(frozen=True, slots=True)
class Row:
    """Results of one model; times in nanoseconds.

    Attributes:
        model: of the zoo.
        batch: images at a time.
        threads: number of threads of the model.
        arena_nbytes: activations and scratchpads.
        call_ns: median time of a call.
        steps: the steps in execution order.
    """

    model: str
    batch: int
    threads: int
    arena_nbytes: int
    call_ns: float
    steps: tuple[Timed, ...]

    @property
    def key(self) -> str:
        """The key of a row; a later row with the same key replaces it."""
        return f"{self.model}, batch {self.batch}"

    @property
    def steps_ns(self) -> float:
        """Time of all steps, without the overhead of a call."""
        return sum(step.ns for step in self.steps)

    @property
    def operations(self) -> float:
        """Operations by definition."""
        return sum(step.work.operations for step in self.steps)

    def bound(self, limits: Limits, kind: str | None = None) -> Bound:
        """Return the lower limit of the time of all steps, or of those of one kind."""
        # Which data stay in a cache depends on the whole model, so all weights are included.
        chosen = [step.work for step in self.steps if kind in (None, step.work.kind)]
        weights = sum(step.work.ways[0].weight_nbytes for step in self.steps)
        own = sum(work.ways[0].weight_nbytes for work in chosen)
        return bound(chosen, limits, self.arena_nbytes + weights - own)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Row:
        """Return what :func:`dataclasses.asdict` took apart."""
        steps = tuple(
            Timed(
                StepWork(**{**step["work"], "ways": tuple(Way(**w) for w in step["work"]["ways"])}),
                step["ns"],
            )
            for step in found["steps"]
        )
        return cls(**{**found, "steps": steps})


def look_at(name: str, batch: int, options: argparse.Namespace) -> Row:
    """Compile and time one model."""
    path = Path(name)
    graph = sw.load(path) if path.suffix == ".onnx" else sw.zoo.build(name, batch)
    with measuring() as progress:
        model = sw.compile(graph, threads=options.threads, tune=options.tune, progress=progress)
    inputs = [random_inputs(graph, 0)[value] for value in model.input_names]
    samples: list[list[int]] = []
    calls: list[int] = []
    for turn in range(options.runs + WARMUP):
        stepped = model.step_times(inputs, 1)
        start = time.perf_counter_ns()
        model(*inputs)
        taken = time.perf_counter_ns() - start
        if turn >= WARMUP:
            samples += stepped
            calls.append(taken)
    times = [median(column) for column in zip(*samples, strict=True)]
    steps = tuple(map(Timed, works(model.program), times))
    images = graph.value(graph.inputs[0]).shape[0]
    return Row(path.stem, images, options.threads, model.program.arena_nbytes, median(calls), steps)


# --- tables ---------------------------------------------------------------------------------------


def _markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def limits_table(rows: Sequence[Row], machine: Machine) -> str:
    """Return the times of models and their lower limits."""
    heads = [
        "model", "GFLOP", "measured, ms", "GFLOP/s",
        "operations, ms", "fewest, ms", "bytes, ms", "direct limit, ms", "limit, ms",
        "of direct limit", "of limit",
    ]  # fmt: skip
    lines: list[list[str]] = []
    for row in rows:
        least = row.bound(machine.of(row.threads))
        parts = (least.arithmetic, least.fewest, least.memory, least.direct, least.roofline)
        lines.append(
            [
                row.key,
                f"{row.operations / 1e9:.2f}",
                f"{row.call_ns / 1e6:.2f}",
                f"{row.operations / row.call_ns:.0f}",
                *(f"{part / 1e6:.2f}" for part in parts),
                f"{least.direct / row.call_ns:.0%}",
                f"**{least.roofline / row.call_ns:.0%}**",
            ]
        )
    return _markdown(heads, lines)


def share_table(rows: Sequence[Row], machine: Machine) -> str:
    """Return the share of each kind of step in a call, and its limit relative to its time."""
    heads = ["model", *CLASSES, "between steps"]
    lines: list[list[str]] = []
    for row in rows:
        cells = [row.key]
        for kind in CLASSES:
            taken = sum(step.ns for step in row.steps if step.work.kind == kind)
            least = row.bound(machine.of(row.threads), kind).roofline
            cells.append(f"{taken / row.call_ns:.0%} ({least / taken:.0%})" if taken else "")
        cells.append(f"{1 - row.steps_ns / row.call_ns:.0%}")
        lines.append(cells)
    return _markdown(heads, lines)


REPORT = """\
# Roofline

Made by `benchmarks/roofline.py`; {name}; {date}.

![roofline](roofline.svg)

One point a step: operations by the definition of the operator, so that Winograd convolutions,
which take fewer, may lie above the roof. Areas are times.

## The machine

{machine}

## Models and their limits

*operations*: by definition, over the peak. *fewest*: with the fewest multiplications that
Winograd's tiles leave, without the additions around them. *bytes*: every tensor and weight once, at
the speed of the nearest level of memory that can hold it. *direct limit*: the sum over the steps of
operations or bytes, whichever takes longer; *limit*: the same with the fastest algorithm. No kernel
is below the limits of its step, but kernels that fuse several steps may save
bytes.

{limits}

## Where the time goes

Parts of a call; in brackets the limit of those steps over the time that they took.

{shares}
"""


# --- plot -----------------------------------------------------------------------------------------


_INTENSITY = Axis(
    "operations a byte", 0.06, 2000.0, (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
)
_LARGEST_AREA, _LEAST_AREA = 260.0, 7.0


def _roofs(limits: Limits, axis: Axis) -> tuple[Ruler, ...]:
    """Return the lines of the arithmetic peak and of the bandwidth of each level of memory."""
    slopes: list[Ruler] = []
    for level in limits.levels:
        start = max(_INTENSITY.low, axis.low / level.best)
        end = limits.peak / level.best
        points = ((start, start * level.best), (end, limits.peak))
        slopes.append(Ruler(f"{level.name} {level.best:.0f} GB/s", points))
    edge = limits.peak / limits.levels[0].best
    return (
        Ruler(f"{limits.peak:.0f} GFLOP/s", ((edge, limits.peak), (_INTENSITY.high, limits.peak))),
        *slopes,
    )


def _panel(row: Row, limits: Limits) -> Panel:
    axis = Axis("GFLOP/s", 1.0, 1000.0, (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0))
    longest = max(step.ns for step in row.steps)
    found: list[Series] = []
    for look, kind in enumerate(CLASSES):
        points = tuple(
            (
                step.work.operations / step.work.nbytes,
                step.work.operations / step.ns,
                max(_LARGEST_AREA * step.ns / longest, _LEAST_AREA),
            )
            for step in row.steps
            if step.work.kind == kind and step.work.operations and step.ns
        )
        if points:
            found.append(Series(kind, points, look))
    title = f"{row.key}: {row.call_ns / 1e6:.1f} ms"
    return Panel(title, _INTENSITY, axis, tuple(found), _roofs(limits, axis))


def plot(rows: Sequence[Row], machine: Machine) -> str:
    """Return the plot of some models as SVG."""
    panels = [_panel(row, machine.of(row.threads)) for row in rows]
    names = ", ".join(row.model for row in rows)
    return chart(panels, f"Operations a byte and operations a second of the steps of {names}")


# --- results --------------------------------------------------------------------------------------


def merged(rows: Iterable[Row], path: Path) -> list[Row]:
    """Merge rows with those of earlier runs that they do not replace; files come after the zoo."""
    older = json.loads(path.read_text())["rows"] if path.exists() else []
    found = {row.key: row for row in (*map(Row.from_json, older), *rows)}
    order = list(dict.fromkeys((*MODELS, *sw.zoo.models(), *(row.model for row in found.values()))))
    return sorted(found.values(), key=lambda row: (row.batch, order.index(row.model)))


def save(rows: Sequence[Row], machine: Machine, path: Path) -> None:
    """Write raw data, tables and the plot."""
    document = {"machine": asdict(machine), "rows": [asdict(row) for row in rows]}
    path.write_text(
        json.dumps(document, separators=(",", ":")).replace('{"work"', '\n{"work"') + "\n"
    )
    text = REPORT.format(
        name=machine.name,
        date=machine.date,
        machine=table(machine),
        limits=limits_table(rows, machine),
        shares=share_table(rows, machine),
    )
    path.with_suffix(".md").write_text(text)
    plotted = [row for name in PLOTTED for row in rows if (row.model, row.batch) == (name, 1)]
    if plotted:
        path.with_suffix(".svg").write_text(plot(plotted, machine))


def main() -> None:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "models", nargs="*", default=MODELS, metavar="MODEL", help="of the zoo, or ONNX files"
    )
    parser.add_argument(
        "--batch", type=int, nargs="*", default=[1], help="of models of the zoo; files have theirs"
    )
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tune", choices=("auto", "measure", "model"), default="measure")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    counts = sorted({1, options.threads})
    machine = measure(counts)
    print(table(machine), flush=True)
    for batch in options.batch:
        for name in options.models:
            row = look_at(name, batch, options)
            save(merged([row], options.results), machine, options.results)
            print(limits_table([row], machine).splitlines()[-1], flush=True)
    # The limits are the best values of all measurements, because other virtual machines cause load.
    save(merged([], options.results), machine.better(measure(counts)), options.results)


if __name__ == "__main__":
    main()
