"""Winograd kernels of convolutions with strides, against double precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simplified import derived

import stridewise as sw
from stridewise.dtypes import dtype_of
from stridewise.graph import Graph
from stridewise.planning import make_plan
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.machine.machine import this_machine
from stridewise.targets.cost import KernelCost
from stridewise.targets.kernels import KernelSpec
from stridewise.targets.onednn.target import onednn_cpu

from .graphs import ForcingOracle, Net, error, inputs_of
from .winograd_layers import (
    CORE,
    HALF_KERNELS,
    KERNELS,
    KINDS,
    Runner,
    Shape,
    check_weights,
    convolved,
    data,
    exact,
)

TOLERANCE = {2: 4e-6, 3: 4e-6, 4: 8e-6, 5: 8e-6, 6: 2e-5}
"""By results of a tile along an axis."""
TAPS = {2: (3, 5), 3: (2,), 4: (3,), 5: (2, 4), 6: (3,)}
"""Taps of windows along it."""
SOURCES = ("plain", "channels-last")
WAYS = [(source, kind) for source in SOURCES for kind in KINDS]

STEMS = {
    "7x7 by 2": (Shape(1, 3, 37, 41, 32, (3, 3, 3, 3), (7, 7), strides=(2, 2)), 5),
    "larger than a cache": (Shape(1, 3, 224, 224, 64, (3, 3, 3, 3), (7, 7), strides=(2, 2)), 5),
    "8x8 by 2": (Shape(2, 4, 24, 24, 40, (3, 3, 3, 3), (8, 8), strides=(2, 2)), 5),
    "11x11 by 4": (Shape(1, 3, 67, 59, 24, (2, 2, 2, 2), (11, 11), strides=(4, 4)), 4),
    "5x5 by 2": (Shape(2, 20, 23, 18, 48, (2, 2, 2, 2), (5, 5), strides=(2, 2)), 6),
    "6x5 by 2": (Shape(1, 9, 20, 21, 16, (0, 1, 2, 3), (6, 5), strides=(2, 2)), 2),
    "4x4 by 2": (Shape(2, 20, 23, 31, 40, (1, 1, 1, 1), (4, 4), strides=(2, 2)), 5),
    "4x3 by 2": (Shape(1, 33, 16, 17, 16, (1, 0, 1, 2), (4, 3), strides=(2, 2)), 3),
    "9x6 by 3 and 2": (Shape(1, 5, 31, 22, 33, (4, 2, 4, 2), (9, 6), strides=(3, 2)), 4),
    "one result": (Shape(1, 3, 4, 4, 16, (2, 2, 1, 1), (7, 7), strides=(2, 2)), 5),
}


def check(
    shape: Shape, tile: int, kernel: tuple[int, str], way: tuple[str, str], threads: int = 2
) -> None:
    x, w, bias = data(shape)
    source, kind = way
    found = Runner(shape, kind, kernel, tile, threads=threads, source=source)(x, w, bias)
    assert error(found, exact(shape)) <= TOLERANCE[tile]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("way", WAYS, ids=" to ".join)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("name", STEMS)
def test_windows_of_first_layers(name, kernel, way, threads):
    check(*STEMS[name], kernel, way, threads)


@settings(deadline=None, max_examples=120)
@given(
    st.builds(
        Shape,
        images=st.integers(1, 2),
        channels=st.integers(1, 10),
        height=st.integers(1, 30),
        width=st.integers(1, 30),
        outputs=st.integers(1, 40),
        pads=st.tuples(*[st.integers(0, 7)] * 4),
        strides=st.sampled_from([(2, 2), (2, 3), (3, 2), (4, 4), (1, 2)]),
    ),
    st.sampled_from([(tile, taps) for tile, sizes in TAPS.items() for taps in sizes]),
    st.tuples(*[st.integers(0, 9)] * 2),
    st.sampled_from(KERNELS),
    st.sampled_from(WAYS),
)
def test_any_shape_that_fits(shape, tiling, fewer, kernel, way):
    tile, taps = tiling
    # The windows with so many taps of the folded image, and others with fewer.
    window = tuple(taps * s - less % s for s, less in zip(shape.strides, fewer, strict=True))
    shape = replace(shape, window=window)
    padded = (shape.height + sum(shape.pads[::2]), shape.width + sum(shape.pads[1::2]))
    if all(extent >= k for extent, k in zip(padded, window, strict=True)):
        check(shape, tile, kernel, way)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_results_do_not_depend_on_threads(kernel):
    shape, tile = STEMS["7x7 by 2"]
    found = [
        Runner(shape, "blocked", kernel, tile, threads=n, source="plain")(*data(shape))
        for n in (1, 2, 7)
    ]
    assert all(np.array_equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_sums_in_place_and_activations(kind, kernel):
    shape, tile = STEMS["5x5 by 2"]
    x, w, bias = data(shape)
    held = np.random.default_rng(1).normal(size=shape.dst).astype(np.float32)
    post: list[Any] = [("sum", 1.0), ("eltwise", "relu", 0.0, 0.0)]
    found = Runner(shape, kind, kernel, tile, post_ops=post, source="plain")(x, w, bias, held=held)
    assert error(found, np.maximum(exact(shape) + held, 0)) <= TOLERANCE[tile]


@pytest.mark.parametrize("way", WAYS, ids=" to ".join)
@pytest.mark.parametrize("kernel", HALF_KERNELS, ids=str)
@pytest.mark.parametrize("dtypes", [("bf16", "bf16"), ("f32", "bf16"), ("bf16", "f32")], ids=str)
def test_bfloat16(dtypes, kernel, way):
    shape, tile = STEMS["7x7 by 2"]
    x, w, bias = data(shape)
    source, kind = way
    runner = Runner(shape, kind, kernel, tile, dtypes=dtypes, source=source)
    if dtypes[0] == "bf16":
        x = x.astype(dtype_of("bf16").numpy).astype(np.float32)
    tolerance = 4e-3 if dtypes[1] == "bf16" else TOLERANCE[tile]
    assert error(runner(x, w, bias), convolved(x, w, bias, shape)) <= tolerance


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"strides": (0, 2)}, "expected positive strides"),
        ({"pads": (1, 1, 1, 1)}, "the window does not fit into the padded source"),
        ({"window": (5, 5)}, "there are no tiles of 5 for windows of 3x3"),
        ({"pads": (-1, 0, 0, 0)}, "negative padding"),
    ],
)
def test_other_convolutions_are_refused(change, text):
    shape, tile = STEMS["one result"]
    lanes, isa = KERNELS[0]
    given = {"window": shape.window, "strides": shape.strides, "pads": shape.pads, **change}
    src = CORE.MemoryDesc(shape.src, "f32", "abcd")
    dst = CORE.MemoryDesc(shape.dst, "f32", "acdb")
    with pytest.raises(ValueError, match=f"winograd: {text}"):
        CORE.StridedWinograd(
            src, dst, False, given["pads"][:2], given["pads"][2:], [], tile=tile, lanes=lanes,
            threads=1, isa=isa, window=given["window"], strides=given["strides"],
        )  # fmt: skip


# --- plans ----------------------------------------------------------------------------------------


def first_layer(
    window: tuple[int, int], strides: tuple[int, int], channels: int = 3, outputs: int = 48
) -> Graph:
    b = Net(2, channels, 61, 64)
    pads = (window[0] // 2, window[1] // 2) * 2
    w = b.rng.normal(0, (channels * np.prod(window)) ** -0.5, (outputs, channels, *window))
    x = b.op(
        "conv", [b.x, b.constant(w.astype(np.float32), "w")], {"pads": pads, "strides": strides}
    )
    return b.build([b.op("relu", [x])])


class Preferring(ForcingOracle):
    """One kernel is cheaper than all others."""

    def __init__(self, spec: KernelSpec) -> None:
        super().__init__("plain")
        self.spec = spec

    def _cost(self, spec: KernelSpec) -> Any:
        return (KernelCost(1.0, "", "model"),) if spec == self.spec else super()._cost(spec)


LAYERS = [
    ((7, 7), (2, 2)),
    ((11, 11), (4, 4)),
    ((5, 5), (2, 2)),
    ((4, 4), (2, 2), 16),
    ((6, 1), (2, 1), 8, 64),
    ((1, 6), (1, 2), 8, 64),
]


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_all_that_plans_offer_computes_the_same(layer):
    graph, machine = first_layer(*layer), this_machine(2)
    feeds, plan = inputs_of(graph), sw.plan(graph, tune="model", threads=2)
    (wanted,) = sw.compile(graph, tune="model", threads=2, accuracy="exact").run(feeds).values()
    decision = plan.decisions[0]
    offered = {c.algorithm: c for c in (decision.chosen, *decision.rejected)}
    found = [name for name in offered if name.startswith("winograd F(")]
    assert {name.split(", ")[1] for name in found} == {
        "plain to channels-last", "plain to blocked", "channels-last", "channels-last to blocked"
    }  # fmt: skip
    for name in found:
        oracle = Preferring(offered[name].option.calls[0].spec)
        forced = make_plan(derived(graph), onednn_cpu(machine), machine, oracle)
        assert forced.decisions[0].chosen.algorithm == name
        (result,) = load(lower_plan(forced)).run(feeds).values()
        assert error(result, wanted) <= 1e-5, name
    assert check_weights(plan) == len(found)


def test_what_changes_or_has_groups_is_refused_with_the_reason():
    b = Net(1, 16, 32, 32)
    w = b.constant(np.ones((32, 8, 7, 7), np.float32), "w")
    graph = b.build([b.op("conv", [b.x, w], {"pads": (3,) * 4, "strides": (2, 2), "groups": 2})])
    reasons = {r.reason for r in sw.plan(graph, tune="model").refusals if r.rule == "winograd"}
    assert reasons == {"it has strides, and groups or a dilation"}
