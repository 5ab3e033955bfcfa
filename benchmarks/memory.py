"""Peak memory of loading and running a model, with other runtimes; arenas and lower bounds.

Run it anywhere; nothing is timed, so the machine need not be quiet::

    .venv/bin/python benchmarks/memory.py                    # all of the list
    .venv/bin/python benchmarks/memory.py vgg16 --batch 16 --tune model

Each runtime has a separate process, which imports the runtime, loads the model file and runs it
three times. The result is the peak of the whole process (``VmHWM``), including interpreter, imports
and pages of mapped files. The memory of the imports is listed, too. Stridewise has a warm cost
cache, as in all starts but the first. The column *net* is the peak of Stridewise minus the
transformed weights of Winograd, which the peers do not have, compared with the peer that needs less
memory. If the peak occurs before these weights are packed, *net* is too low, and the exact column
is valid.

The second table lists the arena of each network and its lower bound, the largest need of a step.
Raw data are written to ``benchmarks/results/memory.json``, the tables to ``memory.md``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from model_tables import EXACT, FAST, NAMES, OURS, table
from peers import PEERS as LOADERS
from process_memory import status

import stridewise as sw

RESULTS = Path(__file__).parent / "results" / "memory.json"
MODELS = (
    "vgg16", "resnet18", "resnet50", "densenet121", "inception_v3", "resnext101_32x8d",
    "mobilenet_v2", "efficientnet_b0", "squeezenet1_1", "shufflenet_v2", "mobilenet_v3_large",
    "unet", "fcn_resnet50",
)  # fmt: skip
PEERS = ("onnxruntime", "openvino")
LIMIT = 1.1
"""Largest acceptable ratio to the peak of the peer that needs less memory."""
RUNS = 3


@dataclass(frozen=True, slots=True)
class Peak:
    """Memory of one process, in bytes.

    Attributes:
        imported: resident memory after the imports.
        peak: largest resident memory.
        after: resident memory after the runs.
        packed: packed weights (only Stridewise).
        winograd: the part of these that are transformed weights of Winograd kernels.
        originals: original weights that stay in memory.
        arena: activations and scratchpads.
        arena_lower_bound: lower bound of the arena.
    """

    imported: int
    peak: int
    after: int
    packed: int = 0
    winograd: int = 0
    originals: int = 0
    arena: int = 0
    arena_lower_bound: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """Results of one model at one batch size.

    Attributes:
        model: of the zoo.
        batch: images at a time.
        tune: the source of the costs of Stridewise's plans.
        date: of the measurement.
        file_nbytes: size of the model file.
        found: results by runtime.
    """

    model: str
    batch: int
    tune: str
    date: str
    file_nbytes: int
    found: Mapping[str, Peak]

    @property
    def leaner(self) -> int:
        """Peak of the peer that needs less memory."""
        return min(self.found[name].peak for name in PEERS)

    def ratio(self, ours: str) -> float:
        """Return the peak without Winograd's weights relative to that of the leaner peer."""
        found = self.found[ours]
        return (found.peak - found.winograd) / self.leaner


def measure(contestant: str, path: Path, inputs: Mapping[str, np.ndarray], tune: str) -> Peak:
    """Load and run one runtime in this process."""
    if contestant in PEERS:
        importlib.import_module(contestant)
        imported = status("VmRSS")
        LOADERS[contestant](path, inputs, 2, 1).run(RUNS)
        return Peak(imported, status("VmHWM"), status("VmRSS"))
    imported = status("VmRSS")
    model = sw.compile(path, threads=2, accuracy=contestant, tune=tune)
    if not isinstance(model, sw.CompiledModel):
        raise TypeError(f"{path} has open shapes")
    for _ in range(RUNS):
        model.run(inputs)
    held = model.memory
    return Peak(
        imported,
        status("VmHWM"),
        status("VmRSS"),
        held.packed_weights,
        held.winograd_weights,
        held.originals,
        held.arena,
        held.arena_lower_bound,
    )


def peak_of(contestant: str, path: Path, shapes: Mapping[str, Sequence[int]], tune: str) -> Peak:
    """Start a process that measures one runtime."""
    command = [sys.executable, __file__, "--of", contestant, "--file", str(path)]
    command += ["--shapes", json.dumps(shapes), "--tune", tune]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"memory of {contestant}: {done.stderr.strip()}")
    return Peak(**json.loads(done.stdout))


