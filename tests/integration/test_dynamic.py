"""Models for many shapes: right in each, bounded in memory, and nothing done twice."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import stridewise as sw
from stridewise.frontends.onnx import ModelFile
from stridewise.runtime.binding.packing import Packing
from stridewise.runtime.binding.program import NativeProgram
from stridewise.runtime.execution import programs

from .open_shapes import classifier, compiled, draw, right

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
        assert go_on.wait(300)
        return make_graph(self, *arguments, **named)

    monkeypatch.setattr(ModelFile, "graph", slow)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(model, draw(2, 3, 8, 8)) for _ in range(3)]
        assert begun.wait(300)
        assert model(draw(1, 3, 8, 8)).shape == (1, 7)
        assert not any(future.done() for future in waiting)
        go_on.set()
        results = [future.result(300) for future in waiting]
    assert all(np.array_equal(result, results[0]) for result in results)
    assert model.programs.misses == 2


def test_an_interrupted_call_leaves_the_others_alone() -> None:
    cache: programs.ProgramCache[str] = programs.ProgramCache(2, None)
    ready = sw.compile(sw.load(classifier((1, 3, 8, 8))), tune="model", threads=1)
    begun, go_on = threading.Event(), threading.Event()

    def interrupted() -> sw.CompiledModel:
        begun.set()
        assert go_on.wait(300)
        raise KeyboardInterrupt

    def failing() -> sw.CompiledModel:
        raise sw.ModelError("no such shape")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get, "a", interrupted)
        assert begun.wait(300)
        second = pool.submit(cache.get, "a", lambda: ready)
        go_on.set()
        assert second.result(300) is ready
        with pytest.raises(KeyboardInterrupt):
            first.result(300)
    with pytest.raises(sw.ModelError):
        cache.get("b", failing)
    assert cache.get("b", lambda: ready) is ready
