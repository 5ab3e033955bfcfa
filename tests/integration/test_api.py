"""The Python API: what its arguments do, and what it says when they do not fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto

import stridewise as sw
from stridewise.targets.names import TARGETS

from .onnx_nodes import make, node

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def two_convolutions(shape: tuple[Any, ...] = (1, 3, 9, 9)) -> ModelProto:
    return make(
        node("Conv", "x", "w1", outputs=["a"], pads=[1, 1, 1, 1], name="conv1"),
        node("Relu", "a", outputs=["b"], name="relu1"),
        node("Conv", "b", "w2", outputs=["y"], pads=[1, 1, 1, 1], name="conv2"),
        shape=shape,
        constants={"w1": draw(20, 3, 3, 3, seed=1), "w2": draw(5, 20, 3, 3, seed=2)},
    )


def two_by_two() -> sw.Graph:
    """Two inputs of different shapes, two outputs."""
    b = sw.GraphBuilder("two")
    left, right = b.input("left", (2, 6)), b.input("right", (1, 6))
    total = b.op("add", [left, right], name="total")
    return b.build([total, b.op("relu", [left], name="positive")])


@pytest.fixture
def graph() -> sw.Graph:
    return sw.load(two_convolutions())


@pytest.fixture
def model(graph: sw.Graph) -> sw.CompiledModel:
    return sw.compile(graph, tune="model", threads=1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


# --- importing ------------------------------------------------------------------------------------


def test_import_loads_nothing_heavy() -> None:
    code = """
        import sys
        import stridewise
        heavy = ("onnxruntime", "torch", "openvino", "onnx", "highspy", "rich", "click",
                 "stridewise._core")
        assert not [name for name in heavy if name in sys.modules]
        with open("/proc/self/maps") as maps:
            assert "libdnnl" not in maps.read()
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_planning_with_measured_costs_uses_the_folder_it_is_given(
    tmp_path: Path, graph: sw.Graph
) -> None:
    calls: list[tuple[int, int, str]] = []
    folder = tmp_path / "costs"

    def planned() -> sw.Plan:
        return sw.plan(
            graph,
            threads=1,
            tune="measure",
            cache_dir=folder,
            progress=lambda *state: calls.append(state),
        )

    first = planned()
    assert [path.name for path in folder.iterdir()] == ["costs-v1.sqlite"]
    assert not (tmp_path / "cache").exists()
    assert calls[0][0] == 0
    assert calls[-1][0] == calls[-1][1] == len(calls) - 1
    calls.clear()
    again = planned()
    assert not calls
    assert again.cost_ns == first.cost_ns
    for plan, source in ((first, "measured"), (again, "cached")):
        sources = {cost.source for item in plan.decisions for cost in item.chosen.costs}
        assert sources == {source}


def test_estimated_costs_touch_no_cache(tmp_path: Path, graph: sw.Graph) -> None:
    plan = sw.plan(graph, tune="model", cache_dir=tmp_path / "costs")
    assert {cost.source for item in plan.decisions for cost in item.chosen.costs} == {"model"}
    assert not (tmp_path / "costs").exists()


# --- sources and shapes ---------------------------------------------------------------------------


def test_every_kind_of_source_gives_the_same_plan(tmp_path: Path) -> None:
    proto = two_convolutions()
    path = tmp_path / "net.onnx"
    onnx.save(proto, path)
    sources = (path, str(path), path.read_bytes(), proto, sw.load(proto))
    texts = {sw.plan(source, tune="model", threads=1).to_json() for source in sources}
    assert len(texts) == 1


def test_load_gives_the_graph_as_the_user_wrote_it(graph: sw.Graph) -> None:
    assert [item.op for item in graph.nodes] == ["conv", "relu", "conv"]
    assert sw.load(graph) is graph
    assert "conv1" in str(graph)


def test_shapes_fix_open_extents_and_replace_fixed_ones() -> None:
    open_ = two_convolutions(("N", 3, "H", "W"))
    shapes = {"x": (2, 3, 5, 7)}
    assert sw.load(open_, shapes=shapes).value("x").shape == (2, 3, 5, 7)
    assert sw.compile(two_convolutions(), shapes=shapes, tune="model")(
        draw(2, 3, 5, 7)
    ).shape == (2, 5, 5, 7)  # fmt: skip
    with pytest.raises(sw.ModelError, match=r"every extent to be known.*--shape x=1,3,224,224"):
        sw.load(open_)


def test_shapes_of_a_graph_are_fixed(graph: sw.Graph) -> None:
    for call in (sw.load, sw.plan, sw.compile):
        with pytest.raises(sw.InputError, match=r"shapes: expected none for a graph.*found x"):
            call(graph, shapes={"x": (2, 3, 9, 9)})
    assert sw.load(graph, shapes={}) is graph