def look_at(name: str, batch: int, tune: str) -> Row:
    """Measure all runtimes on one network of the zoo."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        graph = sw.zoo.build(name, batch)
        sw.save(graph, path)
        shapes = {item: graph.values[item].shape for item in graph.inputs}
        del graph
        if tune == "measure":
            for accuracy in OURS:  # what is measured now is no part of any start after the first
                command = [sys.executable, __file__, "--of", accuracy, "--file", str(path)]
                command += ["--shapes", json.dumps(shapes)]
                subprocess.run(command, capture_output=True, check=True)
        found = {who: peak_of(who, path, shapes, tune) for who in (*OURS, *PEERS)}
        return Row(name, batch, tune, date.today().isoformat(), path.stat().st_size, found)


# --- results --------------------------------------------------------------------------------------


def _mb(nbytes: float) -> str:
    return f"{nbytes / 1e6:.0f}"


def _verdict(row: Row, ours: str) -> str:
    ratio = row.ratio(ours)
    return f"**{ratio:.2f}**" if ratio <= LIMIT else f"{ratio:.2f}, above {LIMIT}"


def report(rows: Sequence[Row]) -> str:
    """Return the page with both tables."""
    peaks = [
        [
            row.model,
            str(row.batch),
            *(_mb(row.found[who].peak) for who in (*OURS, *PEERS)),
            _mb(row.found[FAST].packed),
            _mb(row.found[FAST].winograd),
            _mb(row.found[FAST].peak - row.found[FAST].winograd),
            *(_verdict(row, ours) for ours in OURS),
        ]
        for row in rows
    ]
    heads = ["model", "batch", *(NAMES[who] for who in (*OURS, *PEERS))]
    heads += [
        "packed weights",
        "of these Winograd's",
        "net",
        "net / leaner peer",
        "the same, exact",
    ]
    arenas = [
        [
            row.model,
            str(row.batch),
            *(
                f"{found.arena / 1e6:.2f} / {found.arena_lower_bound / 1e6:.2f} = "
                f"**{found.arena / max(found.arena_lower_bound, 1):.3f}**"
                for found in (row.found[FAST], row.found[EXACT])
            ),
        ]
        for row in rows
    ]
    tuned = " and ".join(sorted({f"`tune={row.tune!r}`" for row in rows}))
    imports = ", ".join(
        f"{NAMES[who]} {_mb(max(row.found[who].imported for row in rows))}"
        for who in (FAST, *PEERS)
    )
    return "\n".join(
        [
            "# Memory beside other runtimes",
            "",
            "Made by `benchmarks/memory.py`: MB (10^6 bytes) at the peak of a whole process that",
            "loads a model file and runs it. *Net* leaves out what Winograd kernels transformed.",
            "It is too low where the peak comes before these are packed, as in VGG-16; the exact",
            "column has none of them.",
            f"Imports take at most: {imports}. Plans of ours: {tuned}.",
            "",
            *table(heads, peaks),
            "",
            "Arenas, MB over their lower bound:",
            "",
            *table(["model", "batch", "ours", "ours, exact"], arenas),
            "",
        ]
    )


def merge(row: Row, path: Path) -> list[Row]:
    """Insert a row into the results or replace an older one, and return all rows."""
    older = json.loads(path.read_text())["rows"] if path.exists() else []
    rows: dict[tuple[str, int], Row] = {}
    for item in older:
        found = {who: Peak(**peak) for who, peak in item["found"].items()}
        rows[item["model"], item["batch"]] = Row(**{**item, "found": found})
    rows[row.model, row.batch] = row
    order = list(dict.fromkeys((*MODELS, *sw.zoo.models())))
    kept = sorted(rows.values(), key=lambda each: (each.batch, order.index(each.model)))
    document = {"rows": [asdict(each) for each in kept]}
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(document, indent=1) + "\n")
    fresh.replace(path)
    path.with_suffix(".md").write_text(report(kept))
    return kept


def arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL", help="of the zoo")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tune", choices=("auto", "measure", "model"), default="measure")
    parser.add_argument("--results", type=Path, default=RESULTS)
    for hidden in ("--of", "--shapes"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, save and print."""
    options = arguments()
    if options.of:
        shapes: dict[str, Any] = json.loads(options.shapes)
        inputs = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        print(json.dumps(asdict(measure(options.of, options.file, inputs, options.tune))))
        return
    for name in options.models:
        row = look_at(name, options.batch, options.tune)
        merge(row, options.results)
        peaks = ", ".join(f"{who} {_mb(found.peak)} MB" for who, found in row.found.items())
        ratios = ", ".join(f"{ours} {row.ratio(ours):.2f}" for ours in OURS)
        print(f"{name}: {peaks}; net / leaner peer {ratios}", flush=True)


if __name__ == "__main__":
    main()
