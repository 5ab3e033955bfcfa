"""Rounding errors of Winograd convolution: whole networks, and layers with difficult values.

It measures no times, so it can run on any machine::

    .venv/bin/python benchmarks/winograd_accuracy.py

The networks are those of the zoo whose plans have such layers. They run with ``accuracy="fast"``
and ``"exact"`` and are compared with the NumPy reference, which sums in double precision and rounds
once per layer. Layers are compared with double precision. Tables are written to
``benchmarks/results``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import stridewise as sw
from stridewise.ops import evaluate
from stridewise.runtime.simulation.reference import run_reference

RESULTS = Path(__file__).parent / "results" / "winograd_accuracy.md"
TILES = (2, 4, 6)
Array = np.ndarray[Any, np.dtype[Any]]
Rng = np.random.Generator

SIZES = {"unet": {"size": 96}, "fcn_resnet50": {"size": 96}, "deeplabv3_resnet50": {"size": 96}}
"""Image sizes that limit the time of the reference for large networks."""


def errors(found: Array, expected: Array) -> tuple[float, float]:
    """Return the relative error by norm, and the largest error relative to the largest value."""
    difference = found.astype(np.float64) - expected
    size = float(np.abs(expected).max()) or 1.0
    by_norm = float(np.linalg.norm(difference) / (np.linalg.norm(expected) or 1.0))
    return by_norm, float(np.abs(difference).max()) / size


def network(name: str) -> str | None:
    """Return the line of a network, or None if it has no Winograd layers."""
    graph = sw.zoo.build(name, **SIZES.get(name, {}))
    fast = sw.compile(graph, tune="model")
    weights = fast.plan.winograd_weights
    if not weights.nodes:
        return None
    exact = sw.compile(graph, tune="model", accuracy="exact")
    rng = np.random.default_rng(0)
    feeds = {x: rng.normal(size=graph.value(x).shape).astype(np.float32) for x in graph.inputs}
    expected = run_reference(graph, feeds)
    worst: list[float] = []
    for model in (exact, fast):
        found = model.run(feeds)
        pairs = [errors(found[key], expected[key]) for key in expected]
        worst += [max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)]
    cells = [name, str(weights.nodes), *(f"{value:.1e}" for value in worst)]
    return "| " + " | ".join(cells) + " |"


def _plain(rng: Rng, w: Array, x: Array) -> tuple[Array, Array]:
    del rng
    return w, x


def _outlier_taps(rng: Rng, w: Array, x: Array) -> tuple[Array, Array]:
    return np.where(rng.random(w.shape) < 1e-3, 100 * w, w), x


def _outlier_channels(rng: Rng, w: Array, x: Array) -> tuple[Array, Array]:
    return w, x * np.where(rng.random((1, x.shape[1], 1, 1)) < 0.05, 100.0, 1.0)


def _heavy_tails(rng: Rng, w: Array, x: Array) -> tuple[Array, Array]:
    return rng.standard_t(2, w.shape) / np.sqrt(9 * w.shape[1]), x


def _offset(rng: Rng, w: Array, x: Array) -> tuple[Array, Array]:
    del rng
    return w, x + 30


def _canceling(rng: Rng, w: Array, x: Array) -> tuple[Array, Array]:
    del rng
    return w - w.mean((2, 3), keepdims=True), x + 30


LAYERS: dict[str, Callable[[Rng, Array, Array], tuple[Array, Array]]] = {
    "normal weights and activations": _plain,
    "one tap of a thousand 100 times larger": _outlier_taps,
    "one channel of twenty 100 times larger": _outlier_channels,
    "weights by Student's t, two degrees": _heavy_tails,
    "activations around 30": _offset,
    "the same, taps that cancel": _canceling,
}


def layer(name: str, channels: int) -> str:
    """Return the line of a layer: errors of direct convolution and of all tile sizes."""
    rng = np.random.default_rng(1)
    w = rng.normal(0, 1 / np.sqrt(9 * channels), (channels, channels, 3, 3))
    x = rng.normal(size=(1, channels, 30, 30))
    w, x = (array.astype(np.float32) for array in LAYERS[name](rng, w, x))
    b = sw.GraphBuilder()
    y = b.op("conv", [b.input("x", x.shape), b.constant(w, "w")], {"pads": (1,) * 4}, name="conv")
    graph = b.build(outputs=[y])
    doubles = [x.astype(np.float64), w.astype(np.float64)]
    (expected,) = evaluate(graph.nodes[0], doubles)
    cells = [f"{name}, {channels} channels"]
    for model in ways(graph, channels):
        cells += [f"{value:.1e}" for value in errors(model(x), expected)]
    return "| " + " | ".join(cells) + " |"


def ways(graph: sw.Graph, channels: int) -> Iterator[sw.CompiledModel]:
    """Yield the models that compute the layer directly, and with each tile size."""
    yield sw.compile(graph, tune="model", accuracy="exact")
    for tile in TILES:
        limit = 4 * (tile + 2) ** 2 * channels**2  # excludes the weights of larger tiles
        model = sw.compile(graph, tune="model", weight_memory_limit=limit)
        assert f"F({tile}x{tile})" in model.plan.decisions[0].chosen.algorithm
        yield model


def main() -> None:
    """Compute, save and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", help="part of a network's name; nothing is saved")
    options = parser.parse_args()
    lines = [
        "| network | Winograd layers | exact, norm | exact, largest | fast, norm | fast, largest |",
        "|---|---|---|---|---|---|",
    ]
    for name in sw.zoo.models():
        found = network(name) if not options.only or options.only in name else None
        if found is not None:
            lines.append(found)
            print(found, flush=True)
    columns = [
        f"{way}, {what}"
        for way in ("direct", *(f"F({tile}x{tile})" for tile in TILES))
        for what in ("norm", "largest")
    ]
    lines += ["", "| layer | " + " | ".join(columns) + " |", "|" + "---|" * (1 + len(columns))]
    for name in LAYERS:
        lines += [layer(name, channels) for channels in (64, 512)]
        print(*lines[-2:], sep="\n", flush=True)
    if not options.only:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
