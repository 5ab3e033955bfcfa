"""What is refused, or named, where ONNX Runtime computes a part of a model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

import stridewise as sw

from .mixed_models import (
    CASES,
    FLOAT,
    detector,
    expected,
    image,
    info,
    model,
    node,
    same,
    weights,
    with_condition,
    with_loop,
    with_strings,
)

# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_without_onnx_runtime(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    given, _ = CASES[name]()
    with pytest.raises(sw.DependencyError) as caught:
        sw.compile(given, tune="model")
    assert "pip install 'stridewise[fallback]'" in str(caught.value)
    assert "model 'mixed'" in str(caught.value)
    assert not sw.capability(given).is_native


def test_the_error_without_onnx_runtime_names_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = sw.load(with_loop()[0])
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(sw.DependencyError, match=r"'loop' \(Loop\)"):
        sw.load(with_loop()[0])
    with pytest.raises(sw.DependencyError, match=r"'loop' \(Loop\)"):
        sw.compile(graph, tune="model")


def test_the_fallback_can_be_refused() -> None:
    given, _ = with_loop()
    for call in (sw.load, sw.plan, sw.compile):
        with pytest.raises(sw.UnsupportedError, match="a model without control flow"):
            call(given, fallback=False)
    with pytest.raises(sw.UnsupportedError, match=r"Loop.*leave out fallback=False"):
        sw.load(sw.load(given), fallback=False)


def test_what_no_runtime_knows_is_refused() -> None:
    given = model([node("Dream", "x", "y", domain="mine")], [info("x", FLOAT, [2])], "y")
    given.opset_import.append(helper.make_opsetid("mine", 1))
    with pytest.raises(sw.UnsupportedError, match=r"node 'y' \(Dream\).*a supported operator"):
        sw.load(given)
    assert [entry.support for entry in sw.capability(given).nodes] == ["tail"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (node("Dream", "x", "y"), "'Dream' of domain 'ai.onnx'"),
        (node("Loop", "x", "y"), "at least 2 inputs, found 1"),
        (node("Conv", "x x", "y", pads="wide"), "attribute 'pads' to be a list of integers"),
        (
            node("MaxPool", "x", "y", kernel_shape=[2, 2], strides=[1 << 40, 1]),
            "at most 2147483647",
        ),
        (node("MaxPool", "x", "y", kernel_shape=[2, 2], auto_pad="SOME"), "auto_pad"),
        (node("DFT", "x", "x", axis=1), "a supported operator"),
        (node("Einsum", "x", "y", equation="ab"), "operands that fit 'ab'"),
        (node("Reshape", "x seven", "y"), "a new shape of 192 elements"),
        (node("Reshape", "none rest", "y"), r"that determine -1, found \[0, -1\] of \[0, 4\]"),
        (node("Conv", "x w", "y"), "2 input channels, found 3"),
        (node("NonMaxSuppression", "x x nowhere", "y"), "defined before it, found 'nowhere'"),
    ],
)
def test_damaged_models_are_not_handed_on(bad: NodeProto, message: str) -> None:
    constants = {"w": weights(4, 2, 1, 1), "seven": np.array([7]), "rest": np.array([0, -1])}
    constants["none"] = np.zeros((0, 4), np.float32)
    damaged = model([bad], [info("x", FLOAT, [1, 3, 8, 8])], "y", constants)
    with pytest.raises(sw.ModelError, match=message):
        sw.load(damaged)


def test_damage_that_no_check_finds_before_the_run_is_an_error_of_the_run() -> None:
    """Shapes of float16 are left to ONNX's inference, which does not compare channels."""
    constants = {"w": weights(4, 2, 1, 1).astype(np.float16)}
    damaged = model(
        [node("Conv", "x w", "y")], [info("x", TensorProto.FLOAT16, [1, 3, 8, 8])], "y", constants
    )
    with pytest.raises(sw.ModelError, match="2 input channels, found 3"):
        sw.load(damaged, fallback=False)
    compiled = sw.compile(damaged, tune="model")
    with pytest.raises(sw.ExecutionError, match="Conv"):
        compiled(np.zeros((1, 3, 8, 8), np.float16))


