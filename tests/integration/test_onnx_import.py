"""Importing ONNX: types against ONNX's inference, results against ONNX Runtime."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from stridewise.errors import InputError
from stridewise.frontends.onnx import import_model
from stridewise.graph import Graph, from_text, to_text
from stridewise.graph.verify import verify
from stridewise.ops import infer

from .models import (
    F32,
    light_inputs,
    light_models,
    light_output,
    random_inputs,
    randomize,
    rebatch,
    relative_error,
    run_onnxruntime,
    run_reference,
    small_models,
    torch_models,
)
from .onnx_nodes import fails, make, node

SMALL = small_models()
FILES = light_models() | torch_models()


def check(graph: Graph) -> None:
    """The invariants of any imported graph."""
    verify(graph, infer)
    text = to_text(graph)
    assert to_text(from_text(text, graph.constants)) == text


# ONNX's inference forgets that AveragePool drops windows that start in the padding at the end.
_MISTAKEN = defaultdict[str, set[str]](set, pools={"v5"})


def compare_types(graph: Graph, model: ModelProto) -> int:
    """Compare every shared value with ONNX's shape inference; return how many there were."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    compared = 0
    for info in (*inferred.graph.value_info, *inferred.graph.output):
        tensor = info.type.tensor_type
        shape = tuple(dim.dim_value for dim in tensor.shape.dim)
        known = tensor.HasField("shape") and all(shape)
        if info.name in graph.values and known and info.name not in _MISTAKEN[graph.name]:
            value = graph.value(info.name)
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            assert (value.shape, value.dtype.numpy) == (shape, dtype), info.name
            compared += 1
    return compared


# --- whole models ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_files_import_with_the_types_of_onnx(name: str) -> None:
    model = onnx.load(FILES[name])
    graph = import_model(FILES[name])
    check(graph)
    assert graph.outputs == tuple(item.name for item in model.graph.output)
    compared = compare_types(graph, model)
    # ONNX's inference knows nothing behind a Pad whose amounts are computed.
    assert compared > len(graph.nodes) // 2 or name == "torch_efficientnet_torchscript"


@pytest.mark.parametrize("name", SMALL)
def test_small_models_equal_onnxruntime(name: str) -> None:
    graph = import_model(SMALL[name])
    check(graph)
    assert compare_types(graph, SMALL[name]) > 0
    compare_results(graph, SMALL[name])


@pytest.mark.parametrize("name", torch_models())
def test_exports_of_pytorch_equal_onnxruntime(name: str) -> None:
    compare_results(import_model(FILES[name]), FILES[name])


def compare_results(graph: Graph, model: ModelProto | Path) -> None:
    inputs = random_inputs(graph)
    expected = run_onnxruntime(model, inputs)
    found = run_reference(graph, inputs)
    assert list(found) == list(expected)
    for output, array in expected.items():
        assert (found[output].shape, found[output].dtype) == (array.shape, array.dtype)
        assert relative_error(found[output], array) < 1e-5, output


