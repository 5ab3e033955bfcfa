"""Second starts: a model that an earlier process compiled and stored computes what it did there.

Each start is a process of its own. The two compile the models in opposite orders, so that the state
that a process keeps from one model to the next differs between them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import stridewise as sw
from stridewise import zoo
from stridewise.graph import Graph

SIZES = {"inception_v3": 96, "resnet50_fpn": 64, "alexnet": 80, "unet": 32}
"""Pixels a side; 33 elsewhere, which leaves odd images inside."""

START = """
import json, sys
import numpy as np
import stridewise as sw

folder, result, threads, *names = sys.argv[1:]
stored = []
outputs = {}
for name in names:
    model = sw.compile(f"{folder}/{name}.onnx", threads=int(threads), cache_dir=folder)
    stored += [name] if model.source.from_disk else []
    inputs = np.load(f"{folder}/{name}.npz")
    for key, value in model.run(dict(inputs)).items():
        outputs[f"{name}/{key}"] = value
np.savez(result, **outputs)
print(json.dumps(stored))
"""


def gates(channels: int, groups: int = 1) -> Graph:
    """Return squeeze-and-excite gates: products with images of 1x1, in odd and even channels."""
    b = sw.GraphBuilder("gates")
    y = x = b.input("x", (1, channels, 7, 5))
    for squeezed in (8, channels, 13):
        gate = b.global_avg_pool(y)
        gate = b.relu(b.conv2d(gate, squeezed, 1))
        gate = b.sigmoid(b.conv2d(gate, channels, 1, groups=groups if squeezed == channels else 1))
        y = b.mul(b.conv2d(y, channels, 3, padding=1), gate)
    return b.build([b.add(x, y)])


def narrow(height: int, width: int) -> Graph:
    """Return convolutions on images with axes of extent 1, and of one channel."""
    b = sw.GraphBuilder("narrow")
    y = b.input("x", (1, 1, height, width))
    for channels in (16, 24, 1, 16):
        y = b.sigmoid(b.conv2d(y, channels, 1))
    return b.build([y, b.conv2d(y, 32, 1)])


def attention() -> Graph:
    """Return split attention: a softmax over branches, of products with images of 1x1."""
    b = sw.GraphBuilder("attention")
    x = b.input("x", (1, 32, 6, 6))
    branches = [b.relu(b.conv2d(x, 32, kernel, padding=kernel // 2)) for kernel in (3, 5)]
    pooled = b.global_avg_pool(b.add(*branches))
    hidden = b.relu(b.conv2d(pooled, 8, 1))
    scores = b.concat([b.conv2d(hidden, 32, 1) for _ in branches])
    weights = b.softmax(b.op("reshape", [scores], {"shape": (1, 2, 32, 1, 1)}), axis=1)
    stacked = b.op("reshape", [b.concat(branches)], {"shape": (1, 2, 32, 6, 6)})
    mixed = b.op("mul", [stacked, weights])
    return b.build([b.op("reshape", [mixed], {"shape": (1, 64, 6, 6)})])


SMALL: dict[str, Callable[[], Graph]] = {
    "gates32": lambda: gates(32),
    "gates40": lambda: gates(40, 2),
    "gates17": lambda: gates(17),
    "narrow1x1": lambda: narrow(1, 1),
    "narrow1x9": lambda: narrow(1, 9),
    "narrow9x1": lambda: narrow(9, 1),
    "attention": attention,
}


def saved(name: str, folder: Path) -> None:
    sizes = {} if name in SMALL else {"size": SIZES.get(name, 33)}
    if name == "resnet3d_18":
        sizes = {"size": 17, "frames": 2}
    graph = SMALL[name]() if name in SMALL else zoo.build(name, **sizes)
    sw.save(graph, folder / f"{name}.onnx")
    rng = np.random.default_rng(0)
    inputs = {x: rng.standard_normal(graph.values[x].shape, np.float32) for x in graph.inputs}
    np.savez(folder / f"{name}.npz", **inputs)


def started(folder: Path, result: str, threads: int, names: list[str]) -> list[str]:
    """Compile and run models in a new process, and return those that came from the store."""
    done = subprocess.run(
        [sys.executable, "-c", START, str(folder), str(folder / result), str(threads), *names],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


GROUPS = (
    [*SMALL],
    ["mobilenet_v3_large", "shufflenet_v2", "squeezenet1_1", "mobilenet_v2"],
    ["efficientnet_b0", "regnet_y_400mf", "resnet18", "resnet3d_18", "unet"],
    ["convnext_tiny", "densenet121", "inception_v3", "alexnet"],
    ["fcn_resnet50", "resnet50", "resnet50_fpn", "deeplabv3_resnet50"],
    ["resnext101_32x8d", "vgg16"],
)


def test_all_networks_are_there() -> None:
    assert sorted(chain(*GROUPS)) == sorted([*SMALL, *zoo.models()])


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[-1])
def test_second_starts_are_as_right_as_first_ones(names: list[str], tmp_path: Path) -> None:
    for name in names:
        saved(name, tmp_path)
    time.sleep(2.1)  # files that changed just now are not kept
    threads = 2 if names[0] in SMALL else 1  # with one, large networks are measured sooner
    assert started(tmp_path, "first.npz", threads, names) == []
    assert started(tmp_path, "second.npz", threads, names[::-1]) == names[::-1]
    first, second = np.load(tmp_path / "first.npz"), np.load(tmp_path / "second.npz")
    for name in names:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(tmp_path / f"{name}.onnx", options, ["CPUExecutionProvider"])
        wanted = session.run(None, dict(np.load(tmp_path / f"{name}.npz")))
        for output, expected in zip(session.get_outputs(), wanted, strict=True):
            key = f"{name}/{output.name}"
            before, after = (error(found[key], expected) for found in (first, second))
            assert before < 1e-4, key
            assert after <= 3 * before + 1e-6, key
            assert np.array_equal(first[key], second[key]), key
