"""Pooling of images with channels first by rows, then columns: against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.graph import Graph
from stridewise.ops import GraphBuilder
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.simulation.reference import run_reference

SEEDS = st.integers(0, 2**32 - 1)


def pooled(rng: np.random.Generator, op: str, counts: int) -> tuple[Graph, dict[str, Any]]:
    """Return a graph of pooling with a random window, and the core's arguments for it."""
    axes: list[tuple[int, ...]] = []
    for _ in range(2):
        window, dilation, stride = (int(rng.integers(1, most)) for most in (6, 3, 4))
        reach = (window - 1) * dilation
        begin, end = (int(rng.integers(0, window)) for _ in range(2))
        size = int(rng.integers(max(1, reach + 1 - begin - end), 30 + reach))
        axes.append((size, window, stride, dilation, begin, end))
    sizes, windows, strides, dilations, begins, ends = zip(*axes, strict=True)
    attrs: dict[str, Any] = {"kernel": windows, "strides": strides, "pads": (*begins, *ends)}
    attrs |= {"dilations": dilations}
    if op == "avg_pool":
        attrs["count_include_pad"] = counts
    shape = (int(rng.integers(1, 3)), int(rng.integers(1, 4)), *sizes)
    b = GraphBuilder("g")
    graph = b.build([b.op(op, [b.input("x", shape)], attrs, output="y")])
    given_ = {"window": windows, "strides": strides, "dilations": dilations, "begins": begins}
    return graph, given_


def run(algorithm: str, x: np.ndarray[Any, Any], shape: tuple[int, ...], **how: Any) -> Any:
    core = load_core()
    src, dst = (core.MemoryDesc(dims, "f32", "abcd") for dims in (x.shape, shape))
    kernel = core.PlainPooling(algorithm, src, dst, **how)
    found = np.full(shape, np.nan, np.float32)
    program = core.Program(kernel.scratchpad_nbytes, [], [x.nbytes], [found.nbytes], 2)
    scratch = kernel.arg_desc(core.ARG_SCRATCHPAD)
    args = [(core.ARG_SRC, src, 2, 0, 0), (core.ARG_DST, dst, 3, 0, 0)]
    program.add_primitive(kernel, [*args, (core.ARG_SCRATCHPAD, scratch, 0, 0, 0)])
    program.freeze()
    program.run([x], [found])
    return found


@pytest.mark.parametrize("algorithm", ["max", "avg_include", "avg_exclude"])
@given(seed=SEEDS, threads=st.integers(1, 2))
def test_any_window(algorithm, seed, threads):
    rng = np.random.default_rng(seed)
    op = "max_pool" if algorithm == "max" else "avg_pool"
    graph, how = pooled(rng, op, int(algorithm == "avg_include"))
    x = rng.standard_normal(graph.value("x").shape).astype(np.float32)
    if algorithm == "max":
        x[rng.random(x.shape) < 0.02] = np.nan
    expected = run_reference(graph, {"x": x})["y"]
    if algorithm == "avg_exclude" and not np.isfinite(expected).all():
        return  # means of nothing, which the kernel refuses
    found = run(algorithm, x, expected.shape, **how, threads=threads)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "min"}, "expected max, avg_include or avg_exclude"),
        ({"tag": "acdb"}, "dense float32"),
        ({"shape": (1, 3, 8, 8)}, "as many planes"),
        ({"window": (0, 3)}, "positive numbers"),
        ({"strides": (1, 0)}, "positive numbers"),
        ({"begins": (-1, 0)}, "not negative"),
        ({"window": (3,)}, "positive numbers"),
        ({"window": (1 << 19, 3), "dilations": (4, 1)}, "reach no further"),
        ({"algorithm": "avg_exclude", "begins": (7, 0)}, "an element in each window"),
    ],
)
def test_the_core_refuses(changes, message):
    core = load_core()
    usual: dict[str, Any] = {"algorithm": "max", "tag": "abcd", "shape": (1, 2, 8, 8)}
    usual |= {"window": (3, 3), "strides": (1, 1), "dilations": (1, 1), "begins": (1, 1)}
    given_ = usual | changes
    algorithm, tag, shape = (given_.pop(key) for key in ("algorithm", "tag", "shape"))
    src, dst = (core.MemoryDesc(dims, "f32", tag) for dims in ((1, 2, 8, 8), shape))
    with pytest.raises(ValueError, match=message):
        core.PlainPooling(algorithm, src, dst, **given_, threads=1)
