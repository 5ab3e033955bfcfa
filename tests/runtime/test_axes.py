"""Convolutions over one and three axes by kernels of images, against the NumPy reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simplified import derived

import stridewise as sw
from stridewise.planning import make_plan
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.cost import KernelCost
from stridewise.targets.kernels import KernelSpec
from stridewise.targets.onednn.target import onednn_cpu

from .graphs import ForcingOracle, error
from .winograd_layers import Runner, Shape, convolved

CORE = load_core()
VOLUMES = [(3, 1, 1), (1, 3, 3), (1, 1, 1), (3, 3, 3), (2, 3, 3), (3, 4, 4), (5, 1, 1), (3, 1, 3)]


@st.composite
def layers(draw: st.DrawFn) -> tuple[sw.Graph, dict[str, Any]]:
    """Return a convolution over one or three axes, and what follows it."""
    axes = draw(st.sampled_from([1, 3]))
    window = (draw(st.integers(1, 7)),) if axes == 1 else draw(st.sampled_from(VOLUMES))
    strides = tuple(draw(st.sampled_from([1, 1, 2])) for _ in window)
    dilations = tuple(draw(st.sampled_from([1, 1, 2])) for _ in window)
    reach = [(taps - 1) * step for taps, step in zip(window, dilations, strict=True)]
    pads = tuple(draw(st.integers(0, most)) for most in reach * 2)
    extents = [draw(st.integers(most + 1, most + 12)) for most in reach]
    groups, each = draw(st.sampled_from([(1, 16), (1, 33), (16, 1), (40, 1), (32, 1), (2, 16)]))
    outputs = groups * draw(st.sampled_from([1, 2] if each == 1 else [16, 32, 64]))
    b, rng = sw.GraphBuilder("g"), np.random.default_rng(draw(st.integers(0, 99)))
    x = b.input("x", (draw(st.integers(1, 3)), groups * each, *extents))
    scale = np.float32(each * np.prod(window)) ** -0.5
    w = scale * rng.standard_normal((outputs, each, *window), np.float32)
    bias = [b.constant(rng.standard_normal(outputs, np.float32))] if draw(st.booleans()) else []
    is_constant = draw(st.sampled_from([True, True, False]))
    given = b.constant(w) if is_constant else b.input("w", w.shape)
    attrs = {"dilations": dilations, "groups": groups, "pads": pads, "strides": strides}
    y = b.op("conv", [x, given, *bias], attrs)
    after = draw(st.sampled_from(["", "relu", "swish", "add"]))
    if after == "add":
        y = b.op("add", [y, b.input("other", b.type(y).shape)])
    elif after:
        y = b.op(after, [y])
    graph = b.build([y])
    sizes = {name: graph.values[name].shape for name in graph.inputs}
    feeds = {name: rng.standard_normal(size, np.float32) for name, size in sizes.items()}
    return graph, feeds | ({} if is_constant else {"w": w})


class Preferring(ForcingOracle):
    """One kernel is cheaper than all others."""

    def __init__(self, spec: KernelSpec) -> None:
        super().__init__("plain")
        self.spec = spec

    def _cost(self, spec: KernelSpec) -> Any:
        return (KernelCost(1.0, "", "model"),) if spec == self.spec else super()._cost(spec)


def check(graph: sw.Graph, feeds: dict[str, Any]) -> set[str]:
    """Run every kernel that a plan offers beside the library's; return their kinds."""
    machine, seen = this_machine(2), set[str]()
    (wanted,) = run_reference(graph, feeds).values()
    plan = sw.plan(graph, tune="model", threads=2)
    decision = next(d for d in plan.decisions if d.node.startswith("conv"))
    for candidate in (decision.chosen, *decision.rejected):
        (call,) = candidate.option.calls
        sums = any(alias.kind == "accumulate" for alias in candidate.option.aliases)
        if sums or call.spec.kind in ("convolution", "fitted_convolution"):
            continue
        seen.add(call.spec.kind)
        forced = make_plan(derived(graph), onednn_cpu(machine), machine, Preferring(call.spec))
        (chosen,) = (d.chosen for d in forced.decisions if d.node == decision.node)
        assert chosen.algorithm == candidate.algorithm
        (found,) = load(lower_plan(forced)).run(feeds).values()
        tolerance = 3e-5 if "winograd" in call.spec.kind else 1e-5
        assert error(found, np.asarray(wanted)) <= tolerance, candidate.algorithm
    return seen


