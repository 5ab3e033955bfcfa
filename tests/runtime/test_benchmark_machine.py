"""Loops in machine code of the benchmarks: they move the bytes that they say, and no others."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

import stridewise as sw

ROOM = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def assembly(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOM))
    return importlib.import_module("assembly")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOM))
    return importlib.import_module("machine")


def arrays(lines: int, line: int) -> tuple[np.ndarray, np.ndarray, slice]:
    """Two arrays with aligned insides of so many lines, and where these are."""
    nbytes, rng = lines * line, np.random.default_rng(0)
    space = rng.integers(0, 256, (2, nbytes + 4096), np.uint8)
    start = -space.ctypes.data % 64 + 64
    other = -space[1].ctypes.data % 64 + 64
    return space[0, start:], space[1, other:], slice(0, nbytes)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("lines", [1, 2, 7])
def test_copies_copy_just_these_lines(assembly, stream: bool, lines: int):
    source, target, inside = arrays(lines, assembly.LINE)
    before = target.copy()
    assembly.copy(stream)(target.ctypes.data, source.ctypes.data, lines, 2)
    np.testing.assert_array_equal(target[inside], source[inside])
    np.testing.assert_array_equal(target[inside.stop :], before[inside.stop :])


@pytest.mark.parametrize("stream", [False, True])
def test_writes_write_just_these_lines(assembly, stream: bool):
    source, target, inside = arrays(3, assembly.LINE)
    before, untouched = target.copy(), source.copy()
    assembly.write(stream)(target.ctypes.data, source.ctypes.data, 3, 2)
    written = target[inside].reshape(-1, 32)
    assert (written == written[0]).all()
    np.testing.assert_array_equal(target[inside.stop :], before[inside.stop :])
    np.testing.assert_array_equal(source, untouched)


def test_reads_change_nothing(assembly):
    source, target, _ = arrays(3, assembly.LINE)
    before = source.copy(), target.copy()
    assembly.read()(target.ctypes.data, source.ctypes.data, 3, 5)
    np.testing.assert_array_equal(source, before[0])
    np.testing.assert_array_equal(target, before[1])


def test_counts_start_at_one(assembly):
    with pytest.raises(ValueError, match="at least one line"):
        assembly.read()(0, 0, 0, 1)


def test_arithmetic_takes_no_memory_and_time_in_proportion(assembly, machine):
    code = assembly.multiply_add(wide=False)
    assert code.flops == 2 * 8 * 12 * 4

    def taken(passes: int) -> float:
        return min(machine.elapsed([lambda: code(0, 0, 1, passes)]) for _ in range(5))

    assert taken(800_000) > 2 * taken(100_000)


def test_limits_are_consistent(machine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine, "_RUNS", 2)
    monkeypatch.setattr(machine, "_RUN_S", 0.001)
    monkeypatch.setattr(machine, "_MEMORY_CACHES", 1)
    monkeypatch.setattr(machine, "_PRODUCT", 256)
    found = machine.measure([1])
    limits = found.of(1)
    assert limits.peak > 1
    assert [level.name for level in limits.levels][-1] == "memory"
    assert all(rate > 0 for level in limits.levels for rate in level.gbytes_per_s.values())
    assert "| memory, streamed copy, GB/s |" in machine.table(found)
    with pytest.raises(KeyError):
        found.of(3)


def test_operations_of_a_model_do_not_depend_on_the_algorithm(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOM))
    work = importlib.import_module("work")
    graph = sw.zoo.build("resnet18", size=64)
    found = {}
    for accuracy in ("fast", "exact"):
        model = sw.compile(graph, tune="model", threads=1, accuracy=accuracy)
        found[accuracy] = work.works(model.program)
    fast, exact = (
        sum(item.operations for item in steps if item.kind != "moves") for steps in found.values()
    )
    assert fast == exact > 0
    assert any(item.kind == "Winograd" for item in found["fast"])
    assert all(item.executed == item.operations for item in found["exact"])
    # Winograd's products, padding of channels and tiles included, are fewer.
    assert sum(item.executed for item in found["fast"]) < fast
