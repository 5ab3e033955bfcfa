"""Simulated targets: plans executed in storage formats agree with ONNX and with the reference."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tests.integration.small_models import small_models
from tests.networks import networks

import stridewise as sw
from stridewise.errors import ExecutionError, InputError
from stridewise.formats import Format, algebra
from stridewise.graph import Graph
from stridewise.planner import derive
from stridewise.planning import make_plan
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.simulation.reference import run_reference
from stridewise.runtime.simulation.simulate import SimulatedModel
from stridewise.runtime.simulation.storage import StoredTensor, store
from stridewise.targets.tables.load import SHIPPED, shipped
from stridewise.targets.tables.table import TableTarget
from stridewise.tensor import TensorDesc

TARGETS = tuple(SHIPPED)
MODELS = small_models()
SMALL = [name for name in MODELS if not name.endswith(("_1", "_24", "_100"))]


def feeds(graph: Graph, seed: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    values = [graph.values[name] for name in graph.inputs]
    return {v.name: draw.normal(size=v.shape).astype(v.dtype.numpy) for v in values}


def simulated(graph: Graph, target: TableTarget) -> SimulatedModel:
    return SimulatedModel(make_plan(derive(graph), target, target.machine, target))


# --- results --------------------------------------------------------------------------------------


# ONNX's evaluator computes these of some opsets wrongly: with the statistics of the batch, with too
# few channels, with pads that NumPy refuses.
_MISTAKEN = {"BatchNormalization", "LRN", "Pad", "Resize", "Upsample"}


def evaluated(proto: onnx.ModelProto, inputs: dict[str, Any]) -> list[Any]:
    """Return what ONNX's evaluator gives, or ONNX Runtime where that one errs."""
    if {node.op_type for node in proto.graph.node} & _MISTAKEN:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # a pool of threads would spin between runs
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
        return session.run(None, inputs)
    return ReferenceEvaluator(proto).run(None, inputs)


def test_most_operators_meet_the_evaluator_of_onnx():
    met = [
        {node.op_type for node in MODELS[name].graph.node}
        for name in SMALL
        if not {node.op_type for node in MODELS[name].graph.node} & _MISTAKEN
    ]
    assert {"Conv", "Relu", "Gemm", "MatMul", "MaxPool", "Concat", "Slice"} <= set().union(*met)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("target", TARGETS)
def test_models_agree_with_the_evaluator_of_onnx(name: str, target: str):
    proto = MODELS[name]
    model = sw.compile(proto, target=target)
    assert isinstance(model, SimulatedModel)
    inputs = feeds(model.plan.graph)
    expected = evaluated(proto, inputs)
    found = model.run(inputs)
    assert list(found) == [output.name for output in proto.graph.output]
    for theirs, ours in zip(expected, found.values(), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def half_chain() -> onnx.ModelProto:
    """Return Conv, Relu, Conv, Flatten and MatMul in float16."""
    draw = np.random.default_rng(3)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array((draw.normal(size=shape) / 8).astype(np.float16), name)

    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], strides=[2, 2]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "w2"], ["y"]),
    ]
    weights = [weight("w0", 24, 20, 3, 3), weight("w1", 10, 24, 1, 1), weight("w2", 90, 7)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT16, (2, 20, 6, 6))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, (2, 7))
    graph = helper.make_graph(nodes, "half", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def half_graph() -> Graph:
    """Return the graph of :func:`half_chain`, as the import knows no float16."""
    proto = half_chain()
    w0, w1, w2 = (numpy_helper.to_array(item) for item in proto.graph.initializer)
    b = sw.GraphBuilder("half")
    x = b.input("x", (2, 20, 6, 6), "float16")
    y = b.op("relu", [b.op("conv", [x, b.constant(w0)], {"pads": (1,) * 4})])
    y = b.op("conv", [y, b.constant(w1)], {"strides": (2, 2)})
    y = b.op("reshape", [y], {"shape": (2, 90)})
    return b.build([b.op("matmul", [y, b.constant(w2)], output="y")])


@pytest.mark.parametrize("target", TARGETS)
def test_a_chain_in_float16_agrees_with_the_evaluator_of_onnx(target: str):
    model = sw.compile(half_graph(), target=target)
    inputs = feeds(model.plan.graph)
    (expected,) = ReferenceEvaluator(half_chain()).run(None, inputs)
    found = model(inputs["x"])
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, expected, rtol=2e-2, atol=2e-2)
    if target == "ascend":
        assert len(model.plan.reorders) == 2


