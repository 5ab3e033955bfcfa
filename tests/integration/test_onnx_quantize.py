"""Import of quantized models: single operators, and what ONNX Runtime's quantizer writes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper, version_converter
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

import stridewise as sw
from stridewise.errors import ModelError, UnsupportedError
from stridewise.runtime.machine.machine import this_machine

from .models import relative_error, run_onnxruntime
from .onnx_nodes import fails, make, node

Array = np.ndarray[Any, np.dtype[Any]]
Graph = sw.Graph
F32 = np.float32
NARROW = ("int8", "uint8")
STORED = (*NARROW, "int16", "uint16")


def model_of(
    op: str, arrays: dict[str, Array | None], outputs: int = 1, opset: int = 21, **attrs: Any
) -> ModelProto:
    """A model of one node; what arrays are None is absent, and all but the first are constants."""
    domain = "" if opset >= 21 or not {"int16", "uint16"} & dtypes(arrays) else "com.microsoft"
    given = {name: array for name, array in arrays.items() if array is not None}
    first = next(iter(given))
    names = [name if name in given else "" for name in arrays]
    results = [f"y{index}" for index in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, name="n", domain=domain, **attrs)],
        "test",
        [helper.make_tensor_value_info(first, code(given[first]), given[first].shape)],
        [helper.make_empty_tensor_value_info(name) for name in results],
        [numpy_helper.from_array(array, name) for name, array in given.items() if name != first],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10 if opset > 19 else 8)


def dtypes(arrays: dict[str, Array | None]) -> set[str]:
    return {array.dtype.name for array in arrays.values() if array is not None}


def code(array: Array) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def results(model: ModelProto, x: Array) -> dict[str, Array]:
    (name,) = (item.name for item in model.graph.input)
    found = sw.compile(model, tune="model", threads=1, fallback=False).run({name: x})
    expected = run_onnxruntime(model, {name: x})
    for key, wanted in expected.items():
        assert found[key].dtype == wanted.dtype
        assert found[key].shape == wanted.shape
        np.testing.assert_allclose(found[key], wanted, rtol=1e-6, atol=0, err_msg=key)
    return found


# --- operators ------------------------------------------------------------------------------------


@st.composite
def parameters(draw: st.DrawFn) -> tuple[Array, Array, Array | None, dict[str, int], int]:
    """Numbers, their scale and zero point, where these lie, and an opset."""
    dtype = np.dtype(draw(st.sampled_from(STORED)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    per_axis = draw(st.booleans())
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    size = (shape[axis],) if per_axis else ()
    scale = rng.choice(np.array([0.5, 0.25, 0.1, 0.037, 1.0, 3.0], F32), size)
    limits = np.iinfo(dtype)
    zero = rng.integers(limits.min, limits.max, size, dtype, endpoint=True)
    absent = dtype == np.uint8 and draw(st.booleans())
    attrs = {"axis": axis} if per_axis else {}
    # Halves are ties, and great numbers saturate.
    x = (rng.integers(-1200, 1200, shape) * rng.choice([0.125, 0.25, 1.0, 97.0])).astype(F32)
    opset = draw(st.sampled_from([13, 17, 21, 23]))
    return x, np.asarray(scale), None if absent else np.asarray(zero), attrs, opset


@settings(max_examples=60, deadline=None)
@given(parameters())
def test_numbers_are_quantized_as_in_onnx_runtime(
    case: tuple[Array, Array, Array | None, dict[str, int], int],
) -> None:
    x, scale, zero, attrs, opset = case
    model = model_of("QuantizeLinear", {"x": x, "s": scale, "z": zero}, opset=opset, **attrs)
    results(model, x)


@settings(max_examples=60, deadline=None)
@given(parameters(), st.booleans())
def test_stored_values_are_what_onnx_runtime_takes_them_for(
    case: tuple[Array, Array, Array | None, dict[str, int], int], wide: bool
) -> None:
    x, scale, zero, attrs, opset = case
    dtype = np.dtype(np.uint8) if zero is None else zero.dtype
    if wide:
        dtype, zero = np.dtype(np.int32), None
    limits = np.iinfo(dtype)
    q = np.clip(x * F32(7), limits.min, limits.max).astype(dtype)
    model = model_of("DequantizeLinear", {"x": q, "s": scale, "z": zero}, opset=opset, **attrs)
    results(model, q)


@pytest.mark.parametrize("tune", ["model", "auto"])
def test_integers_are_not_computed_from_bfloat16(tune: Any) -> None:
    """The greatest int16 is no number of bfloat16, and the next one above wraps around."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(16, 8, 3, 3)).astype(F32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"]),
         helper.make_node("QuantizeLinear", ["y", "s", "z"], ["q"])],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8, 12, 12))],
        [helper.make_empty_tensor_value_info("q")],
        [numpy_helper.from_array(array, name) for name, array in
         (("w", w), ("s", np.array(1e-3, F32)), ("z", np.array(5, np.int16)))],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = rng.normal(size=(1, 8, 12, 12)).astype(F32) * 5
    (expected,) = run_onnxruntime(model, {"x": x}).values()
    found = np.asarray(sw.compile(model, dtype="bfloat16", tune=tune)(x))
    far = np.abs(expected) > 32000
    assert (expected == 32767).any()
    assert (np.sign(found[far]) == np.sign(expected[far])).all()
    assert (found[np.abs(expected) > 1024] % 8).any()  # numbers of bfloat16 are multiples of 8


