"""Time of planning: generated networks of 100, 1,000 and 10,000 nodes, and ResNet-50.

Run it on a quiet machine::

    .venv/bin/python benchmarks/planning.py

Costs are those of the roofline model, so they are known at once and what is timed is planning
itself: derivation, enumeration of candidates with their costs, and the exact solution of the
problem. Nodes are planned as they are generated, without fusion. ``make_plans`` is timed as a
whole, too; it solves the problem of all formats and those of one format each. Every stage is run
several times; medians count. Raw samples go to ``benchmarks/results/planning.json``, the table made
of them to ``planning.md`` beside it.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.progress import track

import stridewise as sw
from stridewise.graph import Graph
from stridewise.ops import GraphBuilder
from stridewise.ops.geometry import user_format
from stridewise.passes import passes_for, simplify
from stridewise.planner import derive
from stridewise.planner.problem.candidates import Candidates, enumerate_candidates
from stridewise.planner.solver.problem import Choice, Problem, Stored
from stridewise.planner.solver.solve import solve
from stridewise.planning import make_plans
from stridewise.runtime.machine.machine import this_machine
from stridewise.targets.cost import Roofline
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import ABILITY, onednn_cpu
from stridewise.tensor import Storage

THREADS = 2
SIZES = (100, 1000, 10000)
CHANNELS = (16, 24, 32, 40, 64, 96, 128)
RESULTS = Path(__file__).parent / "results" / "planning.json"
TABLE = RESULTS.with_suffix(".md")
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"

# What the networks are planned for is fixed, so that figures of all machines are of one problem.
PLANNED_FOR = Machine("any", "AVX512_CORE", THREADS, "roofline")
TARGET = onednn_cpu(PLANNED_FOR)
ORACLE = Roofline(2e11, 4e10, TARGET.efficiency)


class Network(GraphBuilder):
    """A builder of networks: convolutions of random widths, all images of one size."""

    def __init__(self, name: str, nodes: int) -> None:
        """Start a network with approximately ``nodes`` nodes."""
        super().__init__(name)
        self.wanted, self.made = nodes, 0
        self.rng = np.random.default_rng(nodes)
        self.x = self.input("x", (1, 16, 28, 28))
        self._weights: dict[tuple[int, ...], str] = {}

    @property
    def left(self) -> int:
        """The number of nodes that are still to be added."""
        return self.wanted - self.made

    def node(self, op: str, *inputs: str, **attrs: int | tuple[int, ...]) -> str:
        """Add a node."""
        self.made += 1
        return self.op(op, inputs, attrs, name=f"{op}{self.made}")

    def width(self, x: str) -> int:
        """Return the number of channels of a value."""
        return self.type(x).shape[1]

    def conv(self, x: str, channels: int | None = None, kernel: int = 3) -> str:
        """Add a convolution; weights of the same shape are shared, as 10,000 of them are large."""
        width = int(self.rng.choice(CHANNELS)) if channels is None else channels
        shape = (width, self.width(x), kernel, kernel)
        if shape not in self._weights:
            self._weights[shape] = self.constant(np.zeros(shape, np.float32), "weights")
        return self.node("conv", x, self._weights[shape], pads=(kernel // 2,) * 4)

    def layer(self, x: str, channels: int | None = None) -> str:
        """Add a convolution and an activation."""
        return self.node("relu", self.conv(x, channels))


def chain(nodes: int) -> Graph:
    """Return a chain of convolutions and activations."""
    b = Network("chain", nodes)
    y = b.x
    while b.left > 0:
        y = b.layer(y)
    return b.build([y])


def dense(nodes: int, layers: int = 12, growth: int = 16) -> Graph:
    """Return blocks in which each layer reads all previous layers, as in DenseNet."""
    b = Network("dense", nodes)
    y = b.x
    while b.left > 0:
        pieces = [y]
        for _ in range(layers):
            y = b.node("concat", *pieces, axis=1) if len(pieces) > 1 else pieces[0]
            y = b.node("relu", b.conv(y, 4 * growth, kernel=1))
            pieces.append(b.conv(y, growth))
        y = b.node("concat", *pieces, axis=1)
        y = b.conv(y, 2 * growth, kernel=1)
        y = b.node("avg_pool", y, kernel=(3, 3), pads=(1, 1, 1, 1))
    return b.build([y])


def unet(nodes: int) -> Graph:
    """Return one network whose second half reads the first half in reverse, as in U-Net."""
    b = Network("unet", nodes)
    y = b.x
    skips: list[str] = []
    while b.made < nodes // 2:
        y = b.layer(y)
        skips.append(y)
        y = b.layer(y)
    for skip in reversed(skips):
        y = b.layer(b.node("concat", y, skip, axis=1))
    return b.build([y])


def series_parallel(nodes: int) -> Graph:
    """Return branches in branches at random, joined by sums and concatenations."""
    b = Network("series-parallel", nodes)

    def part(x: str, size: int) -> str:
        if size <= 3:
            return b.layer(x)
        first = int(b.rng.integers(1, size - 1))
        if b.rng.random() < 0.5:
            return part(part(x, first), size - first)
        left, right = part(x, first), part(x, size - first - 1)
        if b.rng.random() < 0.3:
            y = b.node("concat", left, right, axis=1)
            return b.conv(y, 64, kernel=1)
        if b.width(left) != b.width(right):
            right = b.conv(right, b.width(left), kernel=1)
        return b.node("add", left, right)

    y = b.x
    while b.left > 0:
        y = part(y, min(b.left, 500))
    return b.build([y])


NETWORKS: dict[str, Callable[[int], Graph]] = {
    "chain": chain,
    "DenseNet-like": dense,
    "U-Net-like": unet,
    "series-parallel": series_parallel,
}


@dataclass
class Result:
    """Samples in nanoseconds, by stage."""

    network: str
    nodes: int
    gap: float = 0.0
    reorders: int = 0
    samples: dict[str, list[int]] = field(default_factory=dict)

    def seconds(self, stage: str) -> float:
        """Return the median time of a stage."""
        return median(self.samples[stage]) / 1e9


def run(name: str, graph: Graph, rounds: int) -> Result:
    """Plan a graph several times and record the time of each stage."""
    result = Result(name, len(graph.nodes))

    def timed(stage: str, work: Callable[..., Any], *args: object) -> Any:
        gc.collect()
        start = time.perf_counter_ns()
        found = work(*args)
        result.samples.setdefault(stage, []).append(time.perf_counter_ns() - start)
        return found

    for _ in range(rounds):
        derived = timed("derive", derive, graph)
        found = timed("enumerate", enumerate_candidates, derived.graph, TARGET, ORACLE)
        solution = timed("solve", solve, problem_of(derived.graph, found))
        plan, *_ = timed("plan", make_plans, derived, TARGET, PLANNED_FOR, ORACLE)
        if abs(plan.cost_ns - solution.cost) > 1e-9 * plan.cost_ns:
            raise SystemExit(f"{name}: the plan is not the solution of its problem")
        result.gap, result.reorders = plan.gap, len(plan.reorders)
    return result


def problem_of(graph: Graph, candidates: Candidates) -> Problem:
    """Return the problem that the planner solves for a graph."""
    key = candidates.storages.key

    def stored(names: Sequence[str], ways: Sequence[Storage | None]) -> frozenset[Stored]:
        pairs = zip(names, ways, strict=True)
        return frozenset((name, key(name, way)) for name, way in pairs if way is not None)

    def own(name: str) -> frozenset[str]:
        return frozenset({key(name, user_format(graph.values[name]))})

    nodes = {
        node.name: tuple(
            Choice(
                candidate.cost_ns,
                stored(node.inputs, candidate.option.needs),
                stored(node.outputs, candidate.option.makes),
            )
            for candidate in candidates.nodes[node.name]
        )
        for node in graph.nodes
    }
    costs = {move: cost.cost_ns for move, cost in candidates.reorders.items()}
    given = {name: own(name) for name in graph.inputs}
    return Problem(nodes, costs, given, {name: own(name) for name in graph.outputs})


def light_model(name: str) -> Graph:
    """Return one of the light models of the onnx package, simplified."""
    return simplify(sw.load(LIGHT / f"light_{name}.onnx"), passes_for(ABILITY)).graph


def table(results: Sequence[Result]) -> list[str]:
    """Return the Markdown table of all networks."""
    heads = ["network", "nodes", "derive", "enumerate", "solve", "make_plans", "total"]
    heads += ["us a node", "gap", "reorders"]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for result in results:
        stages = [result.seconds(stage) for stage in ("derive", "enumerate", "solve", "plan")]
        total = result.seconds("derive") + result.seconds("plan")
        cells = [result.network, f"{result.nodes:,}", *(f"{stage:.3f}" for stage in stages)]
        cells += [f"**{total:.3f}**", f"{1e6 * total / result.nodes:.0f}"]
        cells += ["0" if result.gap == 0 else f"{result.gap:.1e}", str(result.reorders)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def report(results: Sequence[Result]) -> str:
    """Return the document of the table."""
    return "\n".join(
        [
            "# Planning",
            "",
            f"Made by `benchmarks/planning.py` on {this_machine(THREADS)};",
            "planning itself runs on one thread. Seconds, medians; costs from the roofline model.",
            "`make_plans` enumerates, and solves four problems: all formats together, and one",
            "format at a time. The total is that of derivation and `make_plans`. A gap of 0 is a",
            "proof that no plan is cheaper by these costs.",
            "",
            *table(results),
            "",
        ]
    )


def main() -> None:
    """Plan, save and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=NETWORKS, help="one sort of network, not saved")
    parser.add_argument("--most", type=int, help="up to so many nodes, not saved")
    options = parser.parse_args()
    todo = [
        (name, size)
        for name in NETWORKS
        for size in SIZES
        if options.only in (None, name) and size <= (options.most or SIZES[-1])
    ]
    results = [run("ResNet-50", light_model("resnet50"), options.rounds)]
    for name, size in track(todo, "networks", console=Console(stderr=True), transient=True):
        results.append(run(name, NETWORKS[name](size), options.rounds))
    text = report(results)
    if options.only is None and options.most is None:
        document = {
            "date": date.today().isoformat(),
            "machine": asdict(this_machine(THREADS)),
            "python": platform.python_version(),
            "results": [asdict(result) for result in results],
        }
        RESULTS.write_text(json.dumps(document) + "\n")
        TABLE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