def test_light_squeezenet_gives_the_shipped_output() -> None:
    path = FILES["squeezenet"]
    found = run_reference(import_model(path), light_inputs(path))
    np.testing.assert_allclose(found["softmaxout_1"], light_output(path), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("name", ["squeezenet", "resnet50", "shufflenet"])
def test_random_weights_keep_the_scale(name: str) -> None:
    path = FILES[name]
    model = randomize(onnx.load(path), seed=3)
    (probabilities,) = run_onnxruntime(model, light_inputs(path)).values()
    assert 1.2e-3 < probabilities.max() < 0.5
    assert abs(probabilities.sum() - 1) < 1e-4
    assert randomize(onnx.load(path), seed=3) == model


def test_a_large_model_is_imported_without_the_reference_implementation() -> None:
    code = (
        "import sys; from stridewise.frontends.onnx import import_model;"
        f"import_model({str(FILES['densenet121'])!r}); sys.exit('onnx.reference' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- names, inputs and shapes ---------------------------------------------------------------------


def test_names_are_kept() -> None:
    nodes = [node("Relu", outputs=["a"]), node("Relu", "a", name="twin"), node("Relu", name="twin",
             outputs=["b"]), node("Sum", "a", "b", "x", name="", outputs=["c"])]  # fmt: skip
    graph = import_model(make(*nodes, outputs=["y", "c"]))
    assert [item.name for item in graph.nodes] == ["n", "y", "b", "c/add1", "c"]
    assert (graph.inputs, graph.outputs, graph.name) == (("x",), ("y", "c"), "test")
    assert import_model(make(node("Relu")), name="mine").name == "mine"


def test_intermediate_names_give_way_to_names_of_the_model() -> None:
    nodes = [node("Sum", "x", "x", "x"), node("Relu", "y", name="m", outputs=["y/add1"])]
    graph = import_model(make(*nodes, outputs=["y", "y/add1"]))
    check(graph)
    assert graph.nodes[0].outputs == ("y/add1.1",)


def test_an_unused_result_is_not_there() -> None:
    graph = import_model(make(node("Split", outputs=["y", "", "z"], axis=1)))
    assert [item.outputs for item in graph.nodes] == [("y",), ("z",)]


def test_attributes_are_the_shortest_decimals() -> None:
    graph = import_model(make(node("LeakyRelu", alpha=0.1)))
    assert graph.nodes[0].attrs == (("alpha", 0.1),)


def test_an_output_that_is_the_input_needs_no_node() -> None:
    graph = import_model(make(node("Relu"), outputs=["y", "x"]))
    assert (graph.outputs, len(graph.nodes)) == (("y", "x"), 1)


def test_shapes_of_inputs() -> None:
    symbolic = make(node("Relu"), shape=("n", 3, None, "w"))
    graph = import_model(symbolic, shapes={"x": (2, 3, 5, 7)})
    assert graph.value("y").shape == (2, 3, 5, 7)
    batch = make(node("Relu"), shape=("n", 3, 5, 7))
    assert import_model(batch).value("y").shape == (1, 3, 5, 7)
    unknown_rank = make(node("Relu"), shape=None)
    assert import_model(unknown_rank, shapes={"x": (4, 2)}).value("y").shape == (4, 2)
    fixed = make(node("Relu"))
    assert import_model(fixed, shapes={"x": (3, 3, 9, 9)}).value("y").shape == (3, 3, 9, 9)
    fails(
        symbolic,
        "input 'x': expected every extent to be known, found shape (n, 3, ?, w)",
        "shapes={'x': (1, 3, 224, 224)}",
        "--shape x=1,3,224,224",
    )
    fails(unknown_rank, "of unknown rank", "shapes={'x': (1, 3, 224, 224)}")


def test_shapes_that_fit_no_input() -> None:
    model = make(node("Relu"), shape=("n", 3, "s", "s"))
    wrong = {"error": InputError}
    fails(model, "names of inputs ('x')", "'z'", shapes={"z": (1,)}, **wrong)
    fails(model, "rank 4, like (n, 3, s, s)", "(1, 3)", shapes={"x": (1, 3)}, **wrong)
    fails(model, "extents of 0 or more", shapes={"x": (-1, 3, 4, 4)}, **wrong)
    fails(model, "s = 4 as elsewhere", "5", shapes={"x": (1, 3, 4, 5)}, **wrong)


def test_a_symbol_holds_for_all_inputs() -> None:
    model = make(node("Add", "x", "z"), shape=("n", 4))
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ("n", 4)))
    assert import_model(model, shapes={"x": (5, 4)}).value("z").shape == (5, 4)


@pytest.mark.parametrize("name", ["resnet50", "shufflenet", "inception_v1"])
def test_another_batch_of_a_fixed_model(name: str) -> None:
    model = onnx.load(FILES[name])
    (x,) = light_inputs(FILES[name])
    graph = import_model(FILES[name], shapes={x: (4, 3, 224, 224)})
    check(graph)
    assert graph.value(graph.outputs[0]).shape == (4, 1000)
    assert compare_types(graph, rebatch(randomize(model), 4)) > 50


def test_another_batch_that_a_reshape_cannot_follow() -> None:
    model = make(node("Reshape", "x", "s"), constants={"s": [3, 64]})
    parts = ("expected a new shape of 384 elements", "[3, 64]", "export it with a dynamic one")
    fails(model, *parts, shapes={"x": (2, 3, 8, 8)})


