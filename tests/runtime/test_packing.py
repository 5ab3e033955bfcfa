"""Weights that are packed in parts: the same bytes as of weights that are packed whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stridewise as sw
from stridewise.errors import ModelError
from stridewise.graph import Graph
from stridewise.ops import GraphBuilder
from stridewise.planning import Plan
from stridewise.runtime.binding import packing
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.loading import load, lower_plan

from .graphs import KINDS, THREADS, Net, forced_plan

Array = np.ndarray[Any, np.dtype[Any]]
WHOLE = 1 << 60


def _convolutions() -> Graph:
    """Return convolutions of every sort that has rows to cut, and a scale to fold."""
    b = Net(1, 3, 8, 8)
    y = b.conv(b.x, 200, 3)
    y = b.op("add", [b.op("mul", [y, b.data(1, 200, 1, 1)]), b.data(1, 200, 1, 1)])
    y = b.conv(b.op("relu", [y]), 256, 1)
    y = b.conv(y, 256, 3, groups=2)
    y = b.conv(y, 130, 3, strides=(2, 2))
    w = b.data(130, 160, 3, 3)
    y = b.op("conv_transpose", [y, w, b.data(160)], {"strides": (2, 2)})
    return b.build([b.conv(y, 192, 3)])


def _products() -> Graph:
    b = Net(2, 20, 4, 4)
    flat = b.op("reshape", [b.conv(b.x, 24, 1)], {"shape": (2, 384)})
    results = [
        b.op("matmul", [flat, b.data(384, 1000), b.data(1000)]),
        b.op("matmul", [flat, b.data(300, 384)], {"trans_b": 1}),
        b.op("matmul", [flat, b.data(384, 7)]),
    ]
    return b.build(results)


GRAPHS: dict[str, Callable[[], Graph]] = {"convolutions": _convolutions, "products": _products}


def packed(plan: Plan) -> Array:
    """Return all bytes of the weights of a plan."""
    weights = load(lower_plan(plan)).weights
    return weights.buffers[0].array()[: weights.own_nbytes].copy()


def counted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Count the parts that constants are packed in."""
    parts: list[object] = []
    original = packing.Packing.pack

    def pack(self: packing.Packing, buffer: Any, offset: int, part: Any = None) -> None:
        parts.append(part)
        original(self, buffer, offset, part)

    monkeypatch.setattr(packing.Packing, "pack", pack)
    return parts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GRAPHS)
def test_parts_give_the_same_bytes(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = forced_plan(GRAPHS[name](), kind)
    monkeypatch.setattr(packing, "_PART_NBYTES", WHOLE)
    expected = packed(plan)
    parts = counted(monkeypatch)
    for nbytes in (1, 100_000):
        monkeypatch.setattr(packing, "_PART_NBYTES", nbytes)
        parts.clear()
        assert np.array_equal(packed(plan), expected)
        assert any(part is not None for part in parts)


@pytest.mark.parametrize("threads", [1, THREADS])
def test_parts_of_a_file_give_the_same_bytes(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    sw.save(_convolutions(), path)
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    found: list[tuple[Array, Array]] = []
    for nbytes in (WHOLE, 1):
        monkeypatch.setattr(packing, "_PART_NBYTES", nbytes)
        model = sw.compile(path, tune="model", threads=threads)
        assert isinstance(model, CompiledModel)
        found.append((model.weights.buffers[0].array().copy(), np.asarray(model(x))))
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])


def test_what_a_part_raises_ends_packing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    sw.save(_convolutions(), path)
    plan = sw.plan(path, tune="model", threads=THREADS)
    content = path.read_bytes()
    path.write_bytes(content)  # another process writes into the file
    monkeypatch.setattr(packing, "_PART_NBYTES", 1)
    with pytest.raises(ModelError, match="other content"):
        load(lower_plan(plan))


def test_weights_without_rows_to_cut_are_packed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    b = GraphBuilder("views")
    x = b.input("x", (1, 96, 4, 4))
    w = np.broadcast_to(np.float32(0.5), (192, 96, 1, 1))
    turned = np.arange(192 * 96, dtype=np.float32).reshape(96, 192).T[::-1].reshape(192, 96, 1, 1)
    y = b.op("conv", [x, b.constant(w, "w")])
    plan = forced_plan(b.build([y, b.op("conv", [x, b.constant(turned, "t")])]), "blocked")
    monkeypatch.setattr(packing, "_PART_NBYTES", WHOLE)
    expected = packed(plan)
    monkeypatch.setattr(packing, "_PART_NBYTES", 1)
    assert np.array_equal(packed(plan), expected)


def _winograd(outputs: int, channels: int) -> Any:
    core = load_core()
    src, dst = (core.MemoryDesc((1, n, 6, 6), "f32", "acdb") for n in (channels, outputs))
    return core.Winograd(
        src, dst, False, (1, 1), (1, 1), [], tile=4, lanes=8, threads=1, isa="portable"
    )


@pytest.mark.parametrize(("outputs", "channels"), [(40, 16), (48, 13), (50, 8), (7, 3)])
def test_parts_of_transformed_weights(outputs: int, channels: int) -> None:
    core, kernel = load_core(), _winograd(outputs, channels)
    w = np.random.default_rng(0).standard_normal((outputs, channels, 3, 3)).astype(np.float32)
    nbytes = kernel.arg_desc(core.ARG_WEIGHTS).nbytes
    whole, parts = core.Buffer(nbytes), core.Buffer(nbytes)
    parts.array()[:] = 255
    kernel.pack_into(w, whole, 0)
    for first in range(0, outputs, 16):
        part = w[first : first + 16].copy()
        kernel.pack_into(part, parts, 0, first, len(part))
    assert np.array_equal(whole.array(), parts.array())


@pytest.mark.parametrize(
    ("first", "count", "message"),
    [
        (8, 16, "first: expected a multiple of 16 up to 40, got 8"),
        (48, 0, "first: expected"),
        (-16, 16, "first: expected"),
        (16, 8, "count: expected a multiple of 16, or the 24 outputs that are left, got 8"),
        (16, 32, "count: expected"),
        (16, -16, "count: expected"),
        (16, 16, "array: expected 2304 bytes, got 5760"),
    ],
)
def test_parts_that_are_none_are_refused(first: int, count: int, message: str) -> None:
    kernel = _winograd(40, 4)
    buffer = load_core().Buffer(kernel.arg_desc(load_core().ARG_WEIGHTS).nbytes)
    with pytest.raises(ValueError, match=message):
        kernel.pack_into(np.zeros((40, 4, 3, 3), np.float32), buffer, 0, first, count)
