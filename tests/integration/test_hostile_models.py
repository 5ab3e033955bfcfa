"""Models that were made to harm: each is refused with a message, soon, and without much memory."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper
from tests.fuzz.stages import check
from tests.runtime.graphs import Net, forced_plan

import stridewise as sw
from stridewise.errors import InputError, MemoryLimitError, ModelError
from stridewise.frontends.onnx import import_model
from stridewise.ops.demand import memory_demand
from stridewise.runtime.lowering.memory_limit import plan_demand, within_limit

from .models import F32
from .onnx_nodes import computed_branches, fails, make, node

HUGE = 2**62
FUZZ = Path(__file__).parent.parent / "data" / "fuzz"


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    """No model here may take more than some seconds of the processor."""
    begin = time.process_time()
    yield
    assert time.process_time() - begin < 10


def peak_of(action: Callable[[], object]) -> int:
    """Return the bytes that Python's allocators, NumPy's among them, hold at most meanwhile."""
    import tracemalloc

    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", [[HUGE], [HUGE, HUGE], [1 << 40], [0, HUGE, HUGE], [1] * 40])
def test_initializers_that_are_declared_but_absent(dims: list[int]) -> None:
    for tensor in (
        TensorProto(name="w", dims=dims, data_type=TensorProto.FLOAT),
        TensorProto(name="w", dims=dims, data_type=TensorProto.FLOAT, raw_data=bytes(8)),
        TensorProto(name="w", dims=dims, data_type=TensorProto.INT8, int32_data=[1, 2]),
    ):
        model = make(node("Add", "x", "w"), constants={"w": tensor})
        assert peak_of(lambda model=model: fails(model, "initializer 'w'")) < 1 << 20


@pytest.mark.parametrize("shape", [(HUGE,), (1, 3, HUGE, HUGE), (1 << 31, 1 << 31)])
def test_absurd_inputs(shape: tuple[int, ...]) -> None:
    model = make(node("Relu"), shape=shape)
    with pytest.raises(MemoryLimitError, match=r"input 'x': expected at most .*iB of memory"):
        sw.load(model)
    with pytest.raises(MemoryLimitError, match="higher memory_limit"):
        sw.plan(make(node("Relu")), shapes={"x": (1, 3, 1 << 30, 1 << 30)}, tune="model")


def test_the_estimate_is_in_the_message() -> None:
    weights = np.ones((64, 64, 3, 3), F32)
    model = make(node("Conv", "x", "w"), shape=(1, 64, 128, 128), constants={"w": weights})
    with pytest.raises(MemoryLimitError) as caught:
        sw.load(model, memory_limit=5 << 20)
    assert str(caught.value) == (
        "model 'test': expected at most 5.0 MiB of memory, found an estimate of 8.2 MiB (weights "
        "144.0 KiB, packed weights 144.0 KiB, activations 7.9 MiB), the largest value is 'x'; "
        "give smaller shapes, or a higher memory_limit"
    )
    graph = sw.load(model, memory_limit=9 << 20)
    for call in (sw.plan, sw.compile):
        with pytest.raises(MemoryLimitError, match=r"graph 'test': expected at most 5\.0 MiB"):
            call(graph, tune="model", memory_limit=5 << 20)
    assert sw.compile(graph, tune="model", memory_limit=64 << 20).memory.arena < 64 << 20


def test_padding_of_the_chosen_formats_counts() -> None:
    b = Net(1, 1, 64, 64)
    graph = b.build([b.conv(b.conv(b.conv(b.x, 1, 3), 1, 3), 1, 3)])
    plans = [forced_plan(graph, kind) for kind in ("blocked", "plain")]
    padded, plain = (plan_demand(plan) for plan in plans)
    assert padded.total > 4 * plain.total >= memory_demand(graph).total
    assert within_limit(plans, padded.total) == tuple(plans)
    assert within_limit(plans[::-1], padded.total - 1) == (plans[1],)
    with pytest.raises(MemoryLimitError, match=r"plan of 'net': expected at most .*an estimate of"):
        within_limit(plans, padded.total - 1)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "1GB"])
def test_limits_that_are_none(limit: object) -> None:
    with pytest.raises(InputError, match="memory_limit: expected a number of bytes"):
        sw.load(make(node("Relu")), memory_limit=limit)


def test_shapes_that_are_no_extents() -> None:
    for extent, expected in ((2.5, "a number"), ("-8", "a number"), (-1, "extents of 0 or more")):
        shapes = {"x": (1, 3, extent, 8)}
        fails(make(node("Relu")), expected, error=InputError, shapes=shapes)


@pytest.mark.parametrize("key", ["strides", "dilations", "pads", "kernel_shape"])
@pytest.mark.parametrize("value", [2**31, HUGE, 2**63 - 1, -1, -(2**63)])
def test_absurd_windows(key: str, value: int) -> None:
    attrs = {"kernel_shape": [2, 2], "strides": [1, 1], "dilations": [1, 1], "pads": [0] * 4}
    attrs[key] = [value] * len(attrs[key])
    fails(make(node("MaxPool", **attrs)), "node 'n' (MaxPool)")
    if key == "pads" and value > 0:
        attrs["dilations"] = [value, value]
        fails(make(node("MaxPool", **attrs)), "node 'n' (MaxPool)")


@pytest.mark.parametrize(("op", "opset"), [("Attention", 18), ("DFT", 13), ("RotaryEmbedding", 20)])
def test_operators_of_later_opsets(op: str, opset: int) -> None:
    proto = make(node(op, *["x"] * (3 if op == "Attention" else 1)), opset=opset)
    fails(proto, f"found '{op}' of domain 'ai.onnx' (opset {opset})")


# --- constants that grow --------------------------------------------------------------------------


def doublings(count: int, op: str) -> list[NodeProto]:
    names = ["c", *(f"c{i}" for i in range(count))]
    attrs = {"axis": 0} if op == "Concat" else {}
    return [
        node(op, a, a if op == "Concat" else "r", outputs=[b], name=b, **attrs)
        for a, b in pairwise(names)
    ]


GROWING: list[tuple[str, list[NodeProto], dict[str, object]]] = [
    ("concat", doublings(60, "Concat"), {"c": F32([1, 2])}),
    ("tile", doublings(40, "Tile"), {"c": F32([1, 2]), "r": [2]}),
    ("tile at once", [node("Tile", "c", "r", outputs=["c0"])], {"c": F32([1]), "r": [1 << 45]}),
    ("range", [node("Range", "a", "b", "s", outputs=["c0"])], {"a": 0, "b": 1 << 45, "s": 1}),
    ("real range", [node("Range", "a", "b", "s", outputs=["c0"])],
     {"a": F32(0), "b": F32(1e30), "s": F32(1e-30)}),
    ("endless range", [node("Range", "a", "b", "s", outputs=["c0"])],
     {"a": F32(0), "b": F32(np.inf), "s": F32(1)}),
    ("shape", [node("ConstantOfShape", "s", outputs=["c0"])], {"s": [1 << 20, 1 << 25]}),
    ("absurd shape", [node("ConstantOfShape", "s", outputs=["c0"])], {"s": [HUGE, HUGE]}),
    ("work on a shape", [node("ConstantOfShape", "s", outputs=["c"]),
                         node("Mod", "c", "c", outputs=["c0"], fmod=1)], {"s": [1 << 30]}),
    ("expand", [node("Expand", "c", "s", outputs=["c0"])], {"c": F32([1]), "s": [1 << 45]}),
    ("outer product", [node("ConstantOfShape", "s", outputs=["a"]),
                       node("ConstantOfShape", "t", outputs=["b"]),
                       node("Less", "a", "b", outputs=["c0"])],
     {"s": [1 << 20, 1], "t": [1, 1 << 20]}),
    ("one-hot", [node("OneHot", "i", "d", "v", outputs=["c0"])],
     {"i": [1], "d": 1 << 45, "v": F32([0, 1])}),
    ("pad", [node("Pad", "c", "p", outputs=["c0"])], {"c": F32([1]), "p": [1 << 40, 1 << 40]}),
    ("window function", [node("HannWindow", "n", outputs=["c0"])], {"n": 1 << 45}),
    ("einsum", [node("Einsum", "c", "c", "c", "c", outputs=["s"], equation="a,b,c,d->"),
                node("Cast", "s", outputs=["c0"], name="cast", to=TensorProto.FLOAT)],
     {"c": np.ones(5000, np.int8)}),
    ("outer product", [node("Einsum", "c", "c", "c", outputs=["c0"], equation="a,b,c->abc")],
     {"c": np.ones(5000, F32)}),
    ("resize", [node("Resize", "c", "", "s", outputs=["c0"])],
     {"c": np.ones((1, 1, 2, 2), F32), "s": F32([1, 1, 1e9, 1e9])}),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "constants"), [pytest.param(n, c, id=i) for i, n, c in GROWING])
def test_constants_that_grow(nodes: list[NodeProto], constants: dict[str, object]) -> None:
    last = nodes[-1].output[0]
    flat = node("ReduceMax", last, outputs=["m"], name="m", keepdims=0)
    model = make(*nodes, flat, node("Add", "x", "m"), constants=constants, opset=17)

    def load() -> None:
        with pytest.raises(ModelError) as caught:
            sw.plan(model, tune="model", memory_limit=1 << 32)
        assert "\n" not in str(caught.value)

    assert peak_of(load) < 1 << 30


def test_what_a_model_brings_may_be_computed_with() -> None:
    weights = np.ones((1 << 10, 1 << 10), F32)
    steps = [node("Neg", "w", outputs=["a"]), node("Sqrt", "a", outputs=["b"])]
    model = make(*steps, node("MatMul", "x", "b"), shape=(4, 1 << 10), constants={"w": weights})
    assert [item.op for item in import_model(model).nodes] == ["matmul"]


def test_long_work_on_small_constants_is_left_to_the_run() -> None:
    filled = [node("ConstantOfShape", name, outputs=[name * 2], name=name) for name in ("s", "t")]
    conv = node("Conv", "ss", "tt", outputs=["c"], pads=[2, 2, 2, 2])
    shapes = {"s": [1, 64, 256, 256], "t": [64, 64, 5, 5]}
    model = make(*filled, conv, node("Add", "x", "c"), shape=(1, 64, 256, 256), constants=shapes)
    assert [item.op for item in import_model(model).nodes] == ["conv", "add"]


# --- names and definitions ------------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"Relu", b"yyyy", b"noun", b"xxxx", b"dimd", b"loca"])
def test_names_that_are_not_utf8(name: bytes) -> None:
    model = make(node("Relu", "xxxx", outputs=["yyyy"]), outputs=["yyyy"], shape=["dimd", 2])
    model.graph.input[0].name = "xxxx"
    model.graph.node[0].name = "noun"
    tensor = model.graph.initializer.add(name="t", data_type=1, dims=[1])
    tensor.external_data.add(key="location", value="loca")
    content = model.SerializeToString()
    assert name in content
    fails(content.replace(name, name[:1] + b"\xff\xfe" + name[3:]), "names in UTF-8")


def test_definitions_that_are_there_twice() -> None:
    tensor = TensorProto(name="w", dims=[1], data_type=TensorProto.FLOAT, raw_data=bytes(4))
    model = make(node("Add", "x", "w"), constants={"w": tensor})
    model.graph.initializer.append(tensor)
    fails(model, "initializer 'w'", "one definition, found 2 of the same name")
    # That is no definition: the same value goes to the caller two times.
    assert sw.load(make(node("Relu"), outputs=["y", "y"])).outputs == ("y", "y")
    model = make(node("Relu"))
    model.graph.input.append(model.graph.input[0])
    fails(model, "input 'x'", "one definition")
    model = make(node("Softmax", axis=1))
    model.graph.node[0].attribute.append(model.graph.node[0].attribute[0])
    fails(model, "node 'n' (Softmax)", "found another 'axis'")
    model.graph.node[0].attribute[0].name = ""
    fails(model, "found one without a name")
    model.graph.node[0].attribute[0].name = "beta"
    model.graph.node[0].attribute[0].ref_attr_name = "outer"
    fails(model, "attributes with values", "refers to 'outer'")
    fails(make(node("Relu", outputs=[""]), outputs=["x"]), "a result with a name, found none")


def test_messages_stay_short_and_on_one_line() -> None:
    for name in ("a\nb\x1b[31m\u202e", "long" * 10_000):
        model = make(node("Relu", "gone", outputs=[name], name=name), outputs=[name])
        model.graph.node[0].op_type = name
        with pytest.raises(ModelError) as caught:
            import_model(model)
        message = str(caught.value)
        assert message.isprintable()
        assert len(message) < 3000


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="needs pipes and devices")
def test_files_that_never_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    fails(tmp_path / "pipe.onnx", "expected a file, found a device, pipe or socket")
    fails("/dev/zero", "expected a file, found a device, pipe or socket")
    with (tmp_path / "sparse.onnx").open("wb") as file:
        file.truncate(1 << 40)
    fails(tmp_path / "sparse.onnx", "what a protocol buffer can hold")
    fails("a\0b", "expected a path, found a null character")


@pytest.mark.parametrize(
    ("location", "found"),
    [
        ("circle", "inside of the model's folder, found 'circle'"),
        ("pipe", "found no such file"),
        ("folder", "found no such file"),
        ("nul\0byte", "inside of the model's folder"),
        ("x" * 5000, "a readable 'xxx"),
        ("folder/../../weights.bin", "inside of the model's folder"),
        ("inner/weights.bin", "inside of the model's folder"),
    ],
)
def test_external_data_elsewhere(tmp_path: Path, location: str, found: str) -> None:
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "weights.bin").write_bytes(bytes(24))
    (folder / "circle").symlink_to(folder / "circle")
    (folder / "inner").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    tensor = TensorProto(name="w", dims=[6], data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    path = folder / "model.onnx"
    model = make(node("Add", "x", "w"), shape=(1, 6), constants={"w": tensor})
    path.write_bytes(model.SerializeToString())
    fails(path, "initializer 'w'", found)


# --- local functions and subgraphs ----------------------------------------------------------------


def with_functions(bodies: dict[str, list[str]]) -> ModelProto:
    """A model whose functions call others, one after the other."""
    model = make(node("F0", domain="local"))
    model.opset_import.append(helper.make_opsetid("local", 1))
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("local", 1)]
    for name, calls in bodies.items():
        nodes, value = [], "a"
        for index, call in enumerate(calls):
            result = "b" if index == len(calls) - 1 else f"t{index}"
            domain = "local" if call in bodies else ""
            nodes.append(helper.make_node(call, [value], [result], domain=domain))
            value = result
        function = helper.make_function("local", name, ["a"], ["b"], nodes, opsets)
        model.functions.append(function)
    return model


def test_functions_that_call_themselves() -> None:
    fails(with_functions({"F0": ["F0"]}), "function 'F0'", "do not call themselves, found a cycle")
    circle = {"F0": ["Relu", "F1"], "F1": ["F2"], "F2": ["F0", "Relu"]}
    fails(with_functions(circle), "do not call themselves, found a cycle")


def test_functions_that_unfold_to_too_much() -> None:
    bodies = {f"F{i}": [f"F{i + 1}"] * 4 for i in range(40)} | {"F40": ["Relu"]}
    fails(with_functions(bodies), "function 'F0'", "nodes inside", "onnx.inliner")
    chain = {f"F{i}": [f"F{i + 1}"] for i in range(50)} | {"F50": ["Relu"]}
    assert [item.op for item in import_model(with_functions(chain)).nodes] == ["relu"]


def test_functions_that_are_there_twice() -> None:
    model = with_functions({"F0": ["Relu"]})
    model.functions.append(model.functions[0])
    fails(model, "function 'F0' of domain 'local'", "one definition, found 2 of the same name")


def _length(content: bytes) -> bytes:
    """Return a field of a message: its length, then the content."""
    size, head = len(content), bytearray()
    while size >= 128:
        head.append(size % 128 + 128)
        size //= 128
    return bytes([*head, size]) + content


def test_deep_subgraphs() -> None:
    graph = make(node("Relu")).graph
    del graph.input[:]
    for _ in range(20):
        outer = type(graph)(name="g")
        outer.node.append(helper.make_node("If", ["c"], ["y"], then_branch=graph))
        graph = outer
    model = make(*computed_branches(graph))
    fails(model, "without control flow")
    model.functions.append(helper.make_function("l", "F", ["c"], ["y"], list(graph.node), []))
    with pytest.raises(ModelError):
        import_model(model)
    # Protocol buffers refuse what is deeper than a hundred messages.
    content = graph.SerializeToString()
    for _ in range(60):
        content = b"\x2a" + _length(b"\x32" + _length(content))
        content = b"\x0a" + _length(content)
    fails(b"\x3a" + _length(content), "model: expected an ONNX model")


# --- length ---------------------------------------------------------------------------------------


def test_long_chains_do_not_recurse() -> None:
    names = ["x", *(f"v{i}" for i in range(20_000)), "y"]
    chain = [node("Relu", a, outputs=[b], name=b) for a, b in pairwise(names)]
    assert len(import_model(make(*chain)).nodes) == len(chain)


@pytest.mark.parametrize("path", sorted(FUZZ.glob("*.onnx")), ids=lambda path: path.stem)
def test_what_the_fuzzer_found(path: Path) -> None:
    outcome, text = check(path.read_bytes())
    assert outcome != "crash", text