# --- constants ------------------------------------------------------------------------------------


def test_weights_are_not_copied_and_not_writable() -> None:
    data = np.arange(4 * 3 * 9, dtype=F32).reshape(4, 3, 3, 3)
    graph = import_model(make(node("Conv", "x", "w"), constants={"w": data}))
    array = graph.constants["w"].array
    assert isinstance(array.base, np.ndarray)
    assert not array.flags.writeable
    np.testing.assert_array_equal(array, data)
    filled = node("ConstantOfShape", "s", outputs=["w"], value=numpy_helper.from_array(F32([2])))
    graph = import_model(make(filled, node("Conv", "x", "w"), constants={"s": [4, 3, 3, 3]}))
    assert graph.constants["w"].array.strides == (0, 0, 0, 0)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
@pytest.mark.parametrize("raw", [False, True])
def test_element_types(dtype: str, raw: bool) -> None:
    data = np.array([[0, 1], [1, 3]], dtype)
    code = helper.np_dtype_to_tensor_dtype(data.dtype)
    values = data.tobytes() if raw else data.reshape(-1).tolist()
    tensor = helper.make_tensor("c", code, data.shape, values, raw=raw)
    graph = import_model(make(node("Identity", "c"), constants={"c": tensor}))
    found = run_reference(graph, {"x": np.zeros(0)})["y"]
    assert found.dtype == data.dtype
    np.testing.assert_array_equal(found, data)


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({"value": numpy_helper.from_array(F32([[1, 2]]))}, F32([[1, 2]])),
        ({"value_float": 0.5}, F32(0.5)),
        ({"value_floats": [0.5, 2.0]}, F32([0.5, 2])),
        ({"value_int": 3}, np.int64(3)),
        ({"value_ints": [3, 4]}, np.int64([3, 4])),
    ],
)
def test_forms_of_constant(attrs: dict[str, Any], expected: Any) -> None:
    constant = helper.make_node("Constant", [], ["y"], **attrs)
    found = run_reference(import_model(make(constant)), {})["y"]
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


FOLDED: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Div", [np.int64([-7, 7, 7]), np.int64([2, -2, 2])], {}),
    ("Mod", [np.int64([-7, 7]), np.int64([3, -3])], {}),
    ("Mod", [np.int64([-7, 7]), np.int64([3, -3])], {"fmod": 1}),
    ("Range", [np.int64(2), np.int64(11), np.int64(3)], {}),
    ("Slice", [np.arange(8), np.int64([-1]), np.int64([-100]), np.int64([0]), np.int64([-2])], {}),
    ("Slice", [np.arange(8), np.int64([5]), np.int64([1]), np.int64([0]), np.int64([-1])], {}),
    ("Gather", [np.int64([5, 6, 7]), np.int64([-1, 0])], {}),
    ("Pow", [F32([2, 3]), np.int64(2)], {}),
    ("Relu", [np.int32([-2, 2])], {}),
    ("Max", [np.int64([1, 5]), np.int64(3)], {}),
    ("Where", [np.array([True, False]), np.int64([1, 2]), np.int64([3, 4])], {}),
    ("Cast", [F32([-1.5, 2.5])], {"to": TensorProto.INT64}),
    ("Expand", [np.int64([[1], [2]]), np.int64([3, 1, 2])], {}),
    ("Shape", [np.zeros((2, 3, 4), F32)], {"start": -2, "end": 10}),
    ("Size", [np.zeros((2, 3, 4), F32)], {}),
    ("Tile", [np.int64([1, 2]), np.int64([2])], {}),
    ("CumSum", [F32([1, 2, 3]), np.int64(0)], {}),
    ("NonZero", [np.array([0, 2, 3])], {}),
    ("Pad", [F32([1, 2, 3]), np.int64([1, 2])], {"mode": "constant"}),
]


