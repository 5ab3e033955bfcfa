"""Many networks against ONNX Runtime and OpenVINO: ratio, naive steps, bytes moved, regret.

Run it on a quiet machine, on model files and on names of the zoo::

    .venv/bin/python benchmarks/export_networks.py build/networks
    .venv/bin/python benchmarks/wide.py build/networks/*.onnx zoo:resnet50 zoo:mobilenet_v2

With ``--int8``, all runtimes run the files that ``sw.quantize`` makes of them, calibrated on four
seeded inputs.

Every network runs in a process of its own, with seeded inputs. The runtimes of one process get the
same inputs and number of threads and run in turn (``models.race``). Stridewise compiles with its
default options; ``--regret`` adds a model that is compiled from measured costs, which runs in the
same rounds. A network with a product of two computed tensors counts as a hybrid, because
convolutional networks multiply by constants only.

Raw samples are written to ``benchmarks/results/wide.json`` after each network, the table to
``wide.md``. Rows of other runs are kept.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np
import onnx
from models import difference, race, runner_of
from naive_steps import Timed, timed
from peers import PEERS, USUAL

import stridewise as sw
from stridewise.cli.run import random_inputs
from stridewise.program import CopyStep, KernelStep
from stridewise.runtime.machine.machine import this_machine

RESULTS = Path(__file__).parent / "results" / "wide.json"
OURS, MEASURED = "stridewise", "measured"
CALIBRATION = 4
MOVES = ("reorder", "transpose", "reshape", "concat", "slice", "split", "pad", "copy")
HEADS = ("network", "kind", "ours, ms", *USUAL, "best peer / ours", "error", "naive steps")
MORE = ("moved, MB", "compile, s", "regret")

Runner = Callable[[], Sequence[np.ndarray[Any, Any]]]


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured of one network.

    Attributes:
        network: the name of its file, or of the network of the zoo.
        hybrid: whether it multiplies computed tensors by each other.
        batch: images at a time.
        threads: number of threads of every runtime.
        date: day of the measurement.
        machine: description of the machine.
        versions: versions of the runtimes.
        samples_ms: every timed run by runtime, in order.
        error: largest difference from ONNX Runtime, relative to the largest magnitude; None if
            ONNX Runtime does not run the network.
        naive: share of steps that are loops over single elements or functions of NumPy.
        moved_nbytes: bytes that are written by steps that only move data.
        shares: time of the steps by operator, in ns.
        compile_s: time of the first compilation, with an empty cache.
        refused: runtimes that do not run the network, and their errors.
    """

    network: str
    hybrid: bool
    batch: int
    threads: int
    date: str
    machine: str
    versions: Mapping[str, str]
    samples_ms: Mapping[str, Sequence[float]]
    error: float | None
    naive: float
    moved_nbytes: int
    shares: Mapping[str, float]
    compile_s: float
    refused: Mapping[str, str]

    @property
    def key(self) -> str:
        """The key of a row; a later row with the same key replaces it."""
        return f"{self.network}, batch {self.batch}"

    def ms(self, runtime: str) -> float | None:
        """Return the median time of a runtime; None if it was not timed."""
        samples = self.samples_ms.get(runtime)
        return median(samples) if samples else None

    @property
    def ratio(self) -> float | None:
        """The time of the fastest peer relative to that of Stridewise."""
        peers = [time for name in USUAL if (time := self.ms(name)) is not None]
        ours = self.ms(OURS)
        return min(peers) / ours if peers and ours else None

    @property
    def regret(self) -> float | None:
        """Time over that of the plan from measured costs, minus one."""
        ours, best = self.ms(OURS), self.ms(MEASURED)
        return ours / best - 1 if ours and best else None


# --- one network ----------------------------------------------------------------------------------


def source_of(name: str, folder: Path, batch: int) -> Path:
    """Return the model file of an argument of the command line."""
    if not name.startswith("zoo:"):
        return Path(name)
    path = folder / f"{name[4:]}.onnx"
    sw.save(sw.zoo.build(name[4:], batch), path)
    return path


