"""Several requests at once on one model: right, never too many, and gone when the model is."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tests.stream_threads import gone, ours, wait_for_blocked

import stridewise as sw
from stridewise.runtime.binding.library import load_core

from .graphs import inputs_of
from .test_load import network

Array = np.ndarray[Any, np.dtype[Any]]


def compiled(streams: int = 2, **arguments: Any) -> sw.CompiledModel:
    return sw.compile(network(), tune="model", threads=2, streams=streams, **arguments)


def inputs(count: int = 12) -> list[Array]:
    return [inputs_of(network(), seed)["x"] for seed in range(count)]


def same(found: Any, expected: Any) -> bool:
    return found.tobytes() == expected.tobytes()


# --- the gate -------------------------------------------------------------------------------------


class Crowd:
    """Counts how many are inside at the same time."""

    def __init__(self) -> None:
        self.inside = self.most = self.runs = 0
        self._lock = threading.Lock()

    def visit(self, _: object) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.runs += 1
        time.sleep(0.002)
        with self._lock:
            self.inside -= 1


def crowded(crowd: Crowd, gate: Any) -> Any:
    program = load_core().Program(64, [], [], [], 1)
    program.add_host(crowd.visit, [])
    program.freeze()
    program.gate = gate
    return program


@pytest.mark.parametrize("width", [1, 2, 3])
def test_programs_that_share_a_gate_keep_to_its_width(width: int) -> None:
    crowd, gate = Crowd(), load_core().Gate(width)
    programs = [crowded(crowd, gate) for _ in range(2)]
    assert programs[0].gate.width == width
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: programs[i % 2].run([], []), range(40)))
        list(pool.map(lambda i: programs[i % 2].profile([], [], 2), range(8)))
    assert crowd.runs == 56
    assert crowd.most == width
    assert all(program.context_count <= width for program in programs)


def test_errors_leave_the_gate() -> None:
    program = load_core().Program(64, [], [], [], 1)
    program.add_host(lambda _: 1 / 0, [])
    program.freeze()
    program.gate = load_core().Gate(1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            program.run([], [])


def test_requests_run_in_the_order_of_their_arrival() -> None:
    gate, order, crowd = load_core().Gate(1), [], Crowd()
    program = crowded(crowd, gate)
    inside, leave = threading.Event(), threading.Event()
    holder = load_core().Program(64, [], [], [], 1)
    holder.add_host(lambda _: (inside.set(), leave.wait(300)), [])
    holder.freeze()
    holder.gate = gate

    def come(number: int) -> None:
        program.run([], [])
        order.append(number)

    callers = [threading.Thread(target=lambda: holder.run([], []))]
    callers[0].start()
    assert inside.wait(300)
    for number in range(5):
        callers.append(threading.Thread(target=come, args=(number,)))
        callers[-1].start()
        wait_for_blocked(callers[-1], come)
    leave.set()
    for caller in callers:
        caller.join(300)
    assert order == list(range(5))


def test_a_trace_may_run_its_model() -> None:
    model = compiled(1)
    (x,) = inputs(1)
    expected = model(x)
    seen: list[bool] = []
    model.trace({"x": x}, lambda *_: seen.append(same(model(x), expected)))
    assert seen
    assert all(seen)


def test_a_gate_without_width_is_refused() -> None:
    with pytest.raises(ValueError, match="width: expected at least 1, got 0"):
        load_core().Gate(0)


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [1, 2])
def test_every_way_to_ask_gives_the_same(streams: int) -> None:
    model = compiled(streams)
    given = inputs()
    expected = [model(x) for x in given]
    (name,) = model.output_names
    futures = [model.submit(x) for x in given]
    assert all(map(same, model.map(given), expected))
    assert all(map(same, model.map((x,) for x in given), expected))
    named = model.map({"x": x} for x in given)
    assert all(same(found[name], right) for found, right in zip(named, expected, strict=True))
    by_name = [model.submit({"x": x}) for x in given]
    assert all(map(same, (future.result()[name] for future in by_name), expected))
    assert all(map(same, (future.result() for future in futures), expected))
    model.close()


def test_plans_are_made_for_the_threads_of_a_stream() -> None:
    model = compiled()
    assert (model.streams, model.plan.machine.threads) == (2, 1)
    assert (compiled(1).streams, compiled(1).plan.machine.threads) == (1, 2)
    plan = sw.plan(network(), tune="model", threads=1)
    assert compiled(plan=plan).plan.machine.threads == 1


def test_memory_counts_the_arena_of_each_stream() -> None:
    one, two = compiled(1), compiled(2)
    assert (one.memory.streams, two.memory.streams) == (1, 2)
    assert one.memory.arenas == one.memory.arena
    assert two.memory.arenas == 2 * two.memory.arena
    given = inputs()
    with ThreadPoolExecutor(6) as pool:
        for _ in range(4):
            list(pool.map(two, given))
            list(two.map(given))
    assert 1 <= two._native.program.context_count <= 2
    needed = compiled(2, memory_limit=1 << 30).memory.arenas
    with pytest.raises(sw.MemoryLimitError):
        compiled(2, memory_limit=needed // 2)


def test_direct_calls_and_submitted_ones_share_the_streams() -> None:
    model = compiled(2)
    given = inputs()
    expected = [model(x) for x in given]
    errors: list[BaseException] = []

    def call() -> None:
        try:
            for x, right in zip(given * 3, expected * 3, strict=True):
                assert same(model(x), right)
        except BaseException as error:
            errors.append(error)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    assert all(map(same, model.map(given * 3), expected * 3))
    for caller in callers:
        caller.join(300)
    assert errors == []
    assert model._native.program.context_count <= 2


def test_errors_reach_the_future_and_the_model_goes_on() -> None:
    b = sw.GraphBuilder("take")
    data, index = b.input("data", (4, 2)), b.input("index", (3,), "int64")
    graph = b.build([b.op("gather", [data, index], {"axis": 0}, output="y")])
    with sw.compile(graph, tune="model", threads=2, streams=2) as model:
        rows = np.arange(8, dtype=np.float32).reshape(4, 2)
        right, wrong = np.array([3, 0, 1]), np.array([3, 0, 9])
        future = model.submit((rows, wrong))
        with pytest.raises(sw.ExecutionError):
            future.result()
        with pytest.raises(sw.InputError, match="inputs"):
            model.submit(rows).result()
        answers = model.map([(rows, right), (rows, wrong), (rows, right)])
        assert np.array_equal(next(answers), rows[right])
        with pytest.raises(sw.ExecutionError):
            next(answers)
        assert np.array_equal(model.submit((rows, right)).result(), rows[right])
    with pytest.raises(sw.ExecutionError, match="submit: expected an open model"):
        model.submit((rows, right))
    assert np.array_equal(model(rows, right), rows[right])


def test_a_model_that_is_dropped_ends_its_threads() -> None:
    model = compiled()
    kept = weakref.ref(model)
    futures = [model.submit(x) for x in inputs()]
    assert ours() > 0
    del model
    for future in futures:
        assert future.result(60).shape == (2, 10)
    del future, futures
    assert gone()
    assert kept() is None


def test_what_cannot_be() -> None:
    with pytest.raises(sw.InputError, match="streams: expected at most 2, one for each thread"):
        compiled(3)
    with pytest.raises(sw.InputError, match="streams: expected a number from 1 on, found 0"):
        compiled(0)
    with pytest.raises(sw.InputError, match="streams: expected 1, as target ascend is simulated"):
        sw.compile(network(), target="ascend", threads=2, streams=2)


def test_a_simulated_model_takes_requests_too() -> None:
    with sw.compile(network(), target="ascend") as model:
        (x,) = inputs(1)
        assert model.streams == 1
        assert same(model.submit(x).result(), model(x))


# --- processes ------------------------------------------------------------------------------------

_COMMON = """
import os, sys, threading, time
import numpy as np
import stridewise as sw
b = sw.GraphBuilder()
y = b.op("relu", [b.input("x", (1, 64, 32, 32))])
graph = b.build([b.op("tanh", [y])])
x = np.linspace(-1, 1, 64 * 32 * 32, dtype=np.float32).reshape(1, 64, 32, 32)
"""


def said(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _COMMON + code],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_fork_while_others_run() -> None:
    lines = said("""
lone = sw.compile(graph, tune="model", threads=2, streams=2)
wide = sw.compile(graph, tune="model", threads=2)
expected = lone(x).sum()
stop = threading.Event()
def call():
    while not stop.is_set():
        lone(x)
callers = [threading.Thread(target=call) for _ in range(4)]
for caller in callers:
    caller.start()
lone.submit(x).result()
wide.submit(x).result()
for _ in range(10):
    time.sleep(0.01)
    child = os.fork()
    if child == 0:
        right = all(lone(x).sum() == expected for _ in range(4))
        right &= all(y.sum() == expected for y in lone.map([x] * 8))
        right &= wide.submit(x).result().sum() == expected
        os.write(1, f"{right}\\n".encode())
        os._exit(0)
    os.waitpid(child, 0)
stop.set()
for caller in callers:
    caller.join()
""")
    assert lines == ["True"] * 10


def test_the_interpreter_ends_with_requests_waiting() -> None:
    lines = said("""
model = sw.compile(graph, tune="model", threads=2, streams=2)
futures = [model.submit(x) for _ in range(50)]
print("end")
""")
    assert lines == ["end"]
