"""Exporting ONNX: what is saved loads as the same graph, and gives the same in ONNX Runtime."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import ModelProto, TensorProto
from tests.networks import Net, networks
from tests.pure.test_ops import CASES
from tests.runtime.graphs import CASES as GRAPHS

import stridewise as sw
from stridewise.errors import GraphError, InputError, ModelError
from stridewise.frontends.onnx import files
from stridewise.frontends.onnx.export import IR_VERSION, OPSET, make_structure, save_model
from stridewise.frontends.onnx.table import EXPORTERS
from stridewise.graph import Constant, Graph, Node, TensorType, Value
from stridewise.ops import OPS
from stridewise.passes import simplify

from .models import (
    F32,
    light_models,
    random_inputs,
    randomize,
    relative_error,
    run_onnxruntime,
    run_reference,
    small_models,
)

Array = np.ndarray[Any, np.dtype[Any]]

NOT_EXPORTED: dict[str, str] = {}
"""Operators that ONNX has no counterpart for, and why."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("export")


def saved(graph: Graph, folder: Path, **options: Any) -> Path:
    """Save a graph, check what ONNX says about the whole file, and return its path."""
    path = folder / "model.onnx"
    sw.save(graph, path, **options)
    onnx.checker.check_model(str(path), full_check=True)
    return path


def same(found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    """Check that outputs are equal, bit for bit but for the sign of zero."""
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def close(found: Mapping[str, Array], expected: Mapping[str, Array], error: float = 1e-5) -> None:
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype), name
        if array.dtype.kind == "f":
            assert relative_error(found[name], array) < error, name
        else:
            np.testing.assert_array_equal(found[name], array, err_msg=name)


# --- every operator -------------------------------------------------------------------------------


def test_every_operator_has_an_exporter_or_a_reason_why_not():
    assert set(EXPORTERS) | set(NOT_EXPORTED) == set(OPS)
    assert not set(EXPORTERS) & set(NOT_EXPORTED)


def case_graphs(op: str) -> Iterator[tuple[Graph, dict[str, Array]]]:
    """Yield graphs of one node, with its further operands as inputs and as constants."""
    for seed in range(6):
        case = CASES[op](np.random.default_rng(seed))
        for constant in (False, True):
            b = sw.GraphBuilder("case")
            inputs: dict[str, Array] = {}
            names: list[str] = []
            for index, array in enumerate(case.arrays):
                if array is None:
                    names.append("")
                elif index and constant:
                    names.append(b.constant(array, f"x{index}"))
                elif array.ndim:
                    names.append(b.input(f"x{index}", array.shape, str(array.dtype)))
                    inputs[names[-1]] = array
                else:
                    names.append(b.constant(array, f"x{index}"))
            yield b.build([b.op(op, names, case.attrs, name="node", output="y")]), inputs


def onnxruntime_lacks(graph: Graph) -> bool:
    """Return whether ONNX Runtime refuses what ONNX allows: LRN of even sizes, or not of images."""
    (node,) = graph.nodes
    if node.op != "lrn":
        return False
    return node.int_attr("size") % 2 == 0 or len(graph.value(node.inputs[0]).shape) != 4


@pytest.mark.parametrize("op", sorted(EXPORTERS))
def test_an_operator_survives_and_runs(op: str, folder: Path) -> None:
    for graph, inputs in case_graphs(op):
        path = saved(graph, folder)
        expected = run_reference(graph, inputs)
        # A bias of anything but constant matrices is added to rounded products.
        compare = close if op == "matmul" else same
        compare(run_reference(sw.load(path), inputs), expected)
        if not onnxruntime_lacks(graph):
            close(run_onnxruntime(path, inputs), expected)


@pytest.mark.parametrize("op", sorted(set(EXPORTERS) - {"channel_shuffle", "swish"}))
def test_an_operator_comes_back_as_it_was(op: str, folder: Path) -> None:
    for graph, _ in case_graphs(op):
        (node,) = graph.nodes
        back = sw.load(saved(graph, folder))
        assert back.inputs, "a graph of constants is no case"
        if len(back.nodes) != 1 or back.nodes[0].op == "identity":
            # Parameters that are computed, and nodes that change nothing.
            assert op in ("concat", "identity", "matmul", "reduce_max", "scale_shift", "slice",
                          "transpose", "pad", "reduce_sum", "reduce_min", "reduce_mean")  # fmt: skip
            continue
        (found,) = back.nodes
        assert (found.name, found.op, found.outputs) == (node.name, op, node.outputs)
        for key, value in node.attrs:
            assert found.get(key) == value, key


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_graphs_of_all_operators_survive_as_built_and_simplified(name: str, folder: Path) -> None:
    graph = GRAPHS[name]()
    inputs = random_inputs(graph)
    expected = run_reference(graph, inputs)
    for stage in (graph, simplify(graph).graph):
        path = saved(stage, folder)
        close(run_reference(sw.load(path), inputs), expected, 2e-6)
        close(run_onnxruntime(path, inputs), expected)


@settings(max_examples=60)
@given(graph=networks())
def test_random_networks_survive_and_run(graph: Graph, folder: Path) -> None:
    inputs = random_inputs(graph)
    expected = run_reference(graph, inputs)
    path = saved(graph, folder)
    same(run_reference(sw.load(path), inputs), expected)
    close(run_onnxruntime(path, inputs), expected)
    simplified = simplify(graph).graph
    path = saved(simplified, folder)
    same(run_reference(sw.load(path), inputs), run_reference(simplified, inputs))


# --- whole models ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(small_models()))
def test_small_models_give_the_same_after_import_and_export(name: str, folder: Path) -> None:
    model = small_models()[name]
    graph = sw.load(model)
    inputs = random_inputs(graph)
    expected = run_onnxruntime(model, inputs)
    close(run_onnxruntime(saved(graph, folder), inputs), expected)
    close(run_onnxruntime(saved(simplify(graph).graph, folder), inputs), expected)


@pytest.mark.parametrize("name", sorted(light_models()))
def test_light_models_give_the_same_after_import_and_export(name: str, folder: Path) -> None:
    model = randomize(onnx.load(light_models()[name]))
    graph = sw.load(model)
    inputs = random_inputs(graph)
    expected = run_onnxruntime(model, inputs)
    path = saved(graph, folder)
    close(run_onnxruntime(path, inputs), expected, 1e-4)
    back = sw.load(path)
    assert [node.op for node in back.nodes] == [node.op for node in graph.nodes]
    assert [node.name for node in back.nodes] == [node.name for node in graph.nodes]
    assert {name for node in graph.nodes for name in node.outputs} <= set(back.values)


@pytest.mark.parametrize("name", ["resnet_17", "mobilenet_v3_24", "densenet_3", "functions", "pools"])
def test_openvino_loads_and_agrees(name: str, folder: Path) -> None:
    openvino = pytest.importorskip("openvino")
    graph = sw.load(small_models()[name])
    inputs = random_inputs(graph)
    for stage in (graph, simplify(graph).graph):
        core = openvino.Core()
        model = core.compile_model(core.read_model(str(saved(stage, folder))), "CPU", {
            "INFERENCE_PRECISION_HINT": "f32"
        })
        found = model(list(inputs.values()))
        results = {name: found[index] for index, name in enumerate(graph.outputs)}
        close(results, run_reference(graph, inputs), 1e-4)
