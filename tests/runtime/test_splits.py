"""Batches in parts: equal results, choice by measured time, storage and loading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stridewise as sw
from stridewise.api import batches
from stridewise.graph import Graph
from stridewise.planner.questions.restrict import restricted
from stridewise.planner.split import WHOLE, Split
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.tuning.plan_race import Outcome

from .graphs import Net
from .test_model_store import files, settled

BATCH = 6
X = np.random.default_rng(0).standard_normal((BATCH, 9, 12, 10)).astype(np.float32)


def network(batch: int = BATCH, *, mixes: bool = False) -> Graph:
    b = Net(batch, *X.shape[1:])
    y = b.op("relu", [b.conv(b.x, 16, 3)])
    y = b.op("max_pool", [y], {"kernel": (2, 2), "strides": (2, 2)})
    y = b.conv(y, 5, 1)
    return b.build([b.op("softmax", [y], {"axis": 0}) if mixes else y])


def split_model(split: Split, threads: int = 2) -> CompiledModel:
    part = network(split.part(X.shape)[0])
    plan = sw.plan(part, tune="model", threads=threads // split.lanes)
    return load(lower_plan(replace(plan, split=split)))


@pytest.fixture(scope="module")
def expected() -> np.ndarray[Any, Any]:
    return sw.compile(network(), tune="model", threads=2)(X)


SPLITS = [Split(2), Split(3), Split(6), Split(2, 2), Split(6, 2)]


# --- running --------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_parts_give_what_the_whole_gives(split: Split, expected: np.ndarray[Any, Any]) -> None:
    model = split_model(split)
    (name,) = model.input_names
    assert model.interface.values[name].shape == X.shape
    for _ in range(3):
        np.testing.assert_allclose(model(X), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(sw.InputError, match=r"\(6, 9, 12, 10\)"):
        model(X[:2])


def test_library_kernels_with_barriers_run_in_any_number_of_parts() -> None:
    """Lanes compute different numbers of parts, so one lane's barrier must not need the other."""

    def norm(batch: int) -> Graph:
        b = Net(batch, 1, 3, 3)
        return b.build([b.op("group_norm", [b.x, b.data(1), b.data(1)], {"groups": 1})])

    plan = sw.plan(norm(1), tune="model", threads=1)
    (candidates,) = plan.terms.candidates.nodes.values()
    library = [
        index
        for index, candidate in enumerate(candidates)
        if candidate.option.calls[0].spec.kind == "batch_norm"
    ]
    x = np.random.default_rng(0).standard_normal((5, 1, 3, 3)).astype(np.float32)
    wanted = sw.compile(norm(5), tune="model", threads=1)(x)
    for index in library:
        of_library = restricted(plan, "library", {plan.graph.nodes[0].name: (index,)})
        model = load(lower_plan(replace(of_library, split=Split(5, 2))))
        for _ in range(20):
            np.testing.assert_allclose(model(x), wanted, rtol=1e-5, atol=1e-5)
    assert library


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_a_trace_shows_every_part_and_leaves_the_result(
    split: Split, expected: np.ndarray[Any, Any]
) -> None:
    model = split_model(split)
    (name,) = model.input_names
    seen: list[tuple[str, int]] = []
    found = model.trace({name: X}, lambda w, stored: seen.append((w.value, stored.shape[0])))
    np.testing.assert_allclose(next(iter(found.values())), expected, rtol=1e-5, atol=1e-5)
    assert len(seen) % split.parts == 0
    assert {count for _, count in seen} == {BATCH // split.parts}


def test_steps_are_timed_over_all_parts() -> None:
    model = split_model(Split(3))
    (name,) = model.input_names
    profile = model.profile({name: X}, 3)
    assert len(profile.rows) == len(model.program.steps)
    part = sum(getattr(step, "cost_ns", 0.0) for step in model.program.steps)
    assert profile.predicted_ns == pytest.approx(3 * part)
    assert all(row.measured_ns > 0 for row in profile.rows)


def test_lanes_have_an_arena_each() -> None:
    one, two = split_model(Split(6)), split_model(Split(6, 2))
    assert two.memory.arena == 2 * two.program.arena_nbytes
    assert one.memory.arena == one.program.arena_nbytes


def test_the_plan_says_so() -> None:
    text = split_model(Split(6, 2)).plan.explain()
    assert "runs the batch in 6 parts, 2 at a time; what follows is one of them" in text


# --- the native program ---------------------------------------------------------------------------


def copier(nbytes: int, threads: int = 1, **split: int) -> Any:
    program = load_core().Program(0, [], [nbytes], [nbytes], threads, **split)
    program.add_copy((3, 0, 0), (2, 0, 0), nbytes)
    program.freeze()
    return program


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_every_part_is_copied_once(lanes: int) -> None:
    program = copier(8, parts=7, lanes=lanes)
    given, found = np.arange(56, dtype=np.uint8), np.zeros(56, np.uint8)
    program.run([given], [found])
    assert np.array_equal(given, found)
    assert (program.parts, program.lanes) == (7, lanes)
    assert len(program.profile([given], [found], 2)) == 2
    with pytest.raises(ValueError, match="expected 56 bytes, got 48"):
        program.run([given[:48]], [found])


@pytest.mark.parametrize(
    ("threads", "split", "message"),
    [
        (1, {"parts": 0}, "parts: expected at least 1, got 0"),
        (1, {"parts": 2, "lanes": 3}, r"at most as many as parts \(2\), got 3"),
        (2, {"parts": 2, "lanes": 2}, "lanes: expected 1, or with one thread"),
        (1, {"parts": 2, "lanes": 0}, "lanes: expected 1, or with one thread"),
        (1, {"parts": 2**62}, "less memory than there can be"),
    ],
)
def test_impossible_parts_are_refused(threads: int, split: Mapping[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        copier(8, threads, **split)


def test_host_steps_have_no_parts() -> None:
    program = load_core().Program(0, [], [8], [8], 1, parts=2)
    with pytest.raises(ValueError, match="a program of parts has no host steps"):
        program.add_host(print, [(2, 0, 0, 8, False)])


# --- the plan race --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "batch.onnx"
    sw.save(network(), path)
    return settled(path)


def rig(monkeypatch: pytest.MonkeyPatch, winner: Split) -> list[set[str]]:
    """Let one way win all plan races, and return the ways of each race."""
    ran: list[set[str]] = []

    def run(models: Mapping[str, CompiledModel], _until: float) -> Outcome:
        ran.append(set(models))
        for label, model in models.items():
            assert str(model.plan.split) == label
        return Outcome(
            {label: 1.0 if label == str(winner) else 9.0 for label in models},
            {},
            is_disturbed=False,
        )

    monkeypatch.setattr(batches, "run_in_turn", run)
    monkeypatch.setattr(batches, "cache_nbytes", lambda _level: 1 << 10)
    return ran


def compiled(source: Path, folder: Path, **options: Any) -> CompiledModel:
    model = sw.compile(source, cache_dir=folder, threads=2, **{"tune": "measure", **options})
    assert isinstance(model, CompiledModel)
    return model


@pytest.mark.parametrize("winner", [WHOLE, Split(6), Split(6, 2)], ids=str)
def test_what_won_is_used_and_remembered(
    winner: Split,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expected: np.ndarray[Any, Any],
) -> None:
    ran = rig(monkeypatch, winner)
    model = compiled(source, tmp_path, store_limit=0)
    # The whole is tuned, and runs again, only where that could help.
    assert len(ran) == (2 if winner == WHOLE else 1)
    assert all(ways == {str(WHOLE), str(Split(6)), str(Split(6, 2))} for ways in ran)
    ran.clear()
    again = compiled(source, tmp_path, store_limit=0)
    assert not ran
    for found in (model, again):
        assert found.plan.split == winner
        np.testing.assert_allclose(found(X), expected, rtol=1e-5, atol=1e-5)


def test_parts_come_back_from_the_disk(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expected: np.ndarray[Any, Any],
) -> None:
    rig(monkeypatch, Split(6, 2))
    first = compiled(source, tmp_path)
    assert len(files(tmp_path)) == 1
    with monkeypatch.context() as patch:
        patch.setattr("stridewise.api.plans.open_model", pytest.fail)  # nothing is even read
        ready = compiled(source, tmp_path)
    assert np.array_equal(ready(X), first(X))
    np.testing.assert_allclose(ready(X), expected, rtol=1e-5, atol=1e-5)
    assert ready.memory.arena == first.memory.arena
    assert ready.plan.to_json() == first.plan.to_json()
    assert repr(ready) == repr(first)


def test_a_plan_file_keeps_the_parts(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expected: np.ndarray[Any, Any],
) -> None:
    rig(monkeypatch, Split(6, 2))
    plan, file = compiled(source, tmp_path).plan, tmp_path / "batch.plan.json"
    plan.save(file)
    loaded = sw.load_plan(file, source, threads=2)
    assert loaded.split == plan.split
    assert loaded.to_json() == plan.to_json()
    model = sw.compile(source, threads=2, plan=file)
    assert isinstance(model, CompiledModel)
    np.testing.assert_allclose(model(X), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(sw.PlanError, match="a model file with a batch of 6 parts, found a graph"):
        sw.load_plan(file, network())
    with pytest.raises(sw.PlanError, match=r"6 parts, found x \(4, 9, 12, 10\)"):
        sw.load_plan(file, source, shapes={"x": (4, *X.shape[1:])})


def test_one_image_and_items_that_mix_run_at_once(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = rig(monkeypatch, Split(6, 2))
    mixing = tmp_path / "mixes.onnx"
    sw.save(network(mixes=True), mixing)
    assert compiled(mixing, tmp_path).plan.split == WHOLE
    one = compiled(source, tmp_path, shapes={"x": (1, *X.shape[1:])})
    assert one.plan.split == WHOLE
    assert compiled(source, tmp_path, tune="model").plan.split == WHOLE
    assert not ran


def test_ways_are_few() -> None:
    machine = this_machine(2)
    assert batches.candidates(16, 1 << 20, 32 << 20, machine) == [Split(16, 2)]
    assert batches.candidates(16, 64 << 20, 32 << 20, machine) == [Split(4), Split(16, 2)]
    assert batches.candidates(6, 1 << 40, 32 << 20, this_machine(1)) == [Split(6)]
    assert batches.candidates(7, 64 << 20, 32 << 20, this_machine(1)) == [Split(7)]
