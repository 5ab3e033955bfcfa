"""``stridewise bench``: the time of a model here and in other runtimes, interleaved in one run."""

from __future__ import annotations

import importlib
import importlib.util
import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from stridewise import __version__
from stridewise.cli.console import OUT, Request, compile_options, streams_option, with_options
from stridewise.cli.outputs import Command
from stridewise.cli.run import random_inputs
from stridewise.errors import ExecutionError, InputError
from stridewise.frontends.registry import WRITER
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.model import Model
from stridewise.runtime.store.stored_models import settle

__all__ = [
    "Open",
    "Peer",
    "Source",
    "Timing",
    "bench",
    "bench_command",
    "check_peers",
    "compare",
    "interleave",
    "open_onnxruntime",
    "print_timings",
    "stridewise_peer",
]

Array = NDArray[Any]
Source = Path | bytes
"""A model file or its bytes."""

_PAUSE_S = 0.02
"""Between two runs, so that the threads of the run before are asleep.

GNU OpenMP's, which peers may use, spin for 300,000 turns, which is up to 15 ms (source: libgomp).
"""

_REQUESTS = 4
"""Requests for each stream in one timed run, so that its begin and end count little."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A runtime that is ready to run one model on one set of inputs.

    Attributes:
        name: of the runtime.
        version: of the runtime.
        run: computes a number of requests, at least one, and returns the outputs of one of them.
    """

    name: str
    version: str
    run: Callable[[int], list[Array]]


