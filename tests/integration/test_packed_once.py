"""Weights of a model for many shapes are packed once, the tuned program's too."""

from __future__ import annotations

from pathlib import Path

import pytest

import stridewise as sw
from stridewise.runtime.binding.weights import Weights, WeightStore
from stridewise.runtime.execution import loading
from stridewise.runtime.execution.loading import load, lower_plan

from .open_shapes import classifier, draw, right


def test_a_tuned_program_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Weights] = []

    class Counted(Weights):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # pyright: ignore[reportArgumentType]
            made.append(self)

    monkeypatch.setattr(loading, "Weights", Counted)
    proto = classifier()
    for _ in range(2):  # tuned, then remembered
        made.clear()
        model = sw.compile(proto.SerializeToString(), threads=1, cache_dir=tmp_path)
        assert isinstance(model, sw.DynamicModel)
        right(model, proto, {"x": draw(1, 3, 8, 8)})
        tuned = len(made)
        right(model, proto, {"x": draw(1, 3, 12, 12)})
        assert len(made) == tuned + 1
        later = made[-1]
        assert later.shared_nbytes > 0
        assert later.own_nbytes < later.shared_nbytes / 10
        first = next(weights for weights in made if weights.own in later.blocks)
        assert sum(weights.own in later.blocks for weights in made[:-1]) == 1
        assert model.memory.packed_weights == first.own_nbytes + later.own_nbytes
    assert tuned == 1


def test_a_branch_adds_nothing_to_its_trunk() -> None:
    graph = sw.load(classifier().SerializeToString(), {"x": (1, 3, 8, 8)})
    store = WeightStore()
    plan = sw.plan(graph, tune="model", threads=1)
    first = load(lower_plan(plan), store.branch()).weights
    keys = set(first.offsets)
    assert keys
    assert not any(store.find(key) for key in keys)
    assert load(lower_plan(plan), store.branch()).weights.shared_nbytes == 0
    store.add(first.own, first.offsets)
    assert all(store.find(key) == (first.own, first.offsets[key]) for key in keys)
    assert load(lower_plan(plan), store.branch()).weights.own_nbytes == 0
