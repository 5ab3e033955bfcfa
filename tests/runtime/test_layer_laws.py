"""Layers of any geometry and parameters that their operator accepts compute what NumPy does."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import stridewise as sw
from stridewise.errors import GraphError
from stridewise.graph import Graph
from stridewise.ops import evaluate

FEW = settings(max_examples=40, deadline=None)
BOUNDS = st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.5])


def agrees(graph: Graph, x: np.ndarray) -> None:
    """Check a compiled graph of one input and one output against the references of its nodes."""
    values = {graph.inputs[0]: x}
    values |= {name: constant.array for name, constant in graph.constants.items()}
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            results = evaluate(node, [values[name] for name in node.inputs])
            values |= dict(zip(node.outputs, results, strict=True))
    wanted = values[graph.outputs[0]]
    found = sw.compile(graph, tune="model", threads=1)(x)
    lowest = np.finfo(np.float32).min
    np.testing.assert_allclose(found, np.maximum(wanted, lowest), rtol=1e-4, atol=1e-5)


@FEW
@given(st.data())
def test_pools(data):
    rank = data.draw(st.integers(1, 3))

    def numbers(least: int, most: int, count: int = rank) -> tuple[int, ...]:
        return tuple(data.draw(st.lists(st.integers(least, most), min_size=count, max_size=count)))

    kernel, dilations = numbers(1, 3), numbers(1, 4)
    wide = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)] * 2
    pads = tuple(data.draw(st.integers(0, most)) for most in wide)
    op = data.draw(st.sampled_from(["max_pool", "avg_pool"]))
    attrs = {"kernel": kernel, "dilations": dilations, "strides": numbers(1, 2), "pads": pads}
    if op == "avg_pool":
        attrs["count_include_pad"] = data.draw(st.integers(0, 1))
    shape = (1, 3, *numbers(1, 6))
    b = sw.GraphBuilder("pool")
    try:
        graph = b.build([b.op(op, [b.input("x", shape)], attrs)])
    except GraphError:
        return
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    if op == "avg_pool" and np.isnan(evaluate(graph.nodes[0], [x])[0]).any():
        return  # a mean of nothing
    agrees(graph, x)


@FEW
@given(BOUNDS, BOUNDS, st.booleans(), st.booleans())
def test_clips_with_any_bounds(low, high, is_fused, is_padded):
    """Crossed bounds give the upper one (source: ONNX, Clip)."""
    b = sw.GraphBuilder("clip")
    x = b.input("x", (1, 8, 5, 5))
    if is_fused:
        weights = np.random.default_rng(1).normal(size=(8, 8, 1, 1)).astype(np.float32)
        x = b.op("conv", [x, b.constant(weights)])
    y = b.op("clip", [x], {"alpha": low, "beta": high})
    if is_padded:
        y = b.op("pad", [y], {"pads": (0, 0, 1, 1, 0, 0, 1, 1)})
        y = b.op("max_pool", [y], {"kernel": (3, 3)})
    graph = b.build([y])
    agrees(graph, np.random.default_rng(0).normal(size=(1, 8, 5, 5)).astype(np.float32))


def test_a_convolution_of_no_channels_is_its_bias():
    b = sw.GraphBuilder("empty")
    x = b.input("x", (2, 0, 5, 5))
    weights, bias = np.zeros((3, 0, 3, 3), np.float32), np.arange(3, dtype=np.float32)
    graph = b.build([b.op("conv", [x, b.constant(weights), b.constant(bias)])])
    agrees(graph, np.zeros((2, 0, 5, 5), np.float32))


PRODUCERS = ("conv", "max_pool", "group_norm", "scale_shift", "lrn", "relu")
CONSUMERS = ("batch_norm", "group_norm", "lrn", "channel_shuffle", "avg_pool", "conv")


def _layer(b: sw.GraphBuilder, op: str, x: str) -> str:
    """Add an operator that keeps the shape of an image of an even number of channels."""
    shape = b.type(x).shape
    channels, rank = shape[1], len(shape) - 2
    rng = np.random.default_rng(channels)
    rows = [b.constant(1 + rng.random(channels, np.float32)) for _ in range(4)]
    ones, threes = (1,) * rank, (3,) * rank
    match op:
        case "conv":
            weights = b.constant(rng.normal(size=(channels, channels, *threes)).astype(np.float32))
            return b.op("conv", [x, weights], {"pads": ones * 2})
        case "max_pool" | "avg_pool":
            return b.op(op, [x], {"kernel": threes, "pads": ones * 2})
        case "group_norm":
            return b.op(op, [x, *rows[:2]], {"groups": 2})
        case "lrn":
            return b.op(op, [x], {"size": 3})
        case "channel_shuffle":
            return b.op(op, [x], {"groups": 2})
        case "relu":
            return b.op(op, [x])
        case _:
            return b.op("scale_shift", [x, *rows[:2]])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_layers_of_transposed_images(data):
    """Whatever axes change places between layers that give their channels a meaning."""
    shape = data.draw(st.sampled_from([(2, 6, 4), (2, 6, 4, 8), (2, 4, 6, 8, 2)]))
    perm = tuple(data.draw(st.permutations(range(len(shape)))))
    b = sw.GraphBuilder("turned")
    y = _layer(b, data.draw(st.sampled_from(PRODUCERS)), b.input("x", shape))
    y = b.op("relu", [y]) if data.draw(st.booleans()) else y
    y = _layer(b, data.draw(st.sampled_from(CONSUMERS)), b.op("transpose", [y], {"perm": perm}))
    y = b.op("transpose", [y], {"perm": perm}) if data.draw(st.booleans()) else y
    agrees(b.build([y]), np.random.default_rng(0).normal(size=shape).astype(np.float32))
