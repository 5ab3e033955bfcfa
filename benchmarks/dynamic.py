"""One model with many input shapes: first visits, second visits, and steady runs.

    python benchmarks/dynamic.py --model resnet50 --shapes 50 --programs 50

Every shape is visited twice and then run a few times in a row. The second visit should take as long
as a steady run. The script prints a summary, or all data with --json. If there are fewer programs
than shapes, second visits compile their programs again, in the same memory.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from soak import resident_nbytes

import stridewise as sw

_STEADY = 5


def timed(model: sw.DynamicModel, image: np.ndarray) -> float:
    """Return the milliseconds of one call."""
    start = time.perf_counter()
    model(image)
    return 1e3 * (time.perf_counter() - start)


def visits(model: sw.DynamicModel, shapes: list[tuple[int, ...]]) -> list[dict[str, Any]]:
    """Return the times of each shape: first visit, second visit, and steady runs."""
    rng = np.random.default_rng(0)
    images = [rng.standard_normal(shape, np.float32) for shape in shapes]
    rows: list[dict[str, Any]] = []
    for shape, image in zip(shapes, images, strict=True):
        row = {"shape": shape, "first_ms": timed(model, image)}
        rows.append({**row, "resident_nbytes": resident_nbytes()})
    for row, image in zip(rows, images, strict=True):
        row["second_ms"] = timed(model, image)
        row["steady_ms"] = median(timed(model, image) for _ in range(_STEADY))
    return rows


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Return all figures."""
    rng = np.random.default_rng(1)
    sizes = {(1, 3, options.size, options.size)}
    while len(sizes) < options.shapes:
        sides = 32 * rng.integers(2, options.size // 32 + 1, 2)
        sizes.add((int(rng.integers(1, 5)), 3, *map(int, sides)))
    graph = sw.zoo.build(options.model, batch=1)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        sw.save(graph, path)
        model = sw.compile(
            path,
            shapes={graph.inputs[0]: ("N", 3, "H", "W")},
            tune=options.tune,
            threads=options.threads,
            max_programs=options.programs,
        )
    assert isinstance(model, sw.DynamicModel)
    rows = visits(model, sorted(sizes))
    info = model.programs
    return {
        "model": options.model,
        "machine": asdict(model.plan.machine),
        "memory": asdict(model.memory),
        "misses": info.misses,
        "hits": info.hits,
        "evictions": info.evictions,
        "shapes": rows,
    }


def main() -> None:
    """Parse the command line and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="resnet50", help="a name of stridewise.zoo")
    parser.add_argument("--shapes", type=int, default=50)
    parser.add_argument("--programs", type=int, default=50)
    parser.add_argument("--size", type=int, default=224, help="the largest height and width")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tune", choices=("auto", "measure", "model"), default="measure")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measured(options)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for row in found.pop("shapes"):
        shape = "x".join(map(str, row["shape"]))
        print(
            f"{shape:>16}  first {row['first_ms']:9.1f} ms  second {row['second_ms']:8.2f} ms  "
            f"steady {row['steady_ms']:8.2f} ms  resident {row['resident_nbytes'] >> 20} MiB"
        )
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
