"""Time from the file to the first result in a fresh process, with other runtimes; float32.

Run it on a quiet machine::

    .venv/bin/python benchmarks/startup.py                        # all of the list
    .venv/bin/python benchmarks/startup.py resnet50 --only "ours first" "ours second"

Every load has a separate process. Each round starts every variant once, in rotating order. Variants
are Stridewise without measurements and caches ("cold"), Stridewise by its defaults on a calibrated
machine that never saw the model ("first"), the start after that one ("second"), a start after
several others ("warm"), OpenVINO without and with its model cache, and ONNX Runtime. Second starts
use the files that the first one has left, where it left them: a copy of the cost cache is another
file, whose costs a start compares with those of the model. They leave these files as they are. The
second start checks the stored model by a run if a run takes more than a second; of others, the
process that stored them has done so.

The calibration is that of the user's cost cache, or of ``--cache-dir``; without one, the machine is
calibrated first. With ``--only`` no results are written.

Untimed starts fill the caches first. They also load files into the page cache of the system and
write Python's bytecode to a folder of this benchmark, because installed packages have their
bytecode, too. NumPy, which makes the input, is imported before the clock starts.

Three times are measured: the imports, the load (from the path of the file to a model that can run)
and the first run; and the processor time of each, user and system, of all threads. Raw samples are
written to ``benchmarks/results/startup.json`` after each model; rows of other runs are kept. The
tables of medians are written to ``startup.md``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import date
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "startup.json"
MODELS = ("resnet50", "mobilenet_v2", "densenet121", "efficientnet_b0", "vgg16")
NAMES = {
    "ours cold": "ours, cold",
    "ours first": "ours, calibrated",
    "ours second": "ours, second",
    "openvino cold": "OpenVINO, cold",
    "ours warm": "ours, warm",
    "openvino cached": "OpenVINO, model cache",
    "onnxruntime cold": "ONNX Runtime",
}
PARTS = ("import", "load", "first")
CPU = tuple(f"{part} cpu" for part in PARTS)
COPIED = ("ours first",)
"""Variants of which a start must not find what another one has left."""
PAIRS = (("ours cold", "openvino cold"), ("ours warm", "openvino cached"))
"""Pairs of variants; the first one is expected to be faster."""

Options = argparse.Namespace
Samples = dict[str, list[dict[str, float]]]


@dataclass(frozen=True, slots=True)
class Row:
    """The starts of one model.

    Attributes:
        model: of the zoo.
        date: of the measurement.
        threads: number of threads of each runtime.
        machine: description of the machine.
        versions: versions of all runtimes.
        samples: seconds of every start, by variant and part; older ones lack processor time.
    """

    model: str
    date: str
    threads: int
    machine: str
    versions: Mapping[str, str]
    samples: Mapping[str, Sequence[Mapping[str, float]]]

    def seconds(self, contestant: str, *parts: str) -> float | None:
        """Return the median of the sum of some parts; None if one was not measured."""
        found = [one for one in self.samples.get(contestant, ()) if set(parts) <= one.keys()]
        return median(sum(one[part] for part in parts) for one in found) if found else None


# --- one start, in a separate process -------------------------------------------------------------


def _ours(path: str, how: str, folder: str, threads: int) -> Callable[[], Any]:
    import stridewise as sw  # noqa: PLC0415 (timed by itself)

    tune: Any = "model" if how == "cold" else "auto"
    return sw.compile(path, threads=threads, tune=tune, cache_dir=folder)


def _openvino(path: str, how: str, folder: str, threads: int) -> Callable[[Any], Any]:
    openvino: Any = importlib.import_module("openvino")
    config: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    config |= {"CACHE_DIR": folder} if how == "cached" else {}
    compiled = openvino.Core().compile_model(path, "CPU", config)
    return lambda image: compiled.create_infer_request().infer({0: image})


def _onnxruntime(path: str, how: str, folder: str, threads: int) -> Callable[[Any], Any]:
    del how, folder
    module: Any = importlib.import_module("onnxruntime")
    options = module.SessionOptions()
    options.intra_op_num_threads = threads
    session = module.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda image: session.run(None, {name: image})


LOADERS: dict[str, tuple[str, Callable[..., Callable[[Any], Any]]]] = {
    "ours": ("stridewise", _ours),
    "openvino": ("openvino", _openvino),
    "onnxruntime": ("onnxruntime", _onnxruntime),
}


def start(options: Options) -> dict[str, float]:
    """Import, load and run once in this process; return the seconds of each."""
    who, how = options.start.split()
    module, load = LOADERS[who]
    image = np.zeros(options.shape, np.float32)
    times: list[tuple[float, float]] = []

    def note() -> None:
        times.append((time.perf_counter(), time.process_time()))

    note()
    found = importlib.import_module(module)
    getattr(found, "compile", None)  # names of Stridewise are imported at their first use
    note()
    run = load(str(options.file), how, str(options.folder), options.threads)
    note()
    run(image)
    note()
    taken = [(end[0] - begin[0], end[1] - begin[1]) for begin, end in pairwise(times)]
    wall = {part: seconds for part, (seconds, _) in zip(PARTS, taken, strict=True)}
    return wall | {part: seconds for part, (_, seconds) in zip(CPU, taken, strict=True)}


def started(
    contestant: str, path: Path, folder: Path, shape: Sequence[int], options: Options
) -> dict[str, float]:
    """Return the times of one start in a fresh process."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(path.parent / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with TemporaryDirectory() as scratch:
        if contestant in COPIED:
            folder = Path(shutil.copytree(folder, scratch, dirs_exist_ok=True))
        command = [sys.executable, __file__, "--start", contestant, "--file", str(path)]
        command += ["--folder", str(folder), "--threads", str(options.threads)]
        command += ["--shape", *map(str, shape)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"{contestant}: {done.stderr.strip()}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


# --- measurement ----------------------------------------------------------------------------------


def calibrate(options: Options, folder: Path) -> None:
    """Make the cost cache of a calibrated machine that has seen no model."""
    import stridewise as sw  # noqa: PLC0415 (processes that are timed import it themselves)
    from stridewise.runtime.machine.machine import this_machine  # noqa: PLC0415
    from stridewise.runtime.tuning.cost_cache import CostCache  # noqa: PLC0415
    from stridewise.runtime.tuning.cost_file import cache_path  # noqa: PLC0415
    from stridewise.runtime.tuning.oracle import CALIBRATION  # noqa: PLC0415

    known = CostCache(this_machine(options.threads), options.cache_dir)
    if CALIBRATION not in known.find((CALIBRATION,)):
        sw.calibrate(threads=options.threads, cache_dir=folder)
        return
    target = cache_path(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(known.path)) as source, closing(sqlite3.connect(target)) as own:
        source.backup(own)
        own.execute("DELETE FROM costs WHERE spec != ?", (CALIBRATION,))
        own.commit()


def look_at(name: str, options: Options) -> Row:
    """Measure the starts of one model."""
    import stridewise as sw  # noqa: PLC0415 (processes that are timed import it themselves)
    from stridewise.runtime.machine.machine import this_machine  # noqa: PLC0415
    from stridewise.runtime.store.stored_models import settle  # noqa: PLC0415

    with TemporaryDirectory() as scratch:
        path = Path(scratch) / f"{name}.onnx"
        graph = sw.zoo.build(name, options.batch)
        sw.save(graph, path)
        shape = graph.value(graph.inputs[0]).shape
        folders = {who: Path(scratch) / who.replace(" ", "-") for who in NAMES}
        calibrate(options, folders["ours first"])
        shutil.copytree(folders["ours first"], folders["ours second"])
        time.sleep(2.5)  # stored models do not trust the time stamp of a file that has just changed
        _ours(str(path), "second", str(folders["ours second"]), options.threads)
        settle()
        shutil.copytree(folders["ours second"], folders["ours warm"])
        order: list[str] = options.only or list(NAMES)
        for who in order:
            started(who, path, folders[who], shape, options)
        samples: Samples = {who: [] for who in order}
        for turn in range(options.rounds):
            for who in (*order[turn % len(order) :], *order[: turn % len(order)]):
                samples[who].append(started(who, path, folders[who], shape, options))
    versions = {"stridewise": sw.__version__}
    versions |= {who: metadata.version(who) for who in ("openvino", "onnxruntime")}
    machine = str(this_machine(options.threads))
    name = name if options.batch == 1 else f"{name}, batch {options.batch}"
    return Row(name, date.today().isoformat(), options.threads, machine, versions, samples)


# --- results --------------------------------------------------------------------------------------


def _table(rows: Sequence[Row], *parts: str) -> list[str]:
    heads = ["model", *NAMES.values(), "OpenVINO / ours, cold", "OpenVINO / ours, warm"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        found = {who: row.seconds(who, *parts) for who in NAMES}
        cells = ["" if value is None else f"{1e3 * value:.0f}" for value in found.values()]
        for ours, theirs in PAIRS:
            own, other = found[ours], found[theirs]
            cells.append(f"**{other / own:.2f}**" if own and other else "")
        lines.append(f"| {row.model} | " + " | ".join(cells) + " |")
    return lines


def report(rows: Sequence[Row]) -> str:
    """Return the page."""
    ways = sorted(
        {
            f"- {row.machine}; {row.threads} threads each, "
            f"{min(map(len, row.samples.values()))} rounds; "
            + ", ".join(f"{name} {version}" for name, version in row.versions.items())
            + "."
            for row in rows
        }
    )
    lines = [
        "# Start-up beside other runtimes",
        "",
        "Made by `benchmarks/startup.py`: medians in milliseconds, every start in a process of its",
        "own, in turn. Cold is without measuring and without caches; calibrated is with samples",
        "of a calibration, which has not seen the model; second is the start after that one; warm",
        "is with the caches of several earlier starts.",
        "",
        *ways,
    ]
    titles = {
        "From the file to a model that can run": ("load",),
        "With the first run": ("load", "first"),
        "With imports and the first run": PARTS,
        "Processor time with imports and the first run": CPU,
    }
    for title, parts in titles.items():
        lines += ["", f"## {title}", "", *_table(rows, *parts)]
    return "\n".join([*lines, ""])


def merge(row: Row, path: Path) -> None:
    """Insert a row into the results or replace an older one."""
    older = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = {item["model"]: Row(**item) for item in older} | {row.model: row}
    order = list(dict.fromkeys((*MODELS, *rows)))
    kept = sorted(rows.values(), key=lambda found: order.index(found.model))
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"rows": [asdict(found) for found in kept]}, indent=1) + "\n")
    fresh.replace(path)
    path.with_suffix(".md").write_text(report(kept))


def arguments() -> Options:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL", help="of the zoo")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--cache-dir", type=Path, help="with a calibration; default: the user's")
    parser.add_argument("--only", nargs="+", choices=NAMES, help="print these variants, save none")
    parser.add_argument("--results", type=Path, default=RESULTS)
    for hidden in ("--start", "--file", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--shape", type=int, nargs="*", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, save and print."""
    options = arguments()
    if options.start:
        print(json.dumps(start(options)))
        return
    for name in options.models:
        row = look_at(name, options)
        if not options.only:
            merge(row, options.results)
        print(f"{name}, median and minimum:", flush=True)
        for who, samples in row.samples.items():
            times = [sum(one[part] for part in PARTS) for one in samples]
            loads = ", ".join(f"{part} {1e3 * (row.seconds(who, part) or 0):.0f}" for part in PARTS)
            print(f"  {NAMES[who]}: {1e3 * median(times):.0f}, {1e3 * min(times):.0f} ms ({loads})")


if __name__ == "__main__":
    main()
