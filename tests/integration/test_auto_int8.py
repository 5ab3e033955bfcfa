"""dtype="auto" with calibration: tensors and weights are rounded to integers within the budget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.models import relative_error, run_reference

import stridewise as sw
from stridewise.graph import Graph
from stridewise.ops import evaluate
from stridewise.ops.activation import SNAPS
from stridewise.options import Options
from stridewise.planner import derive
from stridewise.runtime.tuning import accuracy, finalists
from stridewise.runtime.tuning.accuracy import Reference
from stridewise.runtime.tuning.gates import gate_of, gate_of_weights, gated
from stridewise.runtime.tuning.offers import observable
from stridewise.runtime.tuning.tuning import choices
from stridewise.tensor import Grid

from .commands import Run, fails, own_cache, run
from .test_auto_dtype import auto, drawn, found_once, network, sample, simplified

__all__ = ["found_once", "own_cache", "run"]

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32
MACHINE = Options(threads=1).machine
needs_int8 = pytest.mark.skipif(
    not MACHINE.has_int8_products, reason="with AVX2, Winograd may be faster than integers"
)
BUDGETS = (1e-5, 1e-3, 1e-2, 3e-2)
KEPT = (
    *(("resnet18", budget) for budget in (1e-5, 1e-3, 3e-2)),
    *(("squeezenet1_1", budget) for budget in (1e-3, 1e-2)),
)
"""Networks and their budgets: each budget, and 1e-3 of either network."""

CALIBRATION = [sample(seed) for seed in range(8)]


def offered() -> tuple[Reference, Graph]:
    reference = Reference(derive(simplified(network())), MACHINE, CALIBRATION, None, True)
    return reference, reference.offered.graph


# --- grids ----------------------------------------------------------------------------------------


@given(
    st.sampled_from(sorted(SNAPS)),
    st.floats(2**-10, 8, width=32),
    st.integers(-100, 100),
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=1),
)
def test_numbers_off_a_grid_are_rounded_and_saturated(
    op: str, scale: float, zero: int, numbers: list[float]
) -> None:
    zero = abs(zero) if op == "snap_u8" else zero
    x = np.array(numbers, F32)
    b = sw.GraphBuilder("snap")
    node = b.build([b.op(op, [b.input("x", x.shape)], {"alpha": scale, "beta": float(zero)})])
    (right,) = evaluate(node.nodes[0], [x])
    np.testing.assert_array_equal(Grid(SNAPS[op], (scale,), (zero,)).rounded(x), right)


@given(
    st.floats(2**-10, 8, width=32),
    st.integers(0, 255),
    st.tuples(st.floats(-100, 100, width=32), st.floats(-100, 100, width=32)).map(sorted),
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=1),
)
def test_saturation_replaces_a_clip_only_if_no_number_differs(
    scale: float, zero: int, ends: list[float], numbers: list[float]
) -> None:
    grid = Grid("u8", (scale,), (zero,))
    low, high = ends
    x = np.array([*numbers, grid.low, grid.high, low - scale, high + scale, -1e9, 1e9], F32)
    same = np.array_equal(grid.stored(np.clip(x, F32(low), F32(high))), grid.stored(x))
    assert grid.saturates(low, high) == same


def test_ranges_end_where_functions_do() -> None:
    """Integers beyond would never occur, and a clip that saturation replaces takes no time."""
    _, graph = offered()
    last = {node.outputs[0]: node.post_ops[-1].op for node in graph.nodes if node.post_ops}
    assert set(last.values()) == {"clip", "relu"}
    for name, op in last.items():
        grid = graph.values[name].offer
        assert grid is not None
        assert grid.low == 0
        assert op != "clip" or grid.high <= 6 + grid.scales[0] / 2


def test_moves_have_one_grid_and_what_no_product_reads_has_none() -> None:
    graph = simplified(network())
    groups = observable(graph)
    pool = next(node for node in graph.nodes if node.op == "max_pool")
    assert groups[pool.inputs[0]] == groups[pool.outputs[0]]
    assert "x" in groups
    assert "y" not in groups


def test_ranges_cover_the_samples_that_they_come_from() -> None:
    reference, graph = offered()
    grid = graph.values["x"].offer
    assert grid is not None
    seen = np.concatenate([item["x"].ravel() for item in CALIBRATION[:4]])
    step = grid.scales[0]
    assert grid.low <= seen.min() + step
    assert grid.high >= seen.max() - step
    weights = next(node for node in graph.nodes if node.op == "conv").inputs[1]
    per_channel = graph.values[weights].offer
    assert per_channel is not None
    assert len(per_channel.scales) == graph.values[weights].shape[0]
    assert reference.checked == 3


def test_gates_round_to_the_offered_grids() -> None:
    _, graph = offered()
    opened = gated(graph, to_integers=True)
    gates = opened.inputs[1:]
    conv = next(node for node in graph.nodes if node.op == "conv")
    assert {gate_of("x"), gate_of_weights(conv.name)} <= set(gates)

    def run(opening: str) -> Array:
        shut = {name: np.full(1, name == opening, F32) for name in gates}
        return run_reference(opened, {**sample(1), **shut})["y"]

    assert relative_error(run(""), run_reference(graph, sample(1))["y"]) < 1e-6
    grid = graph.values["x"].offer
    assert grid is not None
    right = run_reference(graph, {"x": grid.rounded(sample(1)["x"])})["y"]
    assert relative_error(run(gate_of("x")), right) < 1e-6


# --- plans ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("found_once")
@pytest.mark.parametrize(("name", "max_error"), KEPT)
def test_the_error_on_other_data_keeps_the_budget(name: str, max_error: float) -> None:
    graph, exact = drawn(name)
    (x,) = graph.inputs

    def image(seed: int) -> Array:
        return np.random.default_rng(seed).standard_normal((1, 3, 32, 32)).astype(F32)

    model = auto(graph, max_error, calibration=[{x: image(seed)} for seed in range(8)])
    found, right = (
        np.stack([np.asarray(m(image(seed))) for seed in range(100, 106)]) for m in (model, exact)
    )
    assert relative_error(found, right) <= max_error
    assert "measured on 3 samples" in model.plan.notes[-1]


@needs_int8
def test_integers_are_chosen_and_never_beaten_by_one_precision() -> None:
    graph = network()
    plans = [auto(graph, budget, calibration=CALIBRATION).plan for budget in BUDGETS]
    costs = [plan.cost_ns for plan in plans]
    assert costs == sorted(costs, reverse=True)
    half = auto(graph, 3e-2).plan.cost_ns
    assert costs[-1] < 0.9 * half
    stored = {
        str(decision.chosen.option.makes[0]).split(" (")[0] for decision in plans[-1].decisions
    }
    assert "NHWC u8" in stored
    assert plans[-1].predicted_error <= 3e-2


@needs_int8
def test_the_plan_of_integers_is_a_rival_where_costs_mislead(tmp_path: Path) -> None:
    """It takes part in the race if the joint plan, by wrong costs, has no integers."""
    plan = auto(network(), 3e-2, calibration=CALIBRATION).plan
    rival = finalists.in_integers(plan)
    assert rival is not None
    products = {node.name for node in rival.graph.nodes if node.op in ("conv", "matmul")}
    assert products
    for decision in rival.decisions:
        if decision.node in products:
            (call,) = decision.chosen.option.calls
            assert {memory.dtype for _, memory in call.spec.memories} & {"u8", "s8"}
    assert finalists.in_integers(auto(network(), 1e-2).plan) is None
    raced = auto(network(), 3e-2, calibration=CALIBRATION, tune="auto", cache_dir=tmp_path).plan
    assert raced.predicted_error <= 3e-2


@needs_int8
def test_plans_with_offers_answer_questions_and_are_restored(tmp_path: Any) -> None:
    model = auto(network(), 3e-2, calibration=CALIBRATION, keep_originals=True)
    plan = model.plan
    why = plan.why("conv.1")
    assert "u8" in why.chosen.algorithm
    assert "bf16" in str(why)
    half = plan.what_if({"conv.1": "bfloat16"})
    assert half.cost_ns > plan.cost_ns
    assert plan.regret("conv.1")
    assert "u8" in plan.to_html()
    path = tmp_path / "plan.json"
    plan.save(path)
    assert not plan.diff(sw.load_plan(path, network(), threads=1)).changes
    again = sw.compile(network(), plan=path, threads=1)
    x = sample(50)["x"]
    np.testing.assert_array_equal(np.asarray(again(x)), np.asarray(model(x)))


@needs_int8
def test_rounded_plans_are_verified() -> None:
    model = auto(network(), 3e-2, calibration=CALIBRATION, keep_originals=True)
    found = sw.verify(model, sample(60))
    assert found.ok, str(found)


@needs_int8
def test_second_starts_measure_nothing(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {
        "tune": "auto", "cache_dir": tmp_path, "calibration": CALIBRATION,
    }  # fmt: skip
    first = auto(network(), 3e-2, **options).plan
    monkeypatch.setattr(finalists, "run_in_turn", None)
    monkeypatch.setattr(accuracy, "load", None)
    second = auto(network(), 3e-2, **options).plan
    assert choices(second) == choices(first)
    assert second.notes == first.notes


# --- command line ---------------------------------------------------------------------------------


def as_npz(folder: Path) -> Path:
    np.savez(folder / "samples.npz", x=np.concatenate([item["x"] for item in CALIBRATION]))
    return folder / "samples.npz"


def as_folder(folder: Path) -> Path:
    inner = folder / "samples"
    inner.mkdir()
    for number, item in enumerate(CALIBRATION):
        np.save(inner / f"{number}.npy", item["x"])
    return inner


@pytest.fixture
def path(tmp_path: Path) -> Path:
    sw.save(network(), tmp_path / "network.onnx")
    return tmp_path / "network.onnx"


COMMON = ("--tune", "model", "--threads", 1, "--max-error", 3e-2)


@pytest.mark.parametrize("store", [as_npz, as_folder])
def test_samples_in_files_give_the_same_plan(
    run: Run, path: Path, tmp_path: Path, store: Callable[[Path], Path]
) -> None:
    expected = sw.plan(
        path, dtype="auto", calibration=CALIBRATION, tune="model", threads=1, max_error=3e-2
    )
    samples, saved = store(tmp_path), tmp_path / "plan.json"
    done = run("plan", path, "--dtype", "auto", "--calibration", samples, *COMMON, "--save", saved)
    assert expected.notes[-1] in done.out
    assert not expected.diff(sw.load_plan(saved, path, threads=1)).changes


def commands(tmp_path: Path) -> dict[str, tuple[object, ...]]:
    return {
        "run": ("--random", "--output", tmp_path / "y.npz"),
        "compile": ("--skip-pass", "remove_no_ops", "--print", "plan"),
        "bench": ("--vs", "", "--runs", 1, "--batch", 2),
        "report": ("--no-run", "-o", tmp_path / "report.html"),
        "verify": (),
    }


@pytest.mark.parametrize("command", commands(Path()))
def test_every_command_that_compiles_takes_samples(
    run: Run, path: Path, tmp_path: Path, command: str
) -> None:
    more = (*COMMON, *commands(tmp_path)[command], "--calibration")
    done = run(command, path, "--dtype", "auto", *more, as_npz(tmp_path))
    assert done.status == 0, done.err
    if command == "compile":
        assert ": 32 numbers from " in done.out or not MACHINE.has_int8
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"PK")
    fails(run(command, path, "--dtype", "auto", *more, broken), "expected a folder, or a .npz or")
    wrong = run(command, path, "--dtype", "bfloat16", *more, as_npz(tmp_path))
    fails(wrong, "calibration: expected dtype 'auto', found 'bfloat16'")
