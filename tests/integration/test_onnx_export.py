"""Exporting ONNX: what is saved loads as the same graph, and gives the same in ONNX Runtime."""

from __future__ import annotations

import dataclasses
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
from tests.operator_tables import entries, rows
from tests.pure.index_cases import onnxruntime_differs
from tests.pure.test_ops import CASES
from tests.runtime.gradient_graphs import GRADIENT_CASES
from tests.runtime.graphs import CASES as GRAPHS
from tests.simplified import simplify

import stridewise as sw
from stridewise import replacing
from stridewise.dtypes import dtype_of
from stridewise.errors import GraphError, InputError, ModelError
from stridewise.frontends.onnx.table import EXPORTERS
from stridewise.frontends.onnx.writing.export import VERSIONS, make_structure, save_model
from stridewise.graph import Constant, Graph, Node, TensorType, Value
from stridewise.ops import OPS

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

NOT_EXPORTED: dict[str, str] = {
    "cumprod": "CumProd is younger than the opsets that are written",
    "pointwise": "its steps become nodes of their own",
    "fallback": "a part of another model, which may have another opset",
    "batch_norm": "ONNX gives running statistics of a batch, and not those of the batch itself",
    "max_pool_places": "a pass makes it for gradients, and ONNX has positions in whole images only",
    **dict.fromkeys(
        (op for op in OPS if op.endswith("_gradient")), "ONNX has no operators for gradients"
    ),
    **entries("NOT_EXPORTED"),
}
"""Operators that ONNX has no counterpart for, and why."""


NOT_RESIZED = ("resizes_1d", "resizes_3d")
"""Graphs that resize what is no image, which ONNX Runtime refuses for some modes."""


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
                else:
                    names.append(b.input(f"x{index}", array.shape, str(array.dtype)))
                    inputs[names[-1]] = array
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
        # A bias of anything but constant matrices is added to rounded products, and so are the
        # scales and shifts of groups. Contractions become products. ONNX Runtime computes recurrent
        # layers whose weights are no constants.
        compare = close if op in ("einsum", "group_norm", "matmul", "recurrent") else same
        compare(run_reference(sw.load(path), inputs), expected)
        if not (onnxruntime_lacks(graph) or onnxruntime_differs(graph)):
            close(run_onnxruntime(path, inputs), expected)


COMPOSED = {
    "channel_shuffle", "dequantize_linear", "einsum", "identity", "interpolate", "linear",
    "max_pool_indices", "quantize", "quantize_linear", "rearrange", "snap_s8", "snap_u8", "swish",
    *rows("COMPOSED"),
}  # fmt: skip
"""Operators that ONNX has only as several, or as further results of others, or that the import
writes as arithmetic on real numbers."""


@pytest.mark.parametrize("op", sorted(set(EXPORTERS) - COMPOSED))
def test_an_operator_comes_back_as_it_was(op: str, folder: Path) -> None:
    compared = 0
    for graph, _ in case_graphs(op):
        (node,) = graph.nodes
        back = sw.load(saved(graph, folder), training=op == "dropout")
        # Some forms take several ONNX nodes, and nodes that change nothing are not imported.
        if [item.op for item in back.nodes] == [op]:
            (found,) = back.nodes
            assert (found.name, found.outputs) == (node.name, node.outputs)
            for key, value in node.attrs:
                assert found.get(key) == (tuple(sorted(value)) if key == "axes" else value), key
            compared += 1
    assert compared


@pytest.mark.parametrize("name", sorted(set(GRAPHS) - set(GRADIENT_CASES)))
def test_graphs_of_all_operators_survive_as_built_and_simplified(name: str, folder: Path) -> None:
    graph = GRAPHS[name]()
    inputs = random_inputs(graph)
    expected = run_reference(graph, inputs)
    for stage in (graph, simplify(graph).graph):
        path = saved(stage, folder)
        close(run_reference(sw.load(path), inputs), expected, 2e-6)
        if name not in NOT_RESIZED:
            # ONNX Runtime computes where it reads a resized image in float32.
            close(run_onnxruntime(path, inputs), expected, 3e-5 if "resize" in name else 1e-5)


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


