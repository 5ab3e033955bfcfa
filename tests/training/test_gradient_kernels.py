"""Gradients of random windows on native kernels, in every format: against the NumPy reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.bfloat16_plans import check, half_plan
from tests.runtime.graphs import KINDS, error, forced_plan, inputs_of

import stridewise as sw
from stridewise.graph import Graph
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.simulation.reference import run_reference

Window = tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]


@st.composite
def windows(draw: st.DrawFn, *, is_pool: bool) -> Window:
    """Return attributes, the shape of x, and the spatial shape of the window."""
    spatial = draw(st.integers(1, 3))
    numbers = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(spatial))  # noqa: E731
    kernel, strides, dilations = numbers(1, 4), numbers(1, 3), numbers(1, 2)
    most = [k - 1 if is_pool else 3 for k in kernel]
    pads = tuple(draw(st.integers(0, high)) for _ in range(2) for high in most)
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    size = tuple(n + extra for n, extra in zip(reach, numbers(0, 5), strict=True))
    channels = draw(st.sampled_from([1, 2, 3, 8, 16, 17, 24, 32]))
    attrs = {"dilations": dilations, "pads": pads, "strides": strides}
    return attrs, (draw(st.integers(1, 3)), channels, *size), kernel


def agree(graph: Graph) -> None:
    feeds = inputs_of(graph)
    expected = run_reference(graph, feeds)
    for kind in KINDS:
        model = load(lower_plan(forced_plan(graph, kind)))
        # The arena is filled with NaN first, and the checks of a trace see each tensor.
        found = model.trace(feeds, lambda _written, _stored: None)
        # The loss is a sum of numbers of either sign, which may be near to 0.
        for name, wanted in list(expected.items())[1:]:
            assert error(found[name], wanted) <= 1e-5, (kind, name)
        check(graph, load(lower_plan(half_plan(graph, kind))))


def anchored(b: sw.GraphBuilder, name: str, shape: tuple[int, ...]) -> str:
    """Add an input with the axes of an image, behind an operator that names them."""
    x = b.input(name, shape)
    ones, zeros = np.ones(shape[1], np.float32), np.zeros(shape[1], np.float32)
    return b.op("scale_shift", [x, b.constant(ones), b.constant(zeros)])


@settings(max_examples=40, deadline=None)
@given(windows(is_pool=False), st.sampled_from([1, 1, 2, 4, "all"]), st.integers(1, 3))
def test_convolutions(window: Window, groups: Any, times: int):
    attrs, shape, kernel = window
    count = shape[1] if groups == "all" or shape[1] % groups else groups
    outputs = count * times if count > 1 else 5 * times
    b = sw.GraphBuilder("conv")
    attrs["groups"] = count
    x = anchored(b, "x", shape)
    w = b.input("w", (outputs, shape[1] // count, *kernel))
    y = b.op("conv", [x, w], attrs)
    dy = anchored(b, "dy", b.type(y).shape)
    b.op("mul", [y, dy], output="product")
    axes = tuple(range(len(shape)))
    loss = b.op("reduce_sum", ["product"], {"axes": axes, "keepdims": 0}, output="loss")
    agree(sw.grad(b.build([loss]), loss, [x, w]))


@settings(max_examples=40, deadline=None)
@given(windows(is_pool=True), st.sampled_from(["max_pool", "avg_pool", "included"]))
def test_pools(window: Window, op: str):
    attrs, shape, kernel = window
    attrs["kernel"] = kernel
    if op != "max_pool":
        attrs["dilations"] = (1,) * len(kernel)
        attrs["count_include_pad"] = int(op == "included")
        op = "avg_pool"
    b = sw.GraphBuilder("pool")
    x = anchored(b, "x", shape)
    y = b.op(op, [x], attrs)
    dy = anchored(b, "dy", b.type(y).shape)
    b.op("mul", [y, dy], output="product")
    axes = tuple(range(len(shape)))
    loss = b.op("reduce_sum", ["product"], {"axes": axes, "keepdims": 0}, output="loss")
    agree(sw.grad(b.build([loss]), loss, [x]))


@settings(max_examples=30, deadline=None)
@given(
    st.integers(2, 4),
    st.sampled_from([1, 3, 8, 16, 19, 32]),
    st.lists(st.integers(1, 5), max_size=3),
)
def test_batch_norms(images: int, channels: int, spatial: list[int]):
    b = sw.GraphBuilder("norm")
    shape = (images, channels, *spatial)
    x = b.input("x", shape)
    scale, shift = (b.input(name, (channels,)) for name in ("scale", "shift"))
    y, _, _ = b.node("batch_norm", [x, scale, shift], {"epsilon": 0.1})
    dy = b.input("dy", shape)
    b.op("mul", [y, dy], output="product")
    axes = tuple(range(len(shape)))
    loss = b.op("reduce_sum", ["product"], {"axes": axes, "keepdims": 0}, output="loss")
    agree(sw.grad(b.build([loss]), loss, ["x", "scale", "shift"]))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([1, 3, 8, 16, 19, 32]),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.sampled_from(
        [("relu", {}), ("clip", {"alpha": -0.25, "beta": 0.5}), ("clip", {"alpha": 0.1})]
    ),
    st.booleans(),
)
def test_batch_norms_with_what_follows(
    channels: int, spatial: list[int], activation: tuple[str, dict[str, float]], adds: bool
):
    b = sw.GraphBuilder("norm")
    shape = (2, channels, *spatial)
    x, other, dy = (b.input(name, shape) for name in ("x", "other", "dy"))
    scale, shift = (b.input(name, (channels,)) for name in ("scale", "shift"))
    y, _, _ = b.node("batch_norm", [x, scale, shift], {"epsilon": 0.1})
    y = b.op("add", [other, y]) if adds else y
    y = b.op(activation[0], [y], activation[1])
    b.op("mul", [y, dy], output="product")
    axes = tuple(range(len(shape)))
    loss = b.op("reduce_sum", ["product"], {"axes": axes, "keepdims": 0}, output="loss")
    graph = b.build([loss, y])
    backward = sw.grad(graph, loss, ["x", "scale", "shift"])
    agree(sw.GraphBuilder.of(backward).build([loss, y, *backward.outputs[1:]]))


def test_masks_are_fused():
    b = sw.GraphBuilder("norm", training=True)
    y = b.relu(b.batch_norm(b.conv2d(b.input("x", (2, 3, 5, 5)), 4, 3)))
    y = b.op("clip", [b.batch_norm(b.conv2d(y, 4, 3))], {"alpha": 0.0, "beta": 6.0})
    graph = b.build([b.flatten(y)])
    trainer = sw.Trainer(graph, loss="mean_squared_error", optimizer=sw.SGD(lr=0.1), tune="model")
    nodes = trainer.model.plan.graph.nodes
    assert [len(n.inputs) for n in nodes if n.op == "batch_norm_gradient"] == [6, 6]
    found = [[post.op for post in n.post_ops] for n in nodes if n.op == "batch_norm"]
    assert found == [["relu"], ["clip"]]
    assert not any(n.op in ("relu", "clip", "where") for n in nodes)
