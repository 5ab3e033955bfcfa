"""Transposed convolutions of stride 1 are convolutions with the same results."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.networks import F32, Net, rng

from stridewise.graph import Graph
from stridewise.passes.flip_windows import flip_windows

from .pass_graphs import rewritten


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def flipped(graph: Graph) -> Graph:
    """Flip windows, compare the results, and return the new graph."""
    return rewritten(flip_windows, graph, 1e-5)


def transposed(
    sizes: tuple[int, ...], window: tuple[int, ...], *, groups: int = 1, **attrs: Any
) -> Graph:
    """Return a graph with one transposed convolution, of 2 inputs and 3 outputs a group."""
    b, draw = Net("g"), rng(0)
    weights = draw.normal(size=(2 * groups, 3, *window)).astype(F32)
    bias = draw.normal(size=3 * groups).astype(F32)
    x = b.input("x", (2, 2 * groups, *sizes))
    operands = [x, b.const(*weights.ravel(), shape=weights.shape), b.const(*bias)]
    return b.build([b.op("conv_transpose", operands, {"groups": groups, **attrs})])


@st.composite
def convolutions(draw: Any) -> Graph:
    """Return a graph with one transposed convolution of stride 1."""
    rank = draw(st.integers(1, 3))

    def numbers(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank)))

    sizes, window, dilations = numbers(1, 5), numbers(1, 4), numbers(1, 2)
    whole = [
        size + step * (taps - 1) for size, taps, step in zip(sizes, window, dilations, strict=True)
    ]
    begins = tuple(min(cut, n - 1) for cut, n in zip(numbers(0, 3), whole, strict=True))
    ends = tuple(
        min(cut, n - 1 - begin) for cut, n, begin in zip(numbers(0, 3), whole, begins, strict=True)
    )
    pads = (*begins, *ends)
    groups = draw(st.integers(1, 3))
    return transposed(sizes, window, groups=groups, dilations=dilations, pads=pads)


@given(graph=convolutions())
def test_results_stay(graph: Graph) -> None:
    flipped(graph)


def test_stride_1_becomes_a_convolution() -> None:
    graph = transposed((8, 8), (4, 3), pads=(1, 1, 2, 1), groups=2)
    (node,) = flipped(graph).nodes
    assert (node.op, node.ints_attr("pads")) == ("conv", (2, 1, 1, 1))


def test_flipped_weights_have_strides_of_their_own() -> None:
    (node,) = (after := flipped(transposed((4, 4), (1, 1)))).nodes
    array = after.constants[node.inputs[1]].array
    assert min(array.strides) > 0


def test_others_stay() -> None:
    assert ops(flipped(transposed((8, 8), (2, 2), strides=(1, 2)))) == ["conv_transpose"]
    # Of one element, a convolution would multiply 16 taps for each of 16 results.
    assert ops(flipped(transposed((1, 1), (4, 4)))) == ["conv_transpose"]
    # More is cut off than one window adds.
    assert ops(flipped(transposed((8, 8), (2, 2), pads=(2, 0, 0, 0)))) == ["conv_transpose"]


def test_weights_that_change_stay() -> None:
    b = Net("g")
    x, w = b.input("x", (1, 2, 4, 4)), b.input("w", (2, 3, 3, 3))
    assert ops(flipped(b.build([b.op("conv_transpose", [x, w])]))) == ["conv_transpose"]