# These have 200 MB of weights and more, and no operator that the others don't have.
HEAVY = {"bvlc_alexnet", "vgg19", "zfnet512"}


@pytest.mark.parametrize("name", sorted(set(light_models()) - HEAVY))
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


@pytest.mark.parametrize(
    "name", ["resnet_17", "mobilenet_v3_24", "densenet_3", "functions", "pools"]
)
def test_openvino_loads_and_agrees(name: str, folder: Path) -> None:
    openvino = pytest.importorskip("openvino")
    graph = sw.load(small_models()[name])
    inputs = random_inputs(graph)
    for stage in (graph, simplify(graph).graph):
        core = openvino.Core()
        model = core.compile_model(
            core.read_model(str(saved(stage, folder))), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
        )
        found = model(list(inputs.values()))
        results = {name: found[index] for index, name in enumerate(graph.outputs)}
        close(results, run_reference(graph, inputs), 1e-4)


# --- the file -------------------------------------------------------------------------------------


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def tiny(outputs: int = 4) -> Graph:
    b = Net("tiny")
    x = b.input("image", (2, 3, 6, 5))
    y = b.op("relu", [b.conv(x, outputs, 3, bias=True)], name="act", output="acted")
    two = b.constant(np.full((1,), 2, F32), "two")
    return b.build([b.op("add", [y, two], output="sum")])


def residual() -> Graph:
    b = Net("residual")
    x = b.op("relu", [b.input("image", (2, 4, 6, 5))])
    y = b.op("add", [b.conv(x, 4, 1, bias=True), x])
    return simplify(b.build([b.op("relu", [y], output="sum")])).graph


def test_what_a_file_says_about_itself(folder: Path) -> None:
    model = onnx.load(saved(tiny(), folder))
    assert (model.producer_name, model.producer_version) == ("stridewise", sw.__version__)
    assert (model.ir_version, versions_of(model)) == (8, {"": 17})
    assert model.graph.name == "tiny"
    assert [node.name for node in model.graph.node] == ["conv", "act", "add"]
    assert [node.op_type for node in model.graph.node] == ["Conv", "Relu", "Add"]
    assert [node.output[0] for node in model.graph.node] == ["conv", "acted", "sum"]
    assert [item.name for item in model.graph.initializer] == ["w", "b", "two"]
    assert all(item.HasField("raw_data") for item in model.graph.initializer)
    assert [item.name for item in model.graph.value_info] == ["conv", "acted"]


def versions_of(model: ModelProto) -> dict[str, int]:
    return {item.domain: item.version for item in model.opset_import}


def test_only_what_needs_a_newer_opset_gets_it(folder: Path) -> None:
    """Older readers take less harm from older opsets: some pass over axes that are an input."""
    b = Net("versions")
    x = b.input("x", (1, 3, 6, 5))
    mean = b.op("reduce_mean", [x], {"axes": (2, 3)}, output="mean")
    b.op("gelu", [mean], output="gelu")
    b.op("avg_pool", [x], {"kernel": (2, 2), "dilations": (2, 1)}, output="dilated")
    b.op("avg_pool", [x], {"kernel": (2, 2)}, output="pooled")
    for outputs, opset in ((["pooled", "mean"], 17), (["gelu"], 20), (["dilated"], 20)):
        graph = simplify(b.build(outputs)).graph
        model = onnx.load(saved(graph, folder))
        assert (model.ir_version, versions_of(model)) == (VERSIONS[opset], {"": opset})
        for node in model.graph.node:
            if node.op_type == "ReduceMean":
                assert len(node.input) == (1 if opset == 17 else 2)


def test_post_ops_are_nodes_behind_their_host(folder: Path) -> None:
    graph = residual()
    assert [post.op for post in graph.nodes[-1].post_ops] == ["add", "relu"]
    _, *nodes = onnx.load(saved(graph, folder)).graph.node
    assert [node.name for node in nodes] == ["conv", "conv/add", "conv/relu"]
    assert [node.output[0] for node in nodes] == ["sum/conv", "sum/add", "sum"]
    assert list(nodes[1].input) == ["sum/conv", "relu"]


