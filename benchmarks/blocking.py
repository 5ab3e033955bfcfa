"""Comparison of ways to run a batch: as a whole, in blocks, or one image per thread.

Run it on a quiet machine::

    .venv/bin/python benchmarks/blocking.py resnet50 mobilenet_v2 --batch 16

A batch can run through one program. It can run in blocks of fewer images through a smaller program,
whose activations may then stay in the caches. Or each thread computes separate images, without
synchronization between layers. All ways alternate in one process on the same images. Results are
medians.

Then the steps of the programs are timed, to find the possible gain if the first layers ran in
blocks of one size and the rest in blocks of another: with one change at the best place, and, as a
bound, with the best block size for every layer. Raw data are written to
``benchmarks/results/blocking.json``, the table to ``blocking.md``. Rows of other models are kept.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import date
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import stridewise as sw
from stridewise.cli.console import measuring
from stridewise.cli.run import random_inputs

RESULTS = Path(__file__).parent / "results" / "blocking.json"
APART = "one a thread"
WARMUP = 1

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Change:
    """Blocks of ``first`` images up to a node, of ``then`` after it; nanoseconds per image."""

    first: int
    node: str
    then: int
    ns: float


@dataclass(frozen=True, slots=True)
class Row:
    """Results of one model.

    Attributes:
        model: of the zoo.
        batch: images of the whole batch.
        about: machine, date, and where costs came from.
        samples_ns: times of whole batches, by images per block; "one a thread" for the last way.
        arenas: bytes of activations, by images per block.
        steps_ns: sums of step times per image, by images per block.
        change: the best place to change the block size.
        bound_ns: time per image with the best block size for every layer.
    """

    model: str
    batch: int
    about: str
    samples_ns: Mapping[str, Sequence[int]]
    arenas: Mapping[str, int]
    steps_ns: Mapping[str, float]
    change: Change
    bound_ns: float

    def gain(self, name: str) -> float:
        """Return the speed-up of one way over the whole batch."""
        return median(self.samples_ns[str(self.batch)]) / median(self.samples_ns[name])

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Row:
        """Return what :func:`dataclasses.asdict` took apart."""
        return cls(**{**found, "change": Change(**found["change"])})


def blocks_of(batch: int) -> tuple[int, ...]:
    """Return the powers of two up to a batch, and the batch.

    >>> blocks_of(6)
    (1, 2, 4, 6)
    """
    sizes: list[int] = []
    size = 1
    while size < batch:
        sizes.append(size)
        size *= 2
    return (*sizes, batch)


def best_change(times: Mapping[int, Sequence[float]], nodes: Sequence[str]) -> Change:
    """Return the best node at which to change the block size.

    The cost of the change is ignored: activations of a whole batch are contiguous for both
    block sizes, but formats may have to agree.

    Args:
        times: time per image of every node, by images per block.
        nodes: names of the nodes.
    """
    before = {block: [0.0, *accumulate(column)] for block, column in times.items()}
    found: list[tuple[float, int, int, int]] = []
    for first, start in before.items():
        for then, rest in before.items():
            found += [
                (start[at] + rest[-1] - rest[at], first, at, then)
                for at in range(1, len(nodes) + 1)
            ]
    ns, first, at, then = min(found)
    return Change(first, nodes[at - 1], then, ns)


def by_node(model: sw.CompiledModel, steps: Sequence[float]) -> list[float]:
    """Return times of nodes. Steps that only move bytes belong to the node before them."""
    numbers = {node.name: index for index, node in enumerate(model.plan.graph.nodes)}
    times = [0.0] * len(numbers)
    current = 0
    for step, ns in zip(model.program.steps, steps, strict=True):
        current = numbers.get(step.node, current)
        times[current] += ns
    return times


def in_blocks(model: sw.CompiledModel, images: Array, block: int) -> Callable[[], Array]:
    """Return a function that runs images through a program in blocks."""
    pieces = [images[start : start + block] for start in range(0, len(images), block)]

    def run() -> Array:
        return np.concatenate([model(piece) for piece in pieces])

    return run


def apart(model: sw.CompiledModel, images: Array, pool: ThreadPoolExecutor) -> Callable[[], Array]:
    """Return a function that runs single images on the threads of a pool."""
    pieces = [images[index : index + 1] for index in range(len(images))]

    def run() -> Array:
        return np.concatenate(list(pool.map(model, pieces)))

    return run


def race(ways: Mapping[str, Callable[[], Array]], turns: int) -> dict[str, list[int]]:
    """Run all ways in rotating order and return nanoseconds.

    Raises:
        AssertionError: two of them disagree.
    """
    names = list(ways)
    wanted = ways[names[0]]()
    for run in ways.values():
        np.testing.assert_allclose(run(), wanted, rtol=0.0, atol=1e-4 * np.abs(wanted).max())
    samples: dict[str, list[int]] = {name: [] for name in names}
    for turn in range(turns):
        for step in range(len(names)):
            name = names[(turn + step) % len(names)]
            start = time.perf_counter_ns()
            ways[name]()
            samples[name].append(time.perf_counter_ns() - start)
    return samples


def compiled(name: str, batch: int, threads: int, tune: Any, streams: int = 1) -> sw.CompiledModel:
    """Compile a model of the zoo."""
    with measuring() as progress:
        graph = sw.zoo.build(name, batch)
        return sw.compile(graph, threads=threads, streams=streams, tune=tune, progress=progress)


def look_at(name: str, options: argparse.Namespace) -> Row:
    """Compile and time one model in all ways."""
    batch, threads = options.batch, options.threads
    graph = sw.zoo.build(name, batch)
    ((_, images),) = random_inputs(graph, 0).items()
    models = {n: compiled(name, n, threads, options.tune) for n in blocks_of(batch)}
    alone = compiled(name, 1, threads, options.tune, streams=threads)
    ways = {str(n): in_blocks(model, images, n) for n, model in models.items()}
    with ThreadPoolExecutor(threads) as pool:
        samples = race({**ways, APART: apart(alone, images, pool)}, options.turns)
    times: dict[int, list[float]] = {}
    for block, model in models.items():
        taken = model.step_times([images[:block]], options.turns * batch // block + WARMUP)[WARMUP:]
        medians = [median(column) / block for column in zip(*taken, strict=True)]
        times[block] = by_node(model, medians)
    nodes = [node.name for node in models[batch].plan.graph.nodes]
    today = date.today().isoformat()
    return Row(
        name,
        batch,
        f"{models[batch].plan.machine}; {today}; costs by `tune={options.tune!r}`",
        samples,
        {str(block): model.program.arena_nbytes for block, model in models.items()},
        {str(block): sum(column) for block, column in times.items()},
        best_change(times, nodes),
        sum(map(min, zip(*times.values(), strict=True))),
    )


def table(rows: Sequence[Row]) -> str:
    """Return a line for each model and way."""
    heads = ["model", "way", "ms an image", "whole batch / this", "arena, MB"]
    lines = [heads, ["---"] * len(heads)]
    for row in rows:
        for name, taken in row.samples_ns.items():
            way = name if name == APART else f"{name} at a time"
            arena = row.arenas.get(name)
            lines.append(
                [
                    f"{row.model}, batch {row.batch}",
                    "whole" if name == str(row.batch) else way,
                    f"{median(taken) / row.batch / 1e6:.3f}",
                    f"**{row.gain(name):.2f}**",
                    "" if arena is None else f"{arena / 1e6:.1f}",
                ]
            )
        lines += _possible(row)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _possible(row: Row) -> Iterator[list[str]]:
    """Yield the possible gains by step times, relative to the whole batch."""
    whole, change = row.steps_ns[str(row.batch)], row.change
    model = f"{row.model}, batch {row.batch}"
    text = f"by steps: {change.first} up to `{change.node}`, then {change.then}"
    for way, ns in ((text, change.ns), ("by steps: the best block for every layer", row.bound_ns)):
        yield [model, way, f"{ns / 1e6:.3f}", f"{whole / ns:.2f}", ""]


REPORT = """\
# Batches in blocks

Made by `benchmarks/blocking.py`; {about}.

Lines *by steps* are sums of step times without what the change of blocks itself takes; what they
gain is over the sum of the steps of the whole batch.

{table}
"""


def save(rows: Sequence[Row], path: Path) -> None:
    """Write raw data and the table; rows of earlier runs that are not replaced are kept."""
    older = json.loads(path.read_text()) if path.exists() else []
    found = {(row.model, row.batch): row for row in (*map(Row.from_json, older), *rows)}
    kept = list(found.values())
    path.write_text(json.dumps([asdict(row) for row in kept], indent=1) + "\n")
    about = "; ".join(dict.fromkeys(row.about for row in kept))
    path.with_suffix(".md").write_text(REPORT.format(about=about, table=table(kept)))


def main() -> None:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    models = ("resnet50", "mobilenet_v2", "squeezenet1_1")
    parser.add_argument("models", nargs="*", default=models, metavar="MODEL", help="of the zoo")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tune", choices=("auto", "measure", "model"), default="measure")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    for name in options.models:
        row = look_at(name, options)
        save([row], options.results)
        print(table([row]), flush=True)


if __name__ == "__main__":
    main()
