"""Winograd kernels for other windows, dilations and groups, against double precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stridewise as sw
from stridewise.graph import Graph

from .graphs import Net, error, inputs_of
from .winograd_layers import (
    CORE,
    F32,
    KERNELS,
    KINDS,
    Runner,
    Shape,
    check_weights,
    convolved,
    data,
    exact,
)

TOLERANCE = {
    ((3, 3), 2): 1e-6,
    ((3, 3), 4): 4e-6,
    ((5, 5), 2): 4e-6,
    ((1, 3), 4): 2e-6,
    ((3, 1), 4): 2e-6,
    ((1, 5), 4): 4e-6,
    ((5, 1), 4): 4e-6,
    ((1, 7), 2): 4e-6,
    ((7, 1), 2): 4e-6,
    ((1, 7), 4): 8e-6,
    ((7, 1), 4): 8e-6,
}
WAYS = tuple(TOLERANCE)
BOTH = [(kernel, kind) for kernel in KERNELS for kind in KINDS]


def check(shape: Shape, tile: int, kernel: tuple[int, str], kind: str, threads: int = 2) -> None:
    x, w, bias = data(shape)
    found = Runner(shape, kind, kernel, tile, threads=threads)(x, w, bias)
    assert error(found, exact(shape)) <= TOLERANCE[shape.window, tile]


def same(window: tuple[int, int], dilations: tuple[int, int] = (1, 1)) -> tuple[int, int, int, int]:
    """Return pads that keep the size of an image."""
    high, wide = (d * (k // 2) for d, k in zip(dilations, window, strict=True))
    return high, wide, high, wide


IMAGES = {
    "one pixel": Shape(height=1, width=1),
    "tails": Shape(channels=13, outputs=27, height=9, width=7),
    "batch": Shape(images=3, channels=24, outputs=40, height=17, width=17),
    "outputs are shared": Shape(channels=64, outputs=160, height=7, width=8),
    "many blocks": Shape(channels=40, outputs=48, height=40, width=37),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("kernel", "kind"), BOTH, ids=str)
@pytest.mark.parametrize(("window", "tile"), WAYS, ids=str)
@pytest.mark.parametrize("name", IMAGES)
def test_windows(name, window, tile, kernel, kind, threads):
    check(replace(IMAGES[name], window=window, pads=same(window)), tile, kernel, kind, threads)


DILATIONS = ((2, 2), (4, 4), (1, 3), (3, 2))


@pytest.mark.parametrize("dilations", DILATIONS, ids=str)
@pytest.mark.parametrize(("kernel", "kind"), BOTH, ids=str)
@pytest.mark.parametrize(("window", "tile"), WAYS, ids=str)
def test_dilations(window, tile, kernel, kind, dilations):
    shape = Shape(2, 17, 23, 21, 40, same(window, dilations), window, dilations)
    check(shape, tile, kernel, kind)


@settings(deadline=None, max_examples=80)
@given(
    st.builds(
        Shape,
        images=st.integers(1, 2),
        channels=st.integers(1, 24),
        height=st.integers(1, 20),
        width=st.integers(1, 20),
        outputs=st.integers(1, 40),
        pads=st.tuples(*[st.integers(0, 9)] * 4),
        dilations=st.tuples(*[st.integers(1, 5)] * 2),
    ),
    st.sampled_from(WAYS),
    st.sampled_from(BOTH),
)
def test_any_shape_that_fits(shape, way, where):
    window, tile = way
    shape = replace(shape, window=window)
    if min(shape.dst[2:]) >= 1:
        check(shape, tile, *where)


GROUPS = {
    "groups fill no vector": (8, 32, 32),
    "groups of a vector of 8": (4, 32, 32),
    "an odd number of vectors": (3, 24, 24),
    "groups of 3 vectors": (2, 48, 48),
    "groups of two vectors": (4, 64, 64),
    "groups of 64": (2, 128, 128),
    "more outputs": (2, 32, 64),
    "fewer outputs": (4, 128, 64),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("kernel", "kind"), BOTH, ids=str)
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("name", GROUPS)
def test_groups(name, tile, kernel, kind, threads):
    groups, channels, outputs = GROUPS[name]
    shape = Shape(2, channels, 13, 11, outputs, groups=groups)
    if channels // groups % kernel[0] or outputs // groups % kernel[0]:
        with pytest.raises(ValueError, match="winograd: groups fill no whole vectors"):
            check(shape, tile, kernel, kind, threads)
    else:
        check(shape, tile, kernel, kind, threads)


def test_groups_have_other_windows_and_dilations_too():
    for way in WAYS:
        for kernel, kind in BOTH:
            window, tile = way
            shape = Shape(1, 64, 11, 12, 64, same(window, (2, 1)), window, (2, 1), 4)
            check(shape, tile, kernel, kind)


def test_post_ops_are_those_of_the_place():
    """A residual in place and an activation, where results of a tile are apart."""
    for changes in ({"dilations": (2, 2)}, {"groups": 2}, {"window": (7, 1)}):
        shape = replace(Shape(1, 32, 9, 10, 32, (3, 3, 3, 3)), **changes)
        x, w, bias = data(shape)
        held = np.random.default_rng(2).normal(size=shape.dst).astype(F32)
        post_ops = [("sum", 1.0), ("eltwise", "relu", 0.0, 0.0)]
        for kernel, kind in BOTH:
            found = Runner(shape, kind, kernel, 4, post_ops=post_ops)(x, w, bias, held=held)
            assert error(found, np.maximum(convolved(x, w, bias, shape) + held, 0)) <= 8e-6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"window": (5, 5), "tile": 4}, "there are no tiles of 4 for windows of 5x5"),
        ({"window": (1, 1), "tile": 2}, "there are no tiles of 2 for windows of 1x1"),
        ({"window": (3,)}, "expected a window of two axes"),
        ({"dilations": (0, 1)}, "expected positive dilations"),
        ({"dilations": (9, 9)}, "the window does not fit into the padded source"),
        ({"groups": 3}, "expected groups that divide the channels, got 3"),
        ({"groups": 0}, "expected groups that divide the channels, got 0"),
    ],
)
def test_kernels_that_cannot_be_are_refused(changes, message):
    desc = CORE.MemoryDesc((1, 8, 6, 5), "f32", "aBcd8b")
    options = {"tile": 4, "lanes": 8, "threads": 1} | changes
    with pytest.raises(ValueError, match=message):
        CORE.Winograd(desc, desc, False, (1, 1), (1, 1), [], **options)


# --- plans ----------------------------------------------------------------------------------------


def network() -> Graph:
    """Return one convolution of each kind, of equal size, in a chain."""
    b = Net(1, 64, 16, 16)
    x = b.x
    for window, attrs in (
        ((3, 3), {"dilations": (2, 2)}),
        ((3, 3), {"groups": 2}),
        ((5, 5), {}),
        ((1, 7), {}),
        ((7, 1), {}),
        ((1, 3), {}),
    ):
        pads = same(window, attrs.get("dilations", (1, 1)))
        shape = (64, 64 // attrs.get("groups", 1), *window)
        w = b.constant(b.rng.normal(0, np.prod(shape[1:]) ** -0.5, shape).astype(F32), "w")
        x = b.op("relu", [b.op("conv", [x, w], {"pads": pads, **attrs})])
    return b.build([x])


def test_a_network_is_computed_so():
    graph = network()
    model = sw.compile(graph, tune="model", threads=2)
    chosen = [d.chosen.algorithm.split(",")[0] for d in model.plan.decisions]
    assert all(name.startswith("winograd F(") for name in chosen), chosen
    assert chosen[3:5] == ["winograd F(1x4)", "winograd F(4x1)"]
    assert model.memory.winograd_weights == model.plan.winograd_weights.nbytes
    feeds = inputs_of(graph)
    exact = sw.compile(graph, tune="model", threads=2, accuracy="exact")
    for name, wanted in exact.run(feeds).items():
        assert error(model.run(feeds)[name], wanted) <= 1e-5


def test_what_the_planner_thinks_of_weights_is_what_kernels_read():
    assert check_weights(sw.plan(network(), tune="model", threads=2)) >= 16