def test_a_graph_that_breaks_an_invariant_is_refused(graph: sw.Graph) -> None:
    broken = sw.Graph(graph.name, graph.inputs, ("nowhere",), graph.nodes, graph.values)
    with pytest.raises(sw.GraphError):
        sw.plan(broken, tune="model")


# --- other arguments ------------------------------------------------------------------------------


def test_the_number_of_threads_does_not_change_the_answer(graph: sw.Graph) -> None:
    x = draw(1, 3, 9, 9)
    one, two = (sw.compile(graph, threads=n, tune="model") for n in (1, 2))
    assert (one.plan.machine.threads, two.plan.machine.threads) == (1, 2)
    np.testing.assert_allclose(one(x), two(x), rtol=0, atol=1e-4)


@pytest.mark.parametrize("threads", [0, -1, 1025])
def test_impossible_numbers_of_threads(graph: sw.Graph, threads: int) -> None:
    with pytest.raises(sw.InputError, match=f"threads: .* 1 to 1024, found {threads}"):
        sw.plan(graph, threads=threads, tune="model")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tune": "guess"}, "tune: expected 'auto' or 'measure' or 'model', found 'guess'"),
        (
            {"target": "gpu"},
            f"target: expected one of {', '.join(TARGETS)}, or a .toml file, found 'gpu'",
        ),
    ],
)
def test_arguments_outside_of_their_choices(
    graph: sw.Graph, arguments: dict[str, Any], message: str
) -> None:
    for call in (sw.plan, sw.compile):
        with pytest.raises(sw.InputError) as caught:
            call(graph, **{"tune": "model", **arguments})
        assert str(caught.value) == message


# --- the plan -------------------------------------------------------------------------------------


def test_a_plan_explains_itself(graph: sw.Graph) -> None:
    plan = sw.plan(graph, threads=1, tune="model")
    assert plan.lower_bound_ns <= plan.cost_ns
    assert plan.gap == pytest.approx(0, abs=1e-9)
    assert [item.node for item in plan.decisions] == [item.name for item in plan.graph.nodes]
    assert plan.decision("conv2").chosen in (plan.decision("conv2").chosen,)
    with pytest.raises(KeyError):
        plan.decision("conv3")
    own, *uniform, alone = plan.compare()
    assert (own.name, alone.name) == ("planned", "each operator for itself")
    assert alone.cost_ns >= own.cost_ns
    assert [item.name for item in uniform] == ["all plain", "all channels-last", "all blocked"]
    # The planner may always choose a uniform plan, so none of them is cheaper.
    assert all(own.cost_ns <= item.cost_ns + 1e-6 for item in uniform)
    lines = plan.explain().splitlines()
    last = len(lines) - len(plan.savings())
    assert lines[last - 1].strip().startswith("each operator for itself")
    assert [line.partition(" (see ")[0] for line in lines[last:]] == list(map(str, plan.savings()))
    assert plan.storage("x").storage.format.name == "NCHW"
    assert plan.storage("y").canonical_shape == (1, 5, 9, 9)


def test_the_json_of_a_plan_has_the_documented_fields(graph: sw.Graph) -> None:
    found = json.loads(sw.plan(graph, threads=1, tune="model").to_json())
    assert list(found) == [
        "version", "graph", "fingerprint", "plan", "target", "machine", "cost_ns",
        "lower_bound_ns", "pins", "notes", "inputs", "outputs", "nodes", "reorders", "views",
        "moves", "comparisons", "refusals", "conflicts", "kernels",
    ]  # fmt: skip
    assert list(found["nodes"][0]) == [
        "name", "op", "signature", "post_ops", "inputs", "outputs", "input_formats",
        "output_formats", "algorithm", "kernels", "implementations", "cost_ns", "cost_sources",
        "rejected",
    ]  # fmt: skip
    total = sum(item["cost_ns"] for item in (*found["nodes"], *found["reorders"]))
    assert total == pytest.approx(found["cost_ns"])


# --- the compiled model ---------------------------------------------------------------------------


