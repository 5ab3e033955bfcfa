"""Models of which ONNX Runtime computes a part, compared with ONNX Runtime alone."""

from __future__ import annotations

import gc
import json
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from click.testing import CliRunner
from onnx import helper
from onnx.helper import make_node

import stridewise as sw
from stridewise.cli.main import cli
from stridewise.graph import from_text
from stridewise.ops.fallback import OP, foreign_part
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.tables.load import SHIPPED

from .mixed_models import (
    CASES,
    FLOAT,
    as_tuple,
    detector,
    expected,
    image,
    info,
    model,
    node,
    same,
    with_custom_domain,
    with_loop,
    with_strings,
)
from .onnx_nodes import make


def test_scalars_pass_to_onnx_runtime() -> None:
    loops = [info("iteration", onnx.TensorProto.INT64, []), info("go", onnx.TensorProto.BOOL, [])]
    nodes = [node("Identity", "go", "goes"), node("Add", "total most", "sum")]
    results = [info("goes", onnx.TensorProto.BOOL, []), info("sum", FLOAT, [])]
    body = helper.make_graph(nodes, "body", [*loops, info("total", FLOAT, [])], results)
    given = model(
        [
            make_node("ReduceMax", ["x"], ["most"], keepdims=0),
            make_node("Loop", ["count", "", "scale"], ["y"], body=body),
        ],
        [info("x", FLOAT, [2, 3]), info("scale", FLOAT, [])],
        "y",
        {"count": np.array(3)},
    )
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "scale": np.array(0.5, np.float32)}
    assert sw.compile(given, tune="model").run(feeds)["y"] == 15.5
    for against in ("reference", "onnxruntime"):
        assert sw.verify(given, against=against, inputs=feeds, tune="model").ok


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_windows_over_four_axes_run_in_onnx_runtime(op: str) -> None:
    weights = {"w": np.full((1, 1, 1, 1, 2, 1), 0.5, np.float32)}
    nodes = [make_node(op, ["x", "w"], ["y"], kernel_shape=[1, 1, 2, 1])]
    given = model(nodes, [info("x", FLOAT, [1, 1, 1, 2, 3, 3])], "y", weights)
    feeds = {"x": np.arange(18, dtype=np.float32).reshape(1, 1, 1, 2, 3, 3)}
    (wanted,) = expected(given, feeds)
    same(np.asarray(sw.compile(given, tune="model")(feeds["x"])), wanted)


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_onnx_runtime(name: str) -> None:
    given, feeds = CASES[name]()
    compiled = sw.compile(given, tune="model")
    wanted = expected(given, feeds)
    assert compiled.input_names == tuple(item.name for item in given.graph.input)
    assert compiled.output_names == tuple(item.name for item in given.graph.output)
    for results in (
        as_tuple(compiled(*(feeds[name] for name in compiled.input_names))),
        tuple(compiled.run(feeds).values()),
    ):
        assert len(results) == len(wanted)
        for one, other in zip(results, wanted, strict=True):
            same(one, other)


@pytest.mark.parametrize("target", list(SHIPPED))
@pytest.mark.parametrize("name", ["detector", "loop", "custom domain", "strings", "only a tail"])
def test_simulated_targets_run_clusters_and_the_tail(name: str, target: str) -> None:
    given, feeds = CASES[name]()
    simulated = sw.compile(given, target=target)
    assert isinstance(simulated, sw.SimulatedModel)
    wanted = expected(given, feeds)
    called = as_tuple(simulated(*(feeds[name] for name in simulated.input_names)))
    named = simulated.run(feeds)
    assert tuple(named) == simulated.output_names
    for results in (called, tuple(named.values())):
        for one, other in zip(results, wanted, strict=True):
            same(one, other)
    with pytest.raises(sw.InputError, match="expected"):
        simulated(*feeds.values(), np.zeros(1))
    with pytest.raises(sw.InputError, match="odd"):
        simulated.run({**feeds, "odd": np.zeros(1)})


