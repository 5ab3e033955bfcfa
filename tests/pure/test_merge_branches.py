"""Branches of one value that are added become one node, and the sums stay the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.networks import F32, Net, rng
from tests.simplified import assert_same

from stridewise.graph import Graph
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.passes.merge_branches import merge_branches


def merged(graph: Graph) -> tuple[list[str], list[str]]:
    """Merge branches, compare the results, and return operators and reasons."""
    verify(graph, infer)
    after, refusals = merge_branches(graph)
    assert_same(graph, after, 1e-5)
    return [node.op for node in after.nodes], [refusal.reason for refusal in refusals]


class Branches:
    """Random branches of one value whose results have one shape."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.random = draw, rng(draw(st.integers(0, 99)))
        self.groups = draw(st.sampled_from([1, 2, 4]))
        self.stride = draw(st.sampled_from([1, 1, 2]))
        self.b = Net("branches")
        self.turned = draw(st.booleans())
        extents = (draw(st.integers(7, 9)), draw(st.integers(7, 9)))
        self.x = self.b.input("x", (2, *extents, 4) if self.turned else (2, 4, *extents))
        self.form = {"data_format": "NHWC"} if self.turned else {}

    def data(self, *shape: int) -> str:
        return self.b.constant(self.random.normal(size=shape).astype(F32), "k")

    def conv(self) -> str:
        taps = self.draw(st.sampled_from([1, 3]))
        step = self.draw(st.sampled_from([1, 2]))
        groups = self.draw(st.sampled_from([self.groups, 4]))
        pad = step * (taps // 2)
        attrs = {"groups": groups, "strides": (self.stride,) * 2, "pads": (pad,) * 4}
        inputs = [self.x, self.data(4, 4 // groups, taps, taps)]
        inputs += [self.data(4)] if self.draw(st.booleans()) else []
        return self.b.op("conv", inputs, {**attrs, "dilations": (step, step), **self.form})

    def scale(self) -> str:
        return self.b.op("scale_shift", [self.x, self.data(4), self.data(4)], self.form)

    def branch(self) -> str:
        plain = [self.scale, lambda: self.x] if self.stride == 1 else []
        return self.draw(st.sampled_from([self.conv, self.conv, *plain]))()

    def graph(self) -> Graph:
        row = (4,) if self.turned else (4, 1, 1)
        y = self.conv()
        for _ in range(self.draw(st.integers(1, 4))):
            kind = self.draw(st.sampled_from(["add", "sub", "from", "mul", "shift", "bn"]))
            if kind == "mul":
                y = self.b.op("mul", [self.data(*row), y])
            elif kind == "shift":
                y = self.b.op("sub", [y, self.data(*row)])
            elif kind == "bn":
                y = self.b.op("scale_shift", [y, self.data(4), self.data(4)], self.form)
            elif kind == "from":
                y = self.b.op("sub", [self.branch(), y])
            else:
                y = self.b.op(kind, [y, self.branch()])
        return self.b.build([self.b.op("relu", [y])])


@given(st.data())
def test_random_branches_keep_their_sum(data: st.DataObject) -> None:
    merged(Branches(data.draw).graph())


def test_a_block_of_three_branches_is_one_convolution() -> None:
    b = Net("block")
    x = b.input("x", (1, 8, 5, 6))
    y = b.op("add", [b.conv(x, 8, 3, bias=True, pads=(1, 1, 1, 1)), b.conv(x, 8)])
    y = b.op("add", [y, b.scale(x)])
    assert merged(b.build([b.op("relu", [y])])) == (["conv", "relu"], [])


def test_scales_without_a_convolution_are_one_scale() -> None:
    b = Net("scales")
    x = b.input("x", (2, 3, 4, 5))
    y = b.op("sub", [b.scale(x), b.scale(x)])
    y = b.op("add", [x, b.op("mul", [y, b.const(1, 2, 3, shape=(3, 1, 1))])])
    assert merged(b.build([y])) == (["scale_shift"], [])


def _lines(b: Net, x: str) -> list[str]:
    wide = b.op("conv", [x, b.const(*range(3), shape=(1, 1, 1, 3))], {"pads": (0, 1, 0, 1)})
    high = b.op("conv", [x, b.const(*range(3), shape=(1, 1, 3, 1))], {"pads": (1, 0, 1, 0)})
    return [wide, high]


def _strides(b: Net, x: str) -> list[str]:
    second = b.conv(x, 1, 3, strides=(2, 2), pads=(5, 5, 6, 6))
    return [b.conv(x, 1, 3, strides=(1, 1), pads=(1, 1, 1, 1)), second]


@pytest.mark.parametrize(
    ("build", "shape", "reason"),
    [
        (_lines, (1, 1, 5, 5), "9 weights would take the place of 6"),
        (_strides, (1, 1, 9, 9), "the branches have different strides"),
    ],
)
def test_branches_that_one_kernel_does_not_compute_stay_apart(
    build: Any, shape: tuple[int, ...], reason: str
) -> None:
    b = Net("apart")
    x = b.input("x", shape)
    graph = b.build([b.op("add", build(b, x))])
    operators, reasons = merged(graph)
    assert (operators, reasons) == (["conv", "conv", "add"], [reason])


def test_a_residual_is_added_by_the_kernel_of_its_convolution() -> None:
    b = Net("residual")
    x = b.input("x", (1, 3, 4, 4))
    assert merged(b.build([b.op("add", [b.conv(x, 3), x])])) == (["conv", "add"], [])


def test_branches_with_another_reader_stay() -> None:
    b = Net("read")
    x = b.input("x", (1, 3, 4, 4))
    y = b.conv(x, 3)
    graph = b.build([b.op("add", [y, b.conv(x, 3)]), b.op("relu", [y])])
    assert sorted(merged(graph)[0]) == ["add", "conv", "conv", "relu"]


def test_sums_of_different_values_stay() -> None:
    b = Net("two")
    x = b.input("x", (1, 3, 4, 4))
    y = b.op("relu", [x])
    assert merged(b.build([b.op("add", [b.conv(x, 3), b.conv(y, 3)])]))[0].count("conv") == 2
