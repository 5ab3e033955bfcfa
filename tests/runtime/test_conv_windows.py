"""Convolutions as products of windows, by a kernel of our own; plans with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stridewise as sw
from stridewise.dtypes import dtype_of
from stridewise.ops import GraphBuilder
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.simulation.reference import run_reference

from .winograd_layers import CORE, KERNELS, Array, Runner, Shape, convolved, data, exact

BF16 = dtype_of("bf16").numpy
CLIP = ("eltwise", "clip", -1.0, 1.5)
SWISH = ("eltwise", "swish", 1.0, 0.0)
SOURCES = ("plain", "channels-last")
KINDS = ("channels-last", "blocked")


class Windows(Runner):
    """A kernel of windows in a program of one step."""

    def created(self, given: tuple[Any, ...], common: dict[str, Any], *_: Any, **__: Any) -> Any:
        shape = self.shape
        return CORE.ConvWindows(
            *given, **common, window=shape.window, strides=shape.strides,
            dilations=shape.dilations,
        )  # fmt: skip

    def pack(self, w: Array, packed: Any) -> None:
        wanted = self.kernel.arg_desc(CORE.ARG_WEIGHTS)
        CORE.prepack_into(w, CORE.MemoryDesc(w.shape, "f32", "abcd"), wanted, packed, 0, 1)


def close(found: Array, wanted: Array) -> bool:
    return np.abs(found - wanted).max() <= 4e-6 * max(1, np.abs(wanted).max())


SHAPES = {
    "color images": Shape(1, 3, 20, 33, 24, (1, 1, 1, 1), (3, 3), strides=(2, 2)),
    "large windows": Shape(2, 3, 40, 37, 64, (3, 3, 3, 3), (7, 7), strides=(2, 2)),
    "patches": Shape(2, 3, 32, 48, 96, (0, 0, 0, 0), (16, 16), strides=(16, 16)),
    "four channels": Shape(1, 4, 17, 21, 32, (1, 1, 1, 1)),
    "a row": Shape(1, 1, 5, 300, 8, (0, 32, 0, 31), (1, 64)),
    "a column": Shape(2, 7, 500, 1, 40, (4, 0, 4, 0), (9, 1)),
    "deep": Shape(1, 130, 9, 11, 70, (1, 1, 1, 1)),
    "deeper than a product": Shape(2, 700, 4, 5, 40, (1, 0, 1, 0), (3, 2)),
    "dilated": Shape(1, 20, 15, 18, 33, (2, 4, 3, 1), (3, 2), (2, 3)),
    "unequal pads": Shape(1, 5, 6, 7, 17, (0, 2, 3, 1), (4, 3), strides=(1, 2)),
    "one pixel": Shape(1, 2, 3, 3, 5, (0, 0, 0, 0), (3, 3)),
    "one output": Shape(1, 32, 1, 700, 1, (0, 3, 0, 3), (1, 7)),
    "two outputs": Shape(2, 21, 9, 40, 2, (1, 1, 1, 1)),
    "three outputs": Shape(1, 64, 12, 35, 3, (4, 4, 4, 4), (9, 9)),
    "four outputs": Shape(1, 50, 10, 17, 4, (2, 0, 1, 2), (2, 4), (3, 2), strides=(2, 1)),
    "wide": Shape(1, 16, 2, 9000, 16, (0, 7, 0, 7), (1, 15)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_layers(name: str, kernel: tuple[int, str], source: str, kind: str):
    shape = SHAPES[name]
    found = Windows(shape, kind, kernel, 0, source=source)(*data(shape))
    assert close(found, exact(shape))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("name", ["color images", "deeper than a product", "three outputs"])
def test_post_ops(name: str, kernel: tuple[int, str], kind: str):
    shape = SHAPES[name]
    x, w, _ = data(shape)
    other, held = (np.random.default_rng(i).normal(size=shape.dst).astype("f4") for i in (1, 2))
    run = Windows(
        shape,
        kind,
        kernel,
        0,
        source="channels-last",
        bias=False,
        post_ops=[("sum", 1.0), CLIP, ("binary", "mul"), SWISH],
    )
    wanted = np.clip(convolved(x, w, None, shape) + held, -1, 1.5) * other
    assert close(run(x, w, None, [other], held), wanted / (1 + np.exp(-wanted)))


@pytest.mark.parametrize("types", [("bf16", "bf16"), ("bf16", "f32"), ("f32", "bf16")], ids=str)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("name", ["color images", "a column", "deep", "two outputs"])
def test_bfloat16(name: str, kernel: tuple[int, str], types: tuple[str, str]):
    """Products are in float32: only results are rounded."""
    shape = SHAPES[name]
    x, w, bias = data(shape)
    if types[0] == "bf16":
        x = x.astype(BF16).astype("f4")
    posts = [("binary", "add"), SWISH]
    other = np.random.default_rng(1).normal(size=shape.dst).astype("f4")
    other = other.astype(BF16).astype("f4") if types[1] == "bf16" else other
    wanted = convolved(x, w, bias, shape) + other
    wanted /= 1 + np.exp(-wanted)
    for source in SOURCES:
        for kind in KINDS:
            run = Windows(shape, kind, kernel, 0, source=source, post_ops=posts, dtypes=types)
            found = run(x, w, bias, [other]).astype(float)
            limit = 2e-5 if types[1] == "f32" else 2**-8
            assert (np.abs(found - wanted) <= limit * np.maximum(1, np.abs(wanted))).all()


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_bits_do_not_depend_on_threads(kernel: tuple[int, str]):
    for shape in SHAPES.values():
        found = [
            Windows(shape, "blocked", kernel, 0, source="plain", threads=n)(*data(shape))
            for n in (1, 2, 7)
        ]
        assert all(np.array_equal(found[0], other) for other in found)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    def pair(least: int, most: int) -> tuple[int, int]:
        return draw(st.integers(least, most)), draw(st.integers(least, most))

    window, dilations = pair(1, 5), pair(1, 3)
    pads = (*pair(0, 6), *pair(0, 6))
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    height, width = (
        draw(st.integers(max(1, reach[i] - pads[i] - pads[i + 2]), 40)) for i in range(2)
    )
    return Shape(
        draw(st.integers(1, 3)), draw(st.integers(1, 40)), height, width, draw(st.integers(1, 70)),
        pads, window, dilations, strides=pair(1, 4),
    )  # fmt: skip


@settings(max_examples=80)
@given(
    shapes(), st.sampled_from(KERNELS), st.sampled_from(SOURCES), st.sampled_from(KINDS),
    st.integers(1, 5),
)  # fmt: skip
def test_any_layer(shape: Shape, kernel: tuple[int, str], source: str, kind: str, threads: int):
    found = Windows(shape, kind, kernel, 0, source=source, threads=threads)(*data(shape))
    assert close(found, exact(shape))


@pytest.mark.parametrize(
    ("source", "weights"),
    [
        ((2, 3, 20, 14), (3, 3, 5, 5)),
        ((1, 5, 90), (24, 5, 7)),
        ((1, 40, 60), (1, 40, 3)),
        ((1, 6, 9, 5, 6), (40, 6, 3, 1, 1)),
        ((2, 20, 4, 9, 8), (21, 20, 1, 3, 2)),
    ],
    ids=str,
)
def test_plans_with_them(source: tuple[int, ...], weights: tuple[int, ...]):
    """Each way to compute a layer with what follows, over one to three axes, is right."""
    b, rng = GraphBuilder("layer"), np.random.default_rng(0)

    def constant(*shape: int) -> str:
        return b.constant(rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape).astype("f4"))

    pads = tuple(extent // 2 for extent in weights[2:])
    x = b.input("x", source)
    y = b.op("conv", [x, constant(*weights), constant(weights[0])], {"pads": (*pads, *pads)})
    spans = zip(source[2:], pads, weights[2:], strict=True)
    shape = tuple(extent + 2 * pad - taps + 1 for extent, pad, taps in spans)
    other = b.input("other", (source[0], weights[0], *shape))
    graph = b.build([b.op("relu", [b.op("add", [y, other])])])
    given = {name: rng.normal(size=graph.value(name).shape).astype("f4") for name in graph.inputs}
    wanted = run_reference(graph, given)[graph.outputs[0]]
    plan = sw.plan(graph, tune="model", threads=2)
    tried = 0
    for node in plan.graph.nodes:
        for index, candidate in enumerate(plan.candidates.nodes[node.name]):
            if candidate.option.calls and candidate.option.calls[0].spec.kind == "conv_windows":
                only = plan.restricted("one", {node.name: (index,)})
                found = load(lower_plan(only)).run(given)[graph.outputs[0]]
                assert close(found, wanted), candidate.option.algorithm
                tried += 1
    assert tried >= 2
