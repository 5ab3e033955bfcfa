"""Annotated plans: reorders as nodes, decisions as metadata, and a file that still runs."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import ModelProto, NodeProto, StringStringEntryProto
from tests.networks import Net, networks
from tests.runtime.gradient_graphs import GRADIENT_CASES
from tests.runtime.graphs import CASES, KINDS, forced_plan
from tests.simplified import simplify

import stridewise as sw
from stridewise.cli import main as entry
from stridewise.errors import InputError
from stridewise.formats import parse, same_bytes
from stridewise.graph import Constant, Graph
from stridewise.ops.geometry import canonical_shape
from stridewise.planning import Plan

from .models import (
    light_models,
    random_inputs,
    relative_error,
    run_onnxruntime,
    run_reference,
    small_models,
)

ONNX_ATTRIBUTES = {"from", "to", "nbytes", "cost_ns"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("annotate")


def annotated(plan: Plan, folder: Path, **options: Any) -> tuple[Path, ModelProto]:
    path = folder / "plan.onnx"
    sw.annotate(plan, path, **options)
    onnx.checker.check_model(str(path), full_check=True)
    return path, onnx.load(path)


def notes(item: Iterable[StringStringEntryProto]) -> dict[str, str]:
    found = {entry.key: entry.value for entry in item}
    assert all(key.startswith("stridewise.") for key in found)
    return {key.removeprefix("stridewise."): value for key, value in found.items()}


def reorders(model: ModelProto) -> list[NodeProto]:
    return [node for node in model.graph.node if node.domain == "stridewise"]


def values(model: ModelProto) -> dict[str, dict[str, str]]:
    graph = model.graph
    infos = (*graph.input, *graph.value_info, *graph.output)
    return {info.name: notes(info.metadata_props) for info in infos}


def check(plan: Plan, model: ModelProto) -> None:
    """Check that a model says what its plan says."""
    found = [
        (values(model)[node.output[0]]["value"], *(onnx.helper.get_attribute_value(item)
         for item in sorted(node.attribute, key=lambda item: item.name)))
        for node in reorders(model)
    ]  # fmt: skip
    expected = [
        (r.tensor, np.float32(r.cost_ns), str(r.source).encode(), r.nbytes, str(r.target).encode())
        for r in plan.reorders
    ]
    assert Counter(found) == Counter(expected)
    costs = [notes(node.metadata_props).get("cost_ns") for node in model.graph.node]
    total = sum(float(cost) for cost in costs if cost is not None)
    np.testing.assert_allclose(total, plan.cost_ns, rtol=1e-9)
    check_edges(plan, model)


def check_edges(plan: Plan, model: ModelProto) -> None:
    """Check that every kernel reads values that are stored as it needs them, and names them so."""
    stored, nodes = values(model), {node.name: node for node in model.graph.node}
    reads = {
        node.name: [name for item in model.graph.node if owner(item) == node.name
                    for name in item.input]
        for node in plan.graph.nodes
    }  # fmt: skip
    for node, decision in zip(plan.graph.nodes, plan.decisions, strict=True):
        assert notes(nodes[node.name].metadata_props)["algorithm"] == decision.chosen.algorithm
        for name, fmt in zip(node.inputs, decision.chosen.option.inputs, strict=True):
            if fmt is None:
                assert not name or name in plan.graph.constants
                continue
            shape = canonical_shape(plan.graph.value(name), fmt)
            forms = [stored[item] for item in reads[node.name] if item in stored]
            assert any(
                form.get("value") == name
                and (
                    form["storage"] == str(fmt)
                    or same_bytes(parse(form["storage"].split()[0]), fmt, shape)
                )
                for form in forms
            ), (node, name)


def owner(node: NodeProto) -> str:
    return notes(node.metadata_props).get("part_of", node.name)


# --- laws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(set(CASES) - set(GRADIENT_CASES)))
def test_plans_in_every_format_are_shown_and_run(name: str, kind: str, folder: Path) -> None:
    graph = CASES[name]()
    plan = forced_plan(graph, kind)
    path, model = annotated(plan, folder)
    check(plan, model)
    inputs = random_inputs(graph)
    expected = run_reference(graph, inputs)
    # ONNX Runtime resizes volumes in some ways only; the file itself is read again then.
    lacks = name == "resizes_3d"
    found = run_reference(sw.load(path), inputs) if lacks else run_onnxruntime(path, inputs)
    assert list(found) == list(expected)
    for output, array in expected.items():
        assert found[output].shape == array.shape
        assert relative_error(found[output], array) < 1e-5, output


def _through() -> Graph:
    """A convolution, and the input as an output."""
    b = Net()
    x = b.input("x", (2, 16, 6, 5))
    return b.build([b.op("relu", [b.conv(x, 32)], output="y"), "x"])


@pytest.mark.parametrize(
    "formats",
    [
        {"input_formats": {"x": "NHWC"}},
        {"output_formats": {"y": "NHWC"}},
        {"input_formats": {"x": "nChw8c"}, "output_formats": {"y": "CHWN", "x": "NHWC"}},
        {"input_formats": {"x": ["NCHW", "NHWC"]}, "output_formats": {"y": ["NCHW", "nChw8c"]}},
        {"input_formats": {"x": "NHWC"}, "output_formats": {"x": "NHWC"}},
    ],
)
def test_plans_with_formats_of_the_caller(formats: dict[str, Any], folder: Path) -> None:
    graph = _through()
    plan = sw.plan(graph, tune="model", **formats)
    path, model = annotated(plan, folder)
    check(plan, model)
    assert [item.name for item in model.graph.input] == ["x"]
    stored = values(model)
    assert stored["x"]["storage"] == str(plan.input_formats["x"])
    outputs = [item.name for item in model.graph.output]
    for name, item in zip(graph.outputs, outputs, strict=True):
        fmt, shape = plan.output_formats[name], canonical_shape(graph.value(name), parse("NCHW"))
        assert same_bytes(parse(stored[item]["storage"]), fmt, shape)
    changed = plan.input_formats["x"] != plan.output_formats["x"]
    assert outputs == ["y", f"x/{plan.output_formats['x']}" if changed else "x"]
    inputs = random_inputs(graph)
    expected, found = run_reference(graph, inputs), run_onnxruntime(path, inputs)
    for name, item in zip(graph.outputs, outputs, strict=True):
        assert relative_error(found[item], expected[name]) < 1e-5


@settings(max_examples=30)
@given(graph=networks())
def test_random_networks_run_as_annotated(graph: Graph, folder: Path) -> None:
    plan = forced_plan(graph, "blocked")
    path, model = annotated(plan, folder)
    check(plan, model)
    inputs = random_inputs(graph)
    expected = run_reference(graph, inputs)
    for output, array in run_onnxruntime(path, inputs).items():
        assert relative_error(array, expected[output]) < 1e-5, output


@pytest.mark.parametrize("name", ["resnet_17", "mobilenet_v3_24", "densenet_3", "nhwc", "shuffle"])
def test_models_run_as_annotated(name: str, folder: Path) -> None:
    model = small_models()[name]
    plan = sw.plan(model, tune="model")
    path, shown = annotated(plan, folder)
    check(plan, shown)
    inputs = random_inputs(plan.graph)
    expected = run_onnxruntime(model, inputs)
    for output, array in run_onnxruntime(path, inputs).items():
        assert relative_error(array, expected[output]) < 1e-5, output


@pytest.mark.parametrize("name", ["resnet50", "densenet121", "inception_v1", "shufflenet"])
def test_light_models_are_shown_without_weights(name: str, folder: Path) -> None:
    plan = sw.plan(light_models()[name], tune="model")
    path, model = annotated(plan, folder, weights=False)
    assert path.stat().st_size < 1_000_000
    check(plan, model)


# --- what a viewer shows --------------------------------------------------------------------------


def chain() -> Graph:
    b = Net("chain")
    x = b.input("image", (1, 3, 9, 8))
    y = b.op("relu", [b.conv(x, 16, 3)], name="relu1", output="r1")
    z = b.op("add", [b.conv(y, 16, 1), y], name="sum", output="s")
    return b.build([z, b.op("max_pool", [z], {"kernel": (2, 2)}, output="pooled")])


def test_a_blocked_chain_in_full(folder: Path) -> None:
    plan = forced_plan(chain(), "blocked")
    blocked = str(plan.target.formats(plan.graph.value("s"))["blocked"])
    path, model = annotated(plan, folder)
    del path
    assert model.ir_version == 10
    assert {item.domain: item.version for item in model.opset_import} == {"": 17, "stridewise": 1}
    ops = [node.op_type for node in model.graph.node]
    assert ops.count("Conv") == 2
    assert {"Relu", "Add", "MaxPool"} <= set(ops)
    assert {item.name for node in reorders(model) for item in node.attribute} == ONNX_ATTRIBUTES
    nodes = {node.name: node for node in model.graph.node}
    conv = next(node for node in model.graph.node if node.op_type == "Conv")
    said = notes(conv.metadata_props)
    assert said["fused"] == "relu"
    assert said["outputs"] == blocked
    assert said["inputs"].endswith(", constant")
    assert float(said["cost_ns"]) > 0
    assert said["cost_source"] == "model"
    assert conv.doc_string == f"{said['algorithm']}: {float(said['cost_ns']) / 1e3:.1f} us (model)"
    assert notes(nodes[f"{conv.name}/relu"].metadata_props) == {"part_of": conv.name}
    # The caller gets s in the order that it was meant in; what is inside has another name.
    about = values(model)
    assert (about["s"]["storage"], about["s"]["origin"]) == ("NCHW", "NCHW")
    assert about[f"s/{blocked}"]["value"] == "s"
    assert about[f"s/{blocked}"]["storage"] == blocked
    block = int("".join(filter(str.isdigit, blocked)))
    assert about[f"s/{blocked}"]["storage_shape"] == str([1, 16 // block, 7, 6, block])
    assert about[f"s/{blocked}"]["nbytes"] == str(16 * 7 * 6 * 4)
    assert about["image"]["storage"] == "NCHW"
    inner = next(info for info in model.graph.value_info if info.name == "r1/conv")
    assert (notes(inner.metadata_props), inner.doc_string) == (
        {"inside": conv.name}, f"inside of {conv.name}"
    )  # fmt: skip
    readers = [node.op_type for node in model.graph.node if f"s/{blocked}" in node.input]
    assert sorted(readers) == ["MaxPool", "Reorder"]


def test_the_whole_plan_is_in_the_metadata_of_the_model(folder: Path) -> None:
    plan = sw.plan(chain(), tune="model")
    _, model = annotated(plan, folder)
    said = notes(model.metadata_props)
    assert said["target"] == "onednn-cpu"
    assert said["machine"] == str(plan.machine)
    assert float(said["cost_ns"]) == plan.cost_ns
    assert float(said["lower_bound_ns"]) == plan.lower_bound_ns
    assert float(said["gap"]) == plan.gap
    assert said["reorders"] == str(len(plan.reorders))
    assert "proved optimal" in model.doc_string


def test_without_weights_zeros_stand_in(folder: Path) -> None:
    graph = chain()
    plan = forced_plan(graph, "blocked")
    path, model = annotated(plan, folder, weights=False)
    empty = {node.output[0] for node in model.graph.node if node.op_type == "Constant"}
    heavy = {name for name, item in graph.constants.items() if item.array.nbytes > 1024}
    assert empty == heavy
    assert len(empty) == 1
    assert not empty & {item.name for item in model.graph.initializer}
    constants = {
        name: Constant(np.zeros_like(item.array)) if name in heavy else item
        for name, item in graph.constants.items()
    }
    inputs = random_inputs(graph)
    expected = run_reference(dataclasses.replace(graph, constants=constants), inputs)
    for name, array in run_onnxruntime(path, inputs).items():
        assert relative_error(array, expected[name]) < 1e-5, name


def test_equal_plans_give_equal_bytes(folder: Path) -> None:
    texts = []
    for _ in range(2):
        path, _ = annotated(forced_plan(chain(), "blocked"), folder)
        texts.append(path.read_bytes())
    assert texts[0] == texts[1]


# --- the command line -----------------------------------------------------------------------------


def test_the_command_line_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model, shown = tmp_path / "m.onnx", tmp_path / "shown.onnx"
    sw.save(chain(), model)
    words = ["plan", str(model), "--tune", "model", "--annotated-onnx", str(shown), "--json"]
    monkeypatch.setattr(sys, "argv", ["stridewise", *words])
    with pytest.raises(SystemExit) as stop:
        entry.main()
    assert not stop.value.code
    document = json.loads(capsys.readouterr().out)
    found = onnx.load(shown)
    assert len(reorders(found)) == len(document["reorders"])
    assert float(notes(found.metadata_props)["cost_ns"]) == document["cost_ns"]


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    plan = sw.plan(simplify(chain()).graph, tune="model")
    with pytest.raises(InputError) as caught:
        sw.annotate(plan, tmp_path / "missing" / "m.onnx")
    assert "make the folder first" in str(caught.value)
