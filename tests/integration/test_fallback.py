"""Models of which ONNX Runtime computes a part, compared with ONNX Runtime alone."""

from __future__ import annotations

import gc
import json
import pickle
import sys
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from click.testing import CliRunner
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

import stridewise as sw
from stridewise.cli.main import cli
from stridewise.graph import from_text
from stridewise.ops.fallback import OP, foreign_part
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.tables.load import SHIPPED

from .onnx_nodes import make

Feeds = dict[str, Any]
OPSETS = (helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1))
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
BOOL = TensorProto.BOOL
info = helper.make_tensor_value_info
RNG = np.random.default_rng(7)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: str,
    constants: Mapping[str, Any] | None = None,
) -> ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "mixed",
        list(inputs),
        [ValueInfoProto(name=name) for name in outputs.split()],
        [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=list(OPSETS), ir_version=8)


def body(nodes: Sequence[NodeProto], inputs: Sequence[ValueInfoProto], outputs: str) -> GraphProto:
    results = [helper.make_empty_tensor_value_info(name) for name in outputs.split()]
    return helper.make_graph(list(nodes), "body", list(inputs), results)


def weights(*shape: int) -> Any:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def image(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def detector() -> tuple[ModelProto, Feeds]:
    """A CNN whose boxes are sifted; how many are left depends on the image."""
    nodes = [
        node("Conv", "x w1", "c1", pads=[1, 1, 1, 1], name="conv1"),
        node("Relu", "c1", "r1"),
        node("Conv", "r1 w2", "c2", pads=[1, 1, 1, 1], name="conv2"),
        node("Reshape", "c2 flat", "f"),
        node("Transpose", "f", "t", perm=[0, 2, 1]),
        node("Slice", "t zero four two", "boxes"),
        node("Slice", "t four five two", "scores_last"),
        node("Transpose", "scores_last", "scores", perm=[0, 2, 1]),
        node("NonMaxSuppression", "boxes scores most overlap least", "kept", name="nms"),
        node("Slice", "kept two_ three one_", "index"),
        node("Squeeze", "index one_", "flat_index"),
        node("Squeeze", "boxes zero", "own_boxes"),
        node("Gather", "own_boxes flat_index", "found", axis=0),
        node("ReduceMean", "r1", "mean", axes=[1, 2, 3], keepdims=0),
    ]
    constants = {
        "w1": weights(17, 3, 3, 3), "w2": weights(5, 17, 3, 3),
        "flat": np.array([1, 5, 64]), "zero": np.array([0]), "four": np.array([4]),
        "five": np.array([5]), "two": np.array([2]), "two_": np.array([2]),
        "three": np.array([3]), "one_": np.array([1]), "most": np.array([20]),
        "overlap": np.array([0.5], np.float32), "least": np.array([0.1], np.float32),
    }  # fmt: skip
    found = model(nodes, [info("x", FLOAT, [1, 3, 8, 8])], "found mean kept", constants)
    return found, {"x": image(1, 3, 8, 8)}


def with_loop() -> tuple[ModelProto, Feeds]:
    """A loop between two convolutions; its body reads a weight of the outer graph."""
    step = body(
        [
            node("Identity", "go", "on"),
            node("Mul", "state factor", "scaled"),
            node("Tanh", "scaled", "next"),
        ],
        [
            info("i", INT64, []),
            info("go", TensorProto.BOOL, []),
            info("state", FLOAT, [1, 9, 8, 8]),
        ],
        "on next",
    )
    nodes = [
        node("Conv", "x w1", "c1", pads=[1, 1, 1, 1]),
        node("Loop", "count yes c1", "l", body=step, name="loop"),
        node("Conv", "l w2", "c2", pads=[1, 1, 1, 1]),
        node("Relu", "c2", "y"),
    ]
    constants = {
        "w1": weights(9, 3, 3, 3), "w2": weights(4, 9, 3, 3), "count": np.array(3),
        "yes": np.array(True), "factor": np.float32(1.5),
    }  # fmt: skip
    found = model(nodes, [info("x", FLOAT, [1, 3, 8, 8])], "y", constants)
    return found, {"x": image(1, 3, 8, 8)}


def with_condition() -> tuple[ModelProto, Feeds]:
    """Branches that capture a feature map, and a value that both sides of the border read."""
    yes = body([node("Relu", "c1", "then")], [], "then")
    no = body([node("Neg", "c1", "else")], [], "else")
    nodes = [
        node("Conv", "x w1", "c1", pads=[1, 1, 1, 1]),
        node("ReduceSum", "c1", "sum", keepdims=0),
        node("Greater", "sum zero", "positive"),
        node("If", "positive", "b", then_branch=yes, else_branch=no, name="if"),
        node("Add", "b c1", "y"),
    ]
    constants = {"w1": weights(9, 3, 3, 3), "zero": np.float32(0)}
    return model(nodes, [info("x", FLOAT, [1, 3, 8, 8])], "y c1", constants), {
        "x": image(1, 3, 8, 8)
    }


def with_custom_domain() -> tuple[ModelProto, Feeds]:
    """Operators that only ONNX Runtime knows; ONNX cannot tell the types of their results."""
    nodes = [
        node("FusedConv", "x w1 b1", "c1", domain="com.microsoft", activation="Relu",
             pads=[1, 1, 1, 1], name="fused"),
        node("Conv", "c1 w2", "c2", strides=[2, 2]),
        node("QuickGelu", "c2", "g", domain="com.microsoft", name="gelu"),
        node("GlobalAveragePool", "g", "y"),
    ]  # fmt: skip
    constants = {"w1": weights(17, 3, 3, 3), "b1": weights(17, 1)[:, 0], "w2": weights(9, 17, 3, 3)}
    return model(nodes, [info("x", FLOAT, [2, 3, 9, 9])], "y", constants), {"x": image(2, 3, 9, 9)}


def with_integers() -> tuple[ModelProto, Feeds]:
    """Side branches of integers, one with a result whose shape depends on data."""
    nodes = [
        node("Conv", "x w1", "c1"),
        node("Unique", "ids", "u places", sorted=1),
        node("Relu", "c1", "y"),
        node("BitShift", "small small", "s", direction="LEFT"),
    ]
    inputs = [
        info("x", FLOAT, [1, 3, 5, 5]),
        info("ids", INT64, [7]),
        info("small", TensorProto.UINT8, [4]),
    ]
    feeds = {
        "x": image(1, 3, 5, 5),
        "ids": np.array([3, 1, 3, 3, 2, 1, 9]),
        "small": np.array([1, 2, 3, 4], np.uint8),
    }
    return model(nodes, inputs, "u y s places", {"w1": weights(4, 3, 3, 3)}), feeds


def with_strings() -> tuple[ModelProto, Feeds]:
    """Strings beside an image; a graph cannot hold them."""
    nodes = [
        node("Conv", "x w1", "y"),
        node(
            "StringNormalizer",
            "words",
            "n",
            case_change_action="LOWER",
            stopwords=["the"],
            locale="C",
        ),
    ]
    inputs = [info("words", STRING, [3]), info("x", FLOAT, [1, 3, 5, 5])]
    feeds = {"words": np.array(["The", "the", "DOG"], object), "x": image(1, 3, 5, 5)}
    return model(nodes, inputs, "n y words", {"w1": weights(4, 3, 3, 3)}), feeds


def with_sequence() -> tuple[ModelProto, Feeds]:
    """A sequence that is built and taken apart again in the middle of a model."""
    nodes = [
        node("Conv", "x w1", "c1"),
        node("Relu", "c1", "r"),
        node("SequenceConstruct", "c1 r", "s", name="sequence"),
        node("SequenceAt", "s second", "at"),
        node("Conv", "at w2", "y"),
    ]
    constants = {"w1": weights(4, 3, 3, 3), "w2": weights(5, 4, 1, 1), "second": np.array(1)}
    found = model(nodes, [info("x", FLOAT, [1, 3, 5, 5])], "y", constants)
    return found, {"x": image(1, 3, 5, 5)}


def only_a_tail() -> tuple[ModelProto, Feeds]:
    nodes = [node("NonZero", "x", "n"), node("Transpose", "n", "y")]
    return model(nodes, [info("x", FLOAT, [3, 4])], "y"), {"x": np.eye(3, 4, dtype=np.float32)}


CASES = {
    "detector": detector,
    "loop": with_loop,
    "condition": with_condition,
    "custom domain": with_custom_domain,
    "integers": with_integers,
    "strings": with_strings,
    "sequence": with_sequence,
    "only a tail": only_a_tail,
}


def expected(given: ModelProto, feeds: Feeds) -> list[Any]:
    session = ort.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def as_tuple(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def same(found: Any, wanted: Any) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    else:
        assert np.array_equal(found, wanted)


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
        (node("Conv", "x w", "y"), "2 input channels, found 3"),
        (node("NonMaxSuppression", "x x nowhere", "y"), "defined before it, found 'nowhere'"),
    ],
)
def test_damaged_models_are_not_handed_on(bad: NodeProto, message: str) -> None:
    constants = {"w": weights(4, 2, 1, 1), "seven": np.array([7])}
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
        (node("HannWindow", "n", "f"), {"n": 3}),
        (node("LSTM", "s w r", "f", hidden_size=3), {
            "s": weights(1, 1, 4), "w": weights(1, 12, 4), "r": weights(1, 12, 3)}),
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
    with pytest.raises(
        sw.MemoryLimitError, match=r"value 'f': expected at most 4\.0 GiB of memory"
    ):
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
