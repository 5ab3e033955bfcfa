"""Stridewise, ONNX Runtime and OpenVINO on machines that do other work, too.

Run it on a machine that runs nothing else, on model files::

    .venv/bin/python benchmarks/contention.py build/networks/mnasnet_small.onnx --load 0 1 2

Every runtime has a process of its own. The processes take turns, in another order each time, in
which they run the model over and over, with or without pauses. ``--load`` starts processes that
keep a processor busy. What the host of a virtual machine takes ("steal") is recorded for each turn.

Raw samples are written to ``benchmarks/results/contention.json`` after each network, the table to
``contention.md``. Rows of other runs are kept.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import fmean, median
from typing import Any

from models import runner_of
from peers import PEERS, USUAL
from wide import OURS, Runner, compiled, fixed_shapes

import stridewise as sw
from stridewise.cli.run import random_inputs
from stridewise.runtime.machine.machine import this_machine

RESULTS = Path(__file__).parent / "results" / "contention.json"
NAMES = (OURS, *USUAL)
BUSY = "while True: pass"


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of one process.

    Attributes:
        samples_ms: time of every run but the first.
        stolen: share of the time that the system's processors were busy, or wanted to be, which the
            host took.
    """

    samples_ms: list[float]
    stolen: float


@dataclass(frozen=True, slots=True)
class Row:
    """One network under one load.

    Attributes:
        network: the name of its file.
        load: number of busy processes.
        pause_ms: time between two runs.
        threads: number of threads of every runtime.
        date: day of the measurement.
        machine: description of the machine.
        versions: versions of the runtimes.
        turns: turns by runtime, in order.
    """

    network: str
    load: int
    pause_ms: float
    threads: int
    date: str
    machine: str
    versions: dict[str, str]
    turns: dict[str, list[Turn]]

    def samples_ms(self, name: str) -> list[float]:
        """Return all runs of a runtime."""
        return [sample for turn in self.turns[name] for sample in turn.samples_ms]


# --- the process of a runtime ---------------------------------------------------------------------


def runner(name: str, path: Path, threads: int) -> tuple[Runner, str]:
    """Load a model in one runtime; return a function that runs it, and the runtime's version."""
    shapes = fixed_shapes(path, 1)
    inputs = random_inputs(sw.load(path, shapes=shapes), 0)
    if name == OURS:
        return runner_of(compiled(path, {"shapes": shapes, "threads": threads}), inputs), (
            sw.__version__
        )
    peer = PEERS[name](path, inputs, threads, 1)
    return lambda: peer.run(1), peer.version


def timed(run: Runner, seconds: float, pause_s: float) -> list[float]:
    """Run a model for a while; return the milliseconds of every run but the first."""
    samples: list[float] = []
    begun = time.perf_counter()
    while len(samples) < 2 or time.perf_counter() - begun < seconds:
        start = time.perf_counter()
        run()
        samples.append(1e3 * (time.perf_counter() - start))
        if pause_s > 0:
            time.sleep(pause_s)
    return samples[1:]


def serve(options: argparse.Namespace) -> None:
    """Take a turn for each line that is read."""
    run, version = runner(options.single, options.networks[0], options.threads)
    for _ in range(3):
        run()
    print(json.dumps(version), flush=True)
    for line in sys.stdin:
        print(json.dumps(timed(run, options.seconds, float(line))), flush=True)


# --- turns ----------------------------------------------------------------------------------------


