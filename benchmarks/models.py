"""Networks of the zoo compared with other runtimes: time, error, load time and memory; float32.

Run it on a quiet machine::

    .venv/bin/python benchmarks/models.py                        # batch 1, all of the list
    .venv/bin/python benchmarks/models.py resnet50 unet --batch 16 --inductor --memory

The runtimes are Stridewise with ``accuracy="fast"`` and ``"exact"``, ONNX Runtime, OpenVINO,
PyTorch (eager, channels-last), and with ``--inductor`` PyTorch's compiler on the frozen module. All
get the same row-major images and the same number of threads. They run in one process: each round
runs all of them once, in rotating order, after a pause in which the threads of the previous one go
to sleep. Each timed run follows an untimed run of the same runtime, so that the caches hold its own
data. With ``--cold`` there is no such run. Models that take seconds are warmed up only once.

Load times are medians of three: Stridewise without measurements and with an empty cache ("cold") or
a full cache ("warm"), OpenVINO without and with its model cache. ``--memory`` starts one more
process for each runtime except PyTorch, which does not read model files.

Raw samples are written to ``benchmarks/results/models.json`` after each model, so that an
interrupted run keeps its results. Rows of other runs are kept. The tables are written to
``models.md``.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from model_tables import EXACT, FAST, OURS, Found, Row, report
from peers import PEERS, openvino_config
from process_memory import status

import stridewise as sw
from stridewise.cli.console import measuring
from stridewise.cli.run import random_inputs
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.store.stored_models import settle

RESULTS = Path(__file__).parent / "results" / "models.json"
MODELS = (
    "vgg16", "resnet18", "resnet50", "densenet121", "inception_v3", "resnext101_32x8d",
    "mobilenet_v2", "efficientnet_b0", "squeezenet1_1", "shufflenet_v2", "mobilenet_v3_large",
    "unet", "fcn_resnet50",
)  # fmt: skip
READERS = ("onnxruntime", "openvino")
"""Peers that read model files; only their memory can be compared."""
LOADS, WARMUP = 3, 3
LONG_S = 2.0
"""Milliseconds of a run from which on a single warm-up run is sufficient."""

Array = np.ndarray[Any, np.dtype[Any]]
Runner = Callable[[], Sequence[Array]]
Options = argparse.Namespace


def compile_ours(path: Path, accuracy: str, options: Options, **more: Any) -> sw.CompiledModel:
    """Compile a model file with Stridewise."""
    model = sw.compile(path, threads=options.threads, accuracy=accuracy, **more)
    if not isinstance(model, sw.CompiledModel):
        raise TypeError(f"{path} has open shapes")
    return model


def seconds(body: Callable[[], object], times: int = LOADS) -> float:
    """Return the median time of a function; each result is released before the next call."""
    found: list[float] = []
    for _ in range(times):
        gc.collect()
        start = time.perf_counter()
        body()
        found.append(time.perf_counter() - start)
    return median(found)


def load_ours(
    path: Path, accuracy: str, options: Options
) -> tuple[sw.CompiledModel, dict[str, float]]:
    """Compile a model, and measure load times with an empty and with a full cache."""

    def cold() -> None:
        with TemporaryDirectory() as folder:
            compile_ours(path, accuracy, options, tune="model", cache_dir=folder)

    with measuring() as progress:
        start = time.perf_counter()
        compile_ours(path, accuracy, options, tune=options.tune, progress=progress)
        first = time.perf_counter() - start

    def warm() -> sw.CompiledModel:
        return compile_ours(path, accuracy, options, tune=options.tune)

    # The time of measurements depends on the user's cost cache, so only the raw data contain it.
    load_s = {"cold": seconds(cold), "warm": seconds(warm), "measuring": first}
    return warm(), load_s


def load_openvino(path: Path, threads: int) -> dict[str, float]:
    """Return OpenVINO's load times without and with its model cache."""
    import openvino  # noqa: PLC0415 (only if it is compared)

    def load(config: Mapping[str, Any]) -> None:
        core = openvino.Core()
        core.compile_model(str(path), "CPU", {**openvino_config(threads), **config})

    with TemporaryDirectory() as folder:
        cached = {"CACHE_DIR": folder}
        load(cached)
        return {"cold": seconds(lambda: load({})), "cached": seconds(lambda: load(cached))}


def race(
    runners: Mapping[str, Runner], rounds: int, pause_s: float, *, cold: bool
) -> dict[str, list[float]]:
    """Time all runners alternately and return milliseconds; the order rotates between rounds.

    Models are stored before, as the thread that does it takes processors.
    """
    settle()
    names = list(runners)
    last_s = dict.fromkeys(names, 0.0)
    for _ in range(WARMUP):
        for name, run in runners.items():
            if last_s[name] < LONG_S:
                last_s[name] = seconds(run, times=1)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for position in range(len(names)):
            name = names[(turn + position) % len(names)]
            time.sleep(pause_s)
            if not cold and last_s[name] < LONG_S:
                runners[name]()
            start = time.perf_counter()
            runners[name]()
            samples[name].append(1e3 * (time.perf_counter() - start))
    return samples


def difference(found: Sequence[Array], wanted: Sequence[Array]) -> float:
    """Return the largest difference relative to the largest magnitude, over all outputs."""
    return max(
        float(np.abs(a - b).max() / max(float(np.abs(b).max()), 1e-30))
        for a, b in zip(found, wanted, strict=True)
    )


def runner_of(model: sw.CompiledModel, inputs: Mapping[str, Array]) -> Runner:
    """Return a function that runs a model of Stridewise."""
    positional = [inputs[name] for name in model.input_names]

    def run() -> Sequence[Array]:
        found = model(*positional)
        return found if isinstance(found, tuple) else (found,)

    return run