@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
def test_blocks_have_numbers_of_their_own(op: str) -> None:
    rng = np.random.default_rng(0)
    real = rng.normal(size=(2, 7, 3)).astype(F32)
    x = real if op == "QuantizeLinear" else (real * 50).astype(np.int8)
    scale = rng.uniform(0.01, 0.1, (2, 3, 3)).astype(F32)
    zero = rng.integers(-9, 9, (2, 3, 3)).astype(np.int8)
    model = model_of(op, {"x": x, "s": scale, "z": zero}, axis=1, block_size=3)
    results(model, x)


@pytest.mark.parametrize("opset", [19, 21])
def test_halves_are_computed_as_halves(opset: int) -> None:
    x = np.random.default_rng(0).normal(size=(3, 40)).astype(np.float16)
    arrays: dict[str, Array | None] = {
        "x": x, "s": np.array(0.25, np.float16), "z": np.array(3, np.int8)
    }  # fmt: skip
    q = results(model_of("QuantizeLinear", arrays, opset=opset), x)["y0"]
    real = results(model_of("DequantizeLinear", {**arrays, "x": q}, opset=opset), q)["y0"]
    assert real.dtype == np.float16
    assert np.abs(real.astype(F32) - x.astype(F32)).max() <= 0.125


def test_an_absent_zero_point_takes_its_type_from_an_attribute() -> None:
    x = np.array([-3.5, 2.5, 900], F32)
    arrays: dict[str, Array | None] = {"x": x, "s": np.array(1, F32)}
    model = model_of("QuantizeLinear", arrays, output_dtype=code(np.zeros(0, np.int16)))
    found = sw.compile(model, tune="model", fallback=False)(x)
    assert found.dtype == np.int16
    assert found.tolist() == [-4, 2, 900]


@pytest.mark.parametrize("zeros", [0, 3, None])
def test_convolutions_of_stored_values(zeros: int | None) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (2, 6, 9, 9)).astype(np.uint8)
    w = rng.integers(-60, 60, (4, 3, 3, 3)).astype(np.int8)
    shape = {"pads": [1, 1, 1, 1], "group": 2, "strides": [2, 1]}
    zero = None if zeros is None else np.array(zeros, x.dtype)
    offset = None if zeros is None else np.array(-zeros, np.int8)
    arrays: dict[str, Array | None] = {"x": x, "w": w, "xz": zero, "wz": offset}
    sums = results(model_of("ConvInteger", arrays, **shape), x)["y0"]
    if offset is not None:
        # One zero point a channel, which ONNX Runtime does not take.
        offsets = np.arange(4, dtype=np.int8)
        moved = {**arrays, "w": w + (offsets - offset)[:, None, None, None], "wz": offsets}
        model = model_of("ConvInteger", moved, **shape)
        np.testing.assert_array_equal(sw.compile(model, tune="model", fallback=False)(x), sums)
    arrays = {
        "x": x, "xs": np.array(0.02, F32), "xz": np.array(zeros or 0, np.uint8), "w": w,
        "ws": rng.uniform(0.01, 0.02, 4).astype(F32), "wz": np.zeros(4, np.int8),
        "ys": np.array(0.3, F32), "yz": np.array(zeros or 0, np.uint8),
        "b": rng.integers(-9999, 9999, 4).astype(np.int32),
    }  # fmt: skip
    model = model_of("QLinearConv", arrays, **shape)
    found = sw.compile(model, tune="model", fallback=False)(x).astype(int)
    # A result between two steps may be rounded to either by another order of sums.
    difference = np.abs(found - run_onnxruntime(model, {"x": x})["y0"])
    assert difference.max() <= 1
    assert difference.mean() < 0.01


