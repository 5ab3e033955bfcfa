"""Import of math operators: what becomes of Einsum, bounds, empty axes and quantized products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

import stridewise as sw
from stridewise.graph import Graph
from stridewise.runtime.simulation.reference import run_reference

from .models import F32, run_onnxruntime
from .onnx_nodes import fails, make, node

Array = np.ndarray[Any, np.dtype[Any]]


def single(
    op: str,
    arrays: Mapping[str, Array],
    *,
    constants: Mapping[str, Array] | None = None,
    opset: int = 18,
    **attrs: Any,
) -> ModelProto:
    """Return a model of one node that reads inputs and constants, in this order."""
    known = constants or {}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(data.dtype), data.shape)
        for name, data in arrays.items()
    ]
    graph = helper.make_graph(
        [helper.make_node(op, [*arrays, *known], ["y"], "n", **attrs)],
        "test",
        inputs,
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(data, name) for name, data in known.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def operators(graph: Graph) -> list[str]:
    return [item.op for item in graph.nodes]


def result(graph: Graph, arrays: Mapping[str, Array]) -> Array:
    (found,) = run_reference(graph, arrays).values()
    return found


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(F32)


# --- Einsum ---------------------------------------------------------------------------------------

CONTRACTIONS: dict[str, tuple[tuple[tuple[int, ...], ...], set[str]]] = {
    "ij,jk->ik": (((3, 4), (4, 5)), {"matmul"}),
    "bhid,bhjd->bhij": (((2, 3, 4, 5), (2, 3, 6, 5)), {"matmul", "transpose"}),
    "bhwc,hkc->bhwk": (((2, 3, 4, 5), (3, 6, 5)), {"matmul", "reshape", "transpose"}),
    "bhwc,hck->bhwk": (((2, 3, 4, 5), (3, 5, 6)), {"matmul", "reshape"}),
    "i,i->": (((4,), (4,)), {"matmul", "reshape"}),
    "i,j->ij": (((4,), (3,)), {"mul", "reshape"}),
    "ijk->ki": (((2, 3, 4),), {"reduce_sum", "transpose"}),
    "bij,bjk,bkl->bil": (((2, 3, 4), (2, 4, 5), (2, 5, 2)), {"matmul"}),
    "...ij,...jk->...ik": (((2, 1, 3, 4), (1, 5, 4, 6)), {"matmul"}),
    "ij,ij->ij": (((3, 4), (3, 4)), {"mul"}),
    "ii,ij->j": (((3, 3), (3, 4)), {"einsum", "matmul", "reshape"}),
}


@pytest.mark.parametrize("equation", CONTRACTIONS)
def test_contractions_become_matrix_products(equation: str):
    shapes, wanted = CONTRACTIONS[equation]
    arrays = {f"x{i}": draw(*shape, seed=i) for i, shape in enumerate(shapes)}
    model = single("Einsum", arrays, equation=equation)
    graph = sw.load(model)
    assert set(operators(graph)) - {"identity"} == wanted
    exact = np.einsum(equation, *(array.astype(np.float64) for array in arrays.values()))
    np.testing.assert_allclose(result(graph, arrays), exact, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run_onnxruntime(model, arrays)["y"], exact, rtol=1e-4, atol=1e-5)


def test_constants_of_a_contraction_come_on_the_right():
    arrays, weights = {"x": draw(2, 4, 5)}, {"w": draw(6, 4, seed=1)}
    graph_inputs = single("Einsum", arrays, constants=weights, equation="bij,ki->bkj")
    graph = sw.load(graph_inputs)
    (product,) = (item for item in graph.nodes if item.op == "matmul")
    assert product.inputs[1] in graph.constants
    left = helper.make_node("Einsum", ["w", "x"], ["y"], "n", equation="ki,bij->bkj")
    graph_inputs.graph.node[0].CopyFrom(left)
    swapped = sw.load(graph_inputs)
    (product,) = (item for item in swapped.nodes if item.op == "matmul")
    assert product.inputs[1] in swapped.constants
    np.testing.assert_allclose(result(graph, arrays), result(swapped, arrays), rtol=1e-6)


Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def equations(draw: Draw) -> tuple[str, list[tuple[int, ...]]]:
    """Return equations of up to three operands, with diagonals and axes of extent 1."""
    letters = "abcde"
    extents = {letter: draw(st.integers(1, 3)) for letter in letters}
    terms = draw(st.lists(st.text(letters, max_size=4), min_size=1, max_size=3))
    used = sorted(set("".join(terms)))
    output = "".join(draw(st.permutations(used))[: draw(st.integers(0, len(used)))])
    ones = draw(st.integers(0, len(terms)))
    shapes = [
        tuple(1 if index == ones and len(set(term)) == len(term) else extents[i] for i in term)
        for index, term in enumerate(terms)
    ]
    return f"{','.join(terms)}->{output}", shapes


@given(equations(), st.sampled_from(["float64", "int64", "uint8"]))
def test_random_equations_keep_their_meaning(case: tuple[str, list[tuple[int, ...]]], dtype: str):
    equation, shapes = case
    rng = np.random.default_rng(0)
    arrays = {
        f"x{i}": np.asarray(rng.integers(0, 5, shape)).astype(dtype)
        for i, shape in enumerate(shapes)
    }
    graph = sw.load(single("Einsum", arrays, equation=equation))
    exact = np.einsum(equation, *arrays.values())
    np.testing.assert_array_equal(result(graph, arrays), exact)


def test_equations_that_do_not_fit_name_the_node():
    model = single("Einsum", {"a": draw(2, 3), "b": draw(4, 5)}, equation="ij,jk->ik")
    fails(model, "node 'n' (Einsum): expected operands that fit 'ij,jk->ik'", "extents 3 and 4")
    mixed = {"a": draw(2, 3), "b": draw(3, 5).astype(np.float64)}
    fails(single("Einsum", mixed, equation="ij,jk->ik"), "node 'n' (Einsum)", "float64")


# --- bounds, axes, exponents ----------------------------------------------------------------------


def test_bounds_of_integers_are_exact():
    least = -(2**53) - 1
    arrays = {"x": np.array([least - 1, least + 1, 7])}
    bounds = {"low": np.array(least), "high": np.array(5)}
    graph = sw.load(single("Clip", arrays, constants=bounds))
    assert result(graph, arrays).tolist() == [least, least + 1, 5]


def test_bounds_may_come_at_run_time():
    arrays = {"x": draw(3, 4), "low": np.array(-0.5, F32), "high": np.array(0.25, F32)}
    found = result(sw.load(single("Clip", arrays)), arrays)
    np.testing.assert_array_equal(found, np.clip(arrays["x"], -0.5, 0.25))


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("ReduceSum", lambda x: x),
        ("ReduceL1", np.abs),
        ("ReduceL2", np.abs),
        ("ReduceSumSquare", np.square),
        ("ReduceLogSum", np.log),
        ("ReduceLogSumExp", lambda x: x),
    ],
)
def test_without_axes_each_element_may_be_its_own_reduction(
    op: str, function: Callable[[Array], Array]
):
    arrays = {"x": np.abs(draw(3, 4)) * (1 if op == "ReduceLogSum" else -1)}
    none = {"axes": np.zeros(0, np.int64)}
    kept = sw.load(single(op, arrays, constants=none, noop_with_empty_axes=1))
    np.testing.assert_allclose(result(kept, arrays), function(arrays["x"]), rtol=1e-6)
    whole = sw.load(single(op, arrays, constants=none, keepdims=0))
    assert result(whole, arrays).shape == ()


@pytest.mark.parametrize(
    ("exponent", "op"),
    [(2.0, "mul"), (0.5, "sqrt"), (-1.0, "reciprocal"), (3.0, "power"), (1.0, "identity")],
)
def test_constant_exponents_become_functions(exponent: float, op: str):
    arrays = {"x": np.abs(draw(3, 4))}
    model = single("Pow", arrays, constants={"e": np.array(exponent, F32)})
    graph = sw.load(model)
    assert operators(graph) == [op]
    np.testing.assert_allclose(result(graph, arrays), arrays["x"] ** exponent, rtol=1e-5)


def test_exponents_that_are_computed_are_operands():
    arrays = {"x": np.abs(draw(3, 4)), "e": draw(4, seed=1)}
    graph = sw.load(single("Pow", arrays))
    assert operators(graph) == ["pow"]


def test_fractions_of_integer_products_are_refused():
    arrays = {"a": np.ones((2, 3), np.int32), "b": np.ones((3, 4), np.int32)}
    fails(single("Gemm", arrays, alpha=0.5), "expected a whole alpha for integers, found 0.5")
    graph = sw.load(single("Gemm", arrays, alpha=3.0))
    assert result(graph, arrays).tolist() == [[9] * 4] * 2


def test_half_floats_are_read_from_every_field():
    value = np.array([1.5, -2.0], np.float16)
    listed = TensorProto(
        name="w", dims=[2], data_type=TensorProto.FLOAT16, int32_data=value.view(np.uint16)
    )
    for stored in (listed, numpy_helper.from_array(value, "w")):
        model = make(node("Add", "x", "w"), shape=(2,), dtype=TensorProto.FLOAT16,
                     constants={"w": stored})  # fmt: skip
        found = result(sw.load(model), {"x": value})
        np.testing.assert_array_equal(found, 2 * value)


# --- quantized products ---------------------------------------------------------------------------


@pytest.mark.parametrize("zero", ["none", "scalar", "columns"])
def test_integer_products_with_zero_points(zero: str):
    rng = np.random.default_rng(0)
    arrays: dict[str, Array] = {
        "a": rng.integers(0, 255, (4, 5)).astype(np.uint8),
        "b": rng.integers(-60, 60, (5, 3)).astype(np.int8),  # ONNX Runtime saturates more
    }
    if zero != "none":
        arrays["a_zero"] = np.array(7, np.uint8)
        columns = np.array([-3, 0, 5], np.int8)
        arrays["b_zero"] = columns if zero == "columns" else np.array(-3, np.int8)
    model = single("MatMulInteger", arrays)
    found = result(sw.load(model), arrays)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, run_onnxruntime(model, arrays)["y"])


def test_quantized_products():
    rng = np.random.default_rng(0)
    arrays: dict[str, Array] = {
        "a": rng.integers(0, 255, (4, 5)).astype(np.uint8),
        "a_scale": np.array(0.02, F32),
        "a_zero": np.array(120, np.uint8),
        "b": rng.integers(0, 255, (5, 3)).astype(np.uint8),
        "b_scale": np.array(0.01, F32),
        "b_zero": np.array(130, np.uint8),
        "y_scale": np.array(0.05, F32),
        "y_zero": np.array(100, np.uint8),
    }
    model = single("QLinearMatMul", arrays)
    found = result(sw.load(model), arrays)
    np.testing.assert_array_equal(found, run_onnxruntime(model, arrays)["y"])


@given(extent=st.integers(1, 300), scale=st.integers(1, 49))
def test_extents_of_resized_images_are_products_in_float32(extent: int, scale: int):
    arrays = {"x": draw(1, 2, 3, extent)}
    scales = np.array([1, 1, 2, max(scale / 10, 1 / extent)], F32)  # float32 has no 0.7
    constants = {"roi": np.empty(0, F32), "scales": scales}
    model = single("Resize", arrays, constants=constants, mode="linear")
    want = run_onnxruntime(model, arrays)["y"]
    graph = sw.load(model)
    np.testing.assert_allclose(result(graph, arrays), want, atol=1e-3)  # its positions are float32
