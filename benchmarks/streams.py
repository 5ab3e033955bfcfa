"""Requests per second with one and with several concurrent requests, with other runtimes.

Run it on a quiet machine::

    .venv/bin/python benchmarks/streams.py
    .venv/bin/python benchmarks/streams.py resnet50 squeezenet1_1 --runs 9

Every runtime uses the same number of threads. A single request uses all of them: Stridewise with
``streams=1``, OpenVINO in its latency mode, one session of ONNX Runtime. Concurrent requests share
them: Stridewise with ``streams=2``, OpenVINO in its throughput mode with ``AsyncInferQueue``, one
session of ONNX Runtime for each thread of a pool. A timed run answers many requests, so that its
start and end have little effect. Each round runs every runtime once, in rotating order, after a
pause in which the threads of the previous one go to sleep.

Raw samples are written to ``benchmarks/results/streams.json`` after each model; rows of other runs
are kept. The table is written to ``streams.md``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from models import difference, race
from peers import PEERS, USUAL
from stream_tables import OURS, Found, Row, contestant, report

import stridewise as sw
from stridewise.cli.bench import Peer, stridewise_peer
from stridewise.cli.console import measuring
from stridewise.cli.run import random_inputs

RESULTS = Path(__file__).parent / "results" / "streams.json"
MODELS = (
    "resnet18", "resnet50", "densenet121", "inception_v3", "mobilenet_v2", "efficientnet_b0",
    "squeezenet1_1", "shufflenet_v2",
)  # fmt: skip

Array = np.ndarray[Any, np.dtype[Any]]
Options = argparse.Namespace


def compile_ours(path: Path, streams: int, options: Options) -> sw.CompiledModel:
    """Compile a model file for a number of concurrent requests."""
    with measuring() as progress:
        model = sw.compile(
            path,
            threads=options.threads,
            streams=streams,
            tune=options.tune,
            accuracy=options.accuracy,
            progress=progress,
        )
    if not isinstance(model, sw.CompiledModel):
        raise TypeError(f"{path} has open shapes")
    return model


def servers_of(
    path: Path, inputs: Mapping[str, Array], options: Options
) -> tuple[dict[str, tuple[Peer, int]], str]:
    """Return all contestants with their numbers of streams, and the machine."""
    found: dict[str, tuple[Peer, int]] = {}
    machine = ""
    for streams in (1, options.streams):
        model = compile_ours(path, streams, options)
        machine = machine or str(model.plan.machine)
        found[contestant(OURS, streams)] = stridewise_peer(model, inputs), streams
    for peer in USUAL:
        for streams in (1, options.streams):
            opened = PEERS[peer](path, inputs, options.threads, streams)
            found[contestant(peer, streams)] = opened, streams
    return found, machine


def look_at(name: str, path: Path, options: Options) -> Row:
    """Load, time and compare one model."""
    graph = sw.zoo.build(name, 1)
    sw.save(graph, path)
    inputs = random_inputs(graph, 0)
    del graph
    servers, machine = servers_of(path, inputs, options)
    runners = {key: partial(server.run, options.requests) for key, (server, _) in servers.items()}
    samples = race(runners, options.runs, options.pause, cold=True)
    wanted = servers[contestant("onnxruntime", 1)][0].run(1)
    found = {
        key: Found(
            server.name,
            streams,
            tuple(sample / options.requests for sample in samples[key]),
            difference(server.run(streams), wanted),
        )
        for key, (server, streams) in servers.items()
    }
    versions = {server.name: server.version for server, _ in servers.values()}
    return Row(
        name,
        date.today().isoformat(),
        options.threads,
        options.requests,
        options.pause,
        machine,
        versions,
        found,
    )


def merge(row: Row, path: Path) -> None:
    """Insert a row into the results or replace an older one."""
    older = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = {found.model: found for found in map(Row.from_json, older)} | {row.model: row}
    order = list(dict.fromkeys((*MODELS, *sw.zoo.models())))
    kept = sorted(rows.values(), key=lambda found: order.index(found.model))
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"rows": [found.as_json() for found in kept]}, indent=1) + "\n")
    fresh.replace(path)
    path.with_suffix(".md").write_text(report(kept))


def arguments() -> Options:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL", help="of the zoo")
    parser.add_argument("--runs", type=int, default=21, help="rounds")
    parser.add_argument("--requests", type=int, default=24, help="in one timed run")
    parser.add_argument("--threads", type=int, default=2, help="of all requests together")
    parser.add_argument("--streams", type=int, default=2, help="requests at once")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds before each turn")
    parser.add_argument("--tune", choices=("auto", "measure", "model"), default="measure")
    parser.add_argument("--accuracy", choices=("fast", "exact"), default="fast")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


def main() -> None:
    """Measure, save and print."""
    options = arguments()
    with TemporaryDirectory() as folder:
        for name in options.models:
            path = Path(folder) / f"{name}.onnx"
            row = look_at(name, path, options)
            path.unlink()
            merge(row, options.results)
            rates = ", ".join(f"{key} {found.per_second:.1f}/s" for key, found in row.found.items())
            print(f"{name}: {rates}; gain {row.gain or 0:.2f}", flush=True)


if __name__ == "__main__":
    main()