@pytest.mark.parametrize("low", [-3.0, 0.5, 0.0])
def test_ranges_are_found_at_the_run(low: float) -> None:
    x = np.random.default_rng(0).uniform(low, 2, (3, 5)).astype(F32)
    results(model_of("DynamicQuantizeLinear", {"x": x}, outputs=3), x)
    results(model_of("DynamicQuantizeLinear", {"x": x}, outputs=3), -x)
    results(model_of("DynamicQuantizeLinear", {"x": x}, outputs=3), 0 * x)


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "message"),
    [
        ("QuantizeLinear", {"x": np.zeros((2, 3), F32), "s": np.ones(2, F32)}, {},
         "expected one scale, or 3 along axis 1, found [2]"),
        ("QuantizeLinear", {"x": np.zeros((2, 3), F32), "s": np.ones(2, F32)}, {"axis": 2},
         "expected an axis from -2 to 1, found 2"),
        ("QuantizeLinear", {"x": np.zeros((2, 3), np.int32), "s": np.ones((), np.int32)}, {},
         "expected a scale of floats, found int32"),
        ("QuantizeLinear", {"x": np.zeros(3, F32), "s": np.ones((), F32), "z": np.int8(0)},
         {"output_dtype": 2}, "expected a zero point of dtype uint8, found int8"),
        ("QuantizeLinear", {"x": np.zeros(3, F32), "s": np.ones((), F32), "z": np.int32(0)}, {},
         "expected a result of dtype int8, uint8, int16, uint16, found int32"),
        ("QuantizeLinear", {"x": np.zeros((2, 3), F32), "s": np.ones((2, 3), F32)},
         {"block_size": 2}, "expected a scale of shape [2, 2] for blocks of 2, found [2, 3]"),
        ("DequantizeLinear", {"x": np.zeros(3, np.int8), "s": np.ones((), F32), "z": np.uint8(0)},
         {}, "expected a zero point of dtype int8, found uint8"),
        ("DequantizeLinear", {"x": np.zeros(3, np.int64), "s": np.ones((), F32)}, {},
         "expected an input of dtype int8, uint8, int16, uint16, int32, found int64"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    op: str, arrays: dict[str, Any], attrs: dict[str, int], message: str
) -> None:
    given_arrays = {name: np.asarray(array) for name, array in arrays.items()}
    with pytest.raises(ModelError) as caught:
        sw.load(model_of(op, given_arrays, **attrs), fallback=False)
    assert str(caught.value) == f"node 'n' ({op}): {message}"


# --- folding --------------------------------------------------------------------------------------


def test_quantized_constants_become_real_ones() -> None:
    w = np.array([[-3, 0, 5]], np.int8)
    constants = {"w": w, "s": np.array([0.5], F32), "z": np.array([-1], np.int8)}
    dq = node("DequantizeLinear", "w", "s", "z", outputs=["f"], axis=0, name="dq")
    graph = sw.load(make(dq, node("Add", "x", "f"), shape=(1, 3), constants=constants))
    assert [item.op for item in graph.nodes] == ["add"]
    assert graph.constants["f"].array.tolist() == [[-1, 0.5, 3]]


def test_what_no_reference_computes_is_refused_as_an_operator_that_is_not_supported() -> None:
    window = node("MelWeightMatrix", *"abcde", outputs=["w"], name="mel")
    constants = {"a": 3, "b": 4, "c": 8000, "d": F32(0), "e": F32(4000)}
    model = make(window, node("Add", "x", "w"), shape=(3, 3), constants=constants, opset=17)
    fails(model, "expected an operator that can be computed at import, found 'MelWeightMatrix' of",
          error=UnsupportedError)  # fmt: skip


# --- whole models ---------------------------------------------------------------------------------


class Images(CalibrationDataReader):
    """Two random images to calibrate with."""

    def __init__(self, graph: Graph) -> None:
        (name,) = graph.inputs
        shape = graph.value(name).shape
        draw = np.random.default_rng(1)
        self._items: Iterator[dict[str, Array]] = iter(
            [{name: draw.standard_normal(shape).astype(F32)} for _ in range(2)]
        )

    def get_next(self) -> dict[str, Array] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return next(self._items, None)


def network() -> Graph:
    """Convolutions, one of them depthwise, a residual, poolings, a concat and a matrix product."""
    b = sw.GraphBuilder("net")
    x = b.input("x", (1, 3, 24, 24))
    y = b.relu(b.conv2d(x, filters=16, kernel_size=3, padding=1))
    y = b.op("max_pool", [y], {"kernel": (2, 2), "strides": (2, 2)})
    z = b.relu(b.conv2d(y, filters=16, kernel_size=3, padding=1, groups=16))
    y = b.relu(b.op("add", [y, b.conv2d(z, filters=16, kernel_size=1)]))
    y = b.op("concat", [y, z], {"axis": 1})
    y = b.op("reduce_mean", [y], {"axes": (2, 3), "keepdims": 0})
    weights = np.random.default_rng(2).standard_normal((32, 10)).astype(F32)
    return b.build([b.op("matmul", [y, b.constant(weights)])])


def written(graph: Graph, folder: Path, opset: int = 17) -> Path:
    path = folder / "model.onnx"
    sw.save(graph, path)
    model = ModelProto.FromString(path.read_bytes())
    if opset > 17:
        model = version_converter.convert_version(model, opset)
    elif opset < 17:
        model.opset_import[0].version = opset  # these operators mean the same
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The quantizer writes advice into the log."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def quantized(graph: Graph, folder: Path, opset: int = 17, **options: Any) -> ModelProto:
    path, target = written(graph, folder, opset), folder / "quantized.onnx"
    options = {"quant_format": QuantFormat.QDQ, "weight_type": QuantType.QInt8, **options}
    quantize_static(path, target, Images(graph), **options)
    return ModelProto.FromString(target.read_bytes())


def error_of(model: ModelProto, **options: Any) -> float:
    """The relative error against ONNX Runtime, whose joined kernels saturate sums without VNNI."""
    (item,) = model.graph.input
    shape = [dim.dim_value for dim in item.type.tensor_type.shape.dim]
    x = np.random.default_rng(3).standard_normal(shape).astype(F32)
    compiled = sw.compile(model, tune="model", threads=1, **options)
    (expected,) = run_onnxruntime(model, {item.name: x}, joins=False).values()
    return relative_error(compiled(x), expected)


SIGNED = {"activation_type": QuantType.QInt8}
UNSIGNED = {"activation_type": QuantType.QUInt8, "per_channel": True, "reduce_range": True}
WIDE = {"activation_type": QuantType.QInt16}


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("options", [SIGNED, UNSIGNED, WIDE], ids=["int8", "uint8", "int16"])
def test_models_of_the_quantizer(tmp_path: Path, options: dict[str, Any], opset: int) -> None:
    model = quantized(network(), tmp_path, opset, **options)
    assert error_of(model, fallback=False) < 2e-2
    graph = sw.plan(model, tune="model", fallback=False).graph
    assert {value.dtype.name for value in graph.values.values()} == {"float32"}


@pytest.mark.parametrize("options", [SIGNED, UNSIGNED], ids=["int8", "uint8"])
def test_a_network_of_the_zoo(tmp_path: Path, options: dict[str, Any]) -> None:
    model = quantized(sw.zoo.build("squeezenet1_1"), tmp_path, **options)
    assert error_of(model, fallback=False) < 2e-2


SYMMETRIC = {**SIGNED, "per_channel": True, "extra_options": {"ActivationSymmetric": True}}


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
@pytest.mark.parametrize(
    "options", [SIGNED, UNSIGNED, SYMMETRIC], ids=["int8", "uint8", "symmetric"]
)
def test_kernels_compute_with_integers(
    tmp_path: Path, options: dict[str, Any], form: QuantFormat
) -> None:
    model = quantized(network(), tmp_path, quant_format=form, **options)
    assert error_of(model, fallback=False) < 2e-2
    assert error_of(model, fallback=False, dtype="float32") < 2e-2
    plan = sw.plan(model, tune="model", fallback=False)
    products = [
        decision.chosen.option.calls[0].spec.memory("src")
        for node, decision in zip(plan.graph.nodes, plan.decisions, strict=True)
        if node.op in ("conv", "matmul")
    ]
    stored = {item.dtype for item in products if item is not None}
    machine = this_machine(1)
    if machine.has_int8_products:
        assert stored <= {"s8", "u8"}
    else:
        assert bool(stored & {"s8", "u8"}) == machine.has_int8


def gated() -> Graph:
    """A convolution, a batch norm that is not folded, swish, and squeeze-and-excitation."""
    b = sw.GraphBuilder("gated")
    rng = np.random.default_rng(4)
    y = b.conv2d(b.input("x", (1, 3, 24, 24)), filters=24, kernel_size=3, padding=1)
    numbers = [b.constant(rng.uniform(0.5, 1.5, 24).astype(F32)) for _ in range(2)]
    y = b.op("scale_shift", [y, *numbers])
    y = b.op("mul", [y, b.op("sigmoid", [y])])
    gate = b.op("avg_pool", [y], {"kernel": (24, 24)})
    gate = b.op("sigmoid", [b.conv2d(gate, filters=24, kernel_size=1)])
    return b.build([b.conv2d(b.op("mul", [y, gate]), filters=8, kernel_size=3)])


@pytest.mark.parametrize("types", ["QUInt8 QUInt8", "QUInt8 QInt8", "QInt8 QInt8"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("reduce_range", [False, True])
def test_gates_and_norms_that_are_not_folded(
    tmp_path: Path, types: str, per_channel: bool, reduce_range: bool
) -> None:
    activations, weights = (QuantType[name] for name in types.split())
    options = {"per_channel": per_channel, "reduce_range": reduce_range}
    model = quantized(
        gated(), tmp_path, activation_type=activations, weight_type=weights, **options
    )
    assert {"BatchNormalization", "Sigmoid"} <= {node.op_type for node in model.graph.node}
    assert error_of(model, fallback=False) < 2e-2
    plan = sw.plan(model, tune="model", fallback=False)
    assert not any(decision.chosen.algorithm == "host" for decision in plan.decisions)


def test_operator_format_gives_the_results_of_qdq_format(tmp_path: Path) -> None:
    models = [
        sw.compile(quantized(network(), tmp_path, quant_format=form, **UNSIGNED), tune="model")
        for form in (QuantFormat.QDQ, QuantFormat.QOperator)
    ]
    x = np.random.default_rng(3).standard_normal((1, 3, 24, 24)).astype(F32)
    first, second = (model(x) for model in models)
    np.testing.assert_array_equal(first, second)


def test_models_that_take_and_give_integers(tmp_path: Path) -> None:
    model = quantized(network(), tmp_path, **UNSIGNED)
    (given,), (found,) = model.graph.input, model.graph.output
    (first,) = [item for item in model.graph.node if given.name in item.input]
    (last,) = [item for item in model.graph.node if found.name in item.output]
    assert (first.op_type, last.op_type) == ("QuantizeLinear", "DequantizeLinear")
    given.name, given.type.tensor_type.elem_type = first.output[0], TensorProto.UINT8
    found.name, found.type.tensor_type.elem_type = last.input[0], TensorProto.UINT8
    model.graph.node.remove(first)
    model.graph.node.remove(last)
    x = np.random.default_rng(4).integers(0, 256, (1, 3, 24, 24), np.uint8)
    (expected,) = run_onnxruntime(model, {given.name: x}).values()
    compiled = sw.compile(model, tune="model", fallback=False)
    made = np.asarray(compiled(x))
    assert made.dtype == np.uint8
    assert np.abs(made.astype(int) - expected.astype(int)).max() <= 2
    if this_machine(1).has_int8:
        assert not any(decision.chosen.algorithm == "host" for decision in compiled.plan.decisions)


@pytest.mark.parametrize("weights", [QuantType.QUInt8, QuantType.QInt8])
@pytest.mark.parametrize("per_channel", [False, True])
def test_models_with_dynamic_quantization(
    tmp_path: Path, weights: QuantType, per_channel: bool
) -> None:
    path, target = written(network(), tmp_path), tmp_path / "quantized.onnx"
    quantize_dynamic(path, target, weight_type=weights, per_channel=per_channel)
    model = ModelProto.FromString(target.read_bytes())
    assert {"ConvInteger", "DynamicQuantizeLinear"} <= {node.op_type for node in model.graph.node}
    assert error_of(model, fallback=False) < 1e-5
    compiled = sw.compile(model, tune="model", threads=1, fallback=False)
    assert not any(decision.chosen.algorithm == "host" for decision in compiled.plan.decisions)


def test_large_weights_stay_integers():
    """Their real numbers take more memory than constants of a small model may."""
    weights = np.ones((9 << 10, 8 << 10), np.int8)
    shape, names = weights.shape, ("w", "w.scale", "w.zero")
    arrays = (weights, np.full(shape[0], 0.5, F32), np.zeros(shape[0], np.int8))
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", names, ["real"], axis=0),
            helper.make_node("Gemm", ["x", "real"], ["y"], transB=1),
        ],
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, shape[1]))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, shape[0]))],
        [numpy_helper.from_array(array, name) for name, array in zip(names, arrays, strict=True)],
    )
    found = sw.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
    grid = found.values["real"].grid
    assert grid is not None
    assert (grid.dtype, grid.axis, set(grid.scales)) == ("s8", 0, {0.5})
    assert float(found.constants["real"].array[-1, -1]) == 0.5
