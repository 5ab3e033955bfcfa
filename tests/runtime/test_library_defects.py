"""What the library computes wrongly is computed otherwise."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.graphs import error

import stridewise as sw
from stridewise.program import KernelStep
from stridewise.runtime.binding.primitives import create
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.kernels import KernelSpec, MemorySpec, PostOpSpec

LAYERS = {
    "4x4 by 2": (512, 64, 4, 2, (1, 1, 1, 1)),
    "3x3 by 2": (1024, 64, 3, 2, (1, 1, 0, 0)),
    "8x8 by 4": (64, 64, 8, 4, (2, 2, 2, 2)),
    "5x5 by 3": (192, 128, 5, 3, (2, 2, 0, 0)),
}
FOLLOWERS = ("bias", "relu", "mul", "add", "bias and swish")


def layer(name: str, follower: str, *, is_constant: bool) -> tuple[sw.Graph, dict[str, Any]]:
    """Return a transposed convolution with what follows it, and inputs."""
    channels, outputs, window, step, pads = LAYERS[name]
    b, rng = sw.GraphBuilder("g"), np.random.default_rng(0)
    x = b.input("x", (1, channels, 3, 3))
    shapes = {"w": (channels, outputs, window, window), "bias": (outputs,)}
    arrays = {key: 0.1 * rng.standard_normal(s, np.float32) for key, s in shapes.items()}
    names = [*shapes][: 2 if "bias" in follower else 1]
    given = [b.constant(arrays[n]) if is_constant else b.input(n, shapes[n]) for n in names]
    attrs: dict[str, Any] = {"strides": (step, step), "pads": pads}
    y = b.op("conv_transpose", [x, *given], attrs)
    if follower in ("mul", "add"):
        y = b.op(follower, [y, b.input("other", b.type(y).shape)])
    elif follower != "bias":
        y = b.op(follower.removeprefix("bias and "), [y])
    graph = b.build([y])
    sizes = {n: value.shape for n, value in graph.values.items() if n in graph.inputs}
    return graph, {n: rng.standard_normal(shape, np.float32) for n, shape in sizes.items()}


@pytest.mark.parametrize("is_constant", [True, False], ids=["constant", "of a run"])
@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("name", LAYERS)
def test_large_transposed_convolutions_with_post_ops(name: str, follower: str, is_constant: bool):
    graph, feeds = layer(name, follower, is_constant=is_constant)
    (wanted,) = run_reference(graph, feeds).values()
    (output,) = graph.outputs
    compiled: Any = sw.compile
    formats = {"input_formats": {"x": "NHWC"}, "output_formats": {output: "NHWC"}}
    for dtype, limit in (("float32", 1e-5), ("bfloat16", 2e-2)):
        model = compiled(graph, threads=1, tune="model", dtype=dtype, **formats)
        x = np.ascontiguousarray(np.moveaxis(feeds["x"], 1, -1))
        found = np.moveaxis(model.run({**feeds, "x": x})[output], -1, 1)
        assert error(found, np.asarray(wanted)) <= limit


@pytest.mark.parametrize("is_fitted", [False, True], ids=["constant", "of a run"])
def test_wrong_kernels_are_replaced_where_a_plan_names_them(is_fitted: bool):
    image = MemorySpec((1, 512, 3, 3), "acdb"), MemorySpec((1, 64, 6, 6), "acdb")
    weights = MemorySpec((64, 512, 4, 4), "abcd" if is_fitted else "any")
    numbers = {"begins": 1, "dilations": 1, "ends": 1, "strides": 2}
    bare = KernelSpec(
        "fitted_deconvolution" if is_fitted else "deconvolution",
        (("src", image[0]), ("weights", weights), ("dst", image[1])),
        tuple((name, (number, number)) for name, number in numbers.items()),
    )
    first = create(bare, "", 1).impl
    active = replace(bare, post_ops=(PostOpSpec("eltwise", algorithm="relu"),))
    biased = replace(bare, memories=(*bare.memories, ("bias", MemorySpec((64,), "a"))))
    for spec in (active, biased):
        found = create(spec, first if not is_fitted else "", 1).impl
        assert "brgconv_strided" not in first or not found.startswith("brg_conv")


@st.composite
def layers(draw: st.DrawFn) -> tuple[sw.Graph, dict[str, Any]]:
    """Return transposed convolutions of all kinds with up to three operators behind them."""
    groups, step = draw(st.sampled_from([1, 1, 2, 4])), draw(st.integers(1, 3))
    inputs, outputs = (groups * draw(st.sampled_from([1, 3, 8, 16])) for _ in "io")
    window, dilation = draw(st.integers(step, 5)), draw(st.integers(1, 2))
    pad = draw(st.integers(0, dilation * (window - 1)))
    b, rng = sw.GraphBuilder("g"), np.random.default_rng(draw(st.integers(0, 99)))
    side = draw(st.integers(5, 16))
    x, is_constant = (
        b.input("x", (draw(st.integers(1, 2)), inputs, side, side)),
        draw(st.booleans()),
    )
    shapes: dict[str, tuple[int, ...]] = {"w": (inputs, outputs // groups, window, window)}
    if draw(st.booleans()):
        shapes["bias"] = (outputs,)
    arrays = {name: 0.1 * rng.standard_normal(s, np.float32) for name, s in shapes.items()}
    given = [b.constant(a) if is_constant else b.input(n, a.shape) for n, a in arrays.items()]
    attrs = {"strides": (step, step), "dilations": (dilation, dilation), "pads": (pad,) * 4}
    y = b.op("conv_transpose", [x, *given], {**attrs, "groups": groups})
    for index, op in enumerate(draw(st.lists(st.sampled_from(BEHIND), max_size=3))):
        others = [b.input(f"other{index}", b.type(y).shape)] if op in ("add", "mul") else []
        y = b.op(op, [y, *others])
    graph = b.build([y])
    feeds = {n: rng.standard_normal(graph.values[n].shape, np.float32) for n in graph.inputs}
    return graph, feeds | {n: a for n, a in arrays.items() if n in graph.inputs}


BEHIND = ("relu", "swish", "add", "mul", "hard_swish", "tanh")


@given(layers(), st.sampled_from(["float32", "bfloat16"]))
def test_the_library_applies_nothing_behind_data_gradients(
    made: tuple[sw.Graph, dict[str, Any]], dtype: str
):
    """There it has naive loops, or wrong results; expressions apply bias and post-ops."""
    graph, feeds = made
    compiled: Any = sw.compile
    model = compiled(graph, threads=1, tune="model", dtype=dtype)
    (wanted,) = run_reference(graph, feeds).values()
    (found,) = model.run(feeds).values()
    assert error(found, np.asarray(wanted)) <= (1e-5 if dtype == "float32" else 3e-2)
    for step in model.program.steps:
        if isinstance(step, KernelStep) and step.spec.kind.endswith("deconvolution"):
            elements = prod(step.spec.memories[-1][1].dims)
            nanoseconds = 38.0 if step.spec.post_ops else 2.5 if step.spec.memory("bias") else 0.0
            is_gradient = create(step.spec, "", 1).impl.startswith("conv:")
            # A further step takes microseconds, which few elements are not worth.
            assert not is_gradient or nanoseconds * elements <= 10_000