@settings(max_examples=40)
@given(networks(), st.sampled_from(TARGETS), st.sampled_from(["planned", "uniform"]))
def test_random_networks_agree_with_the_reference(graph: Graph, name: str, way: str):
    """Uniform plans too, so that formats are met that no cheapest plan has."""
    target = shipped(name)
    if way == "uniform":
        rules = {
            op: tuple(
                dataclasses.replace(r, efficiency=1e-6 if r.takes == "ND" else 1.0) for r in g
            )
            for op, g in target.rules.items()
        }
        target = dataclasses.replace(target, rules=rules)
    model = simulated(graph, target)
    inputs = feeds(graph)
    expected = run_reference(graph, inputs)
    for output, found in model.run(inputs).items():
        np.testing.assert_array_equal(found, expected[output])


# --- storage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETS)
def test_every_tensor_lies_in_its_format_and_padding_is_what_the_target_promises(name: str):
    target = shipped(name)
    graph = sw.load(MODELS["resnet_17"])
    plan = sw.plan(graph, target=name)
    seen: list[StoredTensor] = []
    model = SimulatedModel(plan)
    model.trace(feeds(plan.graph), seen.append)
    assert len(seen) == len(plan.graph.inputs) + len(plan.graph.nodes) + len(plan.reorders)
    padded = 0
    for tensor in seen:
        fmt, shape = tensor.desc.storage.format, tensor.desc.canonical_shape
        assert tensor.buffer.shape == (algebra.element_count(fmt, shape),)
        places = np.zeros(tensor.buffer.size, bool)
        places[algebra.offsets(fmt, shape)] = True
        spare = tensor.buffer[~places]
        padded += spare.size
        assert np.all(spare == 0) if target.padding == "zero" else np.all(np.isnan(spare))
        assert not np.isnan(tensor.buffer[places]).any()
    assert padded or name == "openvino-gpu"
    for node, decision in zip(plan.graph.nodes, plan.decisions, strict=True):
        for packed in decision.chosen.option.packed:
            buffer = model.packed[node.name, packed.input]
            count = algebra.element_count(packed.format, packed.shape)
            assert buffer.shape == (count,)


@pytest.mark.parametrize("fmt", ["nChw16c", "NHWC", "NChw4n8c"])
def test_padding_that_is_read_shows(fmt: str):
    desc = TensorDesc((1, 3, 2, 2), "float32", "NCHW", fmt)
    array = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)
    stored = store("x", desc, array, "unspecified")
    np.testing.assert_array_equal(stored.array, array)
    assert np.isnan(stored.buffer).sum() == stored.buffer.size - 12
    moved = stored.reordered(desc.stored_as("nChw8c"), "unspecified")
    np.testing.assert_array_equal(moved.array, array)
    assert np.isnan(moved.buffer).sum() == 8 * 4 - 12
    # Zeros are not guaranteed if the format itself leaves padding unspecified.
    open_format = Format.parse("{3,2,1,0:T(8,1,1)}", "xla").renamed(
        dict(zip("abcd", "NCHW", strict=True))
    )
    assert np.isnan(stored.reordered(desc.stored_as(open_format), "zero").buffer).any()


def test_a_view_lies_inside_of_its_operand():
    b = sw.GraphBuilder("g")
    x = b.input("x", (1, 64, 4, 4))
    y = b.op("relu", [x])
    attrs = {"starts": (0, 32, 0, 0), "stops": (1, 64, 4, 4), "steps": (1,) * 4}
    part = b.op("slice", [y], attrs)
    flat = b.op("reshape", [b.op("identity", [part])], {"shape": (512,)})
    graph = b.build([flat])
    model = simulated(graph, shipped("ascend"))
    seen: dict[str, StoredTensor] = {}
    inputs = feeds(graph)
    model.trace(inputs, lambda tensor: seen.__setitem__(tensor.value, tensor))
    assert np.shares_memory(seen[y].buffer, seen[flat].buffer)
    np.testing.assert_array_equal(model(inputs["x"]), np.maximum(inputs["x"], 0)[:, 32:].ravel())