def test_inputs_and_outputs_have_names_in_order() -> None:
    model = sw.compile(two_by_two(), tune="model", threads=1)
    assert model.input_names == ("left", "right")
    assert model.output_names == ("total", "positive")
    left, right = draw(2, 6), draw(1, 6, seed=1)
    results = model(left, right)
    assert isinstance(results, tuple)
    named = model.run({"right": right, "left": left})
    assert list(named) == ["total", "positive"]
    for found, by_name, wanted in zip(
        results, named.values(), (left + right, np.maximum(left, 0)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
        np.testing.assert_array_equal(found, by_name)


def test_results_belong_to_the_caller(model: sw.CompiledModel) -> None:
    first = model(draw(1, 3, 9, 9))
    kept = first.copy()
    second = model(draw(1, 3, 9, 9, seed=5))
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, kept)
    assert first.flags.writeable


class Capsule:
    """An array of another library: nothing but DLPack."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __dlpack__(self, **arguments: Any) -> Any:
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def test_inputs_of_any_strides_and_of_other_libraries(model: sw.CompiledModel) -> None:
    x = draw(1, 3, 9, 9)
    expected = model(x)
    wide = np.zeros((1, 3, 9, 18), F32)
    wide[..., ::2] = x
    readonly = x.copy()
    readonly.flags.writeable = False
    for same in (np.asfortranarray(x), wide[..., ::2], readonly, Capsule(x)):
        np.testing.assert_array_equal(model(same), expected)


def test_numbers_of_numpy_are_scalars() -> None:
    b = sw.GraphBuilder("scalar")
    model = sw.compile(b.build([b.op("exp", [b.input("x", ())], output="y")]), tune="model")
    np.testing.assert_allclose(model(np.float32(0.5)), np.exp(0.5), rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), r"model 'test': expected 1 inputs \(x\), found 0"),
        ((draw(1, 3, 9, 9),) * 2, "found 2"),
        ((draw(1, 3, 9, 8),), r"input 'x': expected shape \(1, 3, 9, 9\), found \(1, 3, 9, 8\);"),
        ((np.zeros((1, 3, 9, 9)),), r"input 'x': expected dtype float32, found float64; use"),
        (([1.0],), r"input 'x': expected an array .*, found list; use numpy.asarray"),
        ((np.ma.masked_less(draw(1, 3, 9, 9), 0),), "input 'x': .* masked elements; use .filled"),
    ],
)
def test_calls_that_do_not_fit(
    model: sw.CompiledModel, given: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(sw.InputError, match=message):
        model(*given)


@pytest.mark.parametrize("names", [(), ("z",), ("x", "z")])
def test_names_that_do_not_fit(model: sw.CompiledModel, names: tuple[str, ...]) -> None:
    inputs = dict.fromkeys(names, draw(1, 3, 9, 9))
    for call in (model.run, model.profile):
        with pytest.raises(sw.InputError, match="model 'test': expected inputs x, found"):
            call(inputs)


def test_memory_is_reported_in_bytes(model: sw.CompiledModel) -> None:
    memory = model.memory
    assert 0 < memory.arena_lower_bound <= memory.arena
    weights = 4 * (20 * 3 * 9 + 5 * 20 * 9)
    assert memory.packed_weights >= weights


def test_a_profile_has_a_row_for_each_step(model: sw.CompiledModel) -> None:
    profile = model.profile({"x": draw(1, 3, 9, 9)}, runs=3)
    assert profile.runs == 3
    assert len(profile.rows) == len(model.program.steps)
    assert {"conv1", "conv2"} <= {row.node for row in profile.rows}
    assert profile.predicted_ns == pytest.approx(sum(row.predicted_ns for row in profile.rows))
    assert profile.measured_ns > 0
    assert "medians of 3 runs" in str(profile)


@pytest.mark.parametrize("runs", [0, -1, 1.5, "a"])
def test_a_profile_of_no_runs_is_refused(model: sw.CompiledModel, runs: Any) -> None:
    with pytest.raises(sw.InputError, match=f"runs: expected 1 or more, found {runs!r}"):
        model.profile({"x": draw(1, 3, 9, 9)}, runs=runs)


def test_threads_may_call_one_model_at_the_same_time(model: sw.CompiledModel) -> None:
    images = [draw(1, 3, 9, 9, seed=seed) for seed in range(4)]
    expected = [model(image) for image in images]
    wrong: list[int] = []

    def call(index: int) -> None:
        for _ in range(20):
            if not np.array_equal(model(images[index]), expected[index]):
                wrong.append(index)

    callers = [threading.Thread(target=call, args=(index,)) for index in range(len(images))]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_a_library_that_cannot_be_loaded_is_an_import_error(tmp_path: Path) -> None:
    code = """
        import stridewise as sw
        b = sw.GraphBuilder()
        graph = b.build([b.op("relu", [b.input("x", (1, 3))])])
        try:
            sw.compile(graph, tune="model")
        except sw.LibraryError as error:
            assert isinstance(error, ImportError)
            print(error)
        """
    environment = {**os.environ, "STRIDEWISE_LIBDNNL": str(tmp_path / "libdnnl.so.3")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "STRIDEWISE_LIBDNNL: expected the path of a libdnnl.so.3" in done.stdout


FORKED = """
import ctypes, os, sys
import numpy as np

def use():
    import stridewise as sw
    b = sw.GraphBuilder()
    x = np.arange(64 * 32 * 32, dtype=np.float32).reshape(1, 64, 32, 32) - 100
    graph = b.build([b.op("relu", [b.input("x", x.shape)], output="y")])
    model = sw.compile(graph, tune="model", threads=2)
    descs = (sw.TensorDesc(x.shape, "float32", "NCHW", f) for f in ("NCHW", "NHWC"))
    calls = {
        "call": lambda: model(x),
        "submit": lambda: model.submit(x).result(),
        "trace": lambda: model.trace({"x": x}, lambda *_: None)["y"],
        "profile": lambda: model.profile({"x": x}, 2) and model(x),
        "reorder": lambda: np.maximum(move(x), 0).transpose(0, 3, 1, 2),
        "one thread": lambda: lone(x),
    }
    move = sw.Reorder(*descs, threads=2)
    lone = sw.compile(graph, tune="model", threads=1)
    return lambda: [name for name, call in calls.items()
                    if not np.array_equal(call(), np.maximum(x, 0))]

if sys.argv[1] == "library":
    # A parallel region of another library that shares the OpenMP runtime: free(NULL), twice.
    free = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)
    ctypes.CDLL("libgomp.so.1").GOMP_parallel(free, None, 2, 0)
