"""Calibrated costs: kept by machine, predicted the same each time, measured only where in doubt."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import time
from contextlib import closing
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stridewise as sw
from stridewise.graph import Graph, Refusal
from stridewise.ops import GraphBuilder
from stridewise.passes import passes_for, simplify
from stridewise.planner import derive
from stridewise.planning import Plan, make_plans
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.simulation.reference import run_reference
from stridewise.runtime.tuning import calibrate, kernel_times
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.cost_file import cache_path
from stridewise.runtime.tuning.doubts import doubts
from stridewise.runtime.tuning.kernel_times import KernelTimes, roofline
from stridewise.runtime.tuning.layers import LAYERS, layers, sizes_of
from stridewise.runtime.tuning.oracle import CalibratedOracle, MeasuringOracle, in_place
from stridewise.runtime.tuning.trained_layers import TRAINED
from stridewise.targets.cost import KernelCost
from stridewise.targets.kernels import KernelSpec, MemorySpec
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.groups import together
from stridewise.targets.onednn.target import ABILITY, onednn_cpu
from stridewise.targets.onednn.traits import traits_of
from stridewise.targets.rates import Sample, Traits

from .graphs import Net

HERE = Machine("this CPU", "AVX2", 2, "oneDNN 3.2.0")
SAMPLES = {
    "kernel a": Sample(Traits("k", "f", "w", (1.0, 2.0)), 0.5, "jit"),
    "kernel b": Sample(Traits("k", "g", "w", (3.0, 4.0)), -0.5, "gemm"),
}


def network(channels: int = 24) -> Graph:
    b = Net(1, channels, 14, 14)
    y = b.op("relu", [b.conv(b.op("relu", [b.conv(b.x, channels)]), channels)])
    return b.build([b.op("max_pool", [y], {"kernel": (2, 2), "strides": (2, 2)})])


def compiled(folder: Path, **options: Any) -> sw.CompiledModel:
    return sw.compile(network(), threads=1, cache_dir=folder, **options)


def sources(plan: sw.Plan) -> set[str]:
    return {cost.source for d in plan.decisions for cost in d.chosen.costs}


def works(model: sw.CompiledModel) -> None:
    graph, x = network(), np.random.default_rng(0).standard_normal((1, 24, 14, 14), np.float32)
    expected = run_reference(graph, {graph.inputs[0]: x})[graph.outputs[0]]
    np.testing.assert_allclose(model(x), expected, rtol=1e-3, atol=1e-4)


def no_measuring(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kernel_times.KernelTimes, "entrant", lambda *_: pytest.fail("measured"))


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrated")
    sw.calibrate(threads=1, seconds=2.0, cache_dir=folder)
    return folder


def copied(folder: Path, to: Path) -> Path:
    to.mkdir(exist_ok=True)
    paths = (cache_path(folder), cache_path(to))
    with closing(sqlite3.connect(paths[0])) as one, closing(sqlite3.connect(paths[1])) as other:
        one.backup(other)
    return to


# --- samples in the cache -------------------------------------------------------------------------


def stored(cache: CostCache, kind: str) -> list[Sample]:
    return list(cache.samples(kind).rows(kind))


def test_samples_come_back_as_they_were_stored(tmp_path: Path):
    cache = CostCache(HERE, tmp_path)
    assert stored(cache, "k") == []
    cache.store_samples(SAMPLES)
    for found in (cache, CostCache(HERE, tmp_path)):
        assert stored(found, "k") == list(SAMPLES.values())
        assert stored(found, "other") == []
        assert found.sample_kinds() == ["k"]
    assert cache.load() == {}


@pytest.mark.parametrize(
    "other",
    [
        Machine("another CPU", "AVX2", 2, "oneDNN 3.2.0"),
        Machine("this CPU", "AVX512_CORE", 2, "oneDNN 3.2.0"),
        Machine("this CPU", "AVX2", 4, "oneDNN 3.2.0"),
        Machine("this CPU", "AVX2", 2, "oneDNN 3.3.0"),
    ],
)
def test_samples_of_other_machines_are_ignored(tmp_path: Path, other: Machine):
    CostCache(HERE, tmp_path).store_samples(SAMPLES)
    assert stored(CostCache(other, tmp_path), "k") == []
    assert CostCache(other, tmp_path).sample_kinds() == []


@pytest.mark.parametrize(
    "change",
    [
        "numbers = x'00'",
        "numbers = x'000000000000f07f000000000000f07f'",  # two infinities
        "ratio = 1e300",
        "ratio = 'much'",
        "numbers = 'text'",
        "family = CAST(x'ff' AS TEXT)",
        "version = 999",
    ],
)
def test_samples_that_make_no_sense_are_ignored(tmp_path: Path, change: str):
    CostCache(HERE, tmp_path).store_samples(SAMPLES)
    with closing(sqlite3.connect(cache_path(tmp_path))) as connection, connection:
        connection.execute(f"UPDATE measured SET {change} WHERE spec = 'kernel a'")
    assert stored(CostCache(HERE, tmp_path), "k") == [SAMPLES["kernel b"]]


# --- calibration ----------------------------------------------------------------------------------


def test_calibration_tells_what_it_found(tmp_path: Path):
    seen: list[tuple[int, int]] = []
    found = sw.calibrate(
        threads=1, seconds=1.0, cache_dir=tmp_path, progress=lambda d, t, _: seen.append((d, t))
    )
    assert found.machine == this_machine(1)
    assert found.measured == sum(rate.samples for rate in found.rates) > 0
    assert found.seconds < 30
    assert {rate.kind for rate in found.rates} >= {"convolution", "reorder"}
    assert all(rate.factor > 0 and rate.error >= 0 for rate in found.rates)
    assert str(found.machine) in str(found)
    assert seen == sorted(seen)
    assert seen[-1] == (1, 1)
    again = sw.calibrate(threads=1, seconds=0.3, cache_dir=tmp_path)
    assert sum(rate.samples for rate in again.rates) >= found.measured


def test_the_shortest_calibration_measures_a_kernel(tmp_path: Path):
    # Preparing the first layer takes longer than that, as it does for a second on a busy machine.
    found = sw.calibrate(threads=1, seconds=1e-9, cache_dir=tmp_path)
    assert found.measured == sum(rate.samples for rate in found.rates) == 1


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_calibration_takes_some_time(seconds: float):
    with pytest.raises(sw.InputError, match="seconds: expected a number of seconds above 0"):
        sw.calibrate(seconds=seconds)
    with pytest.raises(sw.InputError, match="tune_seconds: expected a number of seconds above 0"):
        sw.compile(network(), tune_seconds=seconds)


# --- tune="auto" ----------------------------------------------------------------------------------


def test_plans_are_predicted_and_stay_as_they_are(
    calibrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = copied(calibrated, tmp_path / "cache")
    monkeypatch.setattr("stridewise.options._AUTO_S", 0.0)
    model = compiled(folder)
    works(model)
    assert "calibrated" in sources(model.plan)
    monkeypatch.undo()
    no_measuring(monkeypatch)
    planned = sw.plan(network(), threads=1, cache_dir=folder)
    assert planned.cost_ns == model.plan.cost_ns
    # Samples of other models change predictions, but not the plans that were decided.
    machine = this_machine(1)
    cache = CostCache(machine, folder)
    cache.store_samples(
        {
            f"other {s.traits}": Sample(s.traits, s.ratio + 2.0, "")
            for s in stored(cache, "convolution")
        }
    )
    assert sw.plan(network(), threads=1, cache_dir=folder).cost_ns == model.plan.cost_ns


def test_of_processes_that_plan_at_once_the_first_decides(
    calibrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = copied(calibrated, tmp_path / "cache")
    monkeypatch.setattr("stridewise.options._AUTO_S", 0.0)
    keep, first = CalibratedOracle.keep, list[sw.Plan]()

    def keep_later(oracle: CalibratedOracle, *, replaces: bool) -> bool:
        monkeypatch.setattr(CalibratedOracle, "keep", keep)
        cache = CostCache(this_machine(1), folder)
        for kind in cache.sample_kinds():
            faster = (dataclasses.replace(s, ratio=s.ratio - 2.0) for s in stored(cache, kind))
            cache.store_samples({f"other {kind} {s.traits}": s for s in faster})
        first.append(compiled(folder).plan)
        return keep(oracle, replaces=replaces)

    monkeypatch.setattr(CalibratedOracle, "keep", keep_later)
    model = compiled(folder)
    works(model)
    assert model.plan.cost_ns == first[0].cost_ns
    assert compiled(folder).plan.cost_ns == first[0].cost_ns


@pytest.mark.parametrize("row", ["[]", "[['conv', 1.0]]", "half of it"])
def test_costs_that_do_not_suffice_for_a_plan_are_decided_again(
    calibrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str
):
    """As a file may have them that was damaged, or written by other hands."""
    folder = copied(calibrated, tmp_path / "cache")
    monkeypatch.setattr("stridewise.options._AUTO_S", 0.0)
    works(compiled(folder))
    with closing(sqlite3.connect(next(folder.glob("*.sqlite")))) as file, file:
        of_plans = "WHERE CAST(spec AS TEXT) LIKE 'auto %'"
        kept = file.execute(f"SELECT entries FROM costs {of_plans}").fetchall()
        ((whole,),) = kept
        half = json.dumps(json.loads(whole)[::2])
        text = half if row == "half of it" else row.replace("'", '"')
        file.execute(f"UPDATE costs SET entries = ? {of_plans}", (text,))
    first = compiled(folder, store_limit=0)
    works(first)
    assert sw.plan(network(), threads=1, cache_dir=folder).cost_ns == first.plan.cost_ns


def test_a_calibration_decides_again(
    calibrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = copied(calibrated, tmp_path / "cache")
    monkeypatch.setattr("stridewise.options._AUTO_S", 0.0)
    before = compiled(folder).plan
    cache = CostCache(this_machine(1), folder)
    faster = {
        f"other {kind} {s.traits}": Sample(s.traits, s.ratio - 2.0, "")
        for kind in cache.sample_kinds()
        for s in stored(cache, kind)
    }
    cache.store_samples(faster)
    assert compiled(folder).plan.cost_ns == before.cost_ns
    sw.calibrate(threads=1, seconds=0.2, cache_dir=folder)
    assert compiled(folder).plan.cost_ns < before.cost_ns


def test_nothing_is_measured_after_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("stridewise.options._AUTO_S", 0.0)
    no_measuring(monkeypatch)
    model = compiled(tmp_path)
    works(model)
    assert sources(model.plan) == {"model"}


def test_a_tuned_plan_is_used_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    quick = compiled(tmp_path).plan
    tuned = compiled(tmp_path, tune="measure").plan
    no_measuring(monkeypatch)
    for found in (compiled(tmp_path).plan, sw.plan(network(), threads=1, cache_dir=tmp_path)):
        assert found.cost_ns == tuned.cost_ns
        assert sources(found) <= {"cached", "in place", "scaled"}
    assert quick.name == "planned"


def test_an_implementation_that_the_library_lacks_is_replaced(
    calibrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = copied(calibrated, tmp_path / "cache")
    with closing(sqlite3.connect(cache_path(folder))) as connection, connection:
        connection.execute("UPDATE measured SET implementation = 'jit:another'")
    monkeypatch.setattr("stridewise.options._AUTO_S", 0.0)
    model = compiled(folder)
    works(model)
    assert "calibrated" in sources(model.plan)
    assert "jit:another" not in {d.chosen.implementation for d in model.plan.decisions}


def test_other_threads_know_nothing_of_a_calibration(
    calibrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("stridewise.options._AUTO_S", 0.0)
    folder = copied(calibrated, tmp_path / "cache")
    assert sources(sw.plan(network(), threads=2, cache_dir=folder)) == {"model"}


# --- time limits ----------------------------------------------------------------------------------


def test_measuring_stops_in_time_and_the_rest_is_predicted(tmp_path: Path):
    seen: list[tuple[int, int, str]] = []
    model = compiled(
        tmp_path, tune="measure", tune_seconds=1e-6, progress=lambda *call: seen.append(call)
    )
    works(model)
    assert any("the time for tuning was over" in note for note in model.plan.notes)
    assert sources(model.plan) == {"model"}
    assert {done for done, _, _ in seen} == {0}  # of all kernels, none
    whole = compiled(tmp_path, tune="measure")
    works(whole)
    assert sources(whole.plan) <= {"measured", "in place", "scaled"}


def test_predictions_beside_measured_costs_name_no_implementation(calibrated: Path, tmp_path: Path):
    folder = copied(calibrated, tmp_path / "cache")
    with closing(sqlite3.connect(cache_path(folder))) as connection, connection:
        connection.execute("UPDATE measured SET implementation = 'jit:another'")
    model = compiled(folder, tune="measure", tune_seconds=1e-6)
    works(model)
    assert "calibrated" in sources(model.plan)


def test_competitors_are_measured_before_kernels_that_cannot_win(tmp_path: Path):
    machine = this_machine(1)
    target = onednn_cpu(machine)
    times = KernelTimes(machine, target, CostCache(machine, tmp_path))
    plan = sw.plan(network(), tune="model", threads=1)
    specs = [
        call.spec
        for d in plan.decisions
        for c in (d.chosen, *d.rejected)
        for call in c.option.calls
    ]
    specs = list(dict.fromkeys(specs))
    order: list[str] = []
    oracle = MeasuringOracle(times, time.monotonic() + 3600)
    oracle.costs(specs, lambda _d, _t, kind: order.append(kind))
    assert len(order) == len(specs) + 1
    costs = {spec: times.known([spec])[spec] for spec in specs}
    assert all(isinstance(known, tuple) for known in costs.values())


def test_doubts_are_about_kernels_that_may_change_the_plan(tmp_path: Path):
    machine = this_machine(1)
    target = onednn_cpu(machine)
    oracle = CalibratedOracle(KernelTimes(machine, target, CostCache(machine, tmp_path)))
    plans = make_plans(derive(network()), target, machine, oracle)
    assert doubts(plans, {}) == []
    assert doubts(plans, dict.fromkeys(oracle.deviations, 1e-9)) == []
    uncertain = doubts(plans, oracle.deviations)
    assert uncertain
    assert set(uncertain) <= set(oracle.deviations)
    oracle.times.measure(uncertain)
    measured = make_plans(derive(network()), target, machine, oracle)
    assert not set(doubts(measured, oracle.deviations)) & set(uncertain)


@given(inputs=st.sampled_from([16, 64, 256]), side=st.sampled_from([7, 28, 56]))
@settings(max_examples=5, deadline=None)
def test_doubts_compare_a_kernel_of_two_nodes_with_two_kernels(inputs: int, side: int):
    b = GraphBuilder("expanded")
    x = b.relu(b.conv2d(b.input("x", (1, inputs, side, side)), 2 * inputs, 1))
    y = b.conv2d(x, 2 * inputs, 3, padding="same", groups=2 * inputs)
    graph = simplify(b.build([b.relu(y)]), passes_for(ABILITY)).graph
    machine = dataclasses.replace(this_machine(1), isa="AVX512_CORE")
    target = onednn_cpu(machine)
    with TemporaryDirectory() as folder:
        times = KernelTimes(machine, target, CostCache(machine, Path(folder)))
        oracle = CalibratedOracle(times)
        plan = make_plans(derive(graph), target, machine, oracle)[0]
    kernels = kernels_of_plan(plan)
    kinds = {spec.kind for spec in doubts([plan], dict.fromkeys(kernels, 1.0))}
    assert {"expand_depthwise", "convolution", "depthwise"} <= kinds
    # One node alone always takes less than both.
    assert doubts([plan], dict.fromkeys(kernels, 1e-9)) == []


@given(
    st.lists(st.sampled_from([1, 7, 16, 56, 300]), min_size=4, max_size=4),
    st.integers(2, 64),
    st.floats(1.0, 1e9),
)
def test_reorders_cost_more_where_several_threads_compute(
    dims: list[int], threads: int, cost_ns: float
):
    memories = [MemorySpec(tuple(dims), tag) for tag in ("abcd", "acdb")]
    sides = (("src", memories[0]), ("dst", memories[1]))
    moved, computed = KernelSpec("reorder", sides), KernelSpec("eltwise", sides)
    costs = {spec: (KernelCost(cost_ns, "", "measured"),) for spec in (moved, computed)}
    assert in_place(costs, 1) == costs
    found = in_place(costs, threads)
    assert found[computed] == costs[computed]
    one, larger = found[moved], KernelSpec("reorder", tuple((r, wider(m)) for r, m in sides))
    assert not isinstance(one, Refusal)
    assert one[0].cost_ns > cost_ns
    two = in_place({larger: costs[moved]}, threads)[larger]
    assert not isinstance(two, Refusal)
    assert two[0].cost_ns >= one[0].cost_ns


def wider(memory: MemorySpec) -> MemorySpec:
    return dataclasses.replace(memory, dims=(2 * memory.dims[0], *memory.dims[1:]))


def kernels_of_plan(plan: Plan) -> list[KernelSpec]:
    return [
        call.spec
        for decision in plan.decisions
        for candidate in (decision.chosen, *decision.rejected)
        for call in candidate.option.calls
    ]


def numbered(count: int) -> list[tuple[int, Graph]]:
    return list(islice(enumerate(layers()), count))


ALL = (*LAYERS, *TRAINED)


def test_bfloat16_layers_cover_joined_kernels_shuffles_and_inner_reorders(tmp_path: Path):
    """Every kind of bfloat16 layer comes up, and no kernel runs."""
    machine = dataclasses.replace(this_machine(1), isa="AVX512_CORE_BF16")
    target = onednn_cpu(machine, dtype="bfloat16")
    times = KernelTimes(machine, target, CostCache(machine, tmp_path))
    halves = {graph.name: graph for number, graph in numbered(65 * 7) if number % 7 >= 4}
    assert halves.keys() == set(ALL)
    kernels = {
        name: calibrate.kernels_of(halves[name], times, target)
        for name in ("expanded swish", "shuffled", "chain", "trained 3x3")
    }
    joined = [s for s in kernels["expanded swish"] if s.kind == "expand_depthwise"]
    assert any(s.function_values for s in joined)
    assert any(s.kind == "shuffle" for s in kernels["shuffled"])
    families = {traits_of(s).family for s in kernels["chain"] if s.kind == "reorder"}
    assert "bf16 blocked > bf16 channels-last" in families
    gradients = [s for s in kernels["trained 3x3"] if s.kind == "conv_weight_gradient"]
    assert any(src.dtype == "bf16" for s in gradients if (src := s.memory("src")) is not None)


def test_integer_layers_cover_products_of_library_and_core(tmp_path: Path):
    """Every kind of layer comes up, and those on integers have no other kernels."""
    machine = dataclasses.replace(this_machine(1), isa="AVX512_CORE_VNNI")
    target = onednn_cpu(machine)
    times = KernelTimes(machine, target, CostCache(machine, tmp_path))
    found = {graph.name: graph for number, graph in numbered(65 * 7) if number % 7 < 4}
    assert found.keys() == set(ALL)
    kinds = set[str]()
    for name in ("1x1", "depthwise 3x3", "sum", "tokens", "first", "max pool", "shuffled"):
        for grid in calibrate.GRIDS:
            specs = calibrate.kernels_of(found[name], times, target, grid)
            kinds |= {spec.kind for spec in specs}
            assert all({"s8", "u8"} & {m.dtype for _, m in spec.memories} for spec in specs)
    assert kinds >= {
        "conv_int8", "convolution", "depthwise_int8", "lookup", "matmul", "pointwise", "pooling",
        "reorder",
    }  # fmt: skip


def test_only_with_tiles_are_groups_with_channels_last_computed_together(tmp_path: Path):
    b = GraphBuilder("narrow")
    x = b.input("x", (1, 32, 14, 14))
    graph = b.build([b.conv2d(x, 32, 3, padding="same", groups=8)])
    found: dict[str, set[tuple[str, int]]] = {}
    for isa in ("AVX512_CORE_BF16", "AVX512_CORE_AMX"):
        machine = dataclasses.replace(this_machine(1), isa=isa)
        target = onednn_cpu(machine, dtype="bfloat16")
        times = KernelTimes(machine, target, CostCache(machine, tmp_path))
        specs = calibrate.kernels_of(graph, times, target)
        images = [(spec, src) for spec in specs if (src := spec.memory("src")) is not None]
        found[isa] = {
            (src.dtype, together(spec))
            for spec, src in images
            if spec.kind == "convolution" and src.tag == "acdb"
        }
    assert found["AVX512_CORE_BF16"] == {("f32", 1), ("bf16", 1)}
    assert found["AVX512_CORE_AMX"] == {("f32", 1), ("bf16", 1), ("bf16", 4)}


def test_layers_of_steps_offer_the_kernels_of_training(tmp_path: Path):
    """What a training step of a network with batch norms runs has samples of its kind."""
    target = onednn_cpu(this_machine(1))
    times = KernelTimes(this_machine(1), target, CostCache(this_machine(1), tmp_path))
    found = {
        spec.kind
        for _, graph in numbered(65)
        if graph.name in TRAINED
        for spec in calibrate.kernels_of(graph, times, target)
    }
    assert found >= {
        "batch_norm_gradient", "batch_norm_training", "conv_weight_gradient",
        "depthwise_weight_gradient", "fitted_convolution", "fitted_deconvolution",
        "fitted_winograd", "fused_batch_norm", "fused_batch_norm_gradient", "pooling_gradient",
        "transposed_depthwise", "winograd_weight_gradient",
    }  # fmt: skip


def test_every_family_comes_up_with_cold_and_warm_weights():
    ways = {(graph.name, number // 2 % 2) for number, graph in numbered(4 * 65)}
    assert ways >= {(name, way) for name in ALL for way in (0, 1)}


def test_every_family_of_layers_has_sizes_of_the_whole_range():
    for family in range(len(ALL)):
        found = list(islice(sizes_of(family), 10))
        for channels in ([s.inputs for s in found], [s.outputs for s in found]):
            assert min(channels) <= 64
            assert max(channels) >= 192
        assert min(s.side for s in found) <= 14
        assert max(s.side for s in found) >= 24


def test_tiles_multiply_where_channels_are_last():
    """With AMX, products of bfloat16 are fast in the formats for which the library has kernels."""

    def convolution(tag: str, channels: int = 64) -> KernelSpec:
        image = MemorySpec((1, 64, 56, 56), tag, dtype="bf16")
        groups = () if channels == 64 else (64 // channels,)
        weights = MemorySpec((*groups, channels, channels, 3, 3), "any", dtype="bf16")
        memories = (("src", image), ("weights", weights), ("dst", image))
        params = {"begins": (1, 1), "dilations": (1, 1), "ends": (1, 1), "strides": (1, 1)}
        return KernelSpec("convolution", memories, tuple(params.items()), flops=1e12)

    oracles = [
        roofline(dataclasses.replace(HERE, isa=isa), onednn_cpu(HERE))
        for isa in ("AVX512_CORE_BF16", "AVX512_CORE_AMX")
    ]
    matrix = MemorySpec((4096, 4096), "ab", dtype="bf16")
    operands = tuple((role, matrix) for role in ("src", "weights", "dst"))
    product = KernelSpec("matmul", operands, flops=1e12)
    tiled = (product, convolution("acdb"), convolution("acdb", 32))
    others = (convolution("aBcd16b"), convolution("acdb", 8))
    gains = [
        oracles[0].cost(spec).cost_ns / oracles[1].cost(spec).cost_ns for spec in (*tiled, *others)
    ]
    assert gains == pytest.approx([6.0, 6.0, 6.0, 0.5, 0.5], rel=0.01)
