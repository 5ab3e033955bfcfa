"""Under load: threads, models that come and go, and memory that stays flat."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import stridewise as sw
from stridewise.graph import Graph

from .graphs import Net, inputs_of

RUNS, CYCLES = 2000, 50


def network(channels: int = 17, size: int = 9) -> Graph:
    """Return a residual block with a head: several formats, packed weights, work in place."""
    b = Net(2, 3, size, size)
    y = b.op("relu", [b.conv(b.x, channels, 3)])
    y = b.op("relu", [b.op("add", [b.conv(b.conv(y, channels, 3), channels), y])])
    y = b.op("reduce_mean", [y], {"axes": (2, 3), "keepdims": 0})
    return b.build([b.op("matmul", [y, b.data(channels, 10)])])


def compiled(graph: Graph, threads: int = 1) -> sw.CompiledModel:
    return sw.compile(graph, tune="model", threads=threads)


class Work:
    """Threads that do something again and again and keep what went wrong."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.errors: list[BaseException] = []
        self.turns = 0
        self._threads: list[threading.Thread] = []

    def start(self, action: Callable[[], object]) -> None:
        def loop() -> None:
            try:
                while not self.stop.is_set():
                    action()
                    self.turns += 1
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=loop)
        self._threads.append(thread)
        thread.start()

    def end(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(600)
            assert not thread.is_alive()
        assert self.errors == []


def same(model: sw.CompiledModel, x: np.ndarray, expected: np.ndarray) -> None:
    found = model(x)
    assert isinstance(found, np.ndarray)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("threads", [1, 2])
def test_many_threads_on_one_model(threads: int) -> None:
    model = compiled(network(), threads)
    inputs = [inputs_of(network(), seed)["x"] for seed in range(8)]
    expected = [model(x) for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for found, right in zip(pool.map(model, inputs), expected, strict=True):
                assert found.tobytes() == right.tobytes()
    assert model._native.program.context_count == 1


def test_many_models_compiled_and_destroyed_while_others_run() -> None:
    x = inputs_of(network())["x"]
    graphs = [network(channels) for channels in (3, 8, 16, 17)]
    steady = [compiled(graph) for graph in graphs]
    # Plans, and so bits, may depend on the number of threads.
    answers = {threads: [compiled(graph, threads)(x) for graph in graphs] for threads in (1, 2)}
    work = Work()
    for model, answer in zip(steady, answers[1], strict=True):
        work.start(lambda model=model, answer=answer: same(model, x, answer))
    try:
        for turn in range(12):
            index = turn % len(graphs)
            # The new model is destroyed while all others run, and while it may still be warm.
            threads = 1 + turn % 2
            same(compiled(graphs[index], threads), x, answers[threads][index])
            if turn % 4 == 3:
                gc.collect()
    finally:
        work.end()
    assert work.turns > len(steady)


def test_a_model_is_destroyed_by_the_last_thread_that_runs_it() -> None:
    graph = network()
    x = inputs_of(graph)["x"]
    answer = compiled(graph)(x)
    for _ in range(5):
        model = compiled(graph)
        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(same, model, x, answer) for _ in range(16)]
            del model
            for item in running:
                item.result(60)


def test_compilation_in_several_threads() -> None:
    graphs = [network(channels) for channels in (3, 8, 17, 24)]
    x = inputs_of(graphs[0])["x"]
    expected = [compiled(graph)(x) for graph in graphs]
    with ThreadPoolExecutor(4) as pool:
        for model, answer in zip(pool.map(compiled, graphs * 3), expected * 3, strict=True):
            same(model, x, answer)


# --- memory ---------------------------------------------------------------------------------------


kept = pytest.mark.skipif(
    "ASAN_OPTIONS" in os.environ, reason="the sanitizer keeps freed memory for a while"
)


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("the system does not tell")


def growth(action: Callable[[], object], times: int) -> int:
    """Return how much memory the second half of many repetitions has added."""
    for _ in range(times // 2):
        action()
    before = resident()
    for _ in range(times // 2):
        action()
    return resident() - before


@kept
def test_memory_stays_flat_over_many_runs() -> None:
    graph = network(size=24)
    x = inputs_of(graph)["x"]
    model = compiled(graph)
    model.step_times([x], 3)
    assert growth(lambda: model(x), RUNS) < 1 << 20


@kept
def test_memory_stays_flat_over_many_models() -> None:
    graph = network(channels=64)
    x = inputs_of(graph)["x"]

    def cycle() -> None:
        compiled(graph)(x)

    assert growth(cycle, CYCLES) < 4 << 20


@kept
def test_memory_stays_flat_over_refused_models() -> None:
    b = sw.GraphBuilder("doubles")
    graph = b.build([b.op("relu", [b.input("x", (1, 3, 8, 8), "float64")])])

    def refuse() -> None:
        with pytest.raises(sw.ModelError):
            sw.compile(graph, target="ascend")

    assert growth(refuse, 200) < 1 << 20
