"""Moves that only feed each other become one copy of each element, to the same places."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.networks import F32, Net, rng

from stridewise.errors import GraphError
from stridewise.graph import Graph
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.passes.merge_moves import merge_moves
from stridewise.runtime.simulation.reference import run_reference


def merged(graph: Graph) -> tuple[list[str], list[str]]:
    """Merge moves, compare the results, and return operators and reasons."""
    verify(graph, infer)
    after, refusals = merge_moves(graph)
    verify(after, infer)
    feeds = {n: rng(1).normal(size=graph.value(n).shape).astype(F32) for n in graph.inputs}
    expected, found = run_reference(graph, feeds), run_reference(after, feeds)
    for name, wanted in expected.items():
        np.testing.assert_array_equal(found[name], wanted)
    return [node.op for node in after.nodes], [refusal.reason for refusal in refusals]


def cut(b: Net, x: str, axis: int, start: int, stop: int, step: int = 1) -> str:
    shape = b.type(x).shape
    starts = tuple(start if at == axis else 0 for at in range(len(shape)))
    stops = tuple(stop if at == axis else extent for at, extent in enumerate(shape))
    steps = tuple(step if at == axis else 1 for at in range(len(shape)))
    return b.op("slice", [x], {"starts": starts, "stops": stops, "steps": steps})


def rolled(b: Net, x: str, axis: int, by: int) -> str:
    parts = [cut(b, x, axis, by, b.type(x).shape[axis]), cut(b, x, axis, 0, by)]
    return b.op("concat", parts, {"axis": axis})


class Moves:
    """Random moves of two values."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.b = draw, Net("moves")
        self.x = self.b.op("relu", [self.b.input("x", (2, 6, 4))])
        self.y = self.b.op("tanh", [self.b.input("y", (2, 6, 4))])

    def step(self, x: str) -> str:
        b, shape = self.b, self.b.type(x).shape
        kind = self.draw(st.sampled_from(["turn", "reshape", "roll", "join", "thin"]))
        axis: int = self.draw(st.integers(0, len(shape) - 1))
        if kind == "turn":
            perm = self.draw(st.permutations(range(len(shape))))
            return b.op("transpose", [x], {"perm": tuple(perm)})
        if kind == "roll" and shape[axis] > 1:
            return rolled(b, x, axis, self.draw(st.integers(1, shape[axis] - 1)))
        if kind == "join" and prod(shape) < 200:
            other = self.y if self.b.type(self.y).shape == shape else x
            return b.op("concat", [x, other], {"axis": axis})
        if kind == "thin" and shape[axis] > 1:
            return cut(b, x, axis, 0, shape[axis], 2)
        left, wanted = prod(shape), list[int]()
        while left > 1 and len(wanted) < 4:
            extents = [e for e in (1, 2, 3, 4, 6) if left % e == 0]
            wanted.append(self.draw(st.sampled_from(extents)))
            left //= wanted[-1]
        return b.op("reshape", [x], {"shape": (*wanted, left)})

    def graph(self) -> Graph:
        x = self.x
        for _ in range(self.draw(st.integers(2, 7))):
            x = self.step(x)
        return self.b.build([self.b.op("neg", [x])])


@given(st.data())
def test_random_moves_put_all_elements_where_they_belong(data: st.DataObject) -> None:
    merged(Moves(data.draw).graph())


def windows(extent: int, size: int, shift: int) -> Graph:
    """Return shifted windows of an image."""
    b = Net("windows")
    y = b.op("relu", [b.input("x", (1, extent, extent, 3))])
    y = rolled(b, rolled(b, y, 1, shift), 2, shift)
    count = extent // size
    y = b.op("reshape", [y], {"shape": (1, count, size, count, size, 3)})
    y = b.op("transpose", [y], {"perm": (0, 1, 3, 2, 4, 5)})
    y = b.op("reshape", [y], {"shape": (count**2, size**2, 3)})
    return b.build([b.op("neg", [y])])


@pytest.mark.parametrize(("extent", "size"), [(12, 3), (14, 7), (56, 7)])
def test_shifted_windows_are_one_copy(extent: int, size: int) -> None:
    assert merged(windows(extent, size, size // 2)) == (["relu", "rearrange", "reshape", "neg"], [])


def test_a_single_copy_stays_as_it_is() -> None:
    b = Net("single")
    y = b.op("reshape", [b.op("relu", [b.input("x", (1, 6, 4))])], {"shape": (2, 3, 2, 2)})
    y = b.op("transpose", [y], {"perm": (0, 2, 1, 3)})
    graph = b.build([b.op("neg", [b.op("reshape", [y], {"shape": (24,)})])])
    assert merged(graph)[0] == ["relu", "reshape", "transpose", "reshape", "neg"]


def test_moves_that_other_nodes_read_stay() -> None:
    b = Net("read")
    y = rolled(b, b.op("relu", [b.input("x", (3, 4))]), 1, 1)
    graph = b.build([b.op("neg", [rolled(b, y, 1, 2)]), b.op("exp", [y])])
    operators, _ = merged(graph)
    assert operators.count("rearrange") == 2


def test_moves_of_feature_maps_keep_their_formats() -> None:
    b = Net("maps")
    y = b.op("relu", [b.conv(b.input("x", (2, 3, 4, 4)), 4)])
    operators, reasons = merged(b.build([b.op("neg", [rolled(b, rolled(b, y, 2, 1), 3, 1)])]))
    assert "rearrange" not in operators
    assert reasons
    assert all(reason.startswith("its axes have names") for reason in reasons)


def test_moves_of_too_many_parts_stay() -> None:
    b = Net("many")
    y = b.op("relu", [b.input("x", (40, 2))])
    pieces = [cut(b, y, 0, at, at + 1) for at in range(39, -1, -1)]
    y = b.op("concat", pieces, {"axis": 0})
    _, reasons = merged(b.build([b.op("neg", [rolled(b, rolled(b, y, 1, 1), 0, 7)])]))
    assert reasons
    assert all("more than 32 strided copies" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        ((0, 0, 0, 4, 1), "boxes that make up"),
        ((0, 0, 0, 5, 2), "a box of 6 elements"),
        ((0, 0, 1, 5, 1), "a box inside of"),
        ((1, 0, 0, 5, 1), "one of 1 inputs"),
        ((0, 0, 0, 3, 1, 0, 0, 1, 2, 1), "boxes that make up"),
        ((0, 0, 0, 5), "boxes of 5 numbers"),
    ],
)
def test_boxes_that_are_no_partition_are_refused(boxes: tuple[int, ...], message: str) -> None:
    b = Net("wrong")
    with pytest.raises(GraphError, match=message):
        b.op("rearrange", [b.input("x", (6,))], {"boxes": boxes, "shape": (5,)})