@settings(max_examples=60)
@given(layers())
def test_all_that_plans_offer_computes_the_same(made: tuple[sw.Graph, dict[str, Any]]):
    check(*made)


DENSE = {
    "3x3x3": ((3, 3, 3), {"pads": (1,) * 6}),
    "3x3x3, strides along the depth": ((3, 3, 3), {"strides": (2, 1, 1), "pads": (0,) * 6}),
    "3x3x3, dilated along the depth": ((3, 3, 3), {"dilations": (2, 1, 1), "pads": (3, 1, 0) * 2}),
    "2x4x4 by 1x2x2": ((2, 4, 4), {"strides": (1, 2, 2), "pads": (1, 1, 1, 0, 1, 2)}),
    "7x7x7 by 2": ((7, 7, 7), {"strides": (2, 2, 2), "pads": (3,) * 6}),
    "4x1x3": ((4, 1, 3), {"pads": (2, 0, 1, 1, 0, 1)}),
}


@pytest.mark.parametrize("after", ["", "relu", "add"])
@pytest.mark.parametrize("name", DENSE)
def test_winograd_of_volumes(name: str, after: str):
    window, attrs = DENSE[name]
    b, rng = sw.GraphBuilder("g"), np.random.default_rng(0)
    x = b.input("x", (2, 20, 7, 22, 23))
    scale = np.float32(20 * np.prod(window)) ** -0.5
    w = b.constant(scale * rng.standard_normal((64, 20, *window), np.float32))
    y = b.op("conv", [x, w, b.constant(rng.standard_normal(64, np.float32))], attrs)
    if after == "add":
        y = b.op("add", [y, b.input("other", b.type(y).shape)])
    elif after:
        y = b.op(after, [y])
    graph = b.build([y])
    sizes = {n: graph.values[n].shape for n in graph.inputs}
    feeds = {n: rng.standard_normal(size, np.float32) for n, size in sizes.items()}
    assert "volume_winograd" in check(graph, feeds)


