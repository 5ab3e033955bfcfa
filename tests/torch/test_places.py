"""Gradients of max pooling by positions of maxima: against PyTorch, and other kernels' bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.graphs import KINDS, forced_plan

import stridewise as sw
from stridewise.runtime.execution.loading import load, lower_plan

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

F = torch.nn.functional
POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def anchored(b: sw.GraphBuilder, name: str, shape: tuple[int, ...]) -> str:
    """Add an input with the axes of an image, behind an operator that names them."""
    ones, zeros = np.ones(shape[1], np.float32), np.zeros(shape[1], np.float32)
    return b.op("scale_shift", [b.input(name, shape), b.constant(ones), b.constant(zeros)])


def graph_of(shape: tuple[int, ...], attrs: dict[str, Any], *, both: bool) -> sw.graph.Graph:
    """Return a pooling and its gradient; with both, the one that finds the maxima again, too."""
    b = sw.GraphBuilder("pool")
    x = anchored(b, "x", shape)
    y = b.op("max_pool", [x], attrs)
    dy = anchored(b, "dy", b.type(y).shape)
    results = [y, b.op("max_pool_gradient", [x, dy], attrs)]
    if both:
        _, places = b.node("max_pool_places", [x], attrs)
        results.append(b.op("max_pool_places_gradient", [places, dy], {**attrs, "shape": shape}))
    return b.build(results)


@st.composite
def pools(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any], tuple[Any, ...]]:
    """Return the shape of x, attributes here, and arguments of PyTorch."""
    rank = draw(st.integers(1, 3))
    numbers = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(rank))  # noqa: E731
    kernel, strides, dilations = numbers(1, 5 - rank), numbers(1, 3), numbers(1, 2)
    pads = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    sizes = tuple(n + more for n, more in zip(reach, numbers(0, 4), strict=True))
    ceil = draw(st.booleans())
    ends: list[int] = []
    for size, taken, step, pad in zip(sizes, reach, strides, pads, strict=True):
        left = size + 2 * pad - taken
        count = left // step + 1
        if ceil and left % step and count * step < size + pad:
            count += 1
        ends.append(max(0, (count - 1) * step + taken - size - pad))
    channels = draw(st.sampled_from([1, 3, 8, 16, 17, 33]))
    attrs = {"kernel": kernel, "strides": strides, "dilations": dilations}
    shape = (draw(st.integers(1, 2)), channels, *sizes)
    return shape, {**attrs, "pads": (*pads, *ends)}, (kernel, strides, pads, dilations, ceil)


@settings(max_examples=40, deadline=None)
@given(pools(), st.integers(1, 5), st.integers(0, 99))
def test_gradients_are_those_of_pytorch(pool: Any, levels: int, seed: int):
    """Few different numbers make ties, of which the first one has the gradient."""
    shape, attrs, args = pool
    rng = np.random.default_rng(seed)
    x = rng.integers(-levels, levels, shape).astype(np.float32)
    given_x = torch.tensor(x, requires_grad=True)
    y = POOLS[len(shape) - 2](given_x, *args)
    dy = rng.integers(-4, 5, tuple(y.shape)).astype(np.float32)
    y.backward(torch.tensor(dy))
    graph = graph_of(shape, attrs, both=False)
    for kind in KINDS:
        plan = forced_plan(graph, kind)
        assert {node.op for node in plan.graph.nodes} >= {"max_pool_places_gradient"}
        model = load(lower_plan(plan))
        # The arena is filled with NaN first.
        found = model.trace({"x": x, "dy": dy}, lambda _written, _stored: None)
        for got, wanted in zip(found.values(), (y.detach(), given_x.grad), strict=True):
            np.testing.assert_array_equal(got, wanted.numpy())


@settings(max_examples=20, deadline=None)
@given(pools(), st.integers(0, 99))
def test_not_numbers_change_nothing(pool: Any, seed: int):
    """With NaN and infinities the bits are those of the kernel that finds the maxima again."""
    shape, attrs, _ = pool
    rng = np.random.default_rng(seed)
    x = rng.choice(np.float32([np.nan, np.inf, -np.inf, 0, 1, 2]), shape)
    graph = graph_of(shape, attrs, both=True)
    dy = rng.normal(size=graph.values["dy"].shape).astype(np.float32)
    for kind in KINDS:
        found = load(lower_plan(forced_plan(graph, kind, simplified=False))).run({"x": x, "dy": dy})
        _, again, by_places = found.values()
        np.testing.assert_array_equal(again, by_places)


@settings(max_examples=10, deadline=None)
@given(st.integers(14, 18), st.integers(14, 18))
def test_windows_beyond_a_byte_keep_their_source(height: int, width: int):
    attrs = {"kernel": (height, width)}
    graph = graph_of((1, 2, height + 1, width), attrs, both=False)
    ops = {node.op for node in sw.plan(graph, tune="model").graph.nodes}
    assert ("max_pool_places" in ops) == (height * width <= 255)
    assert ("max_pool_gradient" in ops) == (height * width > 255)
