"""``stridewise bench``: a model here and in other runtimes, interleaved in one run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from stridewise import __version__
from stridewise.cli.console import OUT, Request, compile_options, streams_option
from stridewise.cli.peer_streams import SERVERS, open_server, our_server
from stridewise.cli.peers import PEERS, check_peers, installed, open_peer
from stridewise.cli.run import random_inputs
from stridewise.frontends.registry import WRITER
from stridewise.runtime.execution.executor import CompiledModel

__all__ = ["Timing", "bench", "compare", "compare_streams", "interleave", "print_timings"]

Array = NDArray[Any]
_PAUSE_S = 0.02
"""Between two runs, so that the threads of the one before are asleep.

GNU OpenMP's spin for 300,000 turns, which is up to 15 ms (source: libgomp, GOMP_SPINCOUNT).
"""

_REQUESTS = 4
"""Requests for each stream in one timed run, so that its begin and end count little."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one runtime.

    Attributes:
        name: of the runtime.
        version: of the runtime.
        samples_ms: every timed run, in order.
        error: relative difference of its first output from ours, in the Euclidean norm.
    """

    name: str
    version: str
    samples_ms: tuple[float, ...]
    error: float

    @property
    def median_ms(self) -> float:
        """Median of the samples."""
        return median(self.samples_ms)

    @property
    def spread(self) -> float:
        """Distance between the quartiles, as a part of the median."""
        low, high = np.percentile(self.samples_ms, (25, 75))
        return float(high - low) / self.median_ms


def interleave(
    runners: Sequence[Callable[[], Sequence[Array]]], runs: int, warmup: int = 3
) -> list[list[float]]:
    """Time several functions in turn and return the milliseconds of each.

    Every round runs each function once; the order rotates from round to round.
    """
    for _ in range(warmup):
        for run in runners:
            run()
    samples: list[list[float]] = [[] for _ in runners]
    for turn in range(runs):
        for position in range(len(runners)):
            index = (turn + position) % len(runners)
            time.sleep(_PAUSE_S)
            start = time.perf_counter()
            runners[index]()
            samples[index].append(1e3 * (time.perf_counter() - start))
    return samples


def compare(
    model: CompiledModel, source: Path | bytes, peers: Sequence[str], runs: int, seed: int = 0
) -> list[Timing]:
    """Time a compiled model and its peers on the same random inputs, ours first.

    Raises:
        InputError: a peer is unknown.
        DependencyError: a peer is not installed.
    """
    inputs = random_inputs(model.interface, seed)
    positional = [inputs[name] for name in model.input_names]

    def ours() -> list[Array]:
        found = model(*positional)
        return list(found) if isinstance(found, tuple) else [found]

    check_peers(peers)
    others = [open_peer(name, source, inputs, model.face.threads) for name in peers]
    expected = ours()[0].astype(np.float64)
    samples = interleave([ours, *(other.run for other in others)], runs)
    timings = [Timing("stridewise", __version__, tuple(samples[0]), 0.0)]
    for other, times in zip(others, samples[1:], strict=True):
        difference = np.linalg.norm(other.run()[0] - expected)
        error = float(difference / max(float(np.linalg.norm(expected)), 1e-30))
        timings.append(Timing(other.name, other.version, tuple(times), error))
    return timings


def compare_streams(
    model: CompiledModel, source: Path | bytes, peers: Sequence[str], runs: int, seed: int = 0
) -> list[Timing]:
    """Time a model and its peers with as many requests at once as the model has streams.

    Returns:
        Milliseconds a request: each sample is the time of many requests, divided by their number.

    Raises:
        InputError: a peer is unknown.
        DependencyError: a peer is not installed.
    """
    check_peers(peers, SERVERS)
    inputs = random_inputs(model.interface, seed)
    threads = model.streams * model.face.threads
    servers = [our_server(model, inputs)]
    servers += [open_server(name, source, inputs, threads, model.streams) for name in peers]
    count = _REQUESTS * model.streams
    samples = interleave([partial(server.run, count) for server in servers], runs, warmup=1)
    answers = [server.run(model.streams)[0].astype(np.float64) for server in servers]
    norm = max(float(np.linalg.norm(answers[0])), 1e-30)
    return [
        Timing(
            server.name,
            server.version,
            tuple(sample / count for sample in times),
            float(np.linalg.norm(answer - answers[0])) / norm,
        )
        for server, times, answer in zip(servers, samples, answers, strict=True)
    ]


def print_timings(timings: Sequence[Timing], title: str) -> None:
    """Print a table of medians and ratios."""
    OUT.print(title, soft_wrap=True)
    table = Table("runtime", "median ms", "min ms", "spread", "/ ours", "difference")
    for timing in timings:
        ratio = timing.median_ms / timings[0].median_ms
        table.add_row(
            f"{timing.name} {timing.version}",
            f"{timing.median_ms:.3f}",
            f"{min(timing.samples_ms):.3f}",
            f"{timing.spread:.0%}",
            f"{ratio:.2f}",
            f"{timing.error:.1e}",
        )
    OUT.print(table)
    if max(timing.spread for timing in timings) > 0.3:
        OUT.print("the spread is large: the machine was not quiet, and the ratios are uncertain")


def _source(path: Path, batch: int | None, *, random_weights: bool) -> Path | bytes:
    """Return the model that all runtimes get: the file itself, or a changed copy."""
    if batch is None and not random_weights:
        return path
    return WRITER.changed(path, batch=batch, random_weights=random_weights)


@click.command()
@compile_options
@streams_option
@click.option(
    "--vs",
    "peers",
    default=None,
    help=f"Runtimes to compare with, of {', '.join(PEERS)}; default: all "
    "installed ones except those of PyTorch, which support only convolutional networks.",
)
@click.option("--batch", type=click.IntRange(1), help="Batch size; default: that of the model.")
@click.option("--random-weights", is_flag=True, help="Replace all weights by random ones.")
@click.option(
    "--runs", type=click.IntRange(1), default=30, show_default=True, help="Number of timed runs."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON with every sample.")
def bench(
    request: Request,
    *,
    streams: int,
    peers: str | None,
    batch: int | None,
    random_weights: bool,
    runs: int,
    as_json: bool,
) -> None:
    """Time a model in Stridewise and in other runtimes.

    All runtimes run in one process with the same number of threads, in rotating order. With several
    streams, the times are those of one request while that many requests run.
    """
    names = installed() if peers is None else tuple(filter(None, peers.split(",")))
    check_peers(names, PEERS if streams == 1 else SERVERS)
    request = replace(request, streams=streams)
    source = _source(request.model, batch, random_weights=random_weights)
    compiled = request.compile(quiet=as_json, source=source)
    timings = (compare if streams == 1 else compare_streams)(compiled, source, names, runs)
    machine = compiled.plan.machine
    if as_json:
        document = {
            "machine": asdict(machine),
            "streams": streams,
            "timings": [asdict(timing) for timing in timings],
        }
        click.echo(json.dumps(document, indent=2))
        return
    shape = ", ".join(
        f"{name} {compiled.interface.values[name].shape}" for name in compiled.input_names
    )
    several = "" if streams == 1 else f", {streams} streams of this many threads"
    print_timings(timings, f"{request.model.name}, {shape}, {machine}{several}")
    if peers is None and not names:
        OUT.print("no other runtime is installed: pip install 'stridewise\\[bench]'")
