"""What a model computes does not depend on what its process did before, nor on another process.

Fresh processes are children of one that has loaded the core and made no kernel yet.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.networks import narrow_networks, networks

import stridewise as sw
from stridewise.graph import Graph

from .graphs import inputs_of
from .test_execute import agree

SERVER = """
import json, os, sys
import numpy.ma
import numpy as np
import stridewise as sw
from stridewise.api import dynamic, plans, restored, stored  # which children would load one by one
from stridewise.frontends.onnx.reading import model
from stridewise.runtime.binding.library import load_core

load_core()
stored._SETTLED_S = -1e9  # models are kept though their files are new

def answer(folder, name, options):
    model = sw.compile(f"{folder}/model.onnx", cache_dir=folder, **options)
    if "plan" not in options:
        model.plan.save(f"{folder}/{name}.plan.json")
    outputs = model.run(dict(np.load(f"{folder}/inputs.npz")))
    np.savez(f"{folder}/{name}.npz", **{str(i): y for i, y in enumerate(outputs.values())})
    return model.source.from_disk

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            print(json.dumps(answer(*json.loads(line))), flush=True)
        except Exception as error:
            print(json.dumps(repr(error)), flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        print(json.dumps(f"status {status}"), flush=True)
"""


class Fresh:
    """Compiles and runs a model, each time in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, name: str, **options: Any) -> tuple[bool, list[np.ndarray]]:
        """Return whether the model was stored, and its outputs."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps([str(self.folder), name, options]) + "\n")
        self._server.stdin.flush()
        stored = json.loads(self._server.stdout.readline())
        assert isinstance(stored, bool), stored
        with np.load(self.folder / f"{name}.npz") as found:
            return stored, [found[str(i)] for i in range(len(found.files))]

    def close(self) -> None:
        self._server.communicate()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Fresh]:
    processes = Fresh(tmp_path)
    yield processes
    processes.close()


def equal(found: list[np.ndarray], wanted: list[np.ndarray]) -> bool:
    pairs = zip(found, wanted, strict=True)
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


SETTINGS = settings(
    max_examples=20,  # each starts up to five processes, which compile and some measure
    suppress_health_check=[
        HealthCheck.too_slow, HealthCheck.differing_executors, HealthCheck.function_scoped_fixture,
    ],
)  # fmt: skip


@SETTINGS
@given(graph=st.one_of(narrow_networks(), networks()), threads=st.integers(1, 8))
def test_a_fresh_process_computes_the_same_as_one_with_a_history(
    fresh: Fresh, graph: Graph, threads: int
) -> None:
    feeds = inputs_of(graph)
    sw.save(graph, fresh.folder / "model.onnx")
    np.savez(fresh.folder / "inputs.npz", **feeds)
    model = sw.compile(fresh.folder / "model.onnx", tune="model", threads=threads)
    assert isinstance(model, sw.CompiledModel)
    agree(graph, model)
    here = list(model.run(feeds).values())
    _, there = fresh.run("there", tune="model", threads=threads)
    assert equal(there, here)


@SETTINGS
@given(graph=st.one_of(narrow_networks(), networks()), threads=st.integers(1, 3))
def test_whatever_a_plan_comes_from_results_are_those_of_the_first_process(
    fresh: Fresh, graph: Graph, threads: int
) -> None:
    """The model's store, a plan file, and costs that the first process measured."""
    feeds = inputs_of(graph)
    sw.save(graph, fresh.folder / "model.onnx")
    np.savez(fresh.folder / "inputs.npz", **feeds)
    _, first = fresh.run("first", threads=threads)
    stored, second = fresh.run("second", threads=threads, verify=False)
    assert equal(second, first)
    if stored:
        again, third = fresh.run("third", threads=threads)
        assert again
        assert equal(third, first)
    stored, planned = fresh.run("planned", threads=threads, plan=f"{fresh.folder}/first.plan.json")
    assert not stored
    assert equal(planned, first)
    stored, searched = fresh.run("searched", threads=threads, store_limit=0)
    assert not stored
    assert equal(searched, first)
