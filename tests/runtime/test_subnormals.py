"""Kernels read and write subnormal numbers as zero on every thread; callers keep their own mode."""

from __future__ import annotations

import numpy as np
import pytest

import stridewise as sw

SMALLEST = np.finfo(np.float32).smallest_normal
ROWS = (64, 4096)  # large enough for a region of all threads


def products(threads: int) -> sw.CompiledModel:
    b = sw.GraphBuilder()
    x = b.input("x", ROWS)
    factors = b.constant(np.full((1, ROWS[1]), 0.5, np.float32), "factors")
    weights = b.constant(np.eye(ROWS[1], 8, dtype=np.float32), "weights")
    small = b.op("mul", [x, factors], output="small")
    return sw.compile(
        b.build([small, b.op("matmul", [x, weights], output="y")]), threads=threads, tune="model"
    )


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_subnormal_results_and_operands_are_zero_on_all_threads(threads: int):
    model = products(threads)
    for _ in range(2):
        found = model.run({"x": np.full(ROWS, SMALLEST, np.float32)})
        assert not np.asarray(found["small"]).any()
        np.testing.assert_array_equal(np.asarray(found["y"]), np.float32(SMALLEST))
        assert not np.asarray(model.run({"x": np.full(ROWS, SMALLEST / 2, np.float32)})["y"]).any()


@pytest.mark.parametrize("threads", [1, 2])
def test_callers_keep_their_mode(threads: int):
    model, half = products(threads), np.full(1000, 0.5, np.float32)
    model.run({"x": np.ones(ROWS, np.float32)})
    assert ((half * SMALLEST) > 0).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_reorders_keep_subnormals_that_they_only_move(threads: int):
    x = np.full((1, 32, 64, 64), SMALLEST / 4, np.float32)
    moved = sw.reorder(x, "NCHW", "nChw16c", threads=threads)
    np.testing.assert_array_equal(sw.reorder(moved, "nChw16c", "NCHW", threads=threads), x)
