"""ONNX's own tests of normalizations, activations, convolutions and poolings."""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.backend.test.case import node as onnx_tests
from onnx.backend.test.case.test_case import TestCase

import stridewise as sw
from stridewise.errors import ModelError
from stridewise.runtime.simulation.reference import run_reference

from .models import F32, relative_error, run_onnxruntime
from .onnx_nodes import fails, make, node

MODULES = {
    "AveragePool": "averagepool",
    "BatchNormalization": "batch_normalization",
    "Celu": "celu",
    "Conv": "conv",
    "Dropout": "dropout",
    "Elu": "elu",
    "Gelu": "gelu",
    "GlobalAveragePool": "globalaveragepool",
    "GlobalMaxPool": "globalmaxpool",
    "GroupNormalization": "groupnormalization",
    "HardSigmoid": "hardsigmoid",
    "HardSwish": "hardswish",
    "InstanceNormalization": "instance_normalization",
    "LRN": "lrn",
    "LayerNormalization": "layernormalization",
    "LeakyRelu": "leakyrelu",
    "LogSoftmax": "logsoftmax",
    "LpNormalization": "lpnormalization",
    "LpPool": "lppool",
    "MaxPool": "maxpool",
    "MaxUnpool": "maxunpool",
    "MeanVarianceNormalization": "meanvariancenormalization",
    "Mish": "mish",
    "PRelu": "prelu",
    "RMSNormalization": "rmsnormalization",
    "Selu": "selu",
    "Shrink": "shrink",
    "Sigmoid": "sigmoid",
    "Softmax": "softmax",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Swish": "swish",
    "Tanh": "tanh",
    "ThresholdedRelu": "thresholdedrelu",
}
"""The operators, and the modules of ONNX that have their tests."""

_BY_NUMPY = ("MaxUnpool", "Shrink", "ThresholdedRelu")
"""Operators that the library has no kernel for."""

_KNOWN_AT_IMPORT = ("Dropout", "MaxUnpool")
"""Operators with inputs that the import must know: a ratio, a mode, a shape."""

_TRAINED = tuple(
    f"test_training_dropout{suffix}" for suffix in ("", "_default", "_default_mask", "_mask")
)
"""Dropout that really drops, which is random."""

TOLERANCE = {"rtol": 1e-3, "atol": 1e-5}


