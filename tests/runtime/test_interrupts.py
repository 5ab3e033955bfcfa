"""Ctrl-C at any time: what was being done ends, and everything works afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

_PATIENCE_S = 240.0

COMMON = """
import logging, signal, sys, time
import numpy as np
import stridewise as sw
from stridewise.runtime.simulation.reference import run_reference

# Processes in the background of a shell inherit that SIGINT is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
logging.basicConfig(level=logging.WARNING)

rng = np.random.default_rng(0)
b = sw.GraphBuilder("net")
y = b.input("x", (1, 8, 24, 24))
for _ in range(4):
    w = b.constant(rng.normal(0, 0.1, (8, 8, 3, 3)).astype(np.float32), "w")
    y = b.op("relu", [b.op("conv", [y, w], {"pads": (1,) * 4})])
graph = b.build([b.op("tanh", [y])])
x = rng.normal(size=(1, 8, 24, 24)).astype(np.float32)
expected = next(iter(run_reference(graph, {"x": x}).values()))

def right(model):
    return np.abs(model(x) - expected).max() < 1e-5

def say(*words):
    print(*words, flush=True)
"""


def interrupted(code: str, times: int, seconds: float = 0.05) -> list[str]:
    """Run code, send SIGINT whenever it says that it is ready, and return what else it says."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMON + textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    sent = 0
    lost = False
    # What hangs is killed, and fails by its status.
    watch = threading.Timer(_PATIENCE_S, process.kill)
    watch.start()
    try:
        for line in process.stdout:
            if line.strip() == "ready":
                if sent < times:
                    time.sleep(seconds * (sent % 3) / 2)
                    process.send_signal(signal.SIGINT)
                    sent += 1
            elif line.startswith("Exception ignored in"):
                lost = True  # Python itself loses what comes in a callback of a weak reference
            elif lost:
                if line.startswith("KeyboardInterrupt"):
                    process.send_signal(signal.SIGINT)
                    lost = False
            else:
                lines.append(line.strip())
        assert process.wait(60) == 0, lines
    finally:
        watch.cancel()
        process.kill()
        process.communicate()
    return lines


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.3])
def test_interrupted_tuning(tmp_path: Path, seconds: float) -> None:
    lines = interrupted(
        f"""
        from pathlib import Path
        folder = {str(tmp_path)!r}
        count = 0
        for turn in range(3):
            try:
                say("ready")
                sw.compile(graph, threads=1, cache_dir=folder)
                time.sleep(60)  # the interrupt may come late
                say("done before")
            except KeyboardInterrupt:
                say("interrupted")
        model = sw.compile(graph, threads=1, cache_dir=folder)
        again = sw.compile(graph, threads=1, cache_dir=folder, progress=lambda *_: say("measures"))
        say(right(model), right(again))
        """,
        3,
        seconds,
    )
    assert lines == ["interrupted"] * 3 + ["True True"]


def test_interrupted_runs() -> None:
    lines = interrupted(
        """
        model = sw.compile(graph, tune="model", threads=2)
        steady = model(x)
        for turn in range(10):
            try:
                say("ready")
                while True:
                    model(x)
                    model.step_times([x], 1)
                    model.trace({"x": x}, lambda *_: None)
            except KeyboardInterrupt:
                if not np.array_equal(model(x), steady):
                    say("wrong after", turn)
        say(right(model), model._native.program.context_count)
        """,
        10,
    )
    assert lines == ["True 1"]


def test_interrupted_requests() -> None:
    lines = interrupted(
        """
        import itertools
        model = sw.compile(graph, tune="model", threads=2, streams=2)
        steady = model(x)
        for turn in range(10):
            try:
                say("ready")
                for _ in model.map(itertools.repeat(x)):
                    model(x)
                    model.submit(x)
            except KeyboardInterrupt:
                if not all(np.array_equal(y, steady) for y in model.map([x] * 4)):
                    say("wrong after", turn)
        model.close(cancel=True)
        say(right(model), model._native.program.context_count <= 2)
        """,
        10,
    )
    assert lines == ["True True"]


def test_interrupted_compilation_and_reorders() -> None:
    lines = interrupted(
        """
        a = rng.normal(size=(1, 64, 128, 128)).astype(np.float32)
        moved = a.transpose(0, 2, 3, 1)
        for turn in range(6):
            try:
                say("ready")
                while True:
                    sw.compile(graph, tune="model", threads=1)
                    sw.reorder(a, "NCHW", "NHWC", threads=1, engine="cached")
            except KeyboardInterrupt:
                found = sw.reorder(a, "NCHW", "NHWC", threads=1, engine="cached")
                if not np.array_equal(found, moved):
                    say("wrong after", turn)
        say(right(sw.compile(graph, tune="model", threads=1)))
        """,
        6,
    )
    assert lines == ["True"]


def test_an_import_that_was_interrupted() -> None:
    """Python may leave its lock of imports with the main thread for ever."""
    lines = interrupted(
        """
        import _imp
        _imp.acquire_lock()
        say(right(sw.compile(graph, tune="model", threads=2)))
        """,
        0,
    )
    assert lines == ["True"]


def test_an_interrupt_is_deferred() -> None:
    lines = interrupted(
        """
        from stridewise.interrupts import Deferred
        try:
            with Deferred(), Deferred():
                signal.raise_signal(signal.SIGINT)
                say("done")
            say("not interrupted")
        except KeyboardInterrupt:
            say("interrupted")
        """,
        0,
    )
    assert lines == ["done", "interrupted"]