def test_tuning_runs_the_other_runtime_too(tmp_path: Path) -> None:
    for case in (with_loop, detector, with_strings):
        given, feeds = case()
        compiled = sw.compile(given, cache_dir=tmp_path)
        for one, other in zip(compiled.run(feeds).values(), expected(given, feeds), strict=True):
            same(one, other)


@pytest.mark.parametrize("name", ["loop", "condition", "custom domain", "sequence"])
def test_clusters_run_in_the_reference_executor(name: str) -> None:
    given, feeds = CASES[name]()
    graph = sw.load(given)
    assert graph.tail is None
    found = run_reference(graph, feeds)
    for output, wanted in zip(graph.outputs, expected(given, feeds), strict=True):
        same(found[output], wanted)


@pytest.mark.parametrize("name", CASES)
def test_graphs_with_foreign_parts_print_and_parse(name: str) -> None:
    graph = sw.load(CASES[name]()[0])
    parts = [foreign_part(node) for node in graph.nodes if node.op == OP]
    if graph.tail is not None and graph.tail.part is not None:
        parts.append(graph.tail.part)
    assert from_text(str(graph), graph.constants, parts) == graph
    assert pickle.loads(pickle.dumps(parts)) == parts
    if parts:
        with pytest.raises(sw.GraphError, match="the foreign part of digest"):
            from_text(str(graph), graph.constants)
    assert sw.load(graph) is graph


READERS: dict[str, tuple[onnx.NodeProto, ...]] = {
    **{op: (make_node(op, ["w"], ["r"]),) for op in ("Relu", "Sigmoid", "Tanh", "Identity")},
    **{f"w {op} x": (make_node(op, ["w", "x"], ["r"]),) for op in ("Add", "Mul", "Div", "MatMul")},
    **{f"x {op} w": (make_node(op, ["x", "w"], ["r"]),) for op in ("Add", "Mul", "Sub", "MatMul")},
    "Gemm": (make_node("Gemm", ["x", "w", "w"], ["r"], transA=1, transB=1),),
    "reshape": (make_node("Reshape", ["w", "shape"], ["r"]),),
    "transpose": (make_node("Transpose", ["w"], ["r"]),),
    "norm": (make_node("ReduceMean", ["w"], ["m"]), make_node("Sub", ["w", "m"], ["r"])),
    "swish": (make_node("Sigmoid", ["w"], ["s"]), make_node("Mul", ["s", "w"], ["r"])),
    "shuffle": (
        make_node("Reshape", ["w", "shape"], ["s"]),
        make_node("Transpose", ["s"], ["t"], perm=[0, 2, 1]),
        make_node("Reshape", ["t", "shape"], ["r"]),
    ),
}


@pytest.mark.parametrize("last", ["", "Relu", "Mul", "Reshape"])
@pytest.mark.parametrize("name", READERS)
def test_constants_of_the_other_runtime_are_operands_anywhere(name: str, last: str) -> None:
    """Weights of 4 bits are such constants: a part that reads nothing gives them."""
    nodes = list(READERS[name])
    if last:
        operands = {"Mul": ["r", "w"], "Reshape": ["r", "flat"]}.get(last, ["r"])
        nodes.append(make_node(last, operands, ["y"]))
    else:
        nodes[-1] = onnx.NodeProto.FromString(nodes[-1].SerializeToString())
        nodes[-1].output[0] = "y"
    x_info = helper.make_tensor_value_info("x", FLOAT, [4, 4])
    given = model(
        [make_node("DequantizeLinear", ["codes", "scale"], ["w"], domain="com.microsoft"), *nodes],
        [x_info],
        "y",
        {"scale": np.float32(0.25), "shape": np.array([4, 2, 2]), "flat": np.array([-1])},
    )
    if nodes[-1].op_type == "Mul" and name in {"reshape", "shuffle"}:
        pytest.skip("shapes that do not fit")
    codes = helper.make_tensor("codes", onnx.TensorProto.INT4, [4, 4], list(range(-8, 8)))
    given.graph.initializer.append(codes)
    x = np.random.default_rng(3).standard_normal((4, 4)).astype(np.float32)
    options = ort.SessionOptions()  # its optimizations round operands of products by such weights
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(given.SerializeToString(), options)
    same(sw.compile(given, tune="model")(x), session.run(None, {"x": x})[0])


