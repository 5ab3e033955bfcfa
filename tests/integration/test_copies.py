"""Copies and pickles: data is copied, native programs say what to do in place of it."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stridewise as sw

Copy = Callable[[Any], Any]
WAYS: dict[str, Copy] = {
    "pickle": lambda item: pickle.loads(pickle.dumps(item)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}
LAYERS = 400
"""More than Python pickles objects inside of each other."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def line(layers: int = 4) -> sw.Graph:
    b = sw.GraphBuilder("line")
    found = b.input("x", (1, 3, 8, 8))
    weights = b.constant(np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1), "w")
    for _ in range(layers):
        found = b.op("conv", [found, weights])
    return b.build([found])


def trained() -> sw.Trainer:
    b = sw.GraphBuilder("line", training=True)
    graph = b.build([b.dense(b.input("x", (4, 2)), 3)])
    return sw.Trainer(graph, optimizer=sw.SGD(lr=0.5), tune="model")


@pytest.mark.parametrize("way", WAYS)
def test_graphs_are_equal_to_their_copies(way: str) -> None:
    graph = line()
    found = WAYS[way](graph)
    assert found == graph
    assert str(found) == str(graph)
    with pytest.raises(TypeError):
        found.values["x"] = graph.values["x"]  # as read-only as it was


def test_deep_networks_have_pickles() -> None:
    plan = sw.plan(line(LAYERS), tune="model", threads=1)
    found = WAYS["pickle"](plan)
    assert found == plan
    assert found.derived.explain() == plan.derived.explain()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("target", ["onednn-cpu", "ascend"])
def test_plans_are_equal_to_their_copies(target: Any, way: str) -> None:
    plan = sw.plan(line(), target=target, tune="model", threads=1)
    found = WAYS[way](plan)
    assert found == plan
    assert found.terms is not plan.terms or way == "copy"
    for text in ("explain", "to_text", "to_json", "to_dot"):
        assert getattr(found, text)() == getattr(plan, text)()
    assert found.derived.explain() == plan.derived.explain()
    node = plan.graph.nodes[0].name
    assert str(found.why(node)) == str(plan.why(node))


def test_the_plan_of_a_training_step_keeps_its_front() -> None:
    plan = trained().model.plan
    for copied in map(pickle.loads, [pickle.dumps(plan)] * 2):
        assert copied.front() == plan.front()
        assert str(copied) == str(plan)
    # Originals are dropped, which have no digest: a deep copy has the same ones.
    assert copy.deepcopy(plan) == plan


def test_a_pickled_plan_compiles_to_the_same_program() -> None:
    graph = line()
    plan = sw.plan(graph, tune="model", threads=1)
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    models = [sw.compile(graph, plan=item, threads=1) for item in (plan, WAYS["pickle"](plan))]
    assert str(models[0].program) == str(models[1].program)
    np.testing.assert_array_equal(models[0](x), models[1](x))


@pytest.mark.parametrize("way", WAYS)
def test_programs_and_trainers_are_not_copied(way: str) -> None:
    trainer = trained()
    for item, message in (
        (trainer, r"trainer: expected use .*, found a copy or a pickle of it; make another one"),
        (trainer.model, "CompiledModel: expected use .*; share it among threads, and compile"),
    ):
        with pytest.raises(sw.InputError, match=message):
            WAYS[way](item)


def use(item: sw.Plan | sw.CompiledModel) -> str:
    return str(item)


def test_other_processes_get_plans_but_no_programs() -> None:
    b = sw.GraphBuilder("small")
    graph = b.build([b.op("relu", [b.input("x", (1, 3, 8, 8))])])
    model = sw.compile(graph, tune="model", threads=1, keep_originals=True)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(use, [model.plan]) == str(model.plan)
        with pytest.raises(sw.InputError, match="compile its model again in other processes"):
            pool.apply(use, [model])
