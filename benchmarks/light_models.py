"""The nine light models of the onnx package against ONNX Runtime and OpenVINO, batch 1, float32.

Run it on a quiet machine::

    .venv/bin/python benchmarks/light_models.py

Weights are seeded random numbers, because the models ship with constants. All runtimes run in one
process with the same number of threads. Each round runs all of them once, in rotating order. Raw
samples are written to ``benchmarks/results/light_models.json``, and a table is printed.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import onnx
from peers import PEERS, USUAL

import stridewise as sw
from stridewise.cli.bench import Timing, compare
from stridewise.cli.console import measuring
from stridewise.frontends.onnx import randomize, read_model

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
RESULTS = Path(__file__).parent / "results" / "light_models.json"


def row(name: str, model: sw.CompiledModel, timings: list[Timing]) -> str:
    """Return one line of the table."""
    ours, *others = timings
    best = min(others, key=lambda timing: timing.median_ms)
    cells = [name, f"{ours.median_ms:.2f}"]
    cells += [f"{timing.median_ms:.2f}" for timing in others]
    cells += [
        f"**{best.median_ms / ours.median_ms:.2f}**",
        f"{model.plan.cost_ns / 1e6:.2f}",
        str(len(model.plan.reorders)),
        f"{max(timing.error for timing in others):.0e}",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--only", help="part of a model's name")
    options = parser.parse_args()
    peers = {name: PEERS[name] for name in USUAL}
    document: dict[str, Any] = {"date": date.today().isoformat(), "runs": options.runs}
    heads = ["model", "Stridewise", *peers, "best peer / ours", "predicted", "reorders", "error"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for path in sorted(LIGHT.glob("*.onnx")):
        name = path.stem.removeprefix("light_")
        if options.only and options.only not in name:
            continue
        seeded = randomize(read_model(path))
        with measuring() as progress:
            model = sw.compile(seeded, tune="measure", progress=progress)
        timings = compare(model, seeded.SerializeToString(), peers, options.runs)
        document["machine"] = asdict(model.plan.machine)
        document[name] = [asdict(timing) for timing in timings]
        lines.append(row(name, model, timings))
        print(lines[-1], flush=True)
    if not options.only:
        RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    print("\n".join(["", *lines]))


if __name__ == "__main__":
    main()