@pytest.mark.parametrize(
    ("folded", "constants"),
    [
        (node("NonMaxSuppression", "b s n", "f"), {
            "b": weights(1, 4, 4), "s": weights(1, 1, 4), "n": 1}),
    ],
)  # fmt: skip
def test_constants_that_are_not_computed_at_import_are_computed_in_the_run(
    folded: NodeProto, constants: dict[str, Any]
) -> None:
    nodes = [folded, node("Cast", "f", "real", to=FLOAT), node("Add", "x real", "y")]
    given = model(nodes, [info("x", FLOAT, [1, 3])], "y", constants)
    x = image(1, 3)
    same(sw.compile(given, tune="model")(x), expected(given, {"x": x})[0])
    with pytest.raises(sw.UnsupportedError, match="an operator that can be computed at import"):
        sw.load(given, fallback=False)


def test_constants_that_grow_are_not_handed_on() -> None:
    nodes = [node("HannWindow", "n", "f"), node("ReduceMax", "f", "m"), node("Add", "x m", "y")]
    given = model(nodes, [info("x", FLOAT, [1, 3])], "y", {"n": 1 << 40})
    with pytest.raises(sw.MemoryLimitError, match="constants that take at most"):
        sw.load(given, memory_limit=1 << 32)


def test_captured_names_must_be_defined() -> None:
    given, _ = with_condition()
    branch = next(item for item in given.graph.node[3].attribute if item.name == "else_branch")
    branch.g.node[0].input[0] = "gone"
    with pytest.raises(sw.ModelError, match="defined before it, found 'gone'"):
        sw.load(given)


def test_external_data_in_a_subgraph_stay_in_the_folder(tmp_path: Path) -> None:
    given, feeds = with_loop()
    tensor = TensorProto(name="factor_", dims=[], data_type=FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="factor.bin")
    loop = next(item for item in given.graph.node[1].attribute if item.name == "body")
    constant = node("Constant", "", "own", value=tensor)
    del constant.input[:]
    loop.g.node.insert(0, constant)
    loop.g.node[2].input[1] = "own"
    path = tmp_path / "m.onnx"
    path.write_bytes(given.SerializeToString())
    (tmp_path / "factor.bin").write_bytes(np.float32(1.5).tobytes())
    wanted = expected(with_loop_like(given), feeds)[0]
    same(sw.compile(path, tune="model")(feeds["x"]), wanted)
    tensor.external_data[0].value = "../factor.bin"
    constant.attribute[0].t.CopyFrom(tensor)
    loop.g.node[0].CopyFrom(constant)
    path.write_bytes(given.SerializeToString())
    with pytest.raises(sw.ModelError, match="inside of the model's folder"):
        sw.load(path)


def with_loop_like(given: ModelProto) -> ModelProto:
    """The same model with the tensor of its loop inside."""
    copied = ModelProto()
    copied.CopyFrom(given)
    loop = next(item for item in copied.graph.node[1].attribute if item.name == "body")
    value = onnx.numpy_helper.from_array(np.array(1.5, np.float32), "factor_")
    loop.g.node[0].attribute[0].t.CopyFrom(value)
    return copied


def test_a_failure_in_the_other_runtime_names_the_place() -> None:
    nodes = [
        node("Relu", "x", "r"),
        node("NonZero", "r", "n"),
        node("Reshape", "n four", "y"),
    ]
    given = model(nodes, [info("x", FLOAT, [2, 2])], "y", {"four": np.array([1, 4])})
    compiled = sw.compile(given, tune="model")
    same(compiled(np.array([[1, 2], [0, 0]], np.float32)), np.array([[0, 0, 0, 1]]))
    with pytest.raises(sw.ExecutionError, match=r"node 'y' \(fallback\): expected a run"):
        compiled(np.ones((2, 2), np.float32))
    same(compiled(np.array([[1, 2], [0, 0]], np.float32)), np.array([[0, 0, 0, 1]]))


def test_inputs_are_checked_by_name_and_number() -> None:
    given, feeds = with_strings()
    compiled = sw.compile(given, tune="model")
    with pytest.raises(sw.InputError, match="expected inputs words, x"):
        compiled.run({"x": feeds["x"]})
    with pytest.raises(sw.InputError, match=r"2 inputs \(words, x\)"):
        compiled(feeds["x"])
    with pytest.raises(sw.InputError, match="dtype float32"):
        compiled(feeds["words"], feeds["x"].astype(np.float64))


def test_saving_is_refused(tmp_path: Path) -> None:
    for case in (with_loop, detector):
        with pytest.raises(sw.ModelError, match="a part that another runtime computes"):
            sw.save(sw.load(case()[0]), tmp_path / "m.onnx")
