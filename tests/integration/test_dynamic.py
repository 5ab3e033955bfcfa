"""Models for many shapes: right in each, bounded in memory, and nothing done twice."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

import stridewise as sw
from stridewise.frontends.onnx import ModelFile
from stridewise.runtime.binding.packing import Packing
from stridewise.runtime.binding.program import NativeProgram
from stridewise.runtime.execution import programs

from .models import relative_error, run_onnxruntime
from .onnx_nodes import make, node

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def classifier(shape: tuple[Any, ...] = ("N", 3, "H", "W")) -> ModelProto:
    """A small residual network with batch norms, a pooling head and a matrix product."""
    scale = {f"{n}{i}": np.abs(draw(20, seed=i)) + 0.5 for i, n in enumerate(("g", "b", "m", "v"))}
    return make(
        node("Conv", "x", "w1", outputs=["a"], pads=[1, 1, 1, 1], name="conv1"),
        node("BatchNormalization", "a", "g0", "b1", "m2", "v3", outputs=["n"], name="norm"),
        node("Relu", "n", outputs=["b"], name="relu1"),
        node("Conv", "b", "w2", outputs=["c"], pads=[1, 1, 1, 1], name="conv2"),
        node("Add", "c", "b", outputs=["d"], name="sum"),
        node("MaxPool", "d", outputs=["e"], kernel_shape=[2, 2], strides=[2, 2], name="pool"),
        node("GlobalAveragePool", "e", outputs=["f"], name="mean"),
        node("Flatten", "f", outputs=["h"], name="flat"),
        node("Gemm", "h", "w3", "c3", name="head"),
        shape=shape,
        constants={
            "w1": draw(20, 3, 3, 3, seed=1) / 5,
            "w2": draw(20, 20, 3, 3, seed=2) / 13,
            "w3": draw(20, 7, seed=3),
            "c3": draw(7, seed=4),
            **scale,
        },
    )


def compiled(source: Any, **arguments: Any) -> sw.DynamicModel:
    model = sw.compile(source, tune="model", threads=1, **arguments)
    assert isinstance(model, sw.DynamicModel)
    return model


def with_inputs(proto: ModelProto, **inputs: tuple[int, tuple[Any, ...]]) -> ModelProto:
    """Add inputs, each of an element type and a shape."""
    for name, (dtype, shape) in inputs.items():
        proto.graph.input.append(helper.make_tensor_value_info(name, dtype, shape))
    return proto


def right(model: sw.DynamicModel, proto: ModelProto, feeds: dict[str, Array]) -> None:
    expected = run_onnxruntime(proto, feeds)
    found = model.run(feeds)
    assert list(found) == list(expected)
    for name, wanted in expected.items():
        assert found[name].shape == wanted.shape
        assert relative_error(found[name], wanted) < 1e-5


# --- which models are dynamic ---------------------------------------------------------------------


def test_fixed_shapes_give_a_compiled_model() -> None:
    fixed = classifier((2, 3, 8, 8))
    for model in (
        sw.compile(fixed, tune="model"),
        sw.compile(classifier(), shapes={"x": (2, 3, 8, 8)}, tune="model"),
        sw.compile(sw.load(classifier(("N", 3, 8, 8))), tune="model"),
    ):
        assert type(model) is sw.CompiledModel


def test_an_open_batch_is_planned_for_one_and_runs_any() -> None:
    proto = classifier(("N", 3, 8, 8))
    model = compiled(proto)
    assert model.programs.misses == 1
    assert model.plan.graph.value("x").shape == (1, 3, 8, 8)
    assert sw.plan(proto, tune="model").graph.value("x").shape == (1, 3, 8, 8)
    for batch in (1, 5, 2):
        right(model, proto, {"x": draw(batch, 3, 8, 8)})
    assert model.plan.graph.value("x").shape == (2, 3, 8, 8)
    assert repr(model) == "DynamicModel('test', x: float32 (N, 3, 8, 8) -> y)"


def test_shapes_without_a_default_wait_for_the_first_call() -> None:
    model = compiled(classifier())
    assert model.programs.misses == 0
    with pytest.raises(sw.InputError, match=r"expected shapes of x, found none.*plan_for"):
        _ = model.plan
    model.prepare({"x": (1, 3, 8, 8)})
    assert model.programs.misses == 1
    assert model.plan.graph.value("x").shape == (1, 3, 8, 8)
    assert model.plan_for({"x": (2, 3, 4, 4)}).graph.value("x").shape == (2, 3, 4, 4)
    with pytest.raises(sw.InputError, match="found z"):
        model.prepare({"z": (1,)})
    with pytest.raises(sw.InputError, match="found none of x"):
        model.prepare({})


# --- many shapes ----------------------------------------------------------------------------------


def test_fifty_shapes_in_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = classifier()
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    most = 0

    def counted(self: Any, *arguments: Any, **named: Any) -> None:
        nonlocal most
        create(self, *arguments, **named)
        alive.add(self)
        gc.collect()
        most = max(most, len(alive))

    create = NativeProgram.__init__
    monkeypatch.setattr(NativeProgram, "__init__", counted)
    model = compiled(proto, max_programs=4)
    rng = np.random.default_rng(0)
    shapes = {(int(n), 3, int(h), int(w)) for n, h, w in rng.integers(2, 20, (52, 3))}
    assert len(shapes) >= 50
    for shape in shapes:
        right(model, proto, {"x": draw(*shape)})
        assert len(model.programs.ready) <= 4
    assert most <= 4
    info = model.programs
    assert (info.misses, info.hits, info.evictions) == (len(shapes), 0, len(shapes) - 4)
    assert [program.shapes["x"] for program in info.ready] == list(shapes)[-4:]


def test_empty_inputs_run_and_leave_later_plans_alone() -> None:
    proto = classifier(("N", 3, 8, 8))
    apart = compiled(proto)
    model = compiled(proto, shapes={"x": ("0..4", 3, 8, 8)})
    assert model.plan.graph.value("x").shape == (1, 3, 8, 8)
    for one in (apart, model):
        assert one(draw(0, 3, 8, 8)).shape == (0, 7)
        right(one, proto, {"x": draw(3, 3, 8, 8)})
    first = compiled(classifier())
    assert first(draw(0, 3, 8, 8)).shape == (0, 7)
    assert first(draw(1, 3, 8, 8)).shape == (1, 7)
    assert first.plan.name != "follows"
    fixed = sw.compile(classifier((0, 3, 8, 8)), tune="model")
    assert type(fixed) is sw.CompiledModel
    assert fixed(draw(0, 3, 8, 8)).shape == (0, 7)
    with pytest.raises(sw.InputError, match=r"expected shape \(0, 3, 8, 8\)"):
        fixed(draw(1, 3, 8, 8))


def test_an_empty_batch_may_be_one_of_a_choice() -> None:
    proto = classifier(("N", 3, 8, 8))
    model = compiled(proto, shapes={"x": ([0, 4], 3, 8, 8)})
    assert model.programs.ready[0].shapes["x"] == (4, 3, 8, 8)
    assert model(draw(0, 3, 8, 8)).shape == (0, 7)
    right(model, proto, {"x": draw(3, 3, 8, 8)})
    assert model.programs.misses == 2


def test_the_second_visit_does_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for owner, name in ((ModelFile, "graph"), (Packing, "pack"), (NativeProgram, "__init__")):
        method = getattr(owner, name)

        def counted(*arguments: Any, _method: Any = method, _name: str = name, **named: Any) -> Any:
            calls.append(_name)
            return _method(*arguments, **named)

        monkeypatch.setattr(owner, name, counted)
    model = compiled(classifier())
    images = [draw(1, 3, 8, 8), draw(2, 3, 6, 6)]
    expected = [model(image) for image in images]
    assert calls.count("graph") == calls.count("__init__") == 2
    assert calls.count("pack") > 0
    calls.clear()
    for _ in range(3):
        for image, wanted in zip(images, expected, strict=True):
            np.testing.assert_array_equal(model(image), wanted)
    assert not calls
    assert (model.programs.misses, model.programs.hits) == (2, 6)
    assert [program.runs for program in model.programs.ready] == [4, 4]


def test_weights_are_packed_once_where_formats_allow() -> None:
    model = compiled(classifier(("N", 3, 8, 8)))
    alone = model.memory
    for batch in (2, 3, 4):
        model.prepare({"x": (batch, 3, 8, 8)})
    first, *others = model.programs.ready
    weights = 4 * (20 * 3 * 9 + 20 * 20 * 9 + 20 * 7)
    assert first.own_weights >= weights
    assert first.shared_weights == 0
    for program in others:
        assert program.shared_weights >= weights
        assert program.own_weights < first.own_weights / 10
    buffers = [m.weights.buffers for _, m, _ in model._cache.models()]
    assert all(any(item is buffers[0][0] for item in group) for group in buffers)
    memory = model.memory
    assert memory.packed_weights < 1.3 * alone.packed_weights
    assert memory.shared_weights == sum(program.shared_weights for program in others)
    assert memory.winograd_weights <= memory.packed_weights
    assert memory.arena == sum(program.arena for program in model.programs.ready)


def test_weights_live_as_long_as_a_program_reads_them() -> None:
    model = compiled(classifier(("N", 3, 8, 8)), max_programs=1)
    expected = [model(draw(batch, 3, 8, 8)) for batch in (1, 2, 3)]
    blocks = {id(b): weakref.ref(b) for _, m, _ in model._cache.models() for b in m.weights.blocks}
    for batch, wanted in zip((1, 2, 3), expected, strict=True):
        np.testing.assert_array_equal(model(draw(batch, 3, 8, 8)), wanted)
    assert len(model.programs.ready) == 1
    del model
    gc.collect()
    assert not [block for block in blocks.values() if block() is not None]


def test_further_plans_follow_the_first_and_say_so() -> None:
    model = compiled(classifier(("N", 3, 8, 8)))
    first = model.plan
    second = model.plan_for({"x": (2, 3, 8, 8)})
    assert (first.name, second.name) == ("planned", "follows")
    for one, two in zip(first.decisions, second.decisions, strict=True):
        assert one.node == two.node
        assert one.chosen.option.inputs == two.chosen.option.inputs
        assert one.chosen.option.outputs == two.chosen.option.outputs
    assert any("as the plan for x (1, 3, 8, 8)" in note for note in second.notes)
    tuned = compiled(classifier(("N", 3, 8, 8)), later="tune")
    assert tuned.plan_for({"x": (2, 3, 8, 8)}).name == "planned"


def test_measured_decisions_are_followed_without_timing(tmp_path: Any) -> None:
    calls: list[Any] = []
    model = sw.compile(
        classifier(("N", 3, 8, 8)),
        threads=1,
        cache_dir=tmp_path,
        progress=lambda *state: calls.append(state),
    )
    assert calls
    calls.clear()
    proto = classifier(("N", 3, 8, 8))
    assert isinstance(model, sw.DynamicModel)
    right(model, proto, {"x": draw(3, 3, 8, 8)})
    assert not calls
    first, second = (m.plan for _, m, _ in model._cache.models())
    for one, two in zip(first.decisions, second.decisions, strict=True):
        named = [cost.implementation for cost in one.chosen.costs]
        assert [cost.implementation for cost in two.chosen.costs] == named
        assert one.chosen.option.outputs == two.chosen.option.outputs


def test_bytes_may_bound_the_cache_too() -> None:
    model = compiled(classifier(("N", 3, 8, 8)), max_program_nbytes=1)
    for batch in (1, 2, 3):
        model(draw(batch, 3, 8, 8))
        assert len(model.programs.ready) == 1
    for wrong in ({"max_programs": 0}, {"max_program_nbytes": 0}):
        with pytest.raises(sw.InputError, match="expected 1 or more, found 0"):
            compiled(classifier(), **wrong)
    with pytest.raises(sw.InputError, match="later: expected 'follow' or 'tune'"):
        compiled(classifier(), later="never")


# --- threads --------------------------------------------------------------------------------------


def test_many_threads_with_the_same_and_other_shapes() -> None:
    model = compiled(classifier(("N", 3, 8, 8)), max_programs=3)
    images = [draw(batch, 3, 8, 8, seed=batch) for batch in range(1, 7)]
    expected = [model(image) for image in images]

    def visit(seed: int) -> bool:
        order = np.random.default_rng(seed).integers(0, len(images), 30)
        return all(np.array_equal(model(images[i]), expected[i]) for i in order)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(visit, range(8)))
    assert len(model.programs.ready) <= 3


def test_a_program_is_made_once_and_others_run_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    model = compiled(classifier(("N", 3, 8, 8)))
    begun, go_on = threading.Event(), threading.Event()
    make_graph = ModelFile.graph

    def slow(self: ModelFile, *arguments: Any, **named: Any) -> sw.Graph:
        begun.set()
        assert go_on.wait(20)
        return make_graph(self, *arguments, **named)

    monkeypatch.setattr(ModelFile, "graph", slow)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(model, draw(2, 3, 8, 8)) for _ in range(3)]
        assert begun.wait(20)
        assert model(draw(1, 3, 8, 8)).shape == (1, 7)
        assert not any(future.done() for future in waiting)
        go_on.set()
        results = [future.result(20) for future in waiting]
    assert all(np.array_equal(result, results[0]) for result in results)
    assert model.programs.misses == 2


def test_who_is_interrupted_concerns_nobody_else() -> None:
    cache: programs.ProgramCache[str] = programs.ProgramCache(2, None)
    ready = sw.compile(sw.load(classifier((1, 3, 8, 8))), tune="model", threads=1)
    begun, go_on = threading.Event(), threading.Event()

    def interrupted() -> sw.CompiledModel:
        begun.set()
        assert go_on.wait(20)
        raise KeyboardInterrupt

    def failing() -> sw.CompiledModel:
        raise sw.ModelError("no such shape")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get, "a", interrupted)
        assert begun.wait(20)
        second = pool.submit(cache.get, "a", lambda: ready)
        go_on.set()
        assert second.result(20) is ready
        with pytest.raises(KeyboardInterrupt):
            first.result(20)
    with pytest.raises(sw.ModelError):
        cache.get("b", failing)
    assert cache.get("b", lambda: ready) is ready


# --- ranges, symbols, choices ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "fits", "wrong", "spelled"),
    [
        (("1..4", 3, "H", "W"), (4, 3, 5, 6), (5, 3, 5, 6), "(N=1..4, 3, H, W)"),
        (((1, 4), 3, "S", "S"), (2, 3, 6, 6), (2, 3, 5, 6), "S = 5"),
        (("N", 3, range(8, 17), 8), (2, 3, 16, 8), (2, 3, 17, 8), "(N, 3, H=8..16, W=8)"),
        (("N", 3, "8|12", 8), (2, 3, 12, 8), (2, 3, 10, 8), "(N, 3, H=8|12, W=8)"),
        (("?", 3, "H=4..8", None), (2, 3, 4, 9), (2, 4, 4, 9), "(N, 3, H=4..8, W)"),
    ],
)
def test_only_shapes_within_limits(
    shape: Any, fits: tuple[int, ...], wrong: tuple[int, ...], spelled: str
) -> None:
    proto = classifier()
    model = compiled(proto, shapes={"x": shape})
    right(model, proto, {"x": draw(*fits)})
    with pytest.raises(sw.InputError) as caught:
        model(draw(*wrong))
    assert "input 'x': expected" in str(caught.value)
    assert spelled in str(caught.value)
    assert str(wrong) in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (("4..1", 3, 8, 8), "expected a number, a symbol 'N', a range '1..16', a choice"),
        (("N", 3, 8), r"expected a shape of rank 4, like \(N, 3, H, W\)"),
        ((-1, 3, 8, 8), "extents of 0 or more"),
        ([(1, 3, 8, 8), (2, 3, 8)], "shapes of one rank"),
        ("N", "a tuple of extents, or a list of shapes"),
    ],
)
def test_shapes_that_are_none(shape: Any, message: str) -> None:
    for call in (sw.compile, sw.plan, sw.load):
        with pytest.raises(sw.InputError, match=message):
            call(classifier(), shapes={"x": shape})


def test_default_shapes_are_the_least() -> None:
    shapes = {"x": ("2|4", 3, "H=8..32", "16..64")}
    assert sw.load(classifier(), shapes=shapes).value("x").shape == (2, 3, 8, 16)
    with pytest.raises(sw.ModelError, match="every extent to be known"):
        sw.load(classifier(), shapes={"x": ("1..4", 3, "H", 8)})


def test_symbols_hold_for_all_inputs() -> None:
    proto = with_inputs(
        make(node("Add", "x", "z"), shape=("N", "C")), z=(TensorProto.FLOAT, ("N", "C"))
    )
    fixed = sw.compile(proto, shapes={"x": (2, 5)}, tune="model")
    assert type(fixed) is sw.CompiledModel
    model = compiled(proto, shapes={"x": ("1|4", 5)})
    right(model, proto, {"x": draw(4, 5), "z": draw(4, 5, seed=1)})
    found = model.run({"x": draw(3, 5), "z": draw(3, 5, seed=1)})["y"]
    np.testing.assert_allclose(found, draw(3, 5) + draw(3, 5, seed=1), rtol=1e-6)
    with pytest.raises(sw.InputError, match="N = 4 as in input 'x'"):
        model(draw(4, 5), draw(1, 5))


def test_a_batch_between_choices_is_padded_and_cut() -> None:
    proto = classifier()
    for shapes in (([1, 4, 8], 3, 8, 8), [(1, 3, 8, 8), (4, 3, 8, 8), (8, 3, 8, 8)]):
        model = compiled(proto, shapes={"x": shapes})
        for batch in (1, 2, 3, 4, 5, 8):
            right(model, proto, {"x": draw(batch, 3, 8, 8, seed=batch)})
        assert model.programs.misses == 3
        assert model(draw(2, 3, 8, 8)).flags.c_contiguous
        with pytest.raises(sw.InputError, match="or a smaller batch, found"):
            model(draw(9, 3, 8, 8))
        with pytest.raises(sw.InputError, match=r"found \(1, 3, 9, 8\)"):
            model(draw(1, 3, 9, 8))


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([node("ReduceMean", axes=[0], keepdims=1)], "n: reduce_mean mixes items"),
        ([node("Softmax", axis=0)], "n: softmax mixes items"),
        ([node("Transpose", perm=[1, 0, 2, 3])], "n: transpose mixes items"),
        (
            [
                node("Shape", outputs=["s"], name="s"),
                node("Gather", "s", "zero", outputs=["b"], name="g"),
                node("Cast", "b", outputs=["f"], to=1, name="c"),
                node("Div", "x", "f"),
            ],
            "depends on the batch",
        ),
    ],
)
def test_a_batch_that_is_mixed_is_not_padded(nodes: Any, reason: str) -> None:
    proto = make(*nodes, shape=("N", 3, 4, 4), constants={"zero": np.int64(0)})
    model = compiled(proto, shapes={"x": ([2, 4], 3, 4, 4)})
    right(model, proto, {"x": draw(4, 3, 4, 4)})
    with pytest.raises(sw.InputError, match=f"the batch cannot be padded, found .*{reason}"):
        model(draw(3, 3, 4, 4))


# --- values that plans depend on ------------------------------------------------------------------


def reshaped() -> ModelProto:
    model = make(node("Reshape", "x", "shape"), shape=("N", 3, 8, 8))
    return with_inputs(model, shape=(TensorProto.INT64, ("rank",)))


def test_a_shape_that_comes_with_the_call() -> None:
    proto = reshaped()
    model = compiled(proto)
    assert model.input_names == ("x", "shape")
    for batch, shape in ((1, (1, -1)), (2, (2, 3, 64)), (1, (1, -1)), (1, (3, 8, 8))):
        feeds = {"x": draw(batch, 3, 8, 8), "shape": np.array(shape, np.int64)}
        right(model, proto, feeds)
    assert (model.programs.misses, model.programs.hits) == (3, 1)
    assert {"shape": (2, 3, 64)} in [program.values for program in model.programs.ready]
    assert model.plan_for({"x": (1, 3, 8, 8)}, {"shape": [192]}).graph.value("y").shape == (192,)
    with pytest.raises(sw.UnknownValueError, match=r"values=\{'shape': \[...\]\}"):
        model.plan_for({"x": (1, 3, 8, 8), "shape": (2,)})
    with pytest.raises(sw.InputError, match="input 'shape': expected dtype int64, found int32"):
        model(draw(1, 3, 8, 8), np.array([192], np.int32))
    with pytest.raises(sw.ModelError, match="a new shape of 192 elements"):
        model(draw(1, 3, 8, 8), np.array([7]))


def test_a_plan_needs_the_value_and_takes_it() -> None:
    proto = reshaped()
    with pytest.raises(
        sw.UnknownValueError, match=r"node 'n' \(Reshape\).*value of input 'shape'.*--value shape="
    ) as caught:
        sw.plan(proto, shapes={"shape": (2,)}, tune="model")
    assert caught.value.inputs == ("shape",)
    plan = sw.plan(proto, values={"shape": [3, 64]}, tune="model")
    assert plan.graph.inputs == ("x",)
    assert plan.graph.value("y").shape == (3, 64)
    fixed = sw.compile(proto, shapes={"x": (1, 3, 8, 8)}, values={"shape": (3, 64)}, tune="model")
    assert type(fixed) is sw.CompiledModel
    assert fixed(draw(1, 3, 8, 8)).shape == (3, 64)
    for values, message in (
        ({"z": [1]}, r"values: expected names of inputs \('x', 'shape'\), found 'z'"),
        ({"shape": [1.5]}, "input 'shape': expected a value of int64"),
        ({"shape": [[1]]}, r"expected a value of shape \(rank\), found shape \(1, 1\)"),
        ({"shape": ["a"]}, "a value of int64"),
    ):
        with pytest.raises(sw.InputError, match=message):
            sw.plan(proto, values=values, tune="model")


def test_bounds_of_a_slice_that_come_with_the_call() -> None:
    one = (TensorProto.INT64, (1,))
    proto = with_inputs(
        make(node("Slice", "x", "starts", "ends", "axes"), constants={"axes": np.array([2])}),
        starts=one,
        ends=one,
    )
    model = compiled(proto)
    for bounds in ((0, 4), (2, -1), (0, 4)):
        starts, ends = (np.array([bound]) for bound in bounds)
        right(model, proto, {"x": draw(1, 3, 8, 8), "starts": starts, "ends": ends})
    assert model.programs.misses == 2


def test_sizes_of_a_resize_computed_from_an_input() -> None:
    proto = with_inputs(
        make(
            node("Mul", "size", "two", outputs=["larger"], name="double"),
            node("Concat", "head", "larger", outputs=["sizes"], axis=0, name="sizes"),
            node("Resize", "x", "", "", "sizes", mode="nearest"),
            constants={"two": np.array([2, 2]), "head": np.array([1, 3])},
        ),
        size=(TensorProto.INT64, (2,)),
    )
    model = compiled(proto)
    for size in ((4, 4), (8, 4)):
        right(model, proto, {"x": draw(1, 3, 8, 8), "size": np.array(size)})


def test_scales_of_a_resize_that_come_with_the_call() -> None:
    proto = with_inputs(
        make(node("Resize", "x", "", "scales", mode="nearest")),
        scales=(TensorProto.FLOAT, (4,)),
    )
    model = compiled(proto)
    right(model, proto, {"x": draw(1, 3, 8, 8), "scales": np.array([1, 1, 2, 3], F32)})


@pytest.mark.parametrize("dtype", ["int64", "float64", "bfloat16"])
def test_a_range_that_comes_with_the_call(dtype: str) -> None:
    code = {"int64": TensorProto.INT64, "float64": TensorProto.DOUBLE}.get(
        dtype, TensorProto.BFLOAT16
    )
    proto = make(node("Range", "start", "limit", "step"))
    del proto.graph.input[:]
    with_inputs(proto, start=(code, ()), limit=(code, ()), step=(code, ()))
    model = sw.compile(proto, tune="model", fallback=False)
    assert isinstance(model, sw.DynamicModel)
    for numbers in ((1, 9, 2), (4, 1, -1), (3, 3, 1)):
        found = model(*(np.array(number, sw.dtypes.dtype_of(dtype).numpy) for number in numbers))
        np.testing.assert_array_equal(found.astype(float), np.arange(*numbers))
        assert found.dtype.name == dtype
    assert {"start": (4.0,), "limit": (1.0,), "step": (-1.0,)} in [
        program.values for program in model.programs.ready
    ]


def test_images_are_no_values() -> None:
    proto = make(node("Relu", outputs=["s"]), node("Resize", "x", "", "s"), shape=(1, 3, 8, 8))
    with pytest.raises(sw.ModelError, match="the scales to be constant") as caught:
        sw.compile(proto, tune="model", fallback=False)
    assert not isinstance(caught.value, sw.UnknownValueError)


# --- calls ----------------------------------------------------------------------------------------


def test_calls_that_do_not_fit() -> None:
    model = compiled(classifier())
    image = draw(1, 3, 8, 8)
    for given, message in (
        ((), r"model 'test': expected 1 inputs \(x\), found 0"),
        ((image[0],), r"expected shape \(N, 3, H, W\), found \(3, 8, 8\)"),
        ((image.astype(np.float64),), "expected dtype float32, found float64"),
        (([1.0],), "expected an array .*, found list"),
    ):
        with pytest.raises(sw.InputError, match=message):
            model(*given)
    for call in (model.run, model.profile):
        with pytest.raises(sw.InputError, match="expected inputs x, found z"):
            call({"z": image})


def test_a_profile_is_of_the_program_for_the_inputs() -> None:
    model = compiled(classifier(), shapes={"x": ([2, 4], 3, 8, 8)})
    profile = model.profile({"x": draw(3, 3, 8, 8)}, runs=2)
    assert {"conv1", "conv2"} <= {row.node.partition("+")[0] for row in profile.rows}
    assert (4, 3, 8, 8) in [program.shapes["x"] for program in model.programs.ready]


def test_formats_and_plans_are_for_the_default_shape() -> None:
    proto = classifier(("N", 3, 8, 8))
    plan = sw.plan(proto, tune="model")
    for arguments in (
        {"plan": plan},
        {"input_formats": {"x": ["NCHW", "NHWC"]}},
        {"target": "ascend"},
    ):
        model = sw.compile(proto, tune="model", **arguments)
        assert not isinstance(model, sw.DynamicModel)
        assert model.plan.graph.value("x").shape == (1, 3, 8, 8)


def test_a_file_is_read_once(tmp_path: Any) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(classifier(), path)
    model = compiled(path)
    path.unlink()
    right(model, classifier(), {"x": draw(1, 3, 8, 8)})
    right(model, classifier(), {"x": draw(2, 3, 8, 8)})


# --- the command line -----------------------------------------------------------------------------


def stridewise(*arguments: Any) -> tuple[int, str]:
    """Return the status of a command, and what it printed."""
    command = [sys.executable, "-m", "stridewise", *map(str, arguments)]
    done = subprocess.run(command, text=True, check=False, timeout=120, capture_output=True)
    return done.returncode, done.stdout or done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(classifier(), tmp_path / "net.onnx")
    onnx.save(reshaped(), tmp_path / "reshaped.onnx")
    np.save(tmp_path / "image.npy", draw(2, 3, 8, 12))
    np.save(tmp_path / "small.npy", draw(1, 3, 8, 8))
    np.save(tmp_path / "shape.npy", np.array([3, -1]))
    return tmp_path


def test_run_takes_open_shapes_from_its_inputs(folder: Path) -> None:
    command = ("run", folder / "net.onnx", "--tune", "model", "--input", folder / "image.npy")
    status, output = stridewise(*command, "--json", "--output", folder / "out.npz")
    assert status == 0, output
    expected = run_onnxruntime(classifier(), {"x": draw(2, 3, 8, 12)})["y"]
    assert relative_error(np.load(folder / "out.npz")["y"], expected) < 1e-5
    status, output = stridewise(*command, "--shape", "x=1..2,3,H,W")
    assert status == 0, output
    status, output = stridewise(*command, "--shape", "x=4..8,3,H,W")
    assert status == 1
    assert "expected shape (N=4..8, 3, H, W), found (2, 3, 8, 12)" in output


def test_run_takes_values_from_its_inputs(folder: Path) -> None:
    status, output = stridewise(
        "run", folder / "reshaped.onnx", "--tune", "model", "--json",
        "--input", f"x={folder / 'small.npy'}", "--input", f"shape={folder / 'shape.npy'}",
    )  # fmt: skip
    assert status == 0, output
    assert json.loads(output)["outputs"][0]["shape"] == [3, 64]


def test_plan_takes_values_and_limits(folder: Path) -> None:
    command = ("plan", folder / "reshaped.onnx", "--tune", "model", "--json")
    status, output = stridewise(*command, "--shape", "shape=2")
    assert status == 1
    assert "--value shape=1,2" in output
    status, output = stridewise(*command, "--value", "shape=2,-1", "--shape", "x=2..4,3,8,8")
    assert status == 0, output
    assert "[2,192]" in output
    for wrong in ("shape=a", "shape"):
        status, output = stridewise(*command, "--value", wrong)
        assert status == 1
        assert "--value: expected NAME=" in output


@pytest.mark.parametrize("tune", ["model", "auto"])
def test_nodes_on_the_numpy_fallback_take_every_shape(tune):
    model = make(node("CumSum", "x", "axis"), shape=("N", 3), opset=14, constants={"axis": 1})
    compiled = sw.compile(model, tune=tune)
    for batch in (2, 5, 1):
        x = draw(batch, 3, seed=batch)
        np.testing.assert_allclose(compiled(x), np.cumsum(x, 1), rtol=1e-6)