@cache
def cases(op: str) -> dict[str, TestCase]:
    """The tests of an operator by name, in types that the import knows, nothing unfolded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The tests register themselves; computing what they all expect would take seconds.
        import_module(f"onnx.backend.test.case.node.{MODULES[op]}")
    halves = {TensorProto.FLOAT16, TensorProto.BFLOAT16}
    return {
        case.name: case
        for case in onnx_tests._NodeTestCases
        if case.model is not None
        and {n.op_type for n in case.model.graph.node} == {op}
        and not any(item.type.tensor_type.elem_type in halves for item in case.model.graph.input)
        and not case.name.endswith("_expanded")
    }


def frozen(case: TestCase) -> tuple[ModelProto, dict[str, Any], dict[str, Any]]:
    """Return the model with what the import must know as constants, its inputs and results."""
    ((feeds, results),) = case.data_sets
    model = ModelProto()
    model.CopyFrom(case.model)
    graph = model.graph
    arrays = dict(zip((item.name for item in graph.input), feeds, strict=True))
    if graph.node[0].op_type in _KNOWN_AT_IMPORT:
        first = graph.node[0].input[0]
        for name in [name for name in arrays if name != first and arrays[name].ndim <= 1]:
            graph.initializer.append(numpy_helper.from_array(arrays.pop(name), name))
    return model, arrays, dict(zip((item.name for item in graph.output), results, strict=True))


def check_case(case: TestCase) -> None:
    proto, feeds, wanted = frozen(case)
    if case.name in _TRAINED:
        with pytest.raises(ModelError, match="expected training_mode=false, found true"):
            sw.load(proto, fallback=False)
        return
    graph = sw.load(proto)
    feeds = {key: feeds[key] for key in graph.inputs}
    results = [run_reference(graph, feeds)]
    floats = all(array.dtype == F32 for array in (*feeds.values(), *wanted.values()))
    native = {node.op for node in graph.nodes}.isdisjoint({"prelu", "shrink", "thresholded_relu"})
    if floats and native and proto.graph.node[0].op_type not in _BY_NUMPY:
        results.append(sw.compile(proto, tune="model", threads=2).run(feeds))
    for found in results:
        for key, array in wanted.items():
            assert (found[key].dtype, found[key].shape) == (array.dtype, array.shape), case.name
            np.testing.assert_allclose(found[key], array, **TOLERANCE, err_msg=case.name)


@pytest.mark.parametrize("op", MODULES)
def test_what_onnx_expects_is_what_we_compute(op: str) -> None:
    assert cases(op)
    for case in cases(op).values():
        check_case(case)


# --- what ONNX has no tests of --------------------------------------------------------------------


def model(op: str, shape: tuple[int, ...], opset: int = 18, **attrs: Any) -> ModelProto:
    return make(node(op, "x", **attrs), shape=shape, opset=opset)


@pytest.mark.parametrize(
    ("op", "shape", "attrs"),
    [
        ("AveragePool", (2, 3, 8, 7), {"ceil_mode": 1, "count_include_pad": 1, "pads": [1] * 4}),
        ("AveragePool", (2, 3, 8, 7), {"ceil_mode": 1, "pads": [1, 0, 0, 1]}),
        ("AveragePool", (2, 3, 9), {"ceil_mode": 1, "count_include_pad": 1}),
        ("LpPool", (2, 17, 8, 7), {"p": 1, "pads": [1, 0, 0, 1]}),
        ("LpPool", (2, 17, 8, 7), {"p": 3, "pads": [1, 0, 0, 1]}),
        ("LpPool", (2, 3, 8, 7, 6), {"p": 2}),
    ],
)
def test_poolings_agree_with_onnxruntime(op, shape, attrs) -> None:
    rank = len(shape) - 2
    window = {"kernel_shape": [3] * rank, "strides": [2] * rank}
    proto = model(op, shape, **window, **attrs)
    x = np.random.default_rng(0).normal(size=shape).astype(F32)
    (wanted,) = run_onnxruntime(proto, {"x": x}).values()
    assert relative_error(sw.compile(proto, tune="model", threads=2)(x), wanted) < 1e-5


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_global_lp_pools_agree_with_the_definition(p) -> None:
    x = np.random.default_rng(0).normal(size=(2, 17, 4, 5)).astype(F32)
    found = sw.compile(model("GlobalLpPool", x.shape, p=p), tune="model", threads=2)(x)
    wanted = (np.abs(x).astype(np.float64) ** p).sum((2, 3), keepdims=True) ** (1 / p)
    assert relative_error(found, wanted) < 1e-5


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_lp_norms_of_zeros_are_zeros(dtype: str) -> None:
    for factor in (1, 1e-3, 1e3):
        x = np.zeros((2, 3), dtype)
        x[0] = np.array((3, 0, -4)) * factor
        for p, size in ((1, 7), (2, 5)):
            normalized = node("LpNormalization", "x", p=p)
            proto = make(normalized, shape=x.shape, dtype=helper.np_dtype_to_tensor_dtype(x.dtype))
            found = sw.compile(proto, tune="model", threads=1)(x)
            wanted = x / np.float32(size * factor)
            np.testing.assert_allclose(found, wanted, rtol=1e-6 if dtype == "float32" else 1e-3)


def test_indices_of_odd_images_lead_back_to_them(tmp_path: Path) -> None:
    """Beside ONNX Runtime: in ONNX's own test, no pooling in the model has made the indices."""
    shape = (2, 3, 5, 7)
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    proto = make(
        node("MaxPool", "x", outputs=("p", "i"), name="pool", **window),
        node("MaxUnpool", "p", "i", "s", **window),
        shape=shape, constants={"s": np.array(shape)},
    )  # fmt: skip
    x = np.random.default_rng(0).normal(size=shape).astype(F32)
    wanted = run_onnxruntime(proto, {"x": x})["y"]
    model = sw.compile(proto, tune="model", threads=1)
    np.testing.assert_array_equal(model.run({"x": x})["y"], wanted)
    sw.save(sw.load(proto), tmp_path / "again.onnx")
    again = run_onnxruntime(tmp_path / "again.onnx", {"x": x})["y"]
    np.testing.assert_array_equal(again, wanted)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("exponent", range(-44, 38, 3))
