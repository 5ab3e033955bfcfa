"""Narrow groups of constant weights, together or in rows, in every format."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.graphs import error, inputs_of

import stridewise as sw
from stridewise.graph import Graph
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.simulation.reference import run_reference

LANES = 16 if this_machine(1).has_avx512 else 8


@st.composite
def layers(draw: st.DrawFn) -> Graph:
    """Return a convolution, transposed or not, whose groups fill no vectors by themselves."""
    count = draw(st.sampled_from([2, 4]))
    inputs, outputs = (LANES // count * draw(st.sampled_from([1, 3])) for _ in range(2))
    groups, window = (
        count * draw(st.integers(1, 3)),
        draw(st.sampled_from([(1, 1), (3, 3), (1, 5)])),
    )
    b = sw.GraphBuilder("groups")
    x = b.relu(
        b.input("x", (draw(st.integers(1, 2)), groups * inputs, 9, draw(st.integers(5, 11))))
    )
    rng, is_transposed = np.random.default_rng(0), draw(st.booleans())
    shape = (groups * inputs, outputs) if is_transposed else (groups * outputs, inputs)
    weights = b.constant(rng.normal(size=(*shape, *window)).astype(np.float32))
    more = [b.constant(rng.normal(size=groups * outputs).astype(np.float32))]
    stride = draw(st.integers(1, 2))
    attrs = {"groups": groups, "strides": (stride, stride)}
    operator = "conv_transpose" if is_transposed else "conv"
    y = b.op(operator, [x, weights, *more[: draw(st.integers(0, 1))]], attrs, output="y")
    return b.build([b.relu(y)])


@pytest.mark.parametrize(("dtype", "limit"), [("float32", 1e-5), ("bfloat16", 2e-2)])
@settings(max_examples=25, deadline=None)
@given(graph=layers())
def test_any_layer(dtype: str, limit: float, graph: Graph):
    feeds = inputs_of(graph)
    (wanted,) = run_reference(graph, feeds).values()
    plan = sw.plan(graph, tune="model", threads=2, dtype=dtype)  # type: ignore[arg-type]
    ways = 0
    for node, group in plan.candidates.nodes.items():
        for number, item in enumerate(group):
            if "together" in item.algorithm:
                ways += 1
                chosen = plan.restricted("together", {node: (number,)})
                model = sw.compile(graph, plan=chosen, threads=2)
                (found,) = model.run(feeds).values()
                assert error(found, wanted) <= limit
    assert ways


@st.composite
def layers_in_rows(draw: st.DrawFn) -> Graph:
    """Return a convolution of which a vector holds several groups."""
    results = draw(st.sampled_from([2, 4, 8]))
    inputs, groups = draw(st.sampled_from([1, results])), draw(st.integers(2, 40))
    window = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    dilations = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    extents = [(taps - 1) * step + 1 for taps, step in zip(window, dilations, strict=True)]
    pads = tuple(draw(st.integers(0, extent - 1)) for extent in (*extents, *extents))
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    side = draw(st.tuples(st.integers(9, 13), st.integers(9, 21)))
    b, rng = sw.GraphBuilder("groups"), np.random.default_rng(0)
    x = b.relu(b.input("x", (draw(st.integers(1, 2)), groups * inputs, *side)))
    weights = rng.normal(size=(groups * results, inputs, *window)).astype(np.float32)
    more = [b.constant(rng.normal(size=groups * results).astype(np.float32))]
    attrs = {"groups": groups, "strides": strides, "dilations": dilations, "pads": pads}
    operands = [x, b.constant(weights), *more[: draw(st.integers(0, 1))]]
    y = b.op("conv", operands, attrs, output="y")
    return b.build([draw(st.sampled_from([b.relu, b.sigmoid]))(y)])


@pytest.mark.parametrize(("dtype", "limit"), [("float32", 1e-5), ("bfloat16", 2e-2)])
@settings(max_examples=40, deadline=None)
@given(graph=layers_in_rows())
def test_any_layer_in_rows(dtype: str, limit: float, graph: Graph):
    feeds = inputs_of(graph)
    (wanted,) = run_reference(graph, feeds).values()
    plan = sw.plan(graph, tune="model", threads=2, dtype=dtype)  # type: ignore[arg-type]
    ways = [
        (node, number)
        for node, group in plan.candidates.nodes.items()
        for number, item in enumerate(group)
        if "in rows" in item.algorithm
    ]
    for node, number in ways:
        chosen = plan.restricted("in rows", {node: (number,)})
        model = sw.compile(graph, plan=chosen, threads=2)
        assert any("narrow_groups" in str(step) for step in model.program.steps)
        (found,) = model.run(feeds).values()
        assert error(found, wanted) <= limit
    assert ways


def test_of_each_group_the_weights_are_on_the_diagonal():
    b = sw.GraphBuilder("groups")
    weights = np.arange(1, 4 * LANES + 1, dtype=np.float32).reshape(-1, 1, 1, 1)
    weights = np.concatenate([weights, -weights], axis=1)
    x = b.input("x", (1, 8 * LANES, 3, 3))
    y = b.op("conv", [x, b.constant(weights)], {"groups": 4 * LANES}, output="y")
    graph = b.build([y])
    given = np.random.default_rng(1).integers(0, 9, (1, 8 * LANES, 3, 3)).astype(np.float32)
    pairs = given.reshape(1, 4 * LANES, 2, 3, 3)
    wanted = (pairs[:, :, 0] - pairs[:, :, 1]) * weights[:, 0]
    for tune in ("model", "auto"):
        (found,) = sw.compile(graph, tune=tune, threads=2).run({"x": given}).values()
        np.testing.assert_array_equal(found, wanted)
