"""Test of constant memory: many runs of one model, and many models that are created and freed.

    python benchmarks/soak.py --runs 10000 --cycles 200

The script prints the resident memory of the process over time as JSON. The values of the second
half should equal those of the first. Allocators may keep some pages, so differences of a few
hundred KiB are normal.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import stridewise as sw
from stridewise.graph import Graph
from stridewise.ops import GraphBuilder

_POINTS = 8
_ALLOWED = 4 << 20
"""Limit of the increase in the second half, in bytes."""


def network(channels: int = 32, size: int = 28) -> Graph:
    """Return a residual block with a head."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("soak")

    def conv(x: str, inputs: int, kernel: int) -> str:
        w = rng.normal(0, 0.1, (channels, inputs, kernel, kernel)).astype(np.float32)
        return b.op("conv", [x, b.constant(w, "w")], {"pads": (kernel // 2,) * 4})

    y = b.op("relu", [conv(b.input("x", (1, 3, size, size)), 3, 3)])
    y = b.op("relu", [b.op("add", [conv(conv(y, channels, 3), channels, 1), y])])
    y = b.op("reduce_mean", [y], {"axes": (2, 3), "keepdims": 0})
    head = rng.normal(size=(channels, 10)).astype(np.float32)
    return b.build([b.op("matmul", [y, b.constant(head, "head")])])


def resident_nbytes() -> int:
    """Return the resident memory of this process in bytes."""
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) << 10


def watched(action: Callable[[], object], times: int) -> list[int]:
    """Repeat an action and return the memory at a few points after the warm-up."""
    found: list[int] = []
    for _ in range(_POINTS):
        for _ in range(max(times // _POINTS, 1)):
            action()
        found.append(resident_nbytes())
    return found


def main() -> int:
    """Run both series; return 1 if memory has grown."""
    parser = argparse.ArgumentParser(description="Watch the memory of many runs and models.")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    graph = network()
    x = np.ones((1, 3, 28, 28), np.float32)
    model = sw.compile(graph, tune="model", threads=arguments.threads)
    runs = watched(lambda: model(x), arguments.runs)

    def cycle() -> None:
        sw.compile(graph, tune="model", threads=arguments.threads)(x)

    cycles = watched(cycle, arguments.cycles)
    grown = {
        name: points[-1] - points[_POINTS // 2 - 1]
        for name, points in (("runs", runs), ("cycles", cycles))
    }
    report = {
        "runs": arguments.runs,
        "cycles": arguments.cycles,
        "threads": arguments.threads,
        "resident_nbytes": {"runs": runs, "cycles": cycles},
        "grown_in_second_half_nbytes": grown,
    }
    print(json.dumps(report, indent=2))
    return 1 if max(grown.values()) > _ALLOWED else 0


if __name__ == "__main__":
    sys.exit(main())
