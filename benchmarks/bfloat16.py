"""Networks of the zoo in bfloat16 beside OpenVINO in bfloat16: time and error, batch 1 and 16.

Run it on a quiet machine, after ``stridewise calibrate``; it takes about an hour::

    .venv/bin/python benchmarks/bfloat16.py
    .venv/bin/python benchmarks/bfloat16.py resnet50 mobilenet_v2 --batch 1 --tune measure

Both are timed as in ``models.py``: in one process, in turn, each after an untimed run of its own.
Errors are norms of the difference to ONNX Runtime's float32 outputs, over the norm of these, on
eight images. The ratio is OpenVINO's median time over that of Stridewise. The limit of the error is
1.5 times OpenVINO's, plus 1e-3. Raw samples are written to ``results/bfloat16.json`` after each
model, and the table to ``bfloat16.md``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from model_tables import table
from models import MODELS, race
from precision import Run, by_onnxruntime, by_openvino, errors, images

import stridewise as sw
from stridewise.runtime.machine.machine import this_machine

RESULTS = Path(__file__).parent / "results" / "bfloat16.json"
OURS, PEER, EXACT = "stridewise bfloat16", "openvino bfloat16", "onnxruntime float32"
IMAGES, FEWEST = 8, 5

Options = argparse.Namespace


def rounds(runs: Mapping[str, Run], x: np.ndarray[Any, Any], options: Options) -> int:
    """Return how often all can run within the time for one row."""
    begin = time.monotonic()
    for run in runs.values():
        run(x)
    each = 2 * (time.monotonic() - begin) + len(runs) * options.pause
    return max(FEWEST, min(options.runs, int(options.seconds / each)))


def look_at(name: str, batch: int, options: Options) -> dict[str, Any]:
    """Load, time and compare one model."""
    with TemporaryDirectory() as folder:
        graph = sw.zoo.build(name, batch)
        path = Path(folder) / "model.onnx"
        sw.save(graph, path)
        model = sw.compile(path, threads=options.threads, tune=options.tune, dtype="bfloat16")
        runs: dict[str, Run] = {
            OURS: lambda x: np.asarray(model(x)),
            PEER: by_openvino(path, options, "bf16"),
        }
        x, *others = images(graph, max(1, IMAGES // batch), 2)
        runners = {who: partial(lambda run: (run(x),), run) for who, run in runs.items()}
        samples = race(runners, rounds(runs, x, options), options.pause, cold=False)
        wrong = errors({**runs, EXACT: by_onnxruntime(path, options)}, [x, *others])
    return {
        "model": name,
        "batch": batch,
        "date": date.today().isoformat(),
        "machine": str(this_machine(options.threads)),
        "tune": options.tune,
        "samples_ms": samples,
        "errors": wrong,
    }


def ratio(row: Mapping[str, Any]) -> float:
    """Return OpenVINO's median time over that of Stridewise."""
    samples = row["samples_ms"]
    return median(samples[PEER]) / median(samples[OURS])


def report(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of times, errors and ratios, and the geometric mean for each batch."""
    lines = [
        [
            row["model"],
            str(row["batch"]),
            *(f"{median(row['samples_ms'][who]):.2f}" for who in (OURS, PEER)),
            f"{ratio(row):.2f}",
            *(f"{row['errors'][who]:.1e}" for who in (OURS, PEER)),
            f"{1.5 * row['errors'][PEER] + 1e-3:.1e}",
        ]
        for row in rows
    ]
    head = ["network", "batch", "Stridewise, ms", "OpenVINO, ms", "ratio"]
    head += ["error of Stridewise", "of OpenVINO", "limit"]
    means = [
        f"Batch {batch}: {geometric_mean(found):.2f} in the geometric mean of {len(found)},"
        f" {min(found):.2f} at least.\n"
        for batch in sorted({row["batch"] for row in rows})
        if (found := [ratio(row) for row in rows if row["batch"] == batch])
    ]
    return "\n".join([*table(head, lines), "", *means])


def main() -> None:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL", help="of the zoo")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--runs", type=int, default=40, help="rounds at most")
    parser.add_argument("--seconds", type=float, default=60.0, help="for the rounds of a row")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.03, help="seconds before each turn")
    parser.add_argument("--tune", choices=("auto", "measure", "model"), default="auto")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    path = options.results
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    for batch in options.batch:
        for name in options.models:
            row = look_at(name, batch, options)
            rows = [r for r in rows if (r["model"], r["batch"]) != (name, batch)] + [row]
            path.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
            path.with_suffix(".md").write_text(report(rows))
            print(report([row]).splitlines()[2], flush=True)
    print(report(rows))


if __name__ == "__main__":
    main()
