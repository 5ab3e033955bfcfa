"""What the library computes wrongly is computed otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.runtime.graphs import error

import stridewise as sw
from stridewise.program import KernelStep
from stridewise.runtime.binding.primitives import create
from stridewise.runtime.simulation.reference import run_reference

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


@pytest.mark.parametrize("is_constant", [True, False], ids=["constant", "of a run"])
def test_costs_of_earlier_versions_may_name_what_is_wrong(is_constant: bool):
    graph, _ = layer("4x4 by 2", "bias and swish", is_constant=is_constant)
    compiled: Any = sw.compile
    steps = compiled(graph, threads=1, tune="model", input_formats={"x": "NHWC"}).program.steps
    (spec,) = [s.spec for s in steps if isinstance(s, KernelStep) and "deconv" in s.spec.kind]
    wrong = "brg_conv:avx512_core+brgconv_strided:avx512_core"
    assert create(spec, wrong, 1).impl != wrong