def test_equal_graphs_give_equal_bytes(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.onnx", "b.onnx")]
    for path in files:
        sw.save(residual(), path)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_names_that_are_taken_are_not_used_twice(folder: Path) -> None:
    b = Net("names")
    x = b.input("y/split.shape", (1, 6, 2, 2))
    y = b.op("channel_shuffle", [x], {"groups": 2}, name="y/split", output="y/shuffled")
    graph = b.build([b.op("channel_shuffle", [y], {"groups": 3}, name="y/split.1", output="y")])
    inputs = random_inputs(graph)
    same(run_onnxruntime(saved(graph, folder), inputs), run_reference(graph, inputs))


def test_large_weights_go_to_a_file_beside(tmp_path: Path) -> None:
    graph = tiny(40)  # 4320 bytes of weights, 160 of biases
    inside, outside = tmp_path / "inside.onnx", tmp_path / "outside.onnx"
    sw.save(graph, inside, external_above=4484)
    sw.save(graph, outside, external_above=4483)
    assert names_in(tmp_path) == ["inside.onnx", "outside.onnx", "outside.onnx.data"]
    onnx.checker.check_model(str(outside), full_check=True)
    assert outside.stat().st_size < 1500 < inside.stat().st_size
    tensors = onnx.load(outside, load_external_data=False).graph.initializer
    where = {item.key: item.value for item in tensors[0].external_data}
    assert where == {"location": "outside.onnx.data", "offset": "0", "length": "4320"}
    assert [item.data_location for item in tensors] == [TensorProto.EXTERNAL, 0, 0]
    inputs = random_inputs(graph)
    expected = run_reference(graph, inputs)
    same(run_reference(sw.load(outside), inputs), expected)
    close(run_onnxruntime(outside, inputs), expected)
    assert onnx.load(outside).graph.initializer[0].raw_data == graph.constants["w"].array.tobytes()


def test_external_tensors_start_on_pages(tmp_path: Path) -> None:
    b = Net("two")
    x = b.input("x", (1, 20, 4, 4))
    graph = b.build([b.conv(b.conv(x, 31, 1), 20, 1)])
    path = tmp_path / "m.onnx"
    sw.save(graph, path, external_above=0)
    offsets = [
        entry.value
        for tensor in onnx.load(path, load_external_data=False).graph.initializer
        for entry in tensor.external_data
        if entry.key == "offset"
    ]
    assert offsets == ["0", "4096"]
    assert (tmp_path / "m.onnx.data").stat().st_size == 4096 + 20 * 31 * 4


def test_a_graph_may_be_saved_over_the_file_that_it_was_loaded_from(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    graph = tiny(40)
    inputs = random_inputs(graph)
    expected = run_reference(graph, inputs)
    sw.save(graph, path, external_above=0)
    for _ in range(2):
        loaded = sw.load(path)  # its weights are mapped from the file that is replaced next
        sw.save(loaded, path, external_above=0)
        same(run_reference(loaded, inputs), expected)
    same(run_reference(sw.load(path), inputs), expected)


def test_strided_and_big_endian_weights_are_stored_row_major(folder: Path) -> None:
    data = np.arange(12, dtype=F32).reshape(3, 4)
    for view in (data.T, data[::2], data[:, ::-1], data.astype(">f4"), data[:0]):
        b = sw.GraphBuilder("strided")
        graph = b.build([b.op("identity", [b.constant(view)], output="y")])
        found = onnx.numpy_helper.to_array(onnx.load(saved(graph, folder)).graph.initializer[0])
        np.testing.assert_array_equal(found, view)
        assert found.shape == view.shape


@pytest.mark.parametrize(
    "dtype",
    ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8",
     "uint64", "uint32", "uint16", "uint8", "bool"],
)  # fmt: skip
def test_every_element_type_is_written(dtype: str, folder: Path) -> None:
    b = sw.GraphBuilder("dtypes")
    x = b.input("x", (2, 3), dtype)
    data = b.constant((np.arange(6) % 2).reshape(2, 3).astype(dtype_of(dtype).numpy))
    graph = b.build([b.op("concat", [x, data], {"axis": 0}, output="y")])
    model = onnx.load(saved(graph, folder))
    name = {"float64": "double", "float32": "float"}.get(dtype, dtype)
    code = model.graph.input[0].type.tensor_type.elem_type
    assert TensorProto.DataType.Name(code) == name.upper()
    np.testing.assert_array_equal(
        onnx.numpy_helper.to_array(model.graph.initializer[0]), graph.constants[data].array
    )


def test_outputs_may_be_inputs_constants_and_twice_the_same(folder: Path) -> None:
    b = Net("outputs")
    x = b.input("x", (2, 3))
    y = b.op("relu", [x])
    graph = b.build([x, y, b.constant(np.ones(3, F32), "one"), y])
    inputs = random_inputs(graph)
    expected = run_reference(graph, inputs)
    path = saved(graph, folder)
    same(run_reference(sw.load(path), inputs), expected)
    same(run_onnxruntime(path, inputs), expected)
    assert [item.name for item in onnx.load(path).graph.output] == list(graph.outputs)


# --- forms that take several nodes ----------------------------------------------------------------


def test_pads_as_wide_as_the_window_of_a_maximum_become_a_node(folder: Path) -> None:
    b = Net("wide")
    x = b.input("x", (1, 3, 5, 4))
    wide = {"kernel": (2, 2), "pads": (2, 0, 1, 1), "strides": (2, 1)}
    graph = b.build([b.op("max_pool", [x], wide, output="y")])
    inputs = random_inputs(graph)
    expected = run_reference(graph, inputs)["y"]
    path = saved(graph, folder)
    assert [node.op_type for node in onnx.load(path).graph.node] == ["Pad", "MaxPool"]
    same(run_reference(sw.load(path), inputs), {"y": expected})
    # Windows that meet nothing give -inf, or the least float.
    least = np.finfo(F32).min
    found = run_onnxruntime(path, inputs)["y"]
    same({"y": found.clip(least)}, {"y": expected.clip(least)})


# --- data formats ---------------------------------------------------------------------------------


CHANNELS_LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("fused", [False, True])
def test_a_data_format_becomes_transposes(rank: int, fused: bool, tmp_path: Path) -> None:
    b = Net("first")
    x = b.input("x", (2, 3, *(6, 5, 4)[:rank]))
    w = b.constant(np.arange(12 * 3**rank).reshape(4, 3, *[3] * rank).astype(F32) / 50, "w")
    b.op("conv", [x, w], {"pads": (1,) * 2 * rank}, name="conv", output="c")
    b.op("relu", ["c"], name="relu", output="y")
    first = b.build(["y"])
    first = simplify(first).graph if fused else first
    to_last = (0, *range(2, rank + 2), 1)
    last = channels_last(first, CHANNELS_LAST[rank])
    path = tmp_path / "m.onnx"
    save_model(last, path, version="1")
    onnx.checker.check_model(str(path), full_check=True)
    inputs = random_inputs(first)
    expected = run_reference(first, inputs)["y"].transpose(to_last)
    mine = {"x": np.ascontiguousarray(inputs["x"].transpose(to_last))}
    same(run_reference(sw.load(path), mine), {"y": expected})
    close(run_onnxruntime(path, mine), {"y": expected})
    nodes = onnx.load(path).graph.node
    assert [node.op_type for node in nodes] == ["Transpose", "Conv", "Transpose", "Relu"]
    assert nodes[1].name == "conv"


def channels_last(graph: Graph, data_format: str) -> Graph:
    """Return a graph whose images and convolutions are channels-last."""

    def moved(value: Value) -> Value:
        n, c, *rest = value.shape
        return dataclasses.replace(value, type=TensorType(value.dtype, (n, *rest, c)))

    values = {
        name: value if name in graph.constants else moved(value)
        for name, value in graph.values.items()
    }
    nodes = [
        dataclasses.replace(node, attrs=tuple(sorted((*node.attrs, ("data_format", data_format)))))
        if node.op == "conv"
        else node
        for node in graph.nodes
    ]
    return dataclasses.replace(graph, nodes=tuple(nodes), values=MappingProxyType(values))


def test_a_data_format_that_is_channels_first_is_dropped_and_an_unknown_one_refused() -> None:
    graph = tiny()
    nodes = make_structure(with_format(graph, "NCHW"), "1").model.graph.node
    assert [node.op_type for node in nodes] == ["Conv", "Relu", "Add"]
    with pytest.raises(ModelError) as caught:
        make_structure(with_format(graph, "CHWN"), "1")
    assert str(caught.value).startswith("node 'conv' (conv): expected a data_format of NC, NCW, ")


def with_format(graph: Graph, data_format: str) -> Graph:
    conv, *rest = graph.nodes
    conv = dataclasses.replace(conv, attrs=(*conv.attrs, ("data_format", data_format)))
    return dataclasses.replace(graph, nodes=(conv, *rest))


# --- what is refused ------------------------------------------------------------------------------


def fails(error: type[Exception], *parts: str, graph: Graph | None = None, path: Any) -> None:
    with pytest.raises(error) as caught:
        sw.save(graph or tiny(), path)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, message


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "m.onnx"
    fails(InputError, "expected a path in a folder that exists, found no folder", "make the folder",
          path=missing)  # fmt: skip
    fails(InputError, "expected the path of a file, found a folder", path=tmp_path)
    fails(InputError, "null", path=tmp_path / "m\0.onnx")
    fails(InputError, "path: expected the path of a file, found None", path=None)
    graph: Any = ModelProto()
    fails(InputError, "expected a Graph, found ModelProto", graph=graph, path=tmp_path / "m.onnx")
    fails(InputError, "expected a file that can be written, found", path=tmp_path / ("m" * 300))
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    sw.save(tiny(), path)
    before = path.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(replacing.os, "fsync", full)
    message = f"model '{path}': expected a file that can be written, found No space left on device"
    fails(InputError, message, graph=tiny(5), path=path)
    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["m.onnx"]


def test_operators_and_types_that_onnx_does_not_have(tmp_path: Path) -> None:
    b = sw.GraphBuilder("integers")
    x, w = b.input("x", (1, 2, 3, 3), "int32"), b.input("w", (4, 2, 1, 1), "int32")
    graph = b.build([b.op("conv", [x, w], name="c1")])
    path = tmp_path / "m.onnx"
    fails(ModelError, "graph 'integers': expected operators and element types that ONNX has",
          "c1", "tensor(int32)", graph=graph, path=path)  # fmt: skip
    strange = dataclasses.replace(graph, nodes=(dataclasses.replace(graph.nodes[0], op="magic"),))
    fails(GraphError, "node 'c1': expected a known operator, found 'magic'",
          graph=strange, path=path)  # fmt: skip
    with pytest.raises(ModelError) as caught:
        save_model(strange, path, version="1")
    assert str(caught.value).startswith(
        "node 'c1' (magic): expected an operator that can be exported to ONNX, found 'magic'"
    )
    assert not path.exists()


def test_broken_graphs_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    values = {"x": Value("x", TensorType(dtype_of("f32"), (2,)))}
    node = Node("n", "relu", ("nothing",), ("y",))
    graph = Graph("broken", ("x",), ("y",), (node,), values, {"c": Constant(np.ones(1, F32))})
    fails(GraphError, "nothing", graph=graph, path=tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_operators_younger_than_what_is_written_are_refused(folder: Path) -> None:
    b = sw.GraphBuilder("shift")
    x = b.input("x", (3,), "int32")
    graph = b.build([b.op("bit_shift", [x, x], {"direction": "left"})])
    with pytest.raises(sw.ModelError, match="operators of ONNX opset 22 or before, found one of"):
        sw.save(graph, folder / "shift.onnx")