Open = Callable[[Source, Mapping[str, Array], int, int], Peer]
"""Loads a model: the model, the inputs of every request, the threads of all requests together, and
the number of simultaneous requests."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one runtime.

    Attributes:
        name: of the runtime.
        version: of the runtime.
        samples_ms: milliseconds a request, one sample for each timed run, in order.
        error: relative difference of its first output from Stridewise's, in the Euclidean norm.
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


def stridewise_peer(model: Model, inputs: Mapping[str, Array]) -> Peer:
    """Return a compiled model that computes as many requests at once as it has streams."""

    def run(count: int) -> list[Array]:
        requests = repeat(inputs, count)
        answers = map(model.run, requests) if model.streams == 1 else model.map(requests)
        (last,) = deque(answers, 1)
        return list(last.values())

    return Peer("stridewise", __version__, run)


def open_onnxruntime(
    source: Source, inputs: Mapping[str, Array], threads: int, streams: int
) -> Peer:
    """Load a model into ONNX Runtime: one session for each stream, with its share of the threads.

    ONNX Runtime has no mode for throughput. A pool of Python's threads calls the sessions; runs
    release the GIL.

    Raises:
        DependencyError: ONNX Runtime is not installed.
        ModelError: it cannot load the model.
    """
    sessions = [WRITER.session(source, threads // streams) for _ in range(streams)]
    feeds = dict(inputs)
    pool = ThreadPoolExecutor(streams)

    def share(index: int, count: int) -> list[Array]:
        found: list[Array] = []
        try:
            for _ in range(count // streams + (index < count % streams)):
                found = list(sessions[index].run(None, feeds))
        except Exception as error:  # the exceptions of ONNX Runtime have no other common base
            said = " ".join(str(error).split())
            shapes = ", ".join(f"{name} {feed.shape}" for name, feed in feeds.items())
            where = f"ONNX Runtime on {shapes}"
            raise ExecutionError.at(where, expected="a run", found=said) from error
        return found

    def run(count: int) -> list[Array]:
        if streams == 1:
            return share(0, count)
        first, *_ = pool.map(share, range(streams), repeat(count))
        return first

    version = importlib.import_module("onnxruntime").__version__
    return Peer("onnxruntime", version, run)


def interleave(
    runners: Sequence[Callable[[], Sequence[Array]]], runs: int, warmup: int = 3
) -> list[list[float]]:
    """Time several functions in turn and return the milliseconds of each.

    Every round runs each function once; the order rotates from round to round. Models are stored
    before: the thread that does it would take processors from all functions.
    """
    settle()
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
    model: CompiledModel, source: Source, peers: Mapping[str, Open], runs: int, seed: int = 0
) -> list[Timing]:
    """Time a compiled model and its peers on the same random inputs, Stridewise first.

    A timed run is one request, or several for each stream where the model has more than one.

    Args:
        model: the compiled model; the peers get its number of threads and streams.
        source: what the model was compiled from.
        peers: functions that load it into other runtimes, by name.
        runs: number of timed runs.
        seed: of the inputs.

    Raises:
        DependencyError: a peer is not installed.
    """
    inputs = random_inputs(model.interface, seed)
    streams, threads = model.streams, model.streams * model.call_signature.threads
    opened = [stridewise_peer(model, inputs)]
    opened += [load(source, inputs, threads, streams) for load in peers.values()]
    count, warmup = (1, 3) if streams == 1 else (_REQUESTS * streams, 1)
    samples = interleave([partial(peer.run, count) for peer in opened], runs, warmup)
    answers = [peer.run(streams)[0].astype(np.float64) for peer in opened]
    norm = max(float(np.linalg.norm(answers[0])), 1e-30)
    return [
        Timing(
            peer.name,
            peer.version,
            tuple(sample / count for sample in times),
            float(np.linalg.norm(answer - answers[0])) / norm,
        )
        for peer, times, answer in zip(opened, samples, answers, strict=True)
    ]


def print_timings(timings: Sequence[Timing], title: str) -> None:
    """Print a table of medians and ratios."""
    OUT.print(title, soft_wrap=True)
    table = Table("runtime", "median ms", "min ms", "spread", "/ Stridewise", "difference")
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


def check_peers(names: Sequence[str], known: Mapping[str, Open], fix: str = "") -> None:
    """Check that there are peers of these names, before any work is done for them.

    Raises:
        InputError: there is no peer of some name, or a name comes twice.
    """
    for name in names:
        if name not in known or names.count(name) > 1:
            expected = f"some of {', '.join(known)}, each once"
            raise InputError.at("--vs", expected=expected, found=repr(name), fix=fix)


def _source(path: Path, batch: int | None, *, random_weights: bool) -> Source:
    """Return the model that all runtimes get: the file itself, or a changed copy."""
    if batch is None and not random_weights:
        return path
    return WRITER.changed(path, batch=batch, random_weights=random_weights)


_OPTIONS = (
    click.option("--batch", type=click.IntRange(1), help="Batch size; default: that of the model."),
    click.option("--random-weights", is_flag=True, help="Replace all weights by random ones."),
    click.option(
        "--runs",
        type=click.IntRange(1),
        default=30,
        show_default=True,
        help="Number of timed runs.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON with every sample."),
)


def _document(compiled: Model, streams: int, timings: Sequence[Timing]) -> str:
    document = {
        "machine": asdict(compiled.plan.machine),
        "streams": streams,
        "timings": [asdict(timing) for timing in timings],
    }
    return json.dumps(document, indent=2)


def _title(model: str, compiled: Model, streams: int) -> str:
    shape = ", ".join(
        f"{name} {compiled.interface.values[name].shape}" for name in compiled.input_names
    )
    several = "" if streams == 1 else f", {streams} streams of this many threads"
    return f"{model}, {shape}, {compiled.plan.machine}{several}"


def bench_command(
    peers: Mapping[str, Open], usual: Sequence[str], elsewhere: str = ""
) -> click.Command:
    """Return the command that times a model here and in some other runtimes.

    Args:
        peers: functions that load a model into other runtimes, by name of the runtime's package.
        usual: names of the peers that run, if installed, where the user names none.
        elsewhere: what to do about a peer that is not in the table.
    """
    vs = click.option(
        "--vs",
        "names",
        default=None,
        metavar="NAME,NAME",
        help=f'Runtimes to compare with: {", ".join(peers)}; "" for none. Default: '
        f"{', '.join(usual)}, if installed.",
    )

    @click.command("bench", cls=Command)
    @compile_options
    @streams_option
    @vs
    @partial(with_options, _OPTIONS)
    def command(
        request: Request,
        *,
        streams: int,
        names: str | None,
        batch: int | None,
        random_weights: bool,
        runs: int,
        as_json: bool,
    ) -> None:
        """Time a model in Stridewise and in other runtimes.

        All runtimes run in one process with the same number of threads, in rotating order. With
        several streams, the times are those of one request while that many requests run.
        """
        installed = [name for name in usual if importlib.util.find_spec(name) is not None]
        chosen = installed if names is None else list(filter(None, names.split(",")))
        check_peers(chosen, peers, elsewhere)
        source = _source(request.model, batch, random_weights=random_weights)
        compiled = replace(request, streams=streams).compile(quiet=as_json, source=source)
        timings = compare(compiled, source, {name: peers[name] for name in chosen}, runs)
        if as_json:
            click.echo(_document(compiled, streams, timings))
            return
        print_timings(timings, _title(request.model.name, compiled, streams))
        if names is None and not chosen:
            OUT.print(
                "no other runtime is installed: pip install 'stridewise[bench]'", markup=False
            )

    return command


bench = bench_command(
    {"onnxruntime": open_onnxruntime},
    usual=("onnxruntime",),
    elsewhere="for other runtimes, run `python -m benchmarks.peers` in the source tree",
)
