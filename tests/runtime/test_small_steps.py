"""Small kernels run on one thread, in programs of any number of threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stridewise as sw
from stridewise import GraphBuilder
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.primitives import create
from stridewise.runtime.simulation.reference import run_reference

from .graphs import error, inputs_of

pytestmark = pytest.mark.usefixtures("small_kernels")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_programs_mix_kernels_of_one_and_of_all_threads(threads: int, tmp_path: Path):
    net = GraphBuilder()
    x = net.input("x", (1, 32, 56, 56))
    large = net.conv2d(x, 32, 3, padding=1)
    small = net.conv2d(net.avg_pool2d(large, 8), 16, 3)
    graph = net.build([net.relu(large), net.relu(small)])
    model = sw.compile(graph, threads=threads, tune="model", cache_dir=tmp_path)
    specs = [call.spec for found in model.plan.decisions for call in found.chosen.option.calls]
    made = {(create(spec, "", threads).threads, spec.is_small) for spec in specs}
    assert made == {(threads, False), (1, True)}
    given = inputs_of(graph)
    expected = run_reference(graph, given)
    for _ in range(3):
        found = model.run(given)
        for name in graph.outputs:
            assert error(np.asarray(found[name]), expected[name]) < 1e-5


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 15, 1 << 18, (1 << 18) + 17])
def test_large_copies_and_fills_run_on_all_threads(count: int, threads: int):
    core, nbytes = load_core(), 4 * count
    program = core.Program(nbytes + 8, [], [nbytes], [nbytes, nbytes], threads)
    program.add_copy((0, 0, 4), (2, 0, 0), nbytes)
    program.add_copy((3, 0, 0), (0, 0, 4), nbytes)
    program.add_fill((3, 1, 0), count, 2.5)
    program.freeze()
    program.poison = True
    x = np.random.default_rng(0).random(count, np.float32)
    copied, filled = np.zeros_like(x), np.zeros_like(x)
    program.run([x], [copied, filled])
    np.testing.assert_array_equal(copied, x)
    np.testing.assert_array_equal(filled, np.full_like(x, 2.5))
