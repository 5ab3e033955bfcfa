"""Products that are used in parts become a product for each part, with the same results."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.networks import F32, Net, rng

from stridewise.graph import Graph
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.passes.hoist_factors import hoist_factors
from stridewise.passes.split_products import split_products
from stridewise.passes.turn_products import turn_products
from stridewise.runtime.simulation.reference import run_reference


def changed(graph: Graph) -> tuple[list[str], list[str]]:
    """Split products and move factors, compare results, and return operators and reasons."""
    verify(graph, infer)
    feeds = {n: rng(1).normal(size=graph.value(n).shape).astype(F32) for n in graph.inputs}
    expected = run_reference(graph, feeds)
    reasons: list[str] = []
    for run in (split_products, hoist_factors, turn_products):
        graph, refusals = run(graph)
        verify(graph, infer)
        reasons += [refusal.reason for refusal in refusals]
    found = run_reference(graph, feeds)
    for name, wanted in expected.items():
        scale = 1.0 + float(np.abs(wanted).max(initial=0))
        np.testing.assert_allclose(found[name], wanted, rtol=0, atol=2e-6 * scale)
    return [node.op for node in graph.nodes], reasons


class Moves:
    """Random moves of the result of a product, which branch."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.b = draw, Net("moves")
        x = self.b.input("x", draw(st.sampled_from([(6, 3), (2, 3, 3), (1, 4, 3), (4, 1, 3)])))
        random = rng(draw(st.integers(0, 99)))
        shape = (12, 3) if draw(st.booleans()) else (3, 12)
        inputs = [x, self.b.constant(random.normal(size=shape).astype(F32), "w")]
        inputs += [self.b.constant(random.normal(size=12).astype(F32), "b")]
        self.y = self.b.op("matmul", inputs, {"trans_b": 1} if shape[0] == 12 else {})

    def reshaped(self, x: str) -> str:
        left, found = prod(self.b.type(x).shape), list[int]()
        while left > 1 and len(found) < 5:
            divisors = [e for e in (1, 2, 3, 4, 6, 12) if left % e == 0]
            found.append(self.draw(st.sampled_from(divisors)))
            left //= found[-1]
        return self.b.op("reshape", [x], {"shape": (*found, left)})

    def turned(self, x: str) -> str:
        perm = self.draw(st.permutations(range(len(self.b.type(x).shape))))
        return self.b.op("transpose", [x], {"perm": tuple(perm)})

    def cut(self, x: str, *, first: bool) -> str:
        shape = self.b.type(x).shape
        axis: int = self.draw(st.integers(0, len(shape) - 1))
        middle = max(shape[axis] // 2, 1)
        starts, stops, steps = [0] * len(shape), list(shape), [1] * len(shape)
        if first:
            stops[axis] = middle
        elif middle < shape[axis]:
            starts[axis] = middle
            steps[axis] = self.draw(st.sampled_from([1, 1, 2]))
        bounds = {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)}
        return self.b.op("slice", [x], bounds)

    def moved(self, x: str, most: int) -> str:
        for _ in range(self.draw(st.integers(0, most))):
            x = self.draw(st.sampled_from([self.reshaped, self.turned]))(x)
        return x

    def graph(self) -> Graph:
        y = self.moved(self.y, 2)
        parts = [self.moved(self.cut(y, first=first), 2) for first in (True, False)]
        return self.b.build([self.b.op("tanh", [part]) for part in parts])


@given(st.data())
def test_random_parts_stay_the_same(data: st.DataObject) -> None:
    changed(Moves(data.draw).graph())


def _sliced(b: Net, y: str, axis: int, start: int, stop: int) -> str:
    starts, stops = [0] * len(b.type(y).shape), list(b.type(y).shape)
    starts[axis], stops[axis] = start, stop
    attrs = {"starts": tuple(starts), "stops": tuple(stops), "steps": (1,) * len(stops)}
    return b.op("slice", [y], attrs)


def attention(*, batch: int = 2) -> Graph:
    """Return the products of a Vision Transformer's attention, with its factor."""
    b = Net("attention")
    x = b.input("x", (batch, 5, 4))
    y = b.op("matmul", [x, b.const(*range(48), shape=(4, 12)), b.const(*range(12))])
    y = b.op("reshape", [y], {"shape": (batch, 5, 3, 2, 2)})
    y = b.op("transpose", [y], {"perm": (2, 0, 3, 1, 4)})
    parts = [_sliced(b, y, 0, index, index + 1) for index in range(3)]
    q, k, v = (b.op("reshape", [part], {"shape": (batch, 2, 5, 2)}) for part in parts)
    scores = b.op("matmul", [q, b.op("transpose", [k], {"perm": (0, 1, 3, 2)})])
    scores = b.op("softmax", [b.op("mul", [scores, b.const(0.01, shape=())])], {"axis": 3})
    y = b.op("transpose", [b.op("matmul", [scores, v])], {"perm": (0, 2, 1, 3)})
    return b.build([b.op("reshape", [y], {"shape": (batch, 5, 4)})])


def test_attention_needs_neither_slices_nor_transposes_nor_a_factor() -> None:
    for batch in (1, 2):
        operators, reasons = changed(attention(batch=batch))
        assert sorted(set(operators)) == ["matmul", "reshape", "softmax"]
        assert (operators.count("matmul"), reasons) == (5, [])


def test_parts_of_one_row_have_no_gaps() -> None:
    b = Net("row")
    y = b.op("matmul", [b.input("x", (1, 3)), b.const(*range(12), shape=(3, 4))])
    operators, _ = changed(b.build([_sliced(b, y, 1, 0, 2), _sliced(b, y, 1, 2, 4)]))
    assert operators == ["matmul", "slice", "slice"]


def test_parts_in_common_stay_in_one_product() -> None:
    b = Net("common")
    y = b.op("matmul", [b.input("x", (2, 3)), b.const(*range(12), shape=(3, 4))])
    graph = b.build([_sliced(b, y, 1, 0, 3), _sliced(b, y, 1, 1, 4)])
    assert changed(graph) == (["matmul", "slice", "slice"], ["its parts have columns in common"])


def test_factors_of_values_with_other_readers_stay() -> None:
    b = Net("read")
    y = b.op("matmul", [b.input("x", (2, 3)), b.const(*range(12), shape=(3, 4))])
    y = b.op("transpose", [y], {"perm": (1, 0)})
    graph = b.build([b.op("relu", [b.op("div", [y, b.const(2)])]), b.op("neg", [y])])
    _, reasons = changed(graph)
    assert len(reasons) == 1
    assert reasons[0].startswith("other operands are")


@pytest.mark.parametrize("turned", [(0,), (1,), (0, 1), (2,), (0, 1, 2)])
def test_products_of_two_matrices_turn_them(turned: tuple[int, ...]) -> None:
    b = Net("g")
    shapes = ((5, 7), (7, 3))
    operands = [
        b.op("transpose", [b.input(f"x{i}", shape[::-1])], {"perm": (1, 0)})
        if i in turned
        else b.input(f"x{i}", shape)
        for i, shape in enumerate(shapes)
    ]
    y = b.op("matmul", operands)
    if 2 in turned:
        y = b.op("transpose", [y], {"perm": (1, 0)})
    assert changed(b.build([y])) == (["matmul"], [])