def test_lp_norms_of_any_magnitude_are_at_most_one(p: int, exponent: int) -> None:
    x = np.random.default_rng(0).uniform(1, 2, (2, 17)).astype(F32) * F32(10.0**exponent)
    found = sw.compile(model("LpNormalization", x.shape, p=p), tune="model", threads=2)(x)
    wanted = x / np.linalg.norm(x.astype(np.float64), p, axis=-1, keepdims=True)
    # Squares have a limited range: sums of larger ones are infinite, smaller ones are zero.
    if (-17 if p == 2 else -37) <= exponent <= (18 if p == 2 else 36):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert (np.abs(found) <= 1 + 1e-5).all()


def test_a_group_norm_of_opset_18_has_parameters_of_groups() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 6, 4, 5)).astype(F32)
    pair = {name: rng.normal(size=3).astype(F32) for name in ("scale", "bias")}
    proto = make(
        node("GroupNormalization", "x", "scale", "bias", num_groups=3),
        shape=x.shape,
        constants=pair,
        opset=18,
    )
    groups = x.reshape(2, 3, -1)
    wanted = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    wanted = wanted * pair["scale"][:, None] + pair["bias"][:, None]
    found = sw.compile(proto, tune="model", threads=2)(x)
    assert relative_error(found, wanted.reshape(x.shape)) < 1e-5


def test_both_results_of_a_pooling() -> None:
    graph = helper.make_graph(
        [node("MaxPool", "x", outputs=("y", "i"), kernel_shape=[2, 2], strides=[2, 2])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 2, 4, 6))],
        [helper.make_empty_tensor_value_info(name) for name in ("y", "i")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    x = np.random.default_rng(0).normal(size=(1, 2, 4, 6)).astype(F32)
    found = run_reference(sw.load(proto), {"x": x})
    np.testing.assert_array_equal(x.reshape(-1)[found["i"]], found["y"])
    assert found["i"].dtype == np.int64


@pytest.mark.parametrize(
    ("proto", "parts"),
    [
        (model("Gelu", (2, 3), 20, approximate="fast"), ("one of none, tanh", "'fast'")),
        (model("LpPool", (1, 2, 5), kernel_shape=[2], p=0), ("p from 1 to 16, found 0",)),
        (model("LpNormalization", (2, 3), p=3), ("p of 1 or 2, found 3",)),
        (
            make(
                node("LayerNormalization", "x", "s", axis=2),
                shape=(2, 3),
                constants={"s": np.ones(3, F32)},
            ),
            ("an axis from -2 to 1, found 2",),
        ),
        (
            make(node("LayerNormalization", "x", "s"), constants={"s": np.ones(3, F32)}, opset=17),
            ("input 1 of shape [8], found [3]",),
        ),
        (
            make(
                node("GroupNormalization", "x", "s", "s", num_groups=3),
                constants={"s": np.ones(2, F32)},
                opset=18,
            ),
            ("a scale for each of 3 groups, found [2]",),
        ),
        (
            make(
                node("MaxUnpool", "x", "i", "s", kernel_shape=[2, 2]),
                constants={"i": np.zeros((1, 3, 8, 8), np.int64), "s": np.array([1, 2, 9, 9])},
            ),
            ("an output shape of [1, 3] images, found [1, 2, 9, 9]",),
        ),
    ],
)
def test_what_is_refused(proto: ModelProto, parts: tuple[str, ...]) -> None:
    fails(proto, *parts)