def look_at(name: str, path: Path, options: Options) -> Row:
    """Load, time and compare one model."""
    size = {} if options.size is None else {"size": options.size}
    graph = sw.zoo.build(name, options.batch, **size)
    sw.save(graph, path)
    inputs = random_inputs(graph, 0)
    del graph
    runners: dict[str, Runner] = {}
    found: dict[str, Found] = {}
    versions, machine = {"stridewise": sw.__version__}, str(this_machine(options.threads))
    for accuracy in OURS:
        model, load_s = load_ours(path, accuracy, options)
        runners[accuracy] = runner_of(model, inputs)
        memory = model.memory
        found[accuracy] = Found(
            (), 0.0, load_s, None, memory.packed_weights, memory.winograd_weights
        )
    for peer in options.peers:
        importlib.import_module("torch" if peer == "inductor" else peer)
        start = time.perf_counter()
        load = partial(PEERS[peer], path, inputs, options.threads, 1)
        opened = load()
        load_s = {"cold": time.perf_counter() - start}
        if peer == "openvino":
            load_s = load_openvino(path, options.threads)
        elif peer == "onnxruntime":
            load_s = {"cold": seconds(load)}
        runners[peer], versions[peer] = partial(opened.run, 1), opened.version
        found[peer] = Found((), 0.0, load_s)
    samples = race(runners, options.runs, options.pause, cold=options.cold)
    wanted = runners["onnxruntime"]()
    for contestant, run in runners.items():
        error = difference(run(), wanted)
        found[contestant] = replace(
            found[contestant], samples_ms=tuple(samples[contestant]), error=error
        )
    if options.memory:
        for contestant in (*OURS, *READERS):
            peak = peak_of(contestant, path, inputs, options)
            found[contestant] = replace(found[contestant], peak_nbytes=peak)
    return Row(
        name,
        options.batch,
        options.size,
        date.today().isoformat(),
        options.threads,
        "cold" if options.cold else "warm",
        options.pause,
        machine,
        versions,
        found,
    )


# --- memory, one process per runtime --------------------------------------------------------------


def measure_peak(contestant: str, path: Path, options: Options) -> int:
    """Return the peak memory of loading and running in this process, without the imports."""
    import onnx  # noqa: F401, PLC0415 (what imports take is no part of it)

    if contestant in READERS:
        importlib.import_module(contestant)
    inputs = {options.input: np.zeros(options.shape, np.float32)}
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = status("VmRSS")
    if contestant in READERS:
        run = partial(PEERS[contestant](path, inputs, options.threads, 1).run, 1)
    else:
        run = runner_of(compile_ours(path, contestant, options, tune=options.tune), inputs)
    for _ in range(WARMUP):
        run()
    return status("VmHWM") - before


def peak_of(contestant: str, path: Path, inputs: Mapping[str, Array], options: Options) -> int:
    """Start a process that measures the memory of one runtime."""
    ((name, image),) = inputs.items()
    command = [sys.executable, __file__, "--peak-of", contestant, "--file", str(path)]
    command += ["--threads", str(options.threads), "--tune", options.tune]
    command += ["--input", name, "--shape", *map(str, image.shape)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"memory of {contestant}: {done.stderr.strip()}")
    return int(done.stdout)


# --- results --------------------------------------------------------------------------------------


def merge(row: Row, path: Path) -> list[Row]:
    """Insert a row into the results or replace an older one, and return all rows."""
    older = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = {found.key: found for found in map(Row.from_json, older)} | {row.key: row}
    order = list(dict.fromkeys((*MODELS, *sw.zoo.models())))
    kept = sorted(rows.values(), key=lambda found: (found.batch, order.index(found.model)))
    document = {"rows": [found.as_json() for found in kept]}
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(document, indent=1) + "\n")
    fresh.replace(path)
    path.with_suffix(".md").write_text(report(kept))
    return kept


def arguments() -> Options:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL", help="of the zoo")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--size", type=int, help="pixels a side, by default the model's own")
    parser.add_argument("--runs", type=int, default=30, help="rounds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds before each turn")
    parser.add_argument("--cold", action="store_true", help="no untimed run before a timed one")
    parser.add_argument("--tune", choices=("auto", "measure", "model"), default="measure")
    parser.add_argument("--no-torch", action="store_true", help="leave PyTorch out")
    parser.add_argument("--inductor", action="store_true", help="compile with Inductor, too")
    parser.add_argument("--memory", action="store_true", help="peak memory of each contestant")
    parser.add_argument("--results", type=Path, default=RESULTS)
    for hidden in ("--peak-of", "--input"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--shape", type=int, nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.peers = [*READERS, *(() if options.no_torch else ("torch",))]
    options.peers += ["inductor"] if options.inductor else []
    return options


def main() -> None:
    """Measure, save and print."""
    options = arguments()
    if options.peak_of:
        print(measure_peak(options.peak_of, options.file, options))
        return
    with TemporaryDirectory() as folder:
        # Inductor has an empty cache, so its load time is that of a first start.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        for name in options.models:
            row = look_at(name, Path(folder) / f"{name}.onnx", options)
            (Path(folder) / f"{name}.onnx").unlink()
            merge(row, options.results)
            times = ", ".join(f"{who} {f.median_ms:.2f} ms" for who, f in row.found.items())
            ratios = ", ".join(f"{ours} {row.ratio(ours) or 0:.2f}" for ours in (FAST, EXACT))
            print(f"{row.key}: {times}; best peer / {ratios}", flush=True)


if __name__ == "__main__":
    main()