@pytest.mark.parametrize("code", ["INT4", "UINT4", "INT16"])
def test_quantization_to_other_integers_in_the_domain_of_onnxruntime(code: str) -> None:
    number = getattr(onnx.TensorProto, code)
    both = [
        make_node("QuantizeLinear", ["x", "scale", "zero"], ["codes"], domain="com.microsoft"),
        make_node("DequantizeLinear", ["codes", "scale", "zero"], ["y"], domain="com.microsoft"),
    ]
    x_info = helper.make_tensor_value_info("x", FLOAT, [2, 5])
    given = model(both, [x_info], "y", {"scale": np.float32(0.25)})
    given.graph.initializer.append(helper.make_tensor("zero", number, [], [1]))
    x = np.random.default_rng(3).standard_normal((2, 5)).astype(np.float32)
    session = ort.InferenceSession(given.SerializeToString())
    same(sw.compile(given, tune="model")(x), session.run(None, {"x": x})[0])


def test_many_threads_share_one_model() -> None:
    given, _ = detector()
    compiled = sw.compile(given, tune="model", threads=2)
    images = [image(1, 3, 8, 8) for _ in range(8)]
    alone = [compiled(x) for x in images]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for one, other in zip(pool.map(compiled, images), alone, strict=True):
                assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_sessions_go_with_their_models() -> None:
    compiled = sw.compile(detector()[0], tune="model", keep_originals=True)
    again = sw.compile(compiled.plan.graph, tune="model")
    tails = [found._tail for found in (compiled, again)]
    assert tails[0] is not None
    assert tails[1] is not None
    sessions = [tail._function._session for tail in tails]
    assert sessions[0] is sessions[1]
    session = weakref.ref(sessions[0])
    del compiled, again, tails, sessions
    gc.collect()
    assert session() is None


# --- what is where --------------------------------------------------------------------------------


def test_capability_says_what_is_native_and_why_not() -> None:
    found = sw.capability(detector()[0])
    assert not found.is_native
    entries = {entry.name: entry for entry in found.nodes}
    assert entries["conv1"].support == "native"
    assert entries["nms"].support == "tail"
    assert entries["nms"].operator == "NonMaxSuppression"
    assert "shape depends on data" in entries["found"].reason
    assert [segment.support for segment in found.segments] == ["native", "tail"]
    assert "of 14 nodes native" in str(found)
    document = json.loads(found.to_json())
    assert document["segments"][1]["nodes"] == list(found.segments[1].nodes)
    graph = sw.load(detector()[0])
    assert [s.support for s in sw.capability(graph).segments] == ["native", "tail"]


def test_capability_of_a_cluster_between_native_parts() -> None:
    found = sw.capability(with_loop()[0])
    assert [segment.support for segment in found.segments] == ["native", "fallback", "native"]
    assert found.foreign[0].reason == "control flow"
    assert sw.capability(sw.load(with_loop()[0])).segments[1].operators == ("Loop",)


def test_a_native_node_between_sequences_is_taken_along() -> None:
    nodes = [
        node("SequenceConstruct", "x x", "s", name="build"),
        node("SequenceLength", "s", "n", name="length"),
        node("Cast", "n", "f", to=FLOAT, name="cast"),
        node("Mul", "x f", "scaled", name="mul"),
        node("SequenceInsert", "s scaled", "s2", name="insert"),
        node("SequenceAt", "s2 last", "at"),
        node("Relu", "at", "y"),
    ]
    given = model(nodes, [info("x", FLOAT, [1, 4])], "y", {"last": np.array(2)})
    found = sw.capability(given)
    assert {entry.name: entry.support for entry in found.nodes} == {
        "build": "fallback", "length": "fallback", "cast": "fallback", "mul": "fallback",
        "insert": "fallback", "at": "fallback", "y": "native",
    }  # fmt: skip
    x = image(1, 4)
    same(sw.compile(given, tune="model")(x), expected(given, {"x": x})[0])


