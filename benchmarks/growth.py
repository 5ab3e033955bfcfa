"""Growth of time with work: batches of 1 to 64 images, and images of 64 to 1024 pixels a side.

Run it on a quiet machine::

    .venv/bin/python benchmarks/growth.py                       # both, with measured costs
    .venv/bin/python benchmarks/growth.py resnet50 --over batch --tune model

Each model is compiled for every size. Then all sizes run in rotating order. Results are medians.
The time per operation (by the definition of the operators, independent of the plan) is compared
with that at the smallest size: if the ratio is at most 1, time grows at most linearly with work.
Raw samples are written to ``benchmarks/results/growth.json``, the table to ``growth.md`` and a
figure to ``growth.svg``. Rows of other models are kept.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from math import log
from pathlib import Path
from statistics import median
from typing import Any

from charts import Axis, Panel, Series, chart
from work import works

import stridewise as sw
from stridewise.cli.console import measuring
from stridewise.cli.run import random_inputs

RESULTS = Path(__file__).parent / "results" / "growth.json"
MODELS = ("resnet50", "mobilenet_v2", "squeezenet1_1")
SIZES: Mapping[str, tuple[int, ...]] = {
    "batch": (1, 2, 4, 8, 16, 32, 64),
    "side": (64, 128, 256, 512, 1024),
}
"""The parameters that grow, and their values."""
_TURN_NS = 30e6
"""Time per turn: small sizes run several times, so that they get as much time as large ones."""
_TOLERANCE = 0.03
"""Noise limit: the increase of time per operation that still counts as linear growth."""


@dataclass(frozen=True, slots=True)
class Point:
    """One model at one size.

    Attributes:
        size: images, or pixels a side.
        operations: number of operations by definition.
        arena_nbytes: activations and scratchpads.
        winograd: number of steps with Winograd kernels.
        reorders: number of reorders.
        samples_ns: times of calls.
    """

    size: int
    operations: float
    arena_nbytes: int
    winograd: int
    reorders: int
    samples_ns: tuple[int, ...]

    @property
    def ns(self) -> float:
        """The median of the samples."""
        return median(self.samples_ns)

    @property
    def rate(self) -> float:
        """Operations per nanosecond."""
        return self.operations / self.ns


@dataclass(frozen=True, slots=True)
class Sweep:
    """One model at growing sizes.

    Attributes:
        model: of the zoo.
        over: the parameter that grows, a key of :data:`SIZES`.
        tune: the source of costs.
        date: of the measurement.
        machine: description of the machine.
        points: from the smallest size to the largest.
    """

    model: str
    over: str
    tune: str
    date: str
    machine: str
    points: tuple[Point, ...]

    @property
    def key(self) -> str:
        """The key of a sweep; a later sweep with the same key replaces it."""
        return f"{self.model}, {self.over}"

    def relative(self) -> tuple[float, ...]:
        """Return the time per operation at each size relative to the smallest size."""
        return tuple(self.points[0].rate / point.rate for point in self.points)

    @property
    def is_linear(self) -> bool:
        """Whether the time per operation does not increase at any size, apart from noise."""
        return max(self.relative()) <= 1 + _TOLERANCE

    @property
    def exponent(self) -> float:
        """The exponent of growth from the smallest to the largest size; 1 is linear in the work."""
        first, last = self.points[0], self.points[-1]
        return log(last.ns / first.ns) / log(last.operations / first.operations)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Sweep:
        """Return the object from the result of :func:`dataclasses.asdict`."""
        points = (
            Point(**{**point, "samples_ns": tuple(point["samples_ns"])})
            for point in found["points"]
        )
        return cls(**{**found, "points": tuple(points)})


def build(model: str, over: str, size: int) -> sw.Graph:
    """Return the graph of a model at a size."""
    return sw.zoo.build(model, size) if over == "batch" else sw.zoo.build(model, size=size)


def take_turns(
    models: Sequence[sw.CompiledModel], inputs: Sequence[Sequence[Any]], turns: int
) -> list[list[int]]:
    """Run all models in rotating order and return the nanoseconds of their calls."""
    samples: list[list[int]] = []
    times: list[int] = []
    for model, given in zip(models, inputs, strict=True):
        model(*given)
        start = time.perf_counter_ns()
        model(*given)
        taken = max(time.perf_counter_ns() - start, 1)
        times.append(max(round(_TURN_NS / taken), 1))
        samples.append([])
    for turn in range(turns):
        for step in range(len(models)):
            index = (turn + step) % len(models)
            for _ in range(times[index]):
                start = time.perf_counter_ns()
                models[index](*inputs[index])
                samples[index].append(time.perf_counter_ns() - start)
    return samples


def look_at(model: str, over: str, sizes: Sequence[int], options: argparse.Namespace) -> Sweep:
    """Compile a model for all sizes and time it."""
    models: list[sw.CompiledModel] = []
    inputs: list[list[Any]] = []
    for size in sizes:
        graph = build(model, over, size)
        with measuring() as progress:
            models.append(
                sw.compile(graph, threads=options.threads, tune=options.tune, progress=progress)
            )
        named = random_inputs(graph, 0)
        inputs.append([named[name] for name in models[-1].input_names])
        del graph
        gc.collect()
    samples = take_turns(models, inputs, options.turns)
    points: list[Point] = []
    for size, compiled, taken in zip(sizes, models, samples, strict=True):
        steps = works(compiled.program)
        points.append(
            Point(
                size,
                sum(step.operations for step in steps),
                compiled.program.arena_nbytes,
                sum(step.kind == "Winograd" for step in steps),
                len(compiled.plan.reorders),
                tuple(taken),
            )
        )
    machine = str(models[0].plan.machine)
    return Sweep(model, over, options.tune, date.today().isoformat(), machine, tuple(points))


# --- results --------------------------------------------------------------------------------------


def table(sweeps: Iterable[Sweep]) -> str:
    """Return a line for each model and size."""
    heads = [
        "model", "over", "size", "GFLOP", "ms", "ms an image", "GFLOP/s", "time an operation",
        "arena, MB", "Winograd layers", "reorders",
    ]  # fmt: skip
    lines = [heads, ["---"] * len(heads)]
    for sweep in sweeps:
        for point, relative in zip(sweep.points, sweep.relative(), strict=True):
            images = point.size if sweep.over == "batch" else 1
            lines.append(
                [
                    sweep.model,
                    sweep.over,
                    str(point.size),
                    f"{point.operations / 1e9:.3g}",
                    f"{point.ns / 1e6:.2f}",
                    f"{point.ns / 1e6 / images:.2f}",
                    f"{point.rate:.0f}",
                    f"**{relative:.2f}**",
                    f"{point.arena_nbytes / 1e6:.1f}",
                    str(point.winograd),
                    str(point.reorders),
                ]
            )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def verdicts(sweeps: Iterable[Sweep]) -> str:
    """Return one sentence per sweep: whether growth is at most linear, else at which size."""
    found: list[str] = []
    for sweep in sweeps:
        relative = sweep.relative()
        worst = max(range(len(relative)), key=lambda index: relative[index])
        text = f"time grows with the work to the power of {sweep.exponent:.2f}"
        if not sweep.is_linear:
            size = sweep.points[worst].size
            text += f"; **more than linear** at {size}, where one operation takes "
            text += f"{relative[worst]:.2f} times as long as at {sweep.points[0].size}"
        found.append(f"- {sweep.model} over {sweep.over}: {text}.")
    return "\n".join(found)


def plot(sweeps: Sequence[Sweep]) -> str:
    """Return an SVG of the time per operation over the size, with one panel per parameter."""
    panels: list[Panel] = []
    names = list(dict.fromkeys(sweep.model for sweep in sweeps))
    labels = {"batch": "images at a time", "side": "pixels a side"}
    for over, sizes in SIZES.items():
        lines = tuple(
            Series(
                sweep.model,
                tuple(
                    (float(point.size), relative, 45.0)
                    for point, relative in zip(sweep.points, sweep.relative(), strict=True)
                ),
                names.index(sweep.model),
                joined=True,
            )
            for sweep in sweeps
            if sweep.over == over
        )
        if lines:
            x = Axis(labels[over], sizes[0] / 1.2, sizes[-1] * 1.2, tuple(map(float, sizes)))
            y = Axis(
                "time an operation, smallest = 1", 0.0, 1.4, (0, 0.25, 0.5, 0.75, 1, 1.25), False
            )
            panels.append(Panel(f"Growing {over}", x, y, lines))
    return chart(panels, f"Time of an operation at growing sizes of {', '.join(names)}")


REPORT = """\
# Cost of growth

