"""Attributes of operators: every one is declared and read, and any other one is an error."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewise import ExecutionError, GraphBuilder, GraphError
from stridewise.dtypes import dtype_of
from stridewise.graph import Attr, Node, PostOp, TensorType
from stridewise.graph.text import from_text
from stridewise.ops import OPS, evaluate, infer

from .onnx_case import Case
from .test_ops import CASES

SEEDS = range(6)


def node_of(op: str, case: Case) -> Node:
    inputs = tuple("" if array is None else f"x{i}" for i, array in enumerate(case.arrays))
    return Node("n", op, inputs, ("y",), tuple(sorted(case.attrs.items())))


def types_of(case: Case) -> tuple[TensorType | None, ...]:
    return tuple(
        None if array is None else TensorType(dtype_of(array.dtype), array.shape)
        for array in case.arrays
    )


@pytest.mark.parametrize("op", sorted(CASES))
def test_exactly_the_declared_attributes_are_read(op, monkeypatch):
    read = set[str]()
    get: Callable[[Node, str], Attr | None] = Node.get

    def spy(node: Node, key: str) -> Attr | None:
        read.update({key} if node.name == "n" else ())
        return get(node, key)

    monkeypatch.setattr(Node, "get", spy)
    for seed in SEEDS:
        case = CASES[op](np.random.default_rng(seed))
        infer(node_of(op, case), types_of(case))
        evaluate(node_of(op, case), case.arrays)
    assert read - {"data_format"} == set(OPS[op].attributes)


@pytest.mark.parametrize("op", sorted(CASES))
def test_an_unknown_attribute_is_an_error(op):
    case = CASES[op](np.random.default_rng(0))
    for key in ("axiss", "kernel_shape"):
        node = node_of(op, dataclasses.replace(case, attrs={**case.attrs, key: 1}))
        with pytest.raises(GraphError, match=f"attributes among: .*'{key}'"):
            infer(node, types_of(case))


VALUES = st.one_of(
    st.integers(-3, 40),
    st.sampled_from(["", "none", float("nan"), 0.5, -1.5, 2**40]),
    st.lists(st.integers(-3, 8), max_size=9).map(tuple),
)


def changed(data: Any, value: Any) -> Attr:
    """Return another value of the same kind where that is possible, or a value of any kind."""
    if isinstance(value, tuple) and data.draw(st.booleans()):
        items = list(value)
        place = data.draw(st.integers(0, max(len(items) - 1, 0)))
        step = data.draw(st.sampled_from([-1, 1, -7, 7]))
        if items and all(isinstance(item, int) for item in items):
            items[place] += step
        return tuple(items[: len(items) + data.draw(st.sampled_from([0, 0, -1]))])
    return data.draw(VALUES)


@settings(max_examples=300)
@given(st.data())
def test_what_inference_accepts_the_reference_computes(data):
    """A wrong attribute is an error of inference, or the result has the inferred type."""
    op = data.draw(st.sampled_from(sorted(op for op in CASES if OPS[op].attributes)))
    case = CASES[op](np.random.default_rng(data.draw(st.integers(0, 5))))
    key = data.draw(st.sampled_from(sorted(OPS[op].attributes)))
    attrs = {**case.attrs, key: changed(data, case.attrs.get(key))}
    if data.draw(st.booleans()):
        del attrs[key]
    node = node_of(op, dataclasses.replace(case, attrs=attrs))
    try:
        inferred = infer(node, types_of(case))
    except GraphError:
        return
    if max(prod(item.shape) for item in inferred) > 1 << 18:
        return
    try:
        with np.errstate(all="ignore"):
            results = evaluate(node, case.arrays)
    except ExecutionError:
        return  # of indices or regions that no longer fit; inference does not see them
    assert tuple(TensorType(dtype_of(y.dtype), y.shape) for y in results) == inferred


X = TensorType(dtype_of("float32"), (2, 3))


@pytest.mark.parametrize(
    ("post", "expected"),
    [
        (PostOp("nothing"), "post-ops with the operands of their operator"),
        (PostOp("softmax"), "post-ops with the operands of their operator"),
        (PostOp("add"), "post-ops with the operands of their operator"),
        (PostOp("relu", operand=1), "post-ops with the operands of their operator"),
        (PostOp("relu", 0.5), "attributes among: none"),
        (PostOp("elu", 0.5, 2.0), "attributes among: alpha"),
    ],
)
def test_post_ops_are_checked(post, expected):
    inputs = ("x", "b") if post.operand else ("x",)
    with pytest.raises(GraphError, match=expected):
        infer(Node("n", "neg", inputs, ("y",), (), (post,)), (X,) * len(inputs))


def test_a_post_op_keeps_the_type():
    node = Node("n", "neg", ("x", "b"), ("y",), (), (PostOp("add", operand=1),))
    with pytest.raises(GraphError, match=r"post-ops that keep the type f32\[2,3\]"):
        infer(node, (X, TensorType(X.dtype, (4, 2, 3))))


def test_truth_values_are_stored_as_numbers():
    b = GraphBuilder("flags")
    y = b.op("reduce_sum", [b.input("x", (2, 3))], {"axes": (1,), "keepdims": True})
    graph = b.build([y])
    assert graph.nodes[0].get("keepdims") == 1
    assert str(from_text(str(graph))) == str(graph)


@pytest.mark.parametrize("op", ["celu", "snap_s8"])
def test_functions_that_divide_by_a_parameter_refuse_zero(op):
    with pytest.raises(GraphError, match="an alpha other than 0"):
        infer(Node("n", op, ("x",), ("y",), (("alpha", 0.0),)), (X,))
