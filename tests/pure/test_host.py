"""NumPy fallback kernels in plans: when they are offered, their costs, and effects on passes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.simplified import simplify

from stridewise.graph import Graph, Refusal
from stridewise.ops import GraphBuilder
from stridewise.planner.problem.fallback_kernel import is_host
from stridewise.planner.questions.partitions import find_hosted
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.cost import Corrected, Roofline, host_cost
from stridewise.targets.kernels import HOST, KernelSpec, MemorySpec

from .plans import Oracle, cheap, conv, net, planned, random_costs


def spec(count: int, dtype: str = "s64", flops: float = 0.0) -> KernelSpec:
    memory = MemorySpec((count,), "dense", dtype=dtype)
    return KernelSpec(HOST, (("in0", memory), ("out0", memory)), (("op", "neg"),), flops=flops)


def test_the_cost_of_a_host_kernel_grows_with_bytes_and_operations():
    assert host_cost(spec(1000)).cost_ns - host_cost(spec(0)).cost_ns == 16_000
    assert host_cost(spec(1000, "u8")).cost_ns < host_cost(spec(1000)).cost_ns
    assert host_cost(spec(1000, flops=1e6)).cost_ns > host_cost(spec(1000)).cost_ns
    assert host_cost(spec(0)).cost_ns > 0
    assert (host_cost(spec(1)).implementation, host_cost(spec(1)).source) == ("numpy", "model")


def test_the_roofline_and_corrections_know_host_kernels():
    oracle = Roofline(1e11, 1e10, lambda _: 1.0)
    assert oracle.costs([spec(7)]) == {spec(7): (host_cost(spec(7)),)}
    seen = Corrected(oracle, lambda s, name: 5.0 if (s, name) == (spec(7), "numpy") else None)
    (cost,) = seen.costs([spec(7)])[spec(7)]  # type: ignore[misc]
    assert (cost.cost_ns, cost.source) == (5.0, "in place")


def test_specs_tell_dtypes_shapes_and_attributes():
    b = GraphBuilder("g")
    x, i = b.input("x", (4, 5), "float64"), b.input("i", (2, 3), "int8")
    plan = planned(b.build([b.op("gather", [x, i], {"axis": 1}, name="n")]), cheap("plain"))
    (call,) = plan.decision("n").chosen.option.calls
    assert str(call.spec) == (
        "host in0=f64:4x5:dense in1=s8:2x3:dense out0=f64:4x2x3:dense op=gather axis=1"
    )


def on_host(b: GraphBuilder, x: str, name: str) -> str:
    """Return feature maps of :func:`net` behind an operator without a kernel."""
    attrs = {"batch_axis": 0, "time_axis": 1}
    return b.op("reverse_sequence", [x, b.constant(np.array([2]))], attrs, name=name)


@pytest.mark.parametrize("kind", ["plain", "channels-last", "blocked"])
def test_float32_around_a_host_kernel_keeps_its_formats(kind):
    b, x = net()
    y = on_host(b, conv(b, x), "n")
    plan = planned(b.build([conv(b, y)]), cheap(kind, reorder=0.1))
    assert [d.node for d in plan.decisions if is_host(d.chosen.option)] == ["n"]
    assert {str(fmt) for fmt in plan.decision("n").chosen.option.outputs} == {"NCHW"}
    kinds = {fmt.name for d in plan.decisions if d.node != "n" for fmt in d.chosen.option.outputs}
    expected = {"plain": "NCHW", "channels-last": "NHWC", "blocked": "nChw16c"}[kind]
    assert expected in kinds


def test_a_plan_says_what_a_host_kernel_between_kernels_costs_at_its_border():
    b, x = net()
    first = conv(b, x)
    kept = on_host(b, first, "n")
    also = on_host(b, first, "m")
    plan = planned(b.build([conv(b, conv(b, kept)), conv(b, also)]), cheap("blocked", reorder=0.1))
    border = [r for r in plan.reorders if r.tensor in (first, kept, also)]
    # Both read one reorder of what the convolution gives.
    assert [r.tensor for r in border].count(first) == 1
    assert len(border) == 3 < len(plan.reorders)
    (hosted,) = find_hosted(plan)
    assert (hosted.operator, hosted.nodes) == ("reverse_sequence", ("n", "m"))
    assert (hosted.reorders, hosted.reorder_ns) == (3, pytest.approx(0.3))
    line = (
        "on the host: reverse_sequence n and 1 more: the target has no kernel for reverse_sequence"
    )
    assert f"{line} (3 reorders at their borders, 0.0 us)\n" in plan.explain()


def test_a_host_kernel_among_plain_kernels_costs_nothing_at_its_border():
    b, x = net()
    y = on_host(b, conv(b, x), "n")
    (hosted,) = find_hosted(planned(b.build([conv(b, y)]), cheap("plain")))
    assert (hosted.reorders, hosted.reorder_ns) == (0, 0.0)
    assert str(hosted).endswith("no kernel for reverse_sequence")


def test_library_kernels_are_never_weighed_against_the_host():
    for seed in range(5):
        b, x = net()
        plan = planned(b.build([b.op("relu", [conv(b, x)])]), random_costs(seed))
        assert not any(is_host(c.option) for d in plan.decisions for c in (d.chosen, *d.rejected))


def test_what_the_library_refuses_for_one_node_changes_nothing_for_others():
    def price(spec: KernelSpec) -> float | Refusal:
        kinds = ("softmax", "normalization", "normalized_columns", "normalized_rows")
        return Refusal("onednn", str(spec), "no") if spec.kind in kinds else 1.0

    b, x = net()
    y = b.op("softmax", [conv(b, x)], {"axis": 1}, name="a")
    y = b.op("softmax", [conv(b, y)], {"axis": 1}, name="z")
    oracle = Oracle(price)
    plan = planned(b.build([conv(b, y)]), oracle)
    hosts = [d.node for d in plan.decisions if is_host(d.chosen.option)]
    assert hosts == ["a", "z"]
    reason = "the library has no kernel for these shapes in any format"
    assert [r for r in plan.refusals if r.rule == HOST] == [Refusal(HOST, n, reason) for n in hosts]
    assert f"on the host: softmax a and 1 more: {reason}\n" in plan.explain()


def scaled(dtype: str) -> Graph:
    """Return what passes fold and fuse in float32."""
    b = GraphBuilder("g")
    x = b.input("x", (1, 4, 3, 3), dtype)

    def row(value: float) -> str:
        return b.constant((np.arange(1, 5) * value).reshape(1, 4, 1, 1).astype(dtype))

    y = b.op("conv", [x, b.constant(np.ones((4, 4, 1, 1), dtype) * 3)])
    y = b.op("add", [b.op("mul", [y, row(2)]), row(5)])
    y = b.op("relu", [y]) if dtype.startswith("float") else b.op("maximum", [y, row(1)])
    return b.build([b.op("add", [y, y])])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_passes_fold_and_fuse_float32_alone(dtype):
    graph = scaled(dtype)
    simple = simplify(graph, check=True).graph
    ops = [node.op for node in simple.nodes]
    fused = ["conv", "add"]
    assert ops == (fused if dtype == "float32" else ["conv", "mul", "add", "relu", "add"])
    assert {value.dtype.name for value in simple.values.values()} == {dtype}
    x = np.random.default_rng(0).normal(size=(1, 4, 3, 3)).astype(dtype)
    (found,) = run_reference(simple, {"x": x}).values()
    weighed = 3 * x.sum(1, keepdims=True) * np.arange(2, 9, 2).reshape(1, 4, 1, 1)
    expected = 2 * np.maximum(weighed + np.arange(5, 21, 5).reshape(1, 4, 1, 1), 0)
    np.testing.assert_allclose(found, expected, rtol=1e-13 if dtype == "float64" else 1e-4)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_integers_are_not_activations(dtype):
    b = GraphBuilder("g")
    x = b.input("x", (6,), dtype)

    def scalar(value: int) -> str:
        return b.constant(np.array(value, dtype))

    y = b.op("minimum", [b.op("maximum", [b.op("add", [x, scalar(3)]), scalar(0)]), scalar(6)])
    graph = b.build([b.op("div", [b.op("mul", [x, y]), scalar(6)])])
    simple = simplify(graph, check=True).graph
    assert [node.op for node in simple.nodes] == ["add", "maximum", "minimum", "mul", "div"]
    given = np.arange(6).astype(dtype)
    (found,) = run_reference(simple, {"x": given}).values()
    np.testing.assert_array_equal(found, given * np.clip(given + 3, 0, 6) // 6)
