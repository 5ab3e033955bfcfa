"""Joined and stacked branches: concats sink, stacks are added up, and results stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.networks import F32, Net, rng
from tests.simplified import simplify

from stridewise.graph import Graph
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.passes.sink_concats import sink_concats
from stridewise.passes.unstack import unstack
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.onednn.target import ABILITY


def changed(graph: Graph) -> tuple[list[str], list[str]]:
    """Run both passes, compare results, and return operators and reasons."""
    verify(graph, infer)
    feeds = {n: rng(1).normal(size=graph.value(n).shape).astype(F32) for n in graph.inputs}
    expected = run_reference(graph, feeds)
    stacked, first = unstack(graph)
    verify(stacked, infer)
    # Reshapes of constants are constants: no kernel reads them.
    assert not any(n.op == "reshape" and n.inputs[0] in stacked.constants for n in stacked.nodes)
    after, second = sink_concats(stacked, ABILITY)
    verify(after, infer)
    found = run_reference(after, feeds)
    for name, wanted in expected.items():
        np.testing.assert_allclose(found[name], wanted, rtol=2e-6, atol=2e-6)
    return [node.op for node in after.nodes], [refusal.reason for refusal in (*first, *second)]


class Branches:
    """Random branches that are joined or stacked, and what is done to them then."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.b = draw, Net("branches")
        self.random = rng(draw(st.integers(0, 99)))
        self.x = self.b.input("x", (draw(st.sampled_from([1, 2])), 6, 5, 4))

    def data(self, *shape: int) -> str:
        return self.b.constant(self.random.normal(size=shape).astype(F32), "k")

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def branch(self, channels: int) -> str:
        y = self.b.conv(self.x, channels, bias=self.draw(st.booleans()))
        return self.b.op("relu", [y]) if self.draw(st.booleans()) else y

    def stack(self) -> tuple[str, int]:
        """Return branches along a new axis, and the axis."""
        axis, count = self.draw(st.integers(0, 4)), self.draw(st.integers(1, 5))
        pieces: list[str] = []
        for _ in range(count):
            y = self.branch(6)
            shape = list(self.b.type(y).shape)
            shape.insert(axis, 1)
            pieces.append(self.b.op("reshape", [y], {"shape": tuple(shape)}))
        return self.b.op("concat", pieces, {"axis": axis}), axis

    def split(self) -> tuple[str, int]:
        """Return a branch with one of its axes as two."""
        y = self.branch(self.pick(6, 8))
        shape = self.b.type(y).shape
        axis: int = self.draw(st.integers(0, 3))
        outer: int = self.pick(*[e for e in (1, 2, 3, 4) if shape[axis] % e == 0])
        wanted = (*shape[:axis], outer, shape[axis] // outer, *shape[axis + 1 :])
        return self.b.op("reshape", [y], {"shape": wanted}), self.pick(axis, axis + 1)

    def stacked(self) -> Graph:
        b = self.b
        y, axis = self.pick(self.stack, self.split)()
        shape = b.type(y).shape
        for _ in range(self.draw(st.integers(0, 2))):
            extents = [self.pick(extent, 1) for extent in shape]
            other = self.data(*extents[self.draw(st.integers(0, 4)) :])
            other = b.op("tanh", [other]) if self.draw(st.booleans()) else other
            y = b.op(self.pick("mul", "sub"), self.draw(st.permutations([y, other])))
        op = self.pick("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")
        attrs = {"axes": (axis,), "keepdims": self.pick(0, 1)}
        return b.build([b.op("relu", [b.op(op, [y], attrs)]), b.op("reduce_sum", [y], attrs)])

    def joined(self) -> Graph:
        b = self.b
        axis = self.pick(1, 1, 2)
        pieces = [
            self.branch(self.pick(2, 3) if axis == 1 else 3) for _ in range(self.pick(1, 2, 3))
        ]
        y = b.op("concat", pieces, {"axis": axis})
        for _ in range(self.draw(st.integers(1, 3))):
            op = self.pick("scale", "relu", "tanh", "erf")
            y = b.scale(y) if op == "scale" else b.op(op, [y])
        return b.build([b.op("add", [y, self.data(1)])])


@given(st.data())
def test_random_stacks_are_added_up(data: st.DataObject) -> None:
    changed(Branches(data.draw).stacked())


@given(st.data())
def test_random_concats_sink(data: st.DataObject) -> None:
    changed(Branches(data.draw).joined())


def selective(branches: int) -> Graph:
    """Return a block of selective kernels: branches, weighed by what their sum says."""
    b = Net("selective")
    x = b.input("x", (1, 4, 5, 6))
    paths = [b.op("relu", [b.conv(x, 4, 1 + 2 * i, pads=(i,) * 4)]) for i in range(branches)]
    stack = [b.op("reshape", [path], {"shape": (1, 1, 4, 5, 6)}) for path in paths]
    y = b.op("concat", stack, {"axis": 1})
    mean = b.op("reduce_sum", [y], {"axes": (1,), "keepdims": 0})
    mean = b.op("reduce_mean", [mean], {"axes": (2, 3)})
    gate = b.op("reshape", [b.conv(mean, 4 * branches)], {"shape": (1, branches, 4, 1, 1)})
    y = b.op("mul", [y, b.op("softmax", [gate], {"axis": 1})])
    return b.build([b.op("reduce_sum", [y], {"axes": (1,), "keepdims": 0})])


def test_selective_kernels_need_no_stack() -> None:
    operators, reasons = changed(selective(2))
    assert "concat" not in operators
    assert operators.count("reduce_sum") == 0
    assert not reasons
    simple = simplify(selective(2), check=True).graph
    assert [node.op for node in simple.nodes][-1] == "pointwise"
    assert all(
        len(value.shape) < 5 for value in simple.values.values() if value.name in simple.outputs
    )


def test_more_than_four_branches_stay_stacked() -> None:
    assert changed(selective(5))[0].count("reduce_sum") == 2


def test_neighbors_of_a_row_stay_in_one_reduction() -> None:
    b = Net("row")
    x = b.input("x", (3, 8))
    y = b.op("reshape", [x], {"shape": (3, 4, 2)})
    graph = b.build([b.op("reduce_max", [y], {"axes": (2,)})])
    reason = "the elements of axis 2 are no tensors of their own"
    assert changed(graph) == (["reshape", "reduce_max"], [reason])


@pytest.mark.parametrize("follower", ["scale", "relu"])
def test_joined_convolutions_take_scales_and_activations(follower: str) -> None:
    b = Net("joined")
    x = b.input("x", (2, 3, 4, 4))
    y = b.op("concat", [b.conv(x, 2), b.conv(x, 5, 3, pads=(1,) * 4)], {"axis": 1})
    y = b.scale(y) if follower == "scale" else b.op("relu", [y])
    graph = simplify(b.build([y]), check=True).graph
    assert [node.op for node in graph.nodes] == ["conv", "conv", "concat"]


def test_a_concat_with_an_input_stays() -> None:
    b = Net("input")
    x = b.input("x", (2, 3, 4, 4))
    y = b.op("relu", [b.op("concat", [b.conv(x, 2), x], {"axis": 1})])
    operators, reasons = changed(b.build([y]))
    assert operators == ["conv", "concat", "relu"]
    assert reasons == ["'x' has other readers, or is an input"]