def test_the_plan_lists_what_runs_where() -> None:
    plan = sw.plan(with_custom_domain()[0], tune="model")
    text = plan.explain()
    assert "fallback: 1 node (com.microsoft.FusedConv): there is no operator for it" in text
    assert "onnxruntime" in text
    partitions = json.loads(plan.to_json())["partitions"]
    assert [part["support"] for part in partitions] == ["fallback", "native", "fallback", "native"]
    assert partitions[0]["operators"] == ["com.microsoft.FusedConv"]
    with pytest.raises(sw.PlanAssertionError, match=r"FusedConv"):
        sw.assert_plan(plan, no_fallback=True)
    native = sw.plan(make(helper.make_node("Relu", ["x"], ["y"])), tune="model")
    sw.assert_plan(native, no_fallback=True)
    assert "partition" not in native.explain()


def test_plan_files_of_models_with_foreign_parts(tmp_path: Path) -> None:
    given, feeds = with_loop()
    file = tmp_path / "plan.json"
    sw.plan(given, tune="model").save(file)
    restored = sw.compile(given, plan=file)
    same(restored(feeds["x"]), expected(given, feeds)[0])


def test_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "loop.onnx"
    onnx.save(with_loop()[0], path)
    found = CliRunner().invoke(cli, ["capability", str(path)], catch_exceptions=False)
    assert "fallback: 1 node (Loop): control flow" in found.output
    found = CliRunner().invoke(cli, ["capability", "--json", str(path)], catch_exceptions=False)
    assert json.loads(found.output)["is_native"] is False


@pytest.mark.parametrize("command", ["plan", "run --random", "bench --vs=", "report"])
def test_the_command_line_refuses_on_request(command: str, tmp_path: Path) -> None:
    path = tmp_path / "loop.onnx"
    onnx.save(with_loop()[0], path)
    found = CliRunner().invoke(cli, [*command.split(), str(path), "--no-fallback", "--tune=model"])
    assert isinstance(found.exception, sw.UnsupportedError)
    assert "'loop' (Loop)" in str(found.exception)


def test_the_command_line_takes_native_models_either_way(tmp_path: Path) -> None:
    path = tmp_path / "relu.onnx"
    onnx.save(model([node("Relu", "x", "y")], [info("x", FLOAT, [1, 4])], "y"), path)
    arguments = ["plan", str(path), "--tune=model"]
    either = [CliRunner().invoke(cli, [*arguments, *more]) for more in ([], ["--no-fallback"])]
    assert [found.exit_code for found in either] == [0, 0]
    assert either[0].output == either[1].output


@pytest.mark.parametrize("attrs", [{}, {"onesided": 0}, {"onesided": 1}])
@pytest.mark.parametrize("framing", ["window", "length", "both"])
def test_attributes_have_their_defaults_in_other_runtimes(
    attrs: dict[str, Any], framing: str
) -> None:
    names = [{"length": ""}.get(framing, "window"), {"window": ""}.get(framing, "length")]
    given = make(
        helper.make_node("STFT", ["x", "step", *names], ["s"], **attrs),
        helper.make_node("Relu", ["s"], ["y"]),
        shape=(2, 40, 1),
        opset=17,
        constants={"step": 4, "length": 16, "window": np.hanning(16).astype(np.float32)},
    )
    feeds = {"x": np.random.default_rng(0).normal(size=(2, 40, 1)).astype(np.float32)}
    same(sw.compile(given, tune="model")(feeds["x"]), expected(given, feeds)[0])