@pytest.mark.parametrize(("op", "operands", "attrs"), FOLDED)
def test_nodes_of_constants_are_computed(
    op: str, operands: list[Any], attrs: dict[str, Any]
) -> None:
    constants = {f"c{index}": data for index, data in enumerate(operands)}
    model = make(node(op, *constants, **attrs), constants=constants, opset=18)
    graph = import_model(model)
    assert [item.op for item in graph.nodes] == ["identity"]
    expected = run_onnxruntime(model, {"x": np.zeros((1, 3, 8, 8), F32)})["y"]
    found = run_reference(graph, {})["y"]
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


# --- opset 6 --------------------------------------------------------------------------------------

OLD = {
    "scalar": (node("Add", "x", "b", broadcast=1), (1,), (1, 1, 1, 1)),
    "last axes": (node("Mul", "x", "b", broadcast=1), (8, 8), (1, 1, 8, 8)),
    "channels": (node("Sub", "x", "b", broadcast=1, axis=1), (3,), (1, 3, 1, 1)),
    "inner axes": (node("Add", "x", "b", broadcast=1, axis=1), (3, 8), (1, 3, 8, 1)),
    "last axis": (node("Div", "x", "b", broadcast=1, axis=3), (8,), (1, 1, 1, 8)),
    "whole": (node("Add", "x", "b"), (1, 3, 8, 8), (1, 3, 8, 8)),
    "slopes": (node("PRelu", "x", "b"), (3,), (1, 3, 1, 1)),
    "one slope": (node("PRelu", "x", "b"), (1,), (1, 1, 1, 1)),
}
"""Nodes whose meaning changed with opset 7, shapes of operands, and what NumPy takes them for."""


@pytest.mark.parametrize("name", OLD)
def test_operators_of_opset_6(name: str) -> None:
    """ONNX Runtime knows the operators; NumPy knows what their operands mean."""
    proto, shape, meant = OLD[name]
    rng = np.random.default_rng(0)
    x, b = rng.normal(size=(1, 3, 8, 8)).astype(F32), rng.normal(size=shape).astype(F32)
    graph = import_model(make(proto, constants={"b": b}, opset=6))
    check(graph)
    (found,) = run_reference(graph, {"x": x}).values()
    wide = node(proto.op_type, "x", "b")
    wanted = run_onnxruntime(
        make(wide, constants={"b": np.broadcast_to(b.reshape(meant), x.shape)}), {"x": x}
    )
    np.testing.assert_allclose(found, wanted["y"], rtol=1e-6)


def test_operators_of_opset_6_that_do_not_fit() -> None:
    b = {"b": np.ones(3, F32)}
    fails(make(node("Add", "x", "b"), constants=b, opset=6), "of one shape without broadcast=1")
    late = make(node("Add", "x", "b", broadcast=1, axis=4), constants=b, opset=6)
    fails(late, "an axis from 0 to 3, found 4")
    before = make(node("Add", "x", "b", broadcast=1, axis=-1), constants=b, opset=6)
    fails(before, "an axis from 0 to 3, found -1")
    fails(make(node("PRelu", "x", "b"), constants={"b": np.ones(2, F32)}, opset=6), "one slope")
    fails(make(node("Dropout"), opset=6), "is_test=1, found 0", "evaluation mode")
    fails(make(node("Upsample", mode="nearest"), opset=6), "Upsample of opset 7 or later")


def test_models_without_the_default_domain() -> None:
    proto = make(node("Scaler", domain="ai.onnx.ml"))
    proto.opset_import[0].domain = "ai.onnx.ml"
    fails(proto, "'Scaler' of domain 'ai.onnx.ml'")
    proto.graph.node[0].domain = ""
    fails(proto, "expected an ONNX opset from 6 to 28, found none")


def test_nodes_may_come_in_any_order() -> None:
    """As ONNX Runtime's converter to float16 writes them."""
    nodes = [node("Add", "b", "c"), node("Neg", "b", outputs=["c"]), node("Relu", outputs=["b"])]
    sorted_, unsorted = make(*nodes[::-1]), make(*nodes)
    graph = import_model(unsorted)
    assert graph == import_model(sorted_)
    assert [item.op for item in graph.nodes] == ["relu", "neg", "add"]
    assert [item.op_type for item in unsorted.graph.node] == ["Add", "Neg", "Relu"]
    fails(make(node("Add", "x", "c"), node("Neg", "y", outputs=["c"])), "a cycle")
