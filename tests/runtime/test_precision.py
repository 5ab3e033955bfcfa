"""bfloat16: whatever a plan stores in it, results are those of float32 but for its rounding."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests.networks import networks
from tests.simplified import derived, simplify

import stridewise as sw
from stridewise import zoo
from stridewise.api import stored as stored_models
from stridewise.dtypes import dtype_of
from stridewise.errors import InputError, PlanError
from stridewise.graph import Graph
from stridewise.ops import GraphBuilder
from stridewise.planner import derive
from stridewise.planner.problem.candidates import Offers
from stridewise.planning import make_plan
from stridewise.program import Written
from stridewise.runtime.binding.primitives import implementations
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.cost import is_reference
from stridewise.targets.kernels import HOST, KernelSpec, MemorySpec
from stridewise.targets.onednn.precision import OWN, PRIMITIVES
from stridewise.targets.onednn.target import onednn_cpu
from stridewise.targets.target import Precision

from .bfloat16_plans import HalfOracle, check, half_plan
from .graphs import CASES, KINDS, inputs_of

BF16 = dtype_of("bfloat16")
F32 = np.float32
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
HAS_BF16 = this_machine(2).has_avx512
NETWORKS = (
    *("convnext_tiny", "densenet121", "efficientnet_b0", "mobilenet_v2"),
    *("resnet18", "shufflenet_v2", "squeezenet1_1", "unet"),
)
BOUNDS = dict.fromkeys(NETWORKS, 2e-2)
"""Largest norm of the difference to float32, over the norm of the float32 result, of networks."""


@pytest.mark.parametrize("kind", KINDS)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors])
@given(graph=networks())
def test_random_networks_are_right_in_bfloat16(graph: Graph, kind: str) -> None:
    check(graph, load(lower_plan(half_plan(graph, kind))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_every_operator_is_right_in_bfloat16(case: str, kind: str) -> None:
    graph = CASES[case]()
    check(graph, load(lower_plan(half_plan(graph, kind))))


@pytest.mark.parametrize("case", ["chain_17_3", "dense", "post_ops", "shuffle_32", "scalars"])
def test_every_candidate_is_right_in_bfloat16(case: str) -> None:
    plan = half_plan(CASES[case](), "blocked")
    offered = {
        node: [
            index
            for index, candidate in enumerate(candidates)
            if any(way is not None and way.dtype == BF16 for way in candidate.option.needs)
        ]
        for node, candidates in plan.candidates.nodes.items()
    }
    for at in range(max(map(len, offered.values()))):
        # One candidate of each node at a time, unless they exclude each other.
        wanted = {node: (found[at],) for node, found in offered.items() if at < len(found)}
        try:
            plans = [plan.restricted("together", wanted)]
        except PlanError:
            plans = [plan.restricted("one", {node: only}) for node, only in wanted.items()]
        for only in plans:
            check(plan.graph, load(lower_plan(only)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("select", ["max_pool", "reduce_max", "reshape", "negatives"])
def test_elements_equal_their_own_maximum(select: str, kind: str) -> None:
    b = GraphBuilder("peaks")
    x = b.input("x", (1, 16, 6, 6), "float32")
    limit = b.op("clip", [x], {"alpha": -0.5})
    if select == "max_pool":
        top = b.op("max_pool", [limit], {"kernel": (3, 3), "pads": (1,) * 4})
    elif select == "reduce_max":
        top = b.op("reduce_max", [limit], {"axes": (2, 3), "keepdims": 1})
    elif select == "negatives":
        low = b.op("clip", [b.op("neg", [limit])], {"beta": 2.0})
        low = b.op("pad", [low], {"pads": (0, 0, 1, 1, 0, 0, 1, 1), "value": 9.0})
        low = b.op("neg", [b.op("reduce_min", [low], {"axes": (2, 3), "keepdims": 1})])
        top = b.op("max_pool", [low], {"kernel": (1, 1)})
    else:
        rows = b.op("reshape", [limit], {"shape": (1, 16, 36)})
        top = b.op("reduce_max", [rows], {"axes": (2,), "keepdims": 0})
        top = b.op("reshape", [top], {"shape": (1, 16, 1, 1)})
    zero = b.constant(np.zeros((), F32), "zero")
    graph = b.build([b.op("where", [b.op("greater_equal", [x, top]), x, zero], output="y")])
    array = np.random.default_rng(0).standard_normal((1, 16, 6, 6)).astype(F32)
    (found,) = load(lower_plan(half_plan(graph, kind))).run_program([array])
    (right,) = run_reference(graph, {"x": array}).values()
    np.testing.assert_array_equal(found.reshape(-1) != 0, right.reshape(-1) != 0)


def joined() -> Graph:
    """Return convolutions of Winograd kernels, with pooling or strides, and an expansion."""
    b = GraphBuilder("joined")
    x, draw = b.input("x", (1, 16, 14, 12), "float32"), np.random.default_rng(0)

    def conv(x: str, shape: tuple[int, ...], **attrs: Any) -> str:
        w = draw.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
        return b.op("conv", [x, b.constant(w.astype(F32))], attrs)

    y = conv(x, (32, 16, 3, 3), pads=(1,) * 4)
    y = b.op("max_pool", [b.op("relu", [y])], {"kernel": (2, 2), "strides": (2, 2)})
    y = b.op("relu", [conv(y, (48, 32, 1, 1))])
    strided = conv(x, (32, 16, 5, 5), strides=(2, 2), pads=(2,) * 4)
    return b.build([conv(y, (48, 1, 3, 3), groups=48, pads=(1,) * 4), strided])


def test_every_joint_candidate_is_right_in_bfloat16() -> None:
    machine, graph = this_machine(2), simplify(joined()).graph
    target = onednn_cpu(machine, "fast", "bfloat16")
    plan = make_plan(derive(graph), target, machine, HalfOracle("blocked"))
    seen: set[str] = set()
    for node in plan.graph.nodes:
        for index, candidate in enumerate(plan.candidates.nodes[node.name]):
            specs = [call.spec for call in candidate.option.calls]
            if not any(spec.kind in OWN and "bf16" in str(spec) for spec in specs):
                continue
            only = plan.restricted("one", {node.name: (index,)})
            check(graph, load(lower_plan(only)))
            seen |= {spec.kind for spec in specs}
    pairs = {"conv1x1"} if target.has_products else set()
    others = {"conv_windows", "depthwise", "expand_depthwise", "strided_winograd", "winograd"}
    assert seen == others | pairs


def in_float32(spec: KernelSpec) -> KernelSpec:
    def wide(memory: MemorySpec) -> MemorySpec:
        return replace(memory, dtype="f32") if memory.dtype == "bf16" else memory

    posts = (replace(p, operand=p.operand and wide(p.operand)) for p in spec.post_ops)
    memories = tuple((role, wide(memory)) for role, memory in spec.memories)
    return replace(spec, memories=memories, post_ops=tuple(posts))


def tags(spec: KernelSpec) -> set[str | None]:
    found = (spec.memory(role) for role in ("src", "diff_dst"))
    return {memory.tag for memory in found if memory is not None}


@pytest.mark.skipif(not HAS_BF16, reason="the CPU has no AVX-512, so there are no such kernels")
def test_all_that_is_offered_in_bfloat16_exists_and_is_naive_only_where_float32_is() -> None:
    offered: dict[KernelSpec, None] = {}
    target = onednn_cpu(this_machine(2), "exact", "bfloat16")
    for make in CASES.values():
        for group in Offers.of(derived(make()).graph, target).options.values():
            calls = [call for option in group for call in option.calls]
            offered |= {call.spec: None for call in calls if "bf16" in str(call.spec)}
    # Those of Winograd round otherwise, and no case has an expansion.
    winograd = {"winograd", "fitted_winograd", "strided_winograd", "volume_winograd"}
    others = {*winograd, "expand_depthwise"}
    if not onednn_cpu(this_machine(2), "fast", "bfloat16").has_products:
        others.add("conv1x1")
    assert {spec.kind for spec in offered} == PRIMITIVES | OWN - others
    for spec in offered:
        first = implementations(spec, 2, limit=1)[0]
        # Of plain images with channels in blocks, weights have a gradient in float32 alone.
        is_mixed = spec.kind == "conv_weight_gradient" and len(tags(spec)) == 2
        if is_reference(first) and not is_mixed:
            assert is_reference(implementations(in_float32(spec), 2, limit=1)[0]), str(spec)


@pytest.mark.parametrize("name", BOUNDS)
def test_networks_stay_near_float32(name: str) -> None:
    graph = zoo.build(name, size=64)
    feeds = inputs_of(graph)
    expected = sw.compile(graph, tune="model", threads=2).run(feeds)
    cheapest = sw.plan(graph, tune="model", threads=2, dtype="bfloat16")
    for plan in (cheapest, half_plan(graph, "channels-last")):
        made = [name for node in plan.graph.nodes for name in node.outputs]
        halves = sum(plan.storage(name).dtype == BF16 for name in made)
        # Without products of bfloat16, the cheapest plan may stay float32.
        is_free = plan is cheapest and not this_machine(2).has_bfloat16
        assert halves > len(made) // 10 or is_free or not HAS_BF16
        for output, found in load(lower_plan(plan)).run(feeds).items():
            wanted = expected[output].astype(np.float64)
            assert found.dtype == F32
            assert np.linalg.norm(found - wanted) <= BOUNDS[name] * np.linalg.norm(wanted)


@pytest.mark.skipif(not HAS_BF16, reason="without AVX-512 such plans stay float32")
def test_weights_take_half_the_memory() -> None:
    graph = zoo.build("resnet18", size=64)
    whole, half = (
        load(lower_plan(half_plan(graph, "channels-last", dtype))).weights.own_nbytes
        for dtype in ("float32", "bfloat16")
    )
    assert half < 0.51 * whole


@pytest.mark.skipif(not HAS_BF16, reason="without AVX-512 such plans stay float32")
@pytest.mark.parametrize("name", ["resnet18", "unet", "mobilenet_v2"])
def test_edges_take_no_conversion_of_their_own(name: str) -> None:
    plan = half_plan(zoo.build(name, size=64), "channels-last")
    inputs, outputs = plan.graph.inputs, plan.graph.outputs
    (first,) = [reorder for reorder in plan.reorders if reorder.tensor in inputs]
    assert (first.source.dtype, first.target.dtype) == (None, BF16)
    assert first.source.format != first.target.format
    last = [reorder for reorder in plan.reorders if reorder.tensor in outputs]
    # Images leave in the user's order of axes, which takes a reorder of float32 as well.
    whole = half_plan(zoo.build(name, size=64), "channels-last", "float32")
    assert len(last) == sum(reorder.tensor in outputs for reorder in whole.reorders)


@pytest.mark.skipif(not HAS_BF16, reason="without AVX-512 such plans stay float32")
def test_a_wrong_bfloat16_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(lower_plan(half_plan(CASES["chain_17_3"](), "channels-last")))
    node = model.plan.graph.nodes[1]
    original = CompiledModel.trace

    def trace(self: CompiledModel, inputs: Any, callback: Any) -> Any:
        def changed(written: Written, stored: np.ndarray[Any, Any]) -> None:
            is_it = written.value in node.outputs and stored.dtype == BF16.numpy
            callback(written, stored * stored.dtype.type(1.0625) if is_it else stored)

        return original(self, inputs, changed)

    monkeypatch.setattr(CompiledModel, "trace", trace)
    first = sw.verify(model).first
    assert first is not None
    assert (first.node, first.verdict) == (node.name, "differs")


# --- models of bfloat16 -----------------------------------------------------------------------


def own_halves(dtype: str) -> Graph:
    b, numpy = GraphBuilder("half"), dtype_of(dtype).numpy
    x = b.input("x", (2, 16, 6, 5), dtype)
    draw = np.random.default_rng(0)
    w, bias = (
        b.constant((draw.normal(size=shape) / 12).astype(numpy))
        for shape in ((32, 16, 3, 3), (32,))
    )
    y = b.op("relu", [b.op("conv", [x, w, bias], {"pads": (1,) * 4})])
    y = b.op("max_pool", [y], {"kernel": (2, 2), "strides": (2, 2)})
    y = b.op("mul", [y, b.op("softmax", [y], {"axis": 1})])
    y = b.op("reduce_mean", [y], {"axes": (2, 3), "keepdims": 0})
    return b.build([b.op("matmul", [y, b.constant(draw.normal(size=(32, 7)).astype(numpy))])])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_models_of_sixteen_bits_run_on_kernels(dtype: str) -> None:
    graph = own_halves(dtype)
    model = sw.compile(graph, tune="model", threads=2, keep_originals=True)
    kinds = {call.spec.kind for d in model.plan.decisions for call in d.chosen.option.calls}
    assert HOST not in kinds
    made = [way for d in model.plan.decisions for way in d.chosen.option.makes]
    if dtype == "bfloat16" and HAS_BF16:
        assert all(way.dtype is None for way in made)
    else:
        # Float32 between the edges; only there are reorders.
        assert len(model.plan.reorders) == 2
    check(graph, model)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_models_of_sixteen_bits_return_from_files(dtype: str, tmp_path: Path) -> None:
    graph = own_halves(dtype)
    sw.save(graph, tmp_path / "half.onnx")
    feeds = inputs_of(graph)
    direct, again = (
        sw.compile(source, tune="model", threads=2).run(feeds)
        for source in (graph, tmp_path / "half.onnx")
    )
    for name, wanted in direct.items():
        assert wanted.dtype == dtype_of(dtype).numpy
        np.testing.assert_array_equal(again[name], wanted)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_casts_between_floating_point_types_run_on_kernels(dtype: str) -> None:
    b = GraphBuilder("casts")
    x = b.input("x", (1, 16, 6, 5), "float32")
    y = b.op("relu", [b.op("cast", [x], {"to": dtype})])
    graph = b.build([b.op("cast", [y], {"to": "float32"})])
    model = sw.compile(graph, tune="model", threads=2, keep_originals=True)
    kinds = {call.spec.kind for d in model.plan.decisions for call in d.chosen.option.calls}
    assert HOST not in kinds
    check(graph, model)


# --- plans, files, targets ----------------------------------------------------------------------


@pytest.mark.skipif(not HAS_BF16, reason="without AVX-512 such plans stay float32")
def test_a_plan_file_brings_its_storages_back(tmp_path: Path) -> None:
    graph = zoo.build("resnet18", size=32)
    plan = sw.plan(graph, tune="model", threads=2, dtype="bfloat16")
    plan.save(tmp_path / "plan.json")
    again = sw.load_plan(tmp_path / "plan.json", graph, threads=2)
    assert again.to_json() == plan.to_json()
    assert any(str(r.target).endswith(" bf16") for r in again.reorders)
    feeds = inputs_of(graph)
    direct, restored = (
        sw.compile(graph, threads=2, plan=given).run(feeds)
        for given in (plan, tmp_path / "plan.json")
    )
    for name, wanted in direct.items():
        np.testing.assert_array_equal(restored[name], wanted)


def test_stored_models_are_told_apart_by_precision_and_give_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Models are stored although their files are new.
    monkeypatch.setattr(stored_models, "_SETTLED_S", -1e9)
    graph = CASES["chain_17_3"]()
    sw.save(graph, tmp_path / "chain.onnx")
    feeds = inputs_of(graph)

    def compiled(dtype: Precision) -> CompiledModel:
        path = tmp_path / "chain.onnx"
        found = sw.compile(path, threads=2, cache_dir=tmp_path / "cache", dtype=dtype)
        assert isinstance(found, CompiledModel)
        return found

    first = {dtype: compiled(dtype) for dtype in PRECISIONS}
    assert not any(model.source.from_disk for model in first.values())
    for dtype, model in first.items():
        again = compiled(dtype)
        assert again.source.from_disk
        assert again.plan.target.precision == dtype
        sw.verify(again, inputs=feeds).check()
        for name, wanted in model.run(feeds).items():
            np.testing.assert_array_equal(again.run(feeds)[name], wanted)


@pytest.mark.skipif(not HAS_BF16, reason="without AVX-512 such plans stay float32")
def test_text_and_questions_say_the_element_type() -> None:
    plan = sw.plan(zoo.build("resnet18", size=32), tune="model", threads=2, dtype="bfloat16")
    node = next(n for n in plan.graph.nodes if plan.storage(n.outputs[0]).dtype == BF16)
    assert " bf16" in plan.explain()
    assert " bf16" in str(plan.why(node.name))
    assert " bf16" in plan.to_html()
    whole = plan.what_if({node.outputs[0]: "channels-last"})
    assert whole.storage(node.outputs[0]).dtype.name == "float32"
    half = whole.what_if({node.outputs[0]: "nhwc bf16"})
    assert half.storage(node.outputs[0]).dtype == BF16
    assert half.cost_ns <= whole.cost_ns
    assert "all channels-last bf16" in {item.name for item in plan.compare()}


def test_the_joint_plan_is_no_dearer_than_one_precision_alone() -> None:
    graph = zoo.build("resnet18", size=64)
    costs = [
        sw.plan(graph, tune="model", threads=2, dtype=dtype).cost_ns
        for dtype in ("float32", "bfloat16")
    ]
    joint = sw.plan(graph, tune="model", threads=2, dtype="bfloat16")
    assert costs[1] <= costs[0]
    assert all(joint.cost_ns <= other.cost_ns for other in joint.compare())


def test_unknown_types_and_targets_of_their_own_types_are_refused() -> None:
    graph = CASES["dense"]()
    with pytest.raises(InputError, match="dtype: expected 'model' or 'float32' or 'bf"):
        sw.plan(graph, dtype="half")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="dtype: expected 'model' or 'float32', found 'bfloat16'"):
        sw.plan(graph, target="ascend", dtype="bfloat16")


# --- instruction sets -----------------------------------------------------------------------------


@pytest.mark.parametrize("isa", ["AVX2", "AVX512_CORE"])
def test_results_are_right_where_the_cpu_has_no_bfloat16(isa: str) -> None:
    chosen = "every_operator and (chain_17 or dense or post_ops or pools_2d or softmaxes_2d)"
    chosen += " or sixteen or casts or joint_candidate"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x", "--tb=short"]
    done = subprocess.run(
        [*command, __file__, "-k", f"{chosen} or stay_near_float32 and resnet18"],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": isa},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
