"""Windows of poolings without the taps that meet padding only give the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.networks import Net

from stridewise.graph import Graph
from stridewise.ops.conv import window_extent
from stridewise.passes.clip_windows import clip_windows

from .pass_graphs import rewritten


def clipped(graph: Graph) -> Graph:
    """Clip windows, compare the results, and return the new graph."""
    return rewritten(clip_windows, graph)


@st.composite
def poolings(draw: Any) -> Graph:
    """Return a graph with one pooling or its gradient."""
    rank = draw(st.integers(1, 3))

    def numbers(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank)))

    sizes, kernel, begins = numbers(1, 4), numbers(1, 5), numbers(0, 5)
    strides, dilations = numbers(1, 4), numbers(1, 3)
    reach = [(taps - 1) * step + 1 for taps, step in zip(kernel, dilations, strict=True)]
    ends = tuple(
        max(end, extent - size - begin)
        for end, extent, size, begin in zip(numbers(0, 3), reach, sizes, begins, strict=True)
    )
    results = [
        window_extent(size, taps, stride, step, begin + end)
        for size, taps, stride, step, begin, end in zip(
            sizes, kernel, strides, dilations, begins, ends, strict=True
        )
    ]
    op = draw(st.sampled_from(["max_pool", "avg_pool", "avg_pool_gradient"]))
    attrs: dict[str, Any] = {"kernel": kernel, "strides": strides, "dilations": dilations}
    attrs["pads"] = (*begins, *ends)
    if op != "max_pool":
        attrs["count_include_pad"] = draw(st.integers(0, 1))
    b = Net("g")
    if op == "avg_pool_gradient":
        attrs["shape"] = (1, 2, *sizes)
    x = b.input("x", (1, 2, *(results if op == "avg_pool_gradient" else sizes)))
    return b.build([b.op(op, [x], attrs)])


@given(poolings())
def test_results_are_those_of_the_whole_windows(graph: Graph):
    with np.errstate(invalid="ignore", divide="ignore"):  # means of windows of padding only
        clipped(graph)


def test_a_window_that_is_larger_than_the_image_is_global_pooling():
    b = Net("g")
    x = b.input("x", (1, 3, 7, 5))
    whole = {"kernel": (40, 40), "strides": (40, 40), "pads": (0, 0, 33, 35)}
    mean, largest = b.op("avg_pool", [x], whole), b.op("max_pool", [x], whole)
    after = clipped(b.build([mean, largest]))
    assert [node.op for node in after.nodes] == ["avg_pool", "max_pool"]
    assert all(node.ints_attr("kernel") == (7, 5) for node in after.nodes)
    assert all(not any(node.ints_attr("pads")) for node in after.nodes)


def test_padding_that_is_counted_becomes_a_factor():
    b = Net("g")
    x = b.input("x", (1, 3, 4, 4))
    attrs = {"kernel": (9, 4), "pads": (2, 0, 3, 0), "count_include_pad": 1}
    after = clipped(b.build([b.op("avg_pool", [x], attrs)]))
    assert [node.op for node in after.nodes] == ["avg_pool", "mul"]
    assert after.nodes[0].ints_attr("kernel") == (4, 4)


def test_gradients_of_maxima_are_those_of_shorter_windows():
    b = Net("g")
    x, dy = b.input("x", (1, 3, 4, 5)), b.input("dy", (1, 3, 1, 1))
    attrs = {"kernel": (9, 9), "pads": (2, 2, 3, 2)}
    after = clipped(b.build([b.op("max_pool_gradient", [x, dy], attrs)]))
    assert after.nodes[0].ints_attr("kernel") == (4, 5)
