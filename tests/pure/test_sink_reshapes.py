"""Reshapes move past elementwise operators, and no result changes."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.networks import F32, Net, rng

from stridewise.graph import Graph
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.ops.geometry import reshape_groups
from stridewise.passes.sink_reshapes import sink_reshapes
from stridewise.runtime.simulation.reference import run_reference

EXTENTS = (1, 2, 3, 4, 6)


def sunk(graph: Graph) -> list[str]:
    """Move reshapes, compare the results, and return the operators."""
    verify(graph, infer)
    after, _ = sink_reshapes(graph)
    verify(after, infer)
    feeds = {n: rng(1).normal(size=graph.value(n).shape).astype(F32) for n in graph.inputs}
    expected, found = run_reference(graph, feeds), run_reference(after, feeds)
    for name in graph.outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, atol=1e-6)
    return [node.op for node in after.nodes]


@st.composite
def shapes(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    """Return extents of one to five axes with a product."""
    found: list[int] = []
    while size > 1 and len(found) < 4:
        extent = draw(st.sampled_from([e for e in EXTENTS if size % e == 0]))
        found.append(extent)
        size //= extent
    return (*found, size)


@given(st.data())
def test_random_chains_of_reshapes_and_elementwise_operators(data: st.DataObject) -> None:
    b, draw, random = Net("chain"), data.draw, rng(data.draw(st.integers(0, 99)))
    x = b.input("x", (2, 6, 2))
    y = b.op("matmul", [x, b.constant(random.normal(size=(2, 6)).astype(F32), "w")])
    for _ in range(draw(st.integers(1, 6))):
        shape = b.type(y).shape
        kind = draw(st.sampled_from(["reshape", "reshape", "relu", "constant", "sum", "scale"]))
        if kind == "reshape":
            y = b.op("reshape", [y], {"shape": draw(shapes(prod(shape)))})
        elif kind == "relu":
            y = b.op("relu", [y])
        elif kind == "constant":
            some = tuple(draw(st.sampled_from([extent, 1])) for extent in shape)
            some = some[draw(st.integers(0, len(some) - 1)) :]
            data_ = b.constant(random.normal(size=some).astype(F32), "k")
            y = b.op(
                draw(st.sampled_from(["add", "sub", "mul"])), draw(st.permutations([y, data_]))
            )
        elif kind == "sum":
            z = b.op("matmul", [x, b.constant(random.normal(size=(2, 6)).astype(F32), "w")])
            y = b.op("sub", [y, b.op("reshape", [z], {"shape": shape})])
        elif len(shape) > 1:
            y = b.scale(y)
    sunk(b.build([y, b.op("neg", [y])]))


@given(st.data())
def test_groups_of_a_reshape_have_as_many_elements_each(data: st.DataObject) -> None:
    before, after = data.draw(shapes(144)), data.draw(shapes(144))
    groups = reshape_groups(before, after)
    assert all(prod(before[old]) == prod(after[new]) for old, new in groups)
    assert tuple(e for old, _ in groups for e in before[old]) == before
    assert tuple(e for _, new in groups for e in after[new]) == after


def test_a_linear_layer_with_a_batch_norm_of_tokens_needs_no_reshape() -> None:
    b = Net("tokens")
    x = b.input("x", (2, 5, 3))
    y = b.op("matmul", [x, b.const(*range(9), shape=(3, 3))])
    y = b.scale(b.op("reshape", [y], {"shape": (10, 3)}))
    y = b.op("add", [x, b.op("reshape", [y], {"shape": (2, 5, 3)})])
    assert "reshape" not in sunk(b.build([b.op("relu", [y])]))


def test_a_mask_of_windows_loses_the_axis_of_the_batch() -> None:
    b = Net("mask")
    x, mask = b.input("x", (4, 3, 2, 2)), b.const(*range(16), shape=(1, 4, 1, 2, 2))
    y = b.op("matmul", [x, x])
    y = b.op("add", [b.op("reshape", [y], {"shape": (1, 4, 3, 2, 2)}), mask])
    y = b.op("reshape", [y], {"shape": (4, 3, 2, 2)})
    assert sunk(b.build([b.op("softmax", [y], {"axis": 3})]))[:2] == ["matmul", "add"]


def test_reshapes_that_other_nodes_read_stay() -> None:
    b = Net("read")
    x = b.input("x", (2, 3))
    y = b.op("reshape", [b.op("matmul", [x, b.const(1, 2, 3, shape=(3, 1))])], {"shape": (2,)})
    graph = b.build([b.op("relu", [y]), b.op("neg", [y])])
    assert sunk(graph) == ["matmul", "reshape", "relu", "neg"]
