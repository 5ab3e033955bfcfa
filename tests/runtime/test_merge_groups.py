"""Convolutions of slices whose results are joined: one with groups, by every kernel on offer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simplified import simplify

import stridewise as sw
from stridewise.errors import GraphError
from stridewise.graph import Graph
from stridewise.passes.merge_groups import merge_groups
from stridewise.runtime.simulation.reference import run_reference

from .graphs import Net, error, inputs_of


@dataclass(frozen=True)
class Mixed:
    """A mixed convolution: channels of each branch, and its windows."""

    channels: int = 6
    windows: tuple[tuple[int, int], ...] = ((3, 3), (5, 5))
    stride: int = 1
    outputs: int = 0  # of each branch; 0 for a filter for each channel
    size: tuple[int, int, int] = (2, 11, 9)
    order: tuple[int, ...] = ()
    has_bias: tuple[bool, ...] = (True, False)

    def graph(self) -> Graph:
        images, height, width = self.size
        count, channels = len(self.windows), self.channels
        b = Net(images, count * channels, height, width)
        x = b.op("relu", [b.named(b.x)])
        pieces: list[str] = []
        for place, (down, across) in enumerate(self.windows):
            first = (self.order[place] if self.order else place) * channels
            bounds = {"starts": (0, first, 0, 0), "steps": (1,) * 4}
            stops = (images, first + channels, height, width)
            y = b.op("slice", [x], {**bounds, "stops": stops})
            outputs = self.outputs or channels
            inner = channels if self.outputs else 1
            scale = (inner * down * across) ** -0.5
            w = b.rng.normal(0, scale, (outputs, inner, down, across)).astype(np.float32)
            has_bias = self.has_bias[place % len(self.has_bias)]
            bias = [b.data(outputs)] if has_bias else []
            attrs = {"groups": 1 if self.outputs else channels, "strides": (self.stride,) * 2}
            pads = (down // 2, across // 2) * 2
            pieces.append(b.op("conv", [y, b.constant(w, "w"), *bias], {**attrs, "pads": pads}))
        y = b.op("swish", [b.op("concat", pieces, {"axis": 1})])
        return b.build([b.conv(y, 7)])


def operators(graph: Graph) -> list[str]:
    return [node.op for node in simplify(graph, check=True).graph.nodes]


MIXED = {
    "two windows": Mixed(),
    "three windows": Mixed(17, ((3, 3), (5, 5), (7, 7)), has_bias=(True,)),
    "row and column": Mixed(24, ((1, 7), (7, 1)), 2),
    "whole vectors": Mixed(32, ((3, 3), (9, 9)), 2, size=(1, 23, 20)),
    "the same window": Mixed(20, ((3, 3), (3, 3)), has_bias=(False,)),
    "1x1": Mixed(12, ((1, 1), (1, 1)), outputs=36),
    "1x1, whole vectors": Mixed(32, ((1, 1), (1, 1)), outputs=16),
    "blocks": Mixed(16, ((3, 3), (3, 3)), outputs=32),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("threads", [1, 2])
def test_branches_are_one_convolution(name, threads):
    graph = MIXED[name].graph()
    assert operators(graph) == ["conv", "conv", "conv"]
    feeds = inputs_of(graph)
    wanted = run_reference(graph, feeds)
    model = sw.compile(graph, tune="model", threads=threads)
    for output, array in wanted.items():
        assert error(model.run(feeds)[output], array) <= 1e-5


@pytest.mark.parametrize("kind", ["channels-last", "blocked"])
@pytest.mark.parametrize("name", MIXED)
def test_every_kernel_of_groups(name, kind):
    graph = MIXED[name].graph()
    plan = sw.plan(graph, tune="model", threads=2)
    feeds = inputs_of(graph)
    wanted = run_reference(graph, feeds)
    node = plan.graph.nodes[1].name
    group = plan.candidates.nodes[node]
    own = [
        i for i, item in enumerate(group) if item.algorithm in (f"in rows, {kind}", f"1x1, {kind}")
    ]
    if not own:
        assert MIXED[name].outputs
        return
    model = sw.compile(graph, plan=plan.restricted("own", {node: own}), threads=2)
    for output, array in wanted.items():
        assert error(model.run(feeds)[output], array) <= 1e-5


@settings(deadline=None, max_examples=40)
@given(
    st.builds(
        Mixed,
        channels=st.integers(1, 40),
        windows=st.lists(
            st.tuples(*[st.sampled_from([1, 3, 5, 7])] * 2), min_size=2, max_size=4
        ).map(tuple),
        stride=st.integers(1, 3),
        size=st.tuples(st.integers(1, 2), st.integers(7, 15), st.integers(7, 15)),
        has_bias=st.lists(st.booleans(), min_size=1, max_size=3).map(tuple),
    ),
    st.integers(1, 3),
)
def test_any_windows(mixed, threads):
    graph = mixed.graph()
    assert operators(graph) == ["conv", "conv", "conv"]
    feeds = inputs_of(graph)
    wanted = run_reference(graph, feeds)
    model = sw.compile(graph, tune="model", threads=threads, cache_dir=None)
    for output, array in wanted.items():
        assert error(model.run(feeds)[output], array) <= 1e-5


@pytest.mark.parametrize(
    ("mixed", "reason"),
    [
        (replace(MIXED["two windows"], order=(1, 0)), "does not read the channels behind those"),
        (Mixed(6, ((3, 3), (5, 5)), outputs=6), "kernels of groups like"),
        (Mixed(16, ((3, 3), (5, 5)), outputs=16), "windows of different sizes are merged only"),
    ],
    ids=str,
)
def test_other_branches_stay(mixed, reason):
    graph = mixed.graph()
    after, refusals = merge_groups(graph)
    assert after == graph
    (refusal,) = refusals
    assert reason in refusal.reason


@pytest.mark.parametrize(
    "parts",
    [(2, 0, 0, 3, 3), (4, 0, 0, 4, 3), (4, 1, 0, 3, 3), (4, 0, 0, 3), (4, 0, 0, 0, 3)],
    ids=str,
)
def test_parts_that_are_none_of_the_window_are_refused(parts):
    b = Net(1, 4, 6, 5)
    w = b.data(4, 1, 3, 3)
    with pytest.raises(GraphError, match="parts of the window of an image's channels"):
        b.op("conv", [b.x, w], {"groups": 4, "parts": parts})


def test_weights_outside_of_parts_count_as_zero():
    b = Net(1, 4, 6, 5)
    w = b.constant(np.ones((4, 1, 3, 3), np.float32), "w")
    parts = (3, 1, 1, 1, 1, 1, 0, 0, 3, 3)
    attrs = {"groups": 4, "pads": (1,) * 4, "parts": parts}
    graph = b.build([b.op("conv", [b.x, w], attrs)])
    feeds = inputs_of(graph)
    (found,) = run_reference(graph, feeds).values()
    np.testing.assert_array_equal(found[:, :3], feeds["x"][:, :3])
    (own,) = sw.compile(graph, tune="model", threads=1).run(feeds).values()
    assert error(own, found) <= 1e-6
