"""Planning with made-up costs: what is chosen, what is refused, what is reported."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simplified import simplify

from stridewise.errors import GraphError, ModelError, PlanError
from stridewise.graph import PostOp, Refusal
from stridewise.ops import GraphBuilder
from stridewise.planner import derive
from stridewise.planning import make_plan
from stridewise.targets.cost import Corrected, KernelCost, Roofline
from stridewise.targets.kernels import KernelSpec, MemorySpec, PostOpSpec
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.table import post_ops_ns
from stridewise.targets.onednn.target import onednn_cpu

from .plans import (
    KINDS,
    MACHINE,
    TARGET,
    Oracle,
    cheap,
    conv,
    kind_of,
    net,
    planned,
    random_costs,
    residual,
)


@pytest.mark.parametrize("kind", KINDS)
def test_the_plan_follows_the_cheap_kind_and_reorders_only_at_the_ends(kind):
    b, x = net()
    graph = b.build([conv(b, conv(b, x))])
    plan = planned(graph, cheap(kind))
    assert [kind_of(d.chosen.option.calls[0].spec) for d in plan.decisions] == [kind] * 2
    assert len(plan.reorders) == (0 if kind == "plain" else 2)
    assert plan.cost_ns == 2 + len(plan.reorders)
    assert {str(d.chosen.option.outputs[0]) for d in plan.decisions} == {
        {"plain": "NCHW", "channels-last": "NHWC", "blocked": "nChw16c"}[kind]
    }
    assert plan.storage("conv").storage.format == plan.decisions[0].chosen.option.outputs[0]


def test_reorders_that_cost_more_than_they_save_are_not_made():
    b, x = net()
    plan = planned(b.build([conv(b, x)]), cheap("blocked", reorder=60.0))
    assert plan.reorders == ()
    assert plan.cost_ns == 100


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_a_plan_is_never_costlier_than_a_uniform_one_and_is_proved(seed):
    plan = planned(residual(), random_costs(seed))
    assert [c.name for c in plan.compare()] == [
        "planned",
        "all plain",
        "all channels-last",
        "all blocked",
        "each operator for itself",
    ]
    # The last may chain reorders through the user's format, which plans do not.
    assert all(plan.cost_ns <= other.cost_ns + 1e-6 for other in plan.compare()[:-1])
    assert plan.lower_bound_ns == pytest.approx(plan.cost_ns)
    assert plan.gap <= 1e-9
    assert plan.cost_ns == pytest.approx(
        sum(d.chosen.cost_ns for d in plan.decisions) + sum(r.cost_ns for r in plan.reorders)
    )
    for decision, node in zip(plan.decisions, plan.graph.nodes, strict=True):
        assert decision.node == node.name
        assert decision.chosen not in decision.rejected
        assert plan.decision(node.name) is decision


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_every_tensor_is_there_in_the_format_that_its_reader_takes(seed):
    plan = planned(residual(), random_costs(seed))
    key = plan.storages.key
    there = {(name, key(name, plan.storage(name).storage.format)) for name in plan.graph.values}
    for reorder in plan.reorders:
        assert (reorder.tensor, key(reorder.tensor, reorder.source)) in there
    there |= {(r.tensor, key(r.tensor, r.target)) for r in plan.reorders}
    for node, decision in zip(plan.graph.nodes, plan.decisions, strict=True):
        for name, fmt in zip(node.inputs, decision.chosen.option.inputs, strict=True):
            assert fmt is None or (name, key(name, fmt)) in there
    for name in plan.graph.outputs:
        origin = plan.graph.values[name].origin
        assert origin is None or (name, key(name, origin)) in there


def test_a_reorder_that_two_nodes_need_is_made_and_counted_once():
    b, x = net()
    graph = b.build([conv(b, x), conv(b, x, 16)])
    plan = planned(graph, cheap("blocked", reorder=30.0))
    assert sorted(r.tensor for r in plan.reorders) == ["conv", "conv.1", "x"]
    assert plan.cost_ns == 2 * 1 + 3 * 30
    (shared,) = (r for r in plan.reorders if r.tensor == "x")
    assert (str(shared.source), str(shared.target), shared.nbytes) == (
        "NCHW",
        "nChw16c",
        4 * 32 * 36,
    )


def test_each_kernel_is_asked_for_once():
    oracle = cheap("plain")
    b, x = net()
    y = x
    for _ in range(4):
        y = conv(b, y)
    planned(b.build([y]), oracle)
    assert len(oracle.asked) == len(set(oracle.asked))


def test_transposes_between_named_axes_cost_nothing():
    b, x = net(1, 6, 6, 32)
    y = conv(b, b.op("transpose", [x], {"perm": (0, 3, 1, 2)}))
    graph = b.build([b.op("transpose", [y], {"perm": (0, 2, 3, 1)})])
    assert planned(graph, cheap("channels-last")).cost_ns == 1
    # And so without the pass that takes transposes away.
    plan = make_plan(derive(graph), TARGET, MACHINE, cheap("channels-last"))
    assert plan.reorders == ()
    assert plan.cost_ns == 1
    assert [d.chosen.algorithm for d in plan.decisions] == ["view", "direct, channels-last", "view"]
    assert plan.decisions[0].chosen.implementation == "no work"


def test_naive_kernels_are_chosen_only_where_nothing_else_exists():
    def price(spec: KernelSpec) -> Any:
        if kind_of(spec) == "plain":
            return (KernelCost(1.0, "ref:any", "model"),)
        return (KernelCost(500.0, "jit:some", "model"),)

    b, x = net()
    plan = planned(b.build([conv(b, x)]), Oracle(price))
    assert plan.decisions[0].chosen.implementation == "jit:some"
    assert (
        Refusal("onednn", "conv", "direct, plain: the library has only its naive reference loops")
        in plan.refusals
    )
    everything = Oracle(lambda _: (KernelCost(1.0, "ref:any", "model"),))
    plan = planned(b.build([conv(b, x)]), everything)
    assert plan.decisions[0].chosen.implementation == "ref:any"
    assert plan.refusals == ()


def test_the_cheapest_implementation_is_the_one_that_counts():
    pair = (KernelCost(3.0, "first", "measured"), KernelCost(7.0, "second", "measured"))
    b, x = net()
    plan = planned(b.build([conv(b, x)]), Oracle(lambda _: pair))
    assert plan.decisions[0].chosen.costs == (pair[0],)


def test_kernels_that_the_library_lacks_are_refused_with_their_reason():
    def price(spec: KernelSpec) -> Any:
        if spec.kind in ("convolution", "winograd") and kind_of(spec) == "blocked":
            return Refusal("onednn", str(spec), "the library has no kernel for it")
        return 1.0

    b, x = net()
    plan = planned(b.build([conv(b, x)]), Oracle(price))
    assert Refusal("onednn", "conv", "direct, blocked: the library has no such kernel") in (
        plan.refusals
    )
    assert all(kind_of(c.option.calls[0].spec) != "blocked" for c in plan.decisions[0].rejected)


def test_a_node_without_any_kernel_is_a_model_error():
    b, x = net()
    nothing = Oracle(lambda spec: Refusal("onednn", str(spec), "none"))
    with pytest.raises(ModelError) as caught:
        planned(b.build([conv(b, x)]), nothing)
    assert str(caught.value).startswith(
        "node 'conv' (conv): expected a kernel of the library for these shapes, "
        "found none in any format; "
    )


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (
            lambda b, x: b.op("lrn", [x], {"size": 4}, name="n"),
            "the window is not centered for an even size",
        ),
        (
            lambda b, x: b.op("hardmax", [x], {"axis": 1}, name="n"),
            "the target has no kernel for hardmax",
        ),
    ],
)
def test_operators_without_kernels_run_on_the_host_for_a_reason(build, reason):
    b, x = net()
    plan = planned(b.build([build(b, x)]), cheap("plain"))
    assert plan.decision("n").chosen.algorithm == "host"
    assert Refusal("host", "n", reason) in plan.refusals_of("n")


def test_post_ops_that_the_library_lacks_are_no_post_ops():
    b, x = net()
    graph = b.build([b.op("shrink", [conv(b, x)], name="n")])
    assert [node.op for node in simplify(graph).graph.nodes] == ["conv", "shrink"]
    (host, _) = graph.nodes
    fused = dataclasses.replace(host, outputs=graph.outputs, post_ops=(PostOp("shrink", 0.5),))
    with pytest.raises(GraphError) as caught:
        planned(dataclasses.replace(graph, nodes=(fused,)), cheap("plain"))
    assert str(caught.value) == (
        "node 'conv' (conv): expected post-ops of the library, found shrink"
    )


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_dtypes_without_kernels_run_on_the_host(dtype):
    b = GraphBuilder("g")
    x = b.input("x", (1, 3), dtype)
    plan = planned(b.build([b.op("pow", [x, x], name="n")]), cheap("plain"))
    assert plan.decision("n").chosen.algorithm == "host"
    reason = f"input 0 is {dtype}, kernels take bfloat16, float16, float32"
    assert Refusal("host", "n", reason) in plan.refusals
    assert f"on the host: pow n: {reason}\n" in plan.explain()


@pytest.mark.parametrize("kind", ["plain", "blocked"])
def test_pads_with_a_value_keep_the_spare_lanes_zero(kind):
    b, x = net(1, 17, 6, 6)
    y = b.op("pad", [conv(b, x, 17)], {"pads": (0, 0, 1, 1, 0, 0, 1, 1), "value": 0.5}, name="p")
    plan = planned(b.build([conv(b, y, 17)]), cheap(kind))
    refusal = Refusal("onednn-cpu", "p", "the spare lanes of nChw16c must stay zero")
    assert refusal in plan.refusals
    assert not plan.decision("p").chosen.option.outputs[0].is_blocked


def test_slices_that_cut_a_block_are_refused():
    b, x = net()
    cut = {"starts": (0, 3, 0, 0), "stops": (1, 19, 6, 6), "steps": (1, 1, 1, 1)}
    y = b.op("slice", [conv(b, x)], cut, name="s")
    plan = planned(b.build([conv(b, y)]), cheap("blocked"))
    assert Refusal("onednn-cpu", "s", "the slice cuts a block of nChw16c") in plan.refusals


def test_pieces_are_produced_inside_of_a_concat_where_they_lie_in_one_run():
    b, x = net()
    y = b.op("concat", [conv(b, x), conv(b, x, 16)], {"axis": 1}, name="cat")
    plan = planned(b.build([conv(b, y)]), cheap("blocked"))
    assert plan.decision("cat").chosen.algorithm == "in place, blocked"
    assert plan.decision("cat").chosen.cost_ns == 0
    # With a batch of two the pieces lie apart.
    b, x = net(2, 32, 6, 6)
    y = b.op("concat", [conv(b, x), conv(b, x, 16)], {"axis": 1}, name="cat")
    plan = planned(b.build([conv(b, y)]), cheap("blocked"))
    assert plan.decision("cat").chosen.algorithm == "copy, blocked"


def test_refusals_of_earlier_stages_are_kept():
    early = (Refusal("fold_pad", "p", "because"),)
    b, x = net()
    graph = derive(b.build([conv(b, x)]))
    plan = make_plan(graph, TARGET, MACHINE, cheap("plain"), None, early)
    assert plan.refusals[0] == early[0]


def test_the_plan_as_json_says_what_was_decided():
    plan = planned(residual(), cheap("blocked"))
    document = json.loads(plan.to_json())
    assert document["version"] == 2
    assert document["cost_ns"] == plan.cost_ns
    assert document["lower_bound_ns"] == plan.lower_bound_ns
    assert document["machine"] == {
        "cpu": "some CPU",
        "isa": "AVX512_CORE",
        "threads": 2,
        "library": "oneDNN 0",
    }
    assert [node["name"] for node in document["nodes"]] == [n.name for n in plan.graph.nodes]
    assert [node["cost_ns"] for node in document["nodes"]] == [
        d.chosen.cost_ns for d in plan.decisions
    ]
    assert len(document["reorders"]) == len(plan.reorders)
    assert document["plan"] == "planned"
    names = [item["name"] for item in document["comparisons"]]
    assert names == ["planned", *(f"all {kind}" for kind in KINDS), "each operator for itself"]
    assert len(document["refusals"]) == len(plan.refusals)


def test_the_explanation_names_every_node_reorder_total_and_proof():
    plan = planned(residual(), cheap("blocked"))
    text = plan.explain()
    assert text.startswith("plan of 'g' for onednn-cpu (some CPU, AVX512_CORE, 2 threads")
    for node in plan.graph.nodes:
        assert f"  {node.name}\n" in text
    for reorder in plan.reorders:
        assert f"reorder {reorder.tensor}: {reorder.source} -> {reorder.target}" in text
    assert f"{len(plan.reorders)} reorders left" in text
    assert f"total {plan.cost_ns / 1e6:.3f} ms" in text
    assert "proved optimal" in text
    for kind in KINDS:
        assert f"all {kind}" in text


def test_conflicts_are_part_of_the_explanation():
    b, x = net(1, 32, 32, 32)
    y = b.op("transpose", [conv(b, x)], {"perm": (0, 2, 3, 1)})
    plan = planned(b.build([conv(b, b.op("relu", [y]))]), cheap("blocked"))
    assert "conflict: derive: " in plan.explain()
    assert json.loads(plan.to_json())["conflicts"]


# --- the analytic model ---------------------------------------------------------------------------


def test_the_roofline_is_arithmetic_or_bytes_whichever_takes_longer():
    b, x = net()
    plan = planned(b.build([conv(b, x)]), Oracle(lambda _: 1.0))
    spec = plan.decisions[0].chosen.option.calls[0].spec
    assert spec.flops == 2 * 32 * 36 * 32 * 9
    assert spec.nbytes == 4 * (2 * 32 * 36 + 32 * 32 * 9)
    by_flops = Roofline(1e9, 1e15, lambda _: 0.5, overhead_ns=100.0).costs([spec])[spec]
    assert by_flops == (KernelCost(100 + 2 * spec.flops, "", "model"),)
    by_bytes = Roofline(1e15, 1e9, lambda _: 1.0, overhead_ns=0.0).costs([spec])[spec]
    assert by_bytes[0].cost_ns == pytest.approx(spec.nbytes)


@pytest.mark.parametrize(("posts", "ns"), [(1, 4.0), (2, 11.0)])
def test_activations_of_plain_convolutions_cost_loops(posts: int, ns: float):
    relu = PostOpSpec("eltwise", "relu")
    weights = ("weights", MemorySpec((32, 32, 1, 1), "any"))

    def cost(tag: str, dtype: str, count: int) -> float:
        image = MemorySpec((1, 32, 6, 6), tag, dtype=dtype)
        memories = (("src", image), weights, ("dst", image))
        spec = KernelSpec("convolution", memories, (), (relu,) * count, flops=1e6)
        return Roofline(1e9, 1e9, lambda _: 1.0, post_ops_ns=post_ops_ns).cost(spec).cost_ns

    assert cost("abcd", "f32", posts) - cost("abcd", "f32", 0) == pytest.approx(ns * 32 * 36)
    for tag, dtype in (("acdb", "f32"), ("aBcd16b", "f32"), ("abcd", "bf16")):
        assert cost(tag, dtype, posts) == cost(tag, dtype, 0)


@pytest.mark.parametrize(("length", "is_in_place"), [(24, False), (32, True)])
def test_the_library_normalizes_in_place_only_rows_of_whole_vectors(length: int, is_in_place: bool):
    b = GraphBuilder("rows")
    y = b.layer_norm(b.op("relu", [b.input("x", (1, 49, length))]))
    plan = planned(b.build([y]), Oracle(lambda _: 1.0))
    decision = next(d for d in plan.decisions if "layer norm" in d.chosen.algorithm)
    options = [c.option for c in (decision.chosen, *decision.rejected)]
    aliases = {option.algorithm: bool(option.aliases) for option in options}
    assert aliases["layer norm"] == is_in_place
    assert aliases["own layer norm"]


def test_each_of_several_products_takes_time_to_start():
    def cost(count: int) -> float:
        memories = tuple((name, MemorySpec((count, 2, 2), "abc")) for name in ("src", "weights"))
        spec = KernelSpec("matmul", (*memories, ("dst", MemorySpec((count, 2, 2), "abc"))))
        return Roofline(1e9, 1e15, lambda _: 1.0, threads=2, matrix_ns=50.0).cost(spec).cost_ns

    assert cost(8) - cost(1) == pytest.approx(8 * 25.0, abs=0.1)


@pytest.mark.parametrize("isa", ["AVX512_CORE", "AVX2", "SSE41"])
def test_the_model_prefers_blocks_or_channels_last_to_plain_and_avoids_naive_loops(isa):
    machine = Machine("some CPU", isa, 1, "oneDNN 0")
    target = onednn_cpu(machine)
    b, x = net(1, 32, 28, 28)
    for _ in range(3):
        x = conv(b, x)
    oracle = Roofline(1e11, 4e10, target.efficiency)
    plan = make_plan(derive(b.build([x])), target, machine, oracle)
    assert {kind_of(d.chosen.option.calls[0].spec) for d in plan.decisions} <= {
        "blocked",
        "channels-last",
    }
    assert all(cost.source == "model" for d in plan.decisions for cost in d.chosen.costs)
    assert [kind.block for kind in target.kinds] == [0, 0, 16 if isa == "AVX512_CORE" else 8]


def test_costs_are_corrected_by_what_ran_and_by_its_kind() -> None:
    """What ran costs what it took; the rest of its kind is scaled alike; other kinds stay."""

    def spec(kind: str, extent: int) -> KernelSpec:
        return KernelSpec(kind, (("dst", MemorySpec((extent,), "a")),))

    ran, unseen, other = spec("convolution", 1), spec("convolution", 2), spec("pooling", 3)
    known = (KernelCost(10.0, "jit", "cached"), KernelCost(12.0, "gemm", "cached"))
    alone = Oracle(lambda asked: 5.0 if asked.kind == "pooling" else known)
    corrected = Corrected(
        alone, lambda asked, name: 30.0 if (asked, name) == (ran, "jit") else None
    )
    found = corrected.costs((ran, unseen, other))
    assert found[ran] == (KernelCost(30.0, "jit", "in place"), KernelCost(36.0, "gemm", "scaled"))
    assert found[unseen] == (
        KernelCost(30.0, "jit", "scaled"), KernelCost(36.0, "gemm", "scaled"),
    )  # fmt: skip
    assert found[other] == (KernelCost(5.0, "jit", "model"),)


def test_the_order_of_implementations_follows_their_corrected_costs() -> None:
    spec = KernelSpec("pooling", (("dst", MemorySpec((1,), "a")),))
    known = (KernelCost(10.0, "jit", "cached"), KernelCost(12.0, "simple", "cached"))
    seen = {"jit": 40.0, "simple": 20.0}
    found = Corrected(Oracle(lambda _: known), lambda _, name: seen[name]).costs((spec,))[spec]
    assert isinstance(found, tuple)
    assert [cost.implementation for cost in found] == ["simple", "jit"]


def test_what_the_library_refuses_stays_refused() -> None:
    spec = KernelSpec("pooling", (("dst", MemorySpec((1,), "a")),))
    refusal = Refusal("onednn", "pooling", "none")
    found = Corrected(Oracle(lambda _: refusal), lambda *_: 1.0).costs((spec,))
    assert found == {spec: refusal}


@pytest.mark.parametrize("kind", KINDS)
def test_a_uniform_plan_is_the_one_that_plans_are_compared_with(kind: str) -> None:
    plan = planned(residual(), random_costs(3))
    uniform = plan.uniform(kind)
    known = {item.name: item for item in plan.compare()}[f"all {kind}"]
    assert uniform.name == known.name
    assert uniform.cost_ns == known.cost_ns
    assert len(uniform.reorders) == known.reorders
    assert uniform.uniform(kind) == uniform


def test_a_target_has_no_other_kinds() -> None:
    with pytest.raises(PlanError) as caught:
        planned(residual(), cheap("plain")).uniform("striped")
    assert str(caught.value) == (
        "target onednn-cpu: expected one of plain, channels-last, blocked, found 'striped'"
    )