def quantized(path: Path, folder: Path, shapes: Mapping[str, Sequence[int]], threads: int) -> Path:
    """Return the int8 file of a model, calibrated on seeded inputs."""
    target, graph = folder / "int8.onnx", sw.load(path, shapes=shapes)
    samples = [random_inputs(graph, seed) for seed in range(1, CALIBRATION + 1)]
    sw.quantize(path, samples, target, method="minmax", threads=threads)
    return target


def fixed_shapes(path: Path, batch: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of inputs; an open first dimension is the batch."""
    graph = onnx.load(path, load_external_data=False).graph
    constants = {item.name for item in graph.initializer}
    found: dict[str, tuple[int, ...]] = {}
    for item in graph.input:
        sizes = [size.dim_value for size in item.type.tensor_type.shape.dim]
        if item.name not in constants:
            found[item.name] = (sizes[0] or batch, *sizes[1:])
    return found


def is_hybrid(graph: sw.Graph) -> bool:
    """Return whether a node multiplies two computed tensors."""
    products = (node for node in graph.nodes if node.op in ("attention", "matmul"))
    return any(not set(node.inputs[:2]) & set(graph.constants) for node in products)


def moved_nbytes(model: sw.CompiledModel) -> int:
    """Return the bytes that steps write which compute nothing."""
    ops = {node.name: node.op for node in model.plan.graph.nodes}
    total = 0
    for step in model.program.steps:
        moves = isinstance(step, CopyStep)
        moves |= isinstance(step, KernelStep) and ops.get(step.node, "reorder") in MOVES
        total += sum(item.desc.nbytes for item in step.written) if moves else 0
    return total


def by_operator(steps: Iterable[Timed]) -> dict[str, float]:
    """Return the time of steps by the first word of their description."""
    found: dict[str, float] = {}
    for step in steps:
        operator = step.what.partition(" ")[0]
        found[operator] = found.get(operator, 0.0) + step.ns
    return found


def compiled(path: Path, options: Mapping[str, Any]) -> sw.CompiledModel:
    """Compile a model for fixed shapes."""
    model = sw.compile(path, **options)
    if not isinstance(model, sw.CompiledModel):
        raise TypeError(f"{path} has open shapes")
    return model


def measure(argument: str, options: argparse.Namespace) -> Result:
    """Compile, time and compare one network."""
    with tempfile.TemporaryDirectory() as folder:
        path = source_of(argument, Path(folder), options.batch)
        shapes = fixed_shapes(path, options.batch)
        if options.int8:
            path = quantized(path, Path(folder), shapes, options.threads)
        given: dict[str, Any] = {"shapes": shapes, "threads": options.threads}
        start = time.perf_counter()
        compiled(path, given | {"cache_dir": folder})
        compile_s = time.perf_counter() - start
        model = compiled(path, given)
        graph = model.plan.graph
        inputs = random_inputs(sw.load(path, shapes=shapes), 0)
        runners: dict[str, Runner] = {OURS: runner_of(model, inputs)}
        if options.regret:
            measured = compiled(path, given | {"tune": "measure"})
            runners[MEASURED] = runner_of(measured, inputs)
        versions, refused = {OURS: sw.__version__}, dict[str, str]()
        for name in USUAL:
            try:
                peer = PEERS[name](path, inputs, options.threads, 1)
                peer.run(1)
            except sw.StridewiseError as error:
                refused[name] = str(error)
                continue
            runners[name], versions[name] = partial(peer.run, 1), peer.version
        samples = race(runners, options.runs, options.pause, cold=False)
        reference = runners.get("onnxruntime")
        error = None if reference is None else difference(runners[OURS](), reference())
        steps = timed(model)
        naive = sum(step.ns for step in steps if step.is_naive) / sum(step.ns for step in steps)
        return Result(
            Path(argument).stem.removeprefix("zoo:"),
            is_hybrid(graph),
            options.batch,
            options.threads,
            date.today().isoformat(),
            str(this_machine(options.threads)),
            versions,
            samples,
            error,
            naive,
            moved_nbytes(model),
            by_operator(steps),
            compile_s,
            refused,
        )


# --- all networks ---------------------------------------------------------------------------------


def in_process(argument: str, options: argparse.Namespace) -> Result | str:
    """Measure one network in another process; on failure, return the last line of the error."""
    command = [sys.executable, __file__, argument, "--single", f"--batch={options.batch}"]
    command += [f"--threads={options.threads}", f"--runs={options.runs}"]
    command += [f"--pause={options.pause}"]
    command += [f"--{name}" for name in ("regret", "int8") if getattr(options, name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return Result(**json.loads(done.stdout.splitlines()[-1]))


def cell(value: float | None, form: str) -> str:
    """Return a number as text; a dash for None."""
    return "-" if value is None else format(value, form)


def line(row: Result) -> str:
    """Return the line of a network."""
    cells = [row.network, "hybrid" if row.hybrid else "conv", cell(row.ms(OURS), ".2f")]
    cells += [cell(row.ms(name), ".2f") for name in USUAL]
    cells += [f"**{cell(row.ratio, '.2f')}**", cell(row.error, ".0e"), f"{row.naive:.2%}"]
    cells += [f"{row.moved_nbytes / 1e6:.1f}", f"{row.compile_s:.2f}", cell(row.regret, "+.1%")]
    return f"| {' | '.join(cells)} |"


def summary(rows: Sequence[Result]) -> str:
    """Return the geometric means of the ratios, and the smallest."""
    lines: list[str] = []
    for title, chosen in (
        ("all", rows),
        ("convolutional", [row for row in rows if not row.hybrid]),
        ("hybrid", [row for row in rows if row.hybrid]),
    ):
        ratios = [row.ratio for row in chosen if row.ratio is not None]
        if ratios:
            text = f"{geometric_mean(ratios):.2f}, smallest {min(ratios):.2f}"
            lines.append(f"- {title}, {len(ratios)} networks: geometric mean {text}")
    return "\n".join(lines)


def report(rows: Sequence[Result]) -> str:
    """Return the table of all networks and the means."""
    heads = [*HEADS, *MORE]
    table = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads), *map(line, rows)]
    (machine,) = {(row.machine, row.threads) for row in rows[:1]}
    head = f"{machine[0]}, {machine[1]} threads, {rows[0].date}, medians of interleaved runs."
    return "\n".join([head, "", *table, "", summary(rows), ""])


def merge(row: Result, path: Path) -> list[Result]:
    """Insert a row into the results or replace an older one, and return all rows."""
    older: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = {found.key: found for found in (Result(**item) for item in older)} | {row.key: row}
    kept = sorted(rows.values(), key=lambda found: (found.batch, found.network))
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"rows": [asdict(item) for item in kept]}, indent=1) + "\n")
    fresh.replace(path)
    path.with_suffix(".md").write_text(report(kept))
    return kept


def main() -> None:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("networks", nargs="+", help="model files, and zoo:NAME")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--runs", type=int, default=15, help="rounds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.03, help="seconds before each turn")
    parser.add_argument("--regret", action="store_true", help="compare with measured costs, too")
    parser.add_argument("--int8", action="store_true", help="quantize the networks first")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--single", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.single:
        print(json.dumps(asdict(measure(options.networks[0], options))))
        return
    rows: list[Result] = []
    for argument in options.networks:
        found = in_process(argument, options)
        if isinstance(found, str):
            print(f"{argument}: {found}", flush=True)
            continue
        rows = merge(found, options.results)
        print(line(found), flush=True)
    print(summary(rows))


if __name__ == "__main__":
    main()
