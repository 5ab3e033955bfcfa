"""Expressions: their text, what becomes one, and that results stay the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.networks import F32, Net, rng

from stridewise.errors import GraphError
from stridewise.graph import Graph, Node
from stridewise.graph.text import from_text
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.ops.pointwise import MOST_INPUTS, MOST_STEPS, OPERANDS, Step, parse_expression
from stridewise.passes.fuse_pointwise import fuse_pointwise
from stridewise.passes.remove_dead import remove_dead
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.onednn.target import ABILITY

UNARY = ("relu", "neg", "tanh", "exp", "abs")
BINARY = ("add", "sub", "mul", "maximum")
COMPARISONS = ("less", "greater", "equal")


@st.composite
def graphs(draw: Any) -> Graph:
    """Return a random graph of elementwise operators with broadcasts, constants and masks."""
    b = Net("random")
    shapes = [(2, 3, 4), (3, 4), (1, 3, 1), (4,), (2, 3, 4), (2, 1, 1)]
    values = [b.input(f"x{i}", shape) for i, shape in enumerate(shapes[:3])]
    values += [b.constant(rng(i).normal(size=s).astype(F32), "c") for i, s in enumerate(shapes)]
    values += [b.const(0.5, shape=()), b.const(-1.0)]
    masks: list[str] = []
    for _ in range(draw(st.integers(2, 24))):
        kind = draw(st.sampled_from(["unary", "binary", "binary", "where", "cast"]))
        first, second, third = (draw(st.sampled_from(values)) for _ in range(3))
        if kind == "unary":
            values.append(b.op(draw(st.sampled_from(UNARY)), [first]))
        elif kind == "binary":
            values.append(b.op(draw(st.sampled_from(BINARY)), [first, second]))
        else:
            masks.append(b.op(draw(st.sampled_from(COMPARISONS)), [first, second]))
            if draw(st.booleans()):
                masks.append(b.op("logical_not", [draw(st.sampled_from(masks))]))
            mask = draw(st.sampled_from(masks))
            number = b.op("cast", [mask], {"to": "float32"})
            values.append(number if kind == "cast" else b.op("where", [mask, second, third]))
    results = [values[-1], *draw(st.lists(st.sampled_from(values[11:] + masks), max_size=2))]
    return b.build(list(dict.fromkeys(results)))


@given(graphs())
def test_results_stay_the_same_bits(graph: Graph) -> None:
    graph, _ = remove_dead(graph)
    after, refusals = fuse_pointwise(graph, ABILITY)
    verify(after, infer)
    feeds = {name: rng(1).normal(size=graph.value(name).shape).astype(F32) for name in graph.inputs}
    found = run_reference(after, feeds)
    for name, wanted in run_reference(graph, feeds).items():
        np.testing.assert_array_equal(found[name], wanted)
    for node in (node for node in after.nodes if node.op == "pointwise"):
        texts = node.get("expression")
        assert isinstance(texts, tuple)
        assert 2 <= len(texts) <= MOST_STEPS
        assert 1 <= len(node.inputs) <= MOST_INPUTS
        assert len(set(node.inputs)) == len(node.inputs)
    assert all(refusal.rule == "fuse_pointwise" for refusal in refusals)
    assert str(from_text(str(after), after.constants)) == str(after)
    # Nothing that could be joined is left.
    assert fuse_pointwise(after, ABILITY)[0].nodes == after.nodes


def fused(make: Any) -> tuple[Graph, dict[str, str]]:
    b = Net("g")
    x = b.input("x", (1, 4, 3, 3))
    after, refusals = fuse_pointwise(b.build([make(b, x)]), ABILITY)
    return after, {refusal.subject: refusal.reason for refusal in refusals}


def test_what_stays_apart_has_a_reason() -> None:
    def twice(b: Net, x: str) -> str:
        y = b.op("relu", [x], name="shared")
        return b.op("conv", [b.op("exp", [y]), b.op("reshape", [y], {"shape": (1, 4, 3, 3)})])

    def broadcast(b: Net, x: str) -> str:
        gate = b.op("sigmoid", [b.op("reduce_mean", [x], {"axes": (2, 3)})], name="gate")
        return b.op("mul", [x, gate])

    def long(b: Net, x: str) -> str:
        for _ in range(MOST_STEPS + 2):
            x = b.op("tanh", [x])
        return x

    assert fused(twice)[1] == {"shared": "other nodes read its result"}
    assert fused(broadcast)[1] == {"gate": "its result is broadcast in 'mul'"}
    after, reasons = fused(long)
    sizes = [len(dict(node.attrs)["expression"]) for node in after.nodes]  # type: ignore[arg-type]
    assert sizes == [2, MOST_STEPS]
    assert reasons["tanh.1"].endswith("more than 16 steps or 6 inputs")


def test_masks_of_the_run_are_read_and_given() -> None:
    b = Net("g")
    mask, z = b.input("mask", (3, 4), "bool"), b.input("z", (3, 4))
    chosen = b.op("neg", [b.op("where", [mask, z, b.const(0, shape=())])])
    large = b.op("logical_not", [b.op("greater", [z, b.const(1, shape=())])])
    number = b.op(
        "mul", [b.op("cast", [b.op("less", [z, b.input("limit", (1, 4))])], {"to": "float32"}), z]
    )
    after, refusals = fuse_pointwise(b.build([chosen, large, number]), ABILITY)
    assert [node.get("expression") for node in after.nodes] == [
        ("where(x0, x1, 0.0)", "neg(t0)"),
        ("greater(x0, 1.0)", "logical_not(t0)"),
        ("less(x0, x1)", "where(t0, 1.0, 0.0)", "mul(t1, x0)"),
    ]
    assert not refusals


def test_other_types_stay() -> None:
    b = Net("g")
    x, h, z = b.input("x", (3, 4), "float64"), b.input("h", (3, 4), "float16"), b.input("z", (3, 4))
    y = b.op("neg", [b.op("exp", [x])])
    both = b.op("logical_and", [b.op("greater", [h, h]), b.op("greater", [z, z])])
    masked = b.op("where", [b.input("mask", (3, 4), "bool"), b.op("neg", [h]), h])
    graph = b.build([y, both, masked])
    after, refusals = fuse_pointwise(graph, ABILITY)
    assert after.nodes == graph.nodes
    reason = "its expression reads or gives values that its kernels do not compute with"
    assert [refusal.reason for refusal in refusals] == [reason, reason]


@given(
    st.sampled_from(sorted(OPERANDS)),
    st.floats(allow_nan=False, width=32),
    st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False)),
)
def test_the_text_of_a_step_reads_back(op: str, literal: float, given_: Any) -> None:
    operands = ("x0", literal, "x1")[: OPERANDS[op]]
    parameters = given_ if OPERANDS[op] == 1 and "clip" in op else ()
    step = Step(op, operands, *parameters)
    if parameters or str(step).count(",") == OPERANDS[op] - 1:
        assert parse_expression((str(step),), 2) == (step,)


@pytest.mark.parametrize(
    "texts",
    [("",), ("add(x0)",), ("add(x0, x2)",), ("mod(x0, x1)",), ("tanh(t0)",), ("clip(x0, 1)",),
     ("relu(x0) ",), ("add(x0, t0)",), ("neg(y)",), ("neg(x0, 1, 2, 3)",), ("tanh(x0", "x")],
)  # fmt: skip
def test_texts_that_are_no_steps(texts: tuple[str, ...]) -> None:
    with pytest.raises(GraphError, match="expression: expected an operator of"):
        parse_expression(texts, 2)


def test_nodes_that_are_no_expressions() -> None:
    def node(inputs: int, *texts: str) -> Node:
        names = tuple(f"v{i}" for i in range(inputs))
        return Node("n", "pointwise", names, ("y",), (("expression", texts),))

    b = Net("g")
    value = b.type(b.input("x", (2,)))
    integer = b.type(b.input("i", (2,), "int64"))
    with pytest.raises(GraphError, match="1 to 16 steps on at most 6 inputs, found 0 on 1"):
        infer(node(1), (value,))
    with pytest.raises(GraphError, match="inputs of one type of floats"):
        infer(node(2, "add(x0, x1)"), (value, integer))
