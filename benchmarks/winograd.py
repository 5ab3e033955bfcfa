"""Winograd convolution compared with oneDNN's direct convolution, by layer and format.

Run it on a quiet machine::

    .venv/bin/python benchmarks/winograd.py

Every layer is a 3x3 convolution with bias and ReLU. Each round runs every kernel once, in rotating
order, and evicts its weights from the caches first unless ``--warm`` is given. Raw samples are
written to ``benchmarks/results/winograd.json``, the medians to ``winograd.md``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import stridewise as sw
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.primitives import create
from stridewise.targets.kernels import KernelSpec

RESULTS = Path(__file__).parent / "results"
WAYS = ("direct", "winograd F(2x2)", "winograd F(4x4)", "winograd F(6x6)")
KINDS = ("channels-last", "blocked")


@dataclass(frozen=True)
class Layer:
    """A convolution: as many channels in as out, or ``outputs``."""

    images: int
    channels: int
    side: int
    outputs: int = 0

    def __str__(self) -> str:
        outputs = f" to {self.outputs}" if self.outputs else ""
        return f"{self.images} x {self.channels}{outputs}, {self.side}x{self.side}"

    @property
    def flops(self) -> float:
        """Operations of direct convolution."""
        return 18.0 * self.images * self.side**2 * self.channels * (self.outputs or self.channels)


LAYERS = (
    *(Layer(1, 64 << i, 56 >> i) for i in range(4)),
    *(Layer(1, 64 << i, 224 >> i) for i in range(4)),
    Layer(1, 512, 14),
    *(Layer(16, 64 << i, 56 >> i) for i in range(4)),
    Layer(1, 3, 224, 64),
    Layer(1, 128, 28, 32),
    Layer(1, 128, 7, 32),
    Layer(1, 192, 71, 80),
    Layer(1, 448, 8, 384),
)
"""ResNet, VGG, the stage of 14x14, batch 16, and unusual layers: first, DenseNet, Inception."""


@dataclass(frozen=True)
class Result:
    """Samples of one kernel on one layer, in ns."""

    layer: Layer
    kind: str
    way: str
    implementation: str
    samples: tuple[int, ...]

    @property
    def ns(self) -> float:
        """The median."""
        return median(self.samples)


def kernels(layer: Layer, threads: int) -> Iterator[tuple[str, str, KernelSpec]]:
    """Yield format, algorithm and kernel for every way to compute a layer."""
    b = sw.GraphBuilder()
    x = b.input("x", (layer.images, layer.channels, layer.side, layer.side))
    y = b.conv2d(x, filters=layer.outputs or layer.channels, kernel_size=3, padding=1)
    graph = b.build(outputs=[b.op("relu", [y])])
    plan = sw.plan(graph, tune="model", threads=threads)
    chosen = plan.decisions[0]
    for candidate in (chosen.chosen, *chosen.rejected):
        way, _, kind = candidate.algorithm.partition(", ")
        if way in WAYS and kind in KINDS:
            yield kind, way, candidate.option.calls[0].spec


def runner(spec: KernelSpec, threads: int, cold: bool) -> tuple[str, Callable[[], int]]:
    """Return the implementation of a kernel, and a function that runs it and times it in ns."""
    core = load_core()
    kernel = create(spec, "", threads)
    descs = {arg: kernel.arg_desc(arg) for arg in kernel.args}
    rng = np.random.default_rng(0)
    arrays = {
        arg: rng.normal(size=desc.nbytes // 4).astype(np.float32) for arg, desc in descs.items()
    }
    arrays[core.ARG_WEIGHTS] *= 0.01
    constants = [core.Buffer.from_array(arrays[a]) for a in (core.ARG_WEIGHTS, core.ARG_BIAS)]
    source, result = arrays[core.ARG_SRC], arrays[core.ARG_DST]
    program = core.Program(
        kernel.scratchpad_nbytes, constants, [source.nbytes], [result.nbytes], threads
    )
    places = {core.ARG_SRC: (2, 0, 0), core.ARG_DST: (3, 0, 0)}
    places |= {core.ARG_WEIGHTS: (1, 0, 0), core.ARG_BIAS: (1, 1, 0)}
    args: list[Any] = [(arg, descs[arg], *places[arg]) for arg in kernel.args]
    if kernel.scratchpad_nbytes:
        args.append((core.ARG_SCRATCHPAD, kernel.arg_desc(core.ARG_SCRATCHPAD), 0, 0, 0))
    program.add_primitive(kernel, args)
    program.freeze()

    def run() -> int:
        if cold:
            evict()
            warm_up(source)
        return program.profile([source], [result], 1)[0][0]

    program.run([source], [result])
    return kernel.impl, run


_SPARE = np.zeros(1 << 24, np.float32)


def evict() -> None:
    """Evict all data from the caches by reading 64 MiB."""
    _SPARE[::16] += 1


def warm_up(source: Any) -> None:
    """Load the activations into the caches, because the previous layer would have written them."""
    source.sum()


def look_at(layer: Layer, threads: int, rounds: int, cold: bool) -> list[Result]:
    """Return the samples of all kernels of a layer, which run alternately."""
    found = [(kind, way, *runner(s, threads, cold)) for kind, way, s in kernels(layer, threads)]
    samples: list[list[int]] = [[] for _ in found]
    for turn in range(rounds):
        for step in range(len(found)):
            index = (turn + step) % len(found)
            samples[index].append(found[index][3]())
    return [
        Result(layer, kind, way, implementation, tuple(taken))
        for (kind, way, implementation, _), taken in zip(found, samples, strict=True)
    ]


def line(layer: Layer, results: Sequence[Result]) -> str:
    """Return a line of the table: the best direct kernel, and the speed-up of the others."""
    best = min(item.ns for item in results if item.way == "direct")
    cells = [str(layer), f"{best / 1e6:.3f}", f"{layer.flops / best:.0f}"]
    for way in WAYS[1:]:
        for kind in KINDS:
            taken = next((r.ns for r in results if (r.way, r.kind) == (way, kind)), None)
            cells.append("-" if taken is None else f"{best / taken:.2f}")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warm", action="store_true", help="leave weights in the caches")
    parser.add_argument("--layers", type=int, nargs="*", help="numbers of layers; nothing is saved")
    options = parser.parse_args()
    machine = sw.plan(_tiny(), tune="model", threads=options.threads).machine
    heads = ["layer", "direct, ms", "GFLOP/s"]
    heads += [f"{way.removeprefix('winograd ')}, {kind}" for way in WAYS[1:] for kind in KINDS]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    document: dict[str, Any] = {
        "date": date.today().isoformat(), "machine": asdict(machine), "warm": options.warm,
        "results": [],
    }  # fmt: skip
    for layer in [LAYERS[i] for i in options.layers] if options.layers else LAYERS:
        results = look_at(layer, options.threads, options.rounds, not options.warm)
        document["results"] += [asdict(result) for result in results]
        lines.append(line(layer, results))
        print(lines[-1], flush=True)
    if not options.layers:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "winograd.json").write_text(json.dumps(document, indent=1) + "\n")
        text = f"{machine}; {document['date']}\n\nTimes of direct over Winograd convolution:\n\n"
        (RESULTS / "winograd.md").write_text(text + "\n".join(lines) + "\n")


def _tiny() -> sw.Graph:
    b = sw.GraphBuilder()
    return b.build(outputs=[b.op("relu", [b.input("x", (1,))])])


if __name__ == "__main__":
    main()
