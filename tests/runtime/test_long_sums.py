"""Results that depend on many elements are as exact as those of few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.runtime.graphs import error

import stridewise as sw

SIDE = 384
ATTRS: dict[str, dict[str, Any]] = {
    "reduce_mean": {"axes": (2, 3)},
    "reduce_sum": {"axes": (2, 3)},
    "reduce_sum_square": {"axes": (2, 3)},
    "group_norm": {"groups": 2},
    "instance_norm": {},
    "layer_norm": {"axes": (1, 2, 3)},
}


def wanted(op: str, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    exact = x.astype(np.float64)
    if op == "reduce_sum_square":
        exact = exact**2
    if op.startswith("reduce"):
        return (np.mean if op == "reduce_mean" else np.sum)(exact, axis=(2, 3), keepdims=True)
    groups = {"group_norm": 2, "instance_norm": x.shape[1], "layer_norm": 1}[op]
    rows = exact.reshape(len(x), groups, -1)
    mean, deviation = (f(rows, axis=2, keepdims=True) for f in (np.mean, np.std))
    return ((rows - mean) / np.sqrt(deviation**2 + 1e-5)).reshape(x.shape)


@pytest.mark.parametrize("fmt", ["NCHW", "NHWC"])
@pytest.mark.parametrize("op", ATTRS)
def test_sums_over_large_images(op: str, fmt: str):
    b, rng = sw.GraphBuilder("g"), np.random.default_rng(0)
    x = (5.0 + rng.standard_normal((1, 4, SIDE, SIDE))).astype(np.float32)
    # A convolution gives the axes their meaning; it changes nothing.
    w = np.eye(4, dtype=np.float32).reshape(4, 4, 1, 1)
    y = b.op("conv", [b.input("x", x.shape), b.constant(w)])
    name, attrs = op, ATTRS[op]
    if op == "instance_norm":
        name, attrs = "group_norm", {"groups": 4}
    if "norm" in name:
        attrs = {**attrs, "epsilon": 1e-5}
    graph = b.build([b.op(name, [y], attrs)])
    compiled: Any = sw.compile
    model = compiled(graph, threads=2, tune="model", input_formats={"x": fmt})
    given = x if fmt == "NCHW" else np.ascontiguousarray(np.moveaxis(x, 1, -1))
    (found,) = model.run({"x": given}).values()
    assert error(np.asarray(found, np.float64), wanted(op, x)) <= 1e-6