@pytest.mark.parametrize("window", [(3,), (5,), (3, 1, 1), (1, 3, 3)])
def test_weights_of_a_run(window: tuple[int, ...]):
    b, rng = sw.GraphBuilder("g"), np.random.default_rng(0)
    extents = (40,) if len(window) == 1 else (6, 12, 12)
    x, w = b.input("x", (2, 64, *extents)), b.input("w", (64, 64, *window))
    graph = b.build([b.op("conv", [x, w], {"pads": tuple(taps // 2 for taps in window) * 2})])
    feeds = {n: rng.standard_normal(graph.values[n].shape, np.float32) for n in graph.inputs}
    assert "fitted_winograd" in check(graph, feeds)


@settings(max_examples=40)
@given(layers())
def test_bfloat16(made: tuple[sw.Graph, dict[str, Any]]):
    graph, feeds = made
    (wanted,) = run_reference(graph, feeds).values()
    compiled: Any = sw.compile
    (found,) = compiled(graph, tune="model", threads=2, dtype="bfloat16").run(feeds).values()
    assert error(found, np.asarray(wanted)) <= 2e-2


def offered(window: tuple[int, ...], *, groups: int = 1, channels: int = 64) -> set[str]:
    """Return the kinds of kernels of a convolution that keeps its extents."""
    b = sw.GraphBuilder("g")
    extents = (96,) if len(window) == 1 else (8, 28, 28)
    w = b.constant(np.ones((channels, channels // groups, *window), np.float32))
    pads = tuple(taps // 2 for taps in window) * 2
    y = b.op("conv", [b.input("x", (2, channels, *extents)), w], {"pads": pads, "groups": groups})
    decision = sw.plan(b.build([y]), tune="model").decisions[0]
    candidates = (decision.chosen, *decision.rejected)
    return {call.spec.kind for c in candidates for call in c.option.calls}


@pytest.mark.parametrize(
    ("window", "kind"),
    [
        ((3,), "winograd"),
        ((1,), "conv1x1"),
        ((3, 1, 1), "winograd"),
        ((1, 3, 3), "winograd"),
        ((3, 3, 3), "volume_winograd"),
        ((1, 1, 1), "conv1x1"),
    ],
)
def test_dense_windows_have_kernels_of_images(window: tuple[int, ...], kind: str):
    assert kind in offered(window)


@pytest.mark.parametrize(
    ("window", "kind"),
    [
        ((3,), "depthwise"),
        ((1, 3, 3), "depthwise"),
        ((5, 1, 1), "depthwise"),
        ((3, 3, 3), "volume_depthwise"),
    ],
)
def test_filters_of_each_channel_have_kernels_of_images(window: tuple[int, ...], kind: str):
    assert kind in offered(window, groups=64)


@pytest.mark.parametrize("lanes", [8, 16])
def test_groups_of_images_that_fit_the_caches(lanes: int):
    """Folded images take 1.1 MB each, so 17 of them are computed in two uneven groups."""
    shape = Shape(17, 64, 64, 64, 16, (1, 1, 1, 1), (4, 4), strides=(2, 2))
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape.src, np.float32)
    w = 0.03 * rng.standard_normal(shape.weights, np.float32)
    other = rng.standard_normal(shape.dst, np.float32)
    runner = Runner(
        shape, "channels-last", (lanes, CORE.kernel_isas(lanes)[0]), 5, bias=False,
        post_ops=[("sum", 1.0), ("eltwise", "relu", 0.0, 0.0)],
    )  # fmt: skip
    found = runner(x, w, None, held=other)
    assert error(found, np.maximum(convolved(x, w, None, shape) + other, 0)) <= 8e-6


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"slices": (3, 3, 1, 1, 1, 1)}, "slices of whole volumes"),
        ({"slices": (4, 7, 1, 1, 1, 1)}, "which the window fits into"),
        ({"slices": (4, 7, 2, 1, 1, 1)}, "which the window fits into"),
        ({"slices": (4, 3, 1, 1)}, "six numbers"),
        ({"src": "abcd"}, "slices with channels last"),
    ],
)
def test_other_slices_are_refused(change: dict[str, Any], text: str):
    src = CORE.MemoryDesc((8, 16, 12, 12), "f32", change.get("src", "acdb"))
    dst = CORE.MemoryDesc((8, 16, 12, 12), "f32", "acdb")
    with pytest.raises(ValueError, match=text):
        CORE.StridedWinograd(
            src, dst, False, (1, 1), (1, 1), [], tile=4, lanes=8, threads=1, window=(3, 3),
            strides=(1, 1), slices=change.get("slices", (4, 3, 1, 1, 1, 1)),
        )  # fmt: skip


@pytest.mark.parametrize(
    "slices", [(5, 3, 1, 1, 1, 1), (4, 3, 1, 1, 3, 1), (4, 3, 0, 1, 1, 1), (4,)]
)
def test_other_slices_of_depthwise_kernels_are_refused(slices: tuple[int, ...]):
    image = CORE.MemoryDesc((1, 16, 32, 8), "f32", "acdb")
    with pytest.raises(ValueError, match="depthwise"):
        CORE.Depthwise(
            image, image, False, False, False, (1, 1), (1, 1), [], between=0, window=(3, 3),
            strides=(1, 1), dilations=(1, 1), lanes=8, threads=1, slices=slices,
        )  # fmt: skip