Made by `benchmarks/growth.py`; {machine}; {dates}; costs by {tunes}.

![growth](growth.svg)

*Time an operation* is over that at the smallest size: at most 1 where time grows at most linearly
with the work.

{verdicts}

{table}
"""


def save(sweeps: Sequence[Sweep], path: Path) -> None:
    """Write raw samples, table and figure; rows of earlier runs that are not replaced are kept."""
    older = json.loads(path.read_text()) if path.exists() else []
    found = {sweep.key: sweep for sweep in (*map(Sweep.from_json, older), *sweeps)}
    kept = sorted(found.values(), key=lambda sweep: sweep.over)
    path.write_text(json.dumps([asdict(sweep) for sweep in kept], indent=1) + "\n")
    text = REPORT.format(
        machine="; ".join(sorted({sweep.machine for sweep in kept})),
        dates=", ".join(sorted({sweep.date for sweep in kept})),
        tunes=", ".join(sorted({f"`tune={sweep.tune!r}`" for sweep in kept})),
        verdicts=verdicts(kept),
        table=table(kept),
    )
    path.with_suffix(".md").write_text(text)
    path.with_suffix(".svg").write_text(plot(kept))


def main() -> None:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL", help="of the zoo")
    parser.add_argument("--over", choices=SIZES, nargs="*", default=tuple(SIZES))
    parser.add_argument("--most", type=int, help="the largest size")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tune", choices=("auto", "measure", "model"), default="measure")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    for over in options.over:
        sizes = [size for size in SIZES[over] if options.most is None or size <= options.most]
        for name in options.models:
            sweep = look_at(name, over, sizes, options)
            save([sweep], options.results)
            print(f"{verdicts([sweep])}\n{table([sweep])}", flush=True)


if __name__ == "__main__":
    main()