class Process:
    """The process of a runtime."""

    def __init__(self, name: str, path: Path, options: argparse.Namespace) -> None:
        command = [sys.executable, __file__, str(path), f"--single={name}"]
        command += [f"--threads={options.threads}", f"--seconds={options.seconds}"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.version: str = self._answer()

    def take_turn(self, pause_s: float) -> Turn:
        """Run the model for a while."""
        assert self._process.stdin is not None
        before = ticks()
        self._process.stdin.write(f"{pause_s}\n")
        self._process.stdin.flush()
        samples = self._answer()
        busy, stolen = (after - first for after, first in zip(ticks(), before, strict=True))
        return Turn(samples, stolen / max(1, busy + stolen))

    def end(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a runtime failed; its error stands above")
        return json.loads(line)


def ticks() -> tuple[int, int]:
    """Return how long all processors have been busy, and how long the host had taken them."""
    line = Path("/proc/stat").read_text().partition("\n")[0]
    user, nice, system, _, _, irq, softirq, stolen = map(int, line.split()[1:9])
    return user + nice + system + irq + softirq, stolen


@contextmanager
def load(count: int) -> Generator[None]:
    """Keep processes busy for the length of a block."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def measure(path: Path, options: argparse.Namespace) -> list[Row]:
    """Run one network in all runtimes, under every load."""
    processes = {name: Process(name, path, options) for name in NAMES}
    order = random.Random(0)
    rows: list[Row] = []
    for count in options.load:
        for pause_ms in options.pause_ms:
            turns: dict[str, list[Turn]] = {name: [] for name in NAMES}
            with load(count):
                for _ in range(options.turns):
                    for name in order.sample(NAMES, len(NAMES)):
                        turns[name].append(processes[name].take_turn(pause_ms / 1e3))
            versions = {name: process.version for name, process in processes.items()}
            today, machine = date.today().isoformat(), str(this_machine(options.threads))
            threads = options.threads
            rows.append(Row(path.stem, count, pause_ms, threads, today, machine, versions, turns))
            print(line_of(rows[-1]), flush=True)
    for process in processes.values():
        process.end()
    return rows


# --- results --------------------------------------------------------------------------------------


def line_of(row: Row) -> str:
    """Return the line of a row: medians and means by runtime."""
    stolen = fmean(turn.stolen for turns in row.turns.values() for turn in turns)
    cells = [row.network, str(row.load), f"{row.pause_ms:g}", f"{stolen:.0%}"]
    for name in NAMES:
        samples = row.samples_ms(name)
        cells.append(f"{median(samples):.2f} / {fmean(samples):.2f}")
    return f"| {' | '.join(cells)} |"


def report(rows: Sequence[Row]) -> str:
    """Return the table of all rows."""
    heads = ["network", "busy processes", "pause, ms", "stolen", *(f"{name}, ms" for name in NAMES)]
    table = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads), *map(line_of, rows)]
    head = (
        f"{rows[0].machine}, {rows[0].threads} threads, {rows[0].date}: median / mean of all runs, "
        "in processes that take turns."
    )
    return "\n".join([head, "", *table, ""])


def row_of(kept: Mapping[str, Any]) -> Row:
    """Return a row as it was before it was written."""
    turns = {name: [Turn(**turn) for turn in found] for name, found in kept["turns"].items()}
    return Row(**{**kept, "turns": turns})


def merge(fresh: Sequence[Row], path: Path) -> None:
    """Insert rows into the results or replace older ones."""
    older = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = {(row.network, row.load, row.pause_ms): row for row in map(row_of, older)}
    rows |= {(row.network, row.load, row.pause_ms): row for row in fresh}
    kept = [rows[key] for key in sorted(rows)]
    path.write_text(json.dumps({"rows": [asdict(row) for row in kept]}) + "\n")
    path.with_suffix(".md").write_text(report(kept))


def main() -> None:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("networks", nargs="+", type=Path, help="model files")
    parser.add_argument("--load", nargs="+", type=int, default=[0, 1, 2], help="busy processes")
    parser.add_argument("--pause-ms", nargs="+", type=float, default=[0, 5], help="between runs")
    parser.add_argument("--turns", type=int, default=6, help="of each runtime")
    parser.add_argument("--seconds", type=float, default=0.6, help="length of a turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--single", choices=NAMES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.single:
        return serve(options)
    for path in options.networks:
        merge(measure(path, options), options.results)
    return None


if __name__ == "__main__":
    main()