else:
    before = use()
    before()
child = os.fork()
if child == 0:
    if sys.argv[1] == "used":
        print("used before:", before(), flush=True)
    print("new:", use()(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
if sys.argv[1] == "used":
    print("parent:", before())
"""


@pytest.mark.parametrize(
    ("parent", "said"),
    [("library", ["new: []"]), ("used", ["used before: []", "new: []", "parent: []"])],
)
def test_a_child_of_a_fork_runs_with_several_threads(parent: str, said: list[str]) -> None:
    """A child has none of the OpenMP threads of its parent, and waited for them for ever."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, parent],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert done.stdout.splitlines() == said


def without_anchors() -> ModelProto:
    return make(node("Relu", "x", name="relu1"), shape=(1, 6, 5, 20))


@pytest.mark.parametrize("target", ["onednn-cpu", "ascend"])
def test_origins_say_what_operators_do_not(target: str, tmp_path: Path) -> None:
    source = without_anchors()
    plan = sw.plan(source, target=target, tune="model")
    assert {str(value.origin) for value in plan.graph.values.values()} == {"None"}
    plan = sw.plan(source, target=target, tune="model", origins={"x": "NHWC"})
    assert {str(value.origin) for value in plan.graph.values.values()} == {"NHWC"}
    model = sw.compile(source, target=target, tune="model", origins={"x": sw.Format.parse("NHWC")})
    x = draw(1, 6, 5, 20)
    np.testing.assert_array_equal(model(x), np.maximum(x, 0))
    path = tmp_path / "m.plan.json"
    plan.save(path)
    found = sw.load_plan(path, source, origins={"x": "NHWC"})
    assert found.graph.values["x"].origin == sw.Format.parse("NHWC")
    with pytest.raises(sw.PlanError, match="the plan of another model, other shapes or origins"):
        sw.load_plan(path, source)
    nothing: Any = None
    with pytest.raises(sw.InputError, match="expected the path of a plan file, found None"):
        sw.load_plan(nothing, source)


def test_inputs_with_a_declared_origin_may_come_in_other_formats() -> None:
    wanted = {"input_formats": {"x": "NCHW"}, "tune": "model"}
    with pytest.raises(sw.FormatError, match="or declare what they mean with origins"):
        sw.plan(without_anchors(), **wanted)
    model = sw.compile(without_anchors(), origins={"x": "NHWC"}, **wanted)
    x = draw(1, 6, 5, 20)
    stored = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(model(stored), np.maximum(x, 0))


def test_origins_that_contradict_a_convolution_are_refused() -> None:
    with pytest.raises(sw.FormatError) as caught:
        sw.compile(two_convolutions(), tune="model", origins={"x": "NHWC"})
    assert str(caught.value) == (
        "origins: expected meanings of axes that agree about 'x', found 'conv1' makes it NCHW, "
        "the declared origin of 'x' makes it NHWC; leave 'x' out, or give what the operators say"
    )
    with pytest.raises(sw.InputError, match="origins: expected inputs, 'x', found 'a'"):
        sw.compile(two_convolutions(), tune="model", origins={"a": "NCHW"})
    sw.compile(two_convolutions(), tune="model", origins={"x": "NCHW"})


def test_objects_print_what_a_reader_wants(model: sw.CompiledModel) -> None:
    graph = model.plan.graph
    assert repr(model).startswith(f"CompiledModel({graph.name!r}, ")
    assert " -> " in repr(model)
    assert repr(graph) == f"Graph({graph.name!r}, {len(graph.nodes)} nodes)"
    assert repr(model.plan).startswith(f"Plan({graph.name!r}, planned, ")
    assert str(model.plan) == model.plan.explain()


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "stridewise", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("stridewise, version ")