# --- what is wrong is an error --------------------------------------------------------------------


def convs(dtype: str = "float32") -> Graph:
    b = sw.GraphBuilder("g")
    w = np.ones((20, 20, 1, 1), dtype)
    y = b.op("conv", [b.input("x", (1, 20, 5, 5), dtype), b.constant(w)])
    return b.build([b.op("conv", [y, b.constant(w)], name="last")])


def test_a_missing_reorder_is_an_error():
    plan = simulated(convs(), shipped("ascend")).plan
    inputs = feeds(convs())
    for reorder in plan.reorders:
        others = tuple(r for r in plan.reorders if r is not reorder)
        model = SimulatedModel(dataclasses.replace(plan, reorders=others))
        expected = f"expected storage {reorder.target}, found {reorder.source}, without a reorder"
        with pytest.raises(ExecutionError, match=expected):
            model.run(inputs)


def test_a_view_outside_of_its_operand_is_an_error():
    desc = TensorDesc((1, 3, 2, 2), "float32", "NCHW", "NCHW")
    stored = store("x", desc, np.zeros((1, 3, 2, 2), np.float32), "zero")
    with pytest.raises(ExecutionError, match="tensor 'y': expected 12 elements from 4 on in 'x'"):
        stored.seen_as("y", desc, 4)


def test_calls_are_those_of_every_model():
    model = sw.compile(convs(), target="ascend")
    assert model.input_names == ("x",)
    assert model.output_names == model.plan.graph.outputs
    assert repr(model) == "SimulatedModel('g', x: f32[1,20,5,5] -> last: f32[1,20,5,5])"
    x = feeds(convs())["x"]
    assert np.asarray(model(x)).shape == (1, 20, 5, 5)
    with pytest.raises(InputError, match="expected 1 inputs"):
        model(x, x)
    with pytest.raises(InputError, match="input 'x': expected dtype float32, found float16"):
        model(x.astype(np.float16))
    with pytest.raises(InputError, match="expected inputs x, found y"):
        model.run({"y": x})
    with pytest.raises(InputError, match="profile: expected a target whose kernels run here"):
        model.profile({"x": x})
    half = sw.compile(convs("float16"), target="openvino-gpu")
    with pytest.raises(InputError, match=r"expected dtype float16, .*; use .astype\('float16'"):
        half(x)


def test_plans_with_kernels_are_not_simulated():
    plan = sw.plan(convs(), threads=1, tune="model")
    with pytest.raises(ExecutionError, match="expected a plan for a simulated target"):
        SimulatedModel(plan)
    assert isinstance(sw.compile(convs(), threads=1, tune="model"), CompiledModel)


def test_several_outputs_some_of_them_constants_and_inputs():
    proto = MODELS["aliases"]
    model = sw.compile(proto, target="openvino-gpu")
    inputs = feeds(model.plan.graph)
    found = model(*inputs.values())
    assert isinstance(found, tuple)
    for theirs, ours in zip(ReferenceEvaluator(proto).run(None, inputs), found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_swizzled_weights_and_all_formats_of_a_target_are_simulated():
    """Every rule of the convolution alone, so that none is left untried."""
    target = shipped("openvino-gpu")
    b = sw.GraphBuilder("g")
    draw = np.random.default_rng(1)
    w = draw.normal(size=(20, 4, 3, 3)).astype(np.float32)
    deep = draw.normal(size=(20, 1, 3, 3)).astype(np.float32)
    y = b.op("conv", [b.input("x", (3, 4, 7, 6)), b.constant(w)])
    graph = b.build([b.op("conv", [y, b.constant(deep)], {"groups": 20})])
    inputs = feeds(graph)
    expected = run_reference(graph, inputs)
    for rule in target.rules["conv"]:
        only = dataclasses.replace(target, rules={"conv": (rule,)})
        model = simulated(graph, only)
        assert str(rule) in {d.chosen.algorithm for d in model.plan.decisions}
        for name, found in model.run(inputs).items():
            np.testing.assert_array_equal(found, expected[name])
