"""Nodes that stand for several, sparse tensors, and functions whose library kernels are inexact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import erfc, inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import AttributeProto, ModelProto, SparseTensorProto, TensorProto, helper, numpy_helper

import stridewise as sw
from stridewise.errors import MemoryLimitError, ModelError

from .models import F32, run_onnxruntime
from .onnx_nodes import fails, make, node

Array = np.ndarray[Any, np.dtype[Any]]


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(F32)


def native(model: ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    return sw.compile(model, tune="model", fallback=False, threads=2).run(inputs)


def agrees(model: ModelProto, inputs: Mapping[str, Array]) -> None:
    """Check that results are those of ONNX Runtime."""
    found = native(model, inputs)
    for name, wanted in run_onnxruntime(model, inputs).items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-4)


# --- sparse tensors -------------------------------------------------------------------------------


def sparse(data: Array, name: str, *, rows: bool) -> SparseTensorProto:
    places = np.flatnonzero(data)
    indices = np.stack(np.unravel_index(places, data.shape), 1) if rows else places
    return helper.make_sparse_tensor(
        numpy_helper.from_array(data.reshape(-1)[places], name),
        numpy_helper.from_array(indices.astype(np.int64), f"{name}_indices"),
        data.shape,
    )


@given(st.integers(0, 2**32 - 1), st.floats(0, 1), st.booleans(), st.booleans())
def test_sparse_weights_are_those_with_zeros(seed: int, share: float, rows: bool, stored: bool):
    draws = np.random.default_rng(seed)
    weights = draws.normal(size=(4, 3, 3, 2)).astype(F32)
    weights[draws.random(weights.shape) < share] = 0
    dense = make(node("Conv", "x", "w"), constants={"w": weights})
    nodes = [node("Conv", "x", "w")]
    if not stored:
        nodes.insert(
            0, helper.make_node("Constant", [], ["w"], sparse_value=sparse(weights, "w", rows=rows))
        )
    model = make(*nodes)
    if stored:
        model.graph.sparse_initializer.append(sparse(weights, "w", rows=rows))
    inputs = {"x": draw(1, 3, 8, 8)}
    np.testing.assert_array_equal(native(model, inputs)["y"], native(dense, inputs)["y"])


def test_sparse_weights_beside_nodes_of_another_runtime():
    weights = draw(4, 3, 3, 3) * (draw(4, 3, 3, 3, seed=1) > 0)
    model = make(
        helper.make_node("Conv", ["x", "w"], ["t"]),
        helper.make_node("Conv", ["t", "v"], ["u"]),
        helper.make_node("NonZero", ["u"], ["y"]),
        constants={"v": draw(2, 4, 1, 1)},
    )
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    model.graph.sparse_initializer.append(sparse(weights, "w", rows=True))
    inputs = {"x": draw(1, 3, 8, 8)}
    found = sw.compile(model, tune="model").run(inputs)["y"]
    np.testing.assert_array_equal(found, run_onnxruntime(model, inputs)["y"])


@pytest.mark.parametrize(
    ("indices", "dims", "message"),
    [
        ([[0, 9]], (2, 4), "indices within the tensor"),
        ([-1], (2, 4), "indices within the tensor"),
        ([1.0], (2, 4), "indices of int64"),
        ([[[0]]], (2, 4), "indices of int64"),
        ([0], (2**40, 2**40), "extents of 1 or more"),
        ([0], (0, 4), "extents of 1 or more"),
    ],
)
def test_sparse_tensors_that_do_not_fit(indices: Any, dims: tuple[int, ...], message: str):
    model = make(node("MatMul", "x", "w"), shape=(1, 2))
    found = np.array(indices)
    item = SparseTensorProto(dims=dims)
    item.values.CopyFrom(numpy_helper.from_array(draw(1), "w"))
    item.indices.CopyFrom(numpy_helper.from_array(found, "i"))
    model.graph.sparse_initializer.append(item)
    fails(model, "sparse initializer 'w'", message)


def test_sparse_tensors_take_no_memory_that_the_file_does_not_justify():
    model = make(node("MatMul", "x", "w"), shape=(1, 2**20))
    item = SparseTensorProto(dims=(2**20, 2**24))
    item.values.CopyFrom(numpy_helper.from_array(draw(1), "w"))
    item.indices.CopyFrom(numpy_helper.from_array(np.zeros(1, np.int64), "i"))
    model.graph.sparse_initializer.append(item)
    fails(model, "constants that take at most", error=MemoryLimitError)


# --- functions and branches -----------------------------------------------------------------------


def with_functions() -> ModelProto:
    """A model of opset 17 with functions of opset 11, whose ReduceSum has axes as attribute."""
    names = [helper.make_opsetid("", 11), helper.make_opsetid("own", 1)]
    leaky = helper.make_node("LeakyRelu", ["u"], ["b"])
    leaky.attribute.append(
        AttributeProto(name="alpha", ref_attr_name="slope", type=AttributeProto.FLOAT)
    )
    inner = helper.make_function(
        "own",
        "Inner",
        ["a"],
        ["b"],
        [
            helper.make_node("ReduceSum", ["a"], ["t"], axes=[1], keepdims=1),
            helper.make_node("Mul", ["t", "a"], ["u"]),
            leaky,
        ],
        names[:1],
        ["slope"],
    )
    outer = helper.make_function(
        "own",
        "Outer",
        ["a"],
        ["b", "t", "a"],  # an input is a result, too
        [
            helper.make_node("Inner", ["a"], ["t"], domain="own", slope=0.25),
            helper.make_node("Inner", ["t"], ["b"], domain="own", slope=0.5),
        ],
        names,
    )
    model = make(
        helper.make_node("Conv", ["x", "w"], ["t"]),
        helper.make_node("Outer", ["t"], ["y", "z", "same"], domain="own"),
        constants={"w": draw(4, 3, 3, 3)},
        opset=17,
        outputs=("y", "z", "same"),
    )
    model.opset_import.append(names[1])
    model.functions.extend([inner, outer])
    return model


@pytest.mark.parametrize("fallback", [False, True])
def test_functions_of_another_opset(fallback: bool):
    inputs = {"x": draw(1, 3, 8, 8)}
    found = sw.compile(with_functions(), tune="model", fallback=fallback).run(inputs)
    plain = make(helper.make_node("Conv", ["x", "w"], ["y"]), constants={"w": draw(4, 3, 3, 3)})
    a = native(plain, inputs)["y"].astype(np.float64)

    def step(x: Array, slope: float) -> Array:
        y = x.sum(1, keepdims=True) * x
        return np.where(y >= 0, y, slope * y)

    wanted = {"same": a, "z": step(a, 0.25), "y": step(step(a, 0.25), 0.5)}
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-3)


def test_functions_read_only_their_own_values():
    model = with_functions()
    model.functions[0].node[1].input[0] = "x"  # a value of the model
    fails(model, "functions that read their own values, found 'x'")


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("result", ["made", "outer", "stored"])
def test_constant_conditions(taken: bool, result: str):
    value = helper.make_empty_tensor_value_info
    stored = numpy_helper.from_array(draw(1, 3, 8, 8, seed=2), "c")
    makes = [helper.make_node("Relu", ["t"], ["o"])]
    branch = {
        "made": helper.make_graph(makes, "a", [], [value("o")]),
        "outer": helper.make_graph(
            [helper.make_node("Identity", ["t"], ["o"])], "a", [], [value("o")]
        ),
        "stored": helper.make_graph([], "a", [], [value("c")], [stored]),
    }[result]
    nodes = [helper.make_node("Mul", ["t", "k"], ["q"]), helper.make_node("Add", ["q", "q"], ["r"])]
    other = helper.make_graph(nodes, "b", [], [value("r")], [numpy_helper.from_array(F32(3), "k")])
    model = make(
        helper.make_node("Sigmoid", ["x"], ["t"]),
        helper.make_node("If", ["condition"], ["y"], then_branch=branch, else_branch=other),
        constants={"condition": np.array(taken)},
    )
    agrees(model, {"x": draw(1, 3, 8, 8)})


def test_branches_of_two_shapes_have_constants_of_their_own():
    """Both branches store a tensor of one name; the shape of the input selects the branch."""
    value = helper.make_empty_tensor_value_info

    def branch(number: float) -> Any:
        add = helper.make_node("Add", ["x", "c"], ["o"])
        stored = [numpy_helper.from_array(np.array(number, F32), "c")]
        return helper.make_graph([add], "branch", [], [value("o")], stored)

    model = make(
        helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
        helper.make_node("Equal", ["s", "one"], ["is_one"]),
        helper.make_node("If", ["is_one"], ["y"], then_branch=branch(1), else_branch=branch(2)),
        constants={"one": np.array([1], np.int64)},
        shape=("N", 3, 4, 4),
        opset=17,
    )
    compiled = sw.compile(model, tune="model", fallback=False)
    for batch in (1, 2, 1):
        x = draw(batch, 3, 4, 4)
        np.testing.assert_array_equal(compiled.run({"x": x})["y"], x + min(batch, 2))


ATTENTION: Sequence[dict[str, Any]] = (
    {},
    {"is_causal": 1},
    {"scale": 0.3, "softcap": 2.0},
)


@pytest.mark.parametrize("attrs", ATTENTION)
@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_computed_by_its_definition(attrs: dict[str, Any], masked: bool):
    constants = {"k": draw(2, 3, 5, 8, seed=1), "v": draw(2, 3, 5, 8, seed=2)}
    names = ["x", "k", "v"]
    if masked:
        constants["m"] = draw(5, 5, seed=3)
        names.append("m")
    model = make(
        helper.make_node("Attention", names, ["y"], **attrs),
        shape=(2, 3, 5, 8),
        constants=constants,
        opset=23,
    )
    model.ir_version = 10
    agrees(model, {"x": draw(2, 3, 5, 8)})


def test_batch_norms_of_pixels():
    """Up to opset 8, statistics could be those of each channel of each pixel."""
    stored = {name: np.abs(draw(3, 8, 8, seed=index)) for index, name in enumerate("sbmv")}
    model = make(
        helper.make_node("BatchNormalization", ["x", *stored], ["y"], spatial=0, epsilon=1e-3),
        shape=(2, 3, 8, 8),
        constants=stored,
        opset=7,
    )
    model.ir_version = 3
    for name, data in stored.items():
        model.graph.input.append(helper.make_tensor_value_info(name, 1, data.shape))
    agrees(model, {"x": draw(2, 3, 8, 8)})


# --- a batch that constants fix -------------------------------------------------------------------


def test_the_message_names_a_batch_that_fits():
    model = make(
        helper.make_node("Reshape", ["x", "s"], ["y"]),
        shape=("N", 3, 8, 8),
        constants={"s": np.array([4, 192], np.int64)},
    )
    for call in (sw.compile, sw.plan):
        with pytest.raises(ModelError, match=r"a batch of 1 was assumed; .*\(4, 3, 8, 8\)"):
            call(model, tune="model")
    compiled = sw.compile(model, tune="model", shapes={"x": (4, 3, 8, 8)})
    x = draw(4, 3, 8, 8)
    np.testing.assert_array_equal(compiled.run({"x": x})["y"], x.reshape(4, 192))


# --- functions ------------------------------------------------------------------------------------


def _gelu(x: Array) -> Array:
    return np.array([0.5 * item * erfc(-item / np.sqrt(2)) for item in x.reshape(-1)])


EXACT = {
    "Exp": np.exp,
    "Log": np.log,
    "Softplus": lambda x: np.logaddexp(x, 0),
    "Mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
    "Celu": lambda x: np.maximum(x, 0) + np.expm1(np.minimum(x, 0)),
    "Gelu": _gelu,
}


@pytest.mark.parametrize("op", list(EXACT))
def test_functions_are_exact_to_roundings(op: str):
    x = np.concatenate([np.linspace(-20, 20, 4001), np.linspace(0.99, 1.01, 1999)]).astype(F32)
    model = make(node(op), shape=x.shape, opset=20)
    model.ir_version = 9
    with np.errstate(all="ignore"):
        wanted = EXACT[op](x.astype(np.float64))
    found = native(model, {"x": x})["y"]
    # A cancellation that the definition of Gelu has is no error of the kernel.
    atol = 1e-6 if op == "Gelu" else 1e-12
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=atol)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [("Exp", {}), ("Gelu", {}), ("HardSigmoid", {}), ("Celu", {}), ("Softplus", {})],
)
def test_functions_keep_nan_and_infinity(op: str, attrs: dict[str, Any]):
    x = np.array([nan, inf, -100.0, 0.0, 1.0], F32)
    model = make(node(op, **attrs), shape=x.shape, opset=20)
    model.ir_version = 9
    found = native(model, {"x": x})["y"]
    wanted = run_onnxruntime(model, {"x": x})["y"]
    assert np.isnan(found[0])
    np.testing.assert_allclose(found[1:], wanted[1:], rtol=1e-6, atol=1e-6)


@given(st.floats(-4, 4).filter(lambda alpha: abs(alpha) > 0.01))
def test_celu_takes_any_alpha(alpha: float):
    x = (np.linspace(-80, 80, 241) * alpha).astype(F32)  # beyond, powers overflow
    model = make(node("Celu", alpha=alpha), shape=x.shape)
    a, wide = float(F32(alpha)), x.astype(np.float64)
    wanted = np.maximum(wide, 0) + np.minimum(0, a * np.expm1(wide / a))
    np.testing.assert_allclose(native(model, {"x": x})["y"], wanted, rtol=1e-5, atol=1e-6)
