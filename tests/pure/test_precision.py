"""Storages: formats with element types, as the planner chooses among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pure.plans import MACHINE, TARGET, conv, net, planned, random_costs, residual
from tests.pure.test_explain import Everything
from tests.simplified import simplify

from stridewise.dtypes import dtype_of
from stridewise.formats import Format
from stridewise.graph import Graph
from stridewise.ops.activation import UNARY, default_parameters
from stridewise.ops.functions import FUNCTIONS
from stridewise.ops.geometry import stored
from stridewise.planner import derive
from stridewise.planner.documents.document import PlanRecord
from stridewise.planner.problem.context import Storages
from stridewise.planning import make_plan, make_plans
from stridewise.targets.cost import Roofline
from stridewise.targets.kernels import KernelSpec, MemorySpec
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import onednn_cpu
from stridewise.tensor import Quantization, Storage

BF16 = dtype_of("bf16")
NHWC = Format.parse("NHWC")


def derived() -> Graph:
    return derive(residual()).graph


def test_float32_plans_are_written_as_before(golden: Callable[[str, str], None]):
    plan = planned(residual(), Roofline(1e11, 4e10, TARGET.efficiency))
    golden("plan_float32", PlanRecord.of(plan).to_json())


def test_like_bytes_of_like_elements_have_one_name():
    b, pixel = net(1, 32, 1, 1)
    graph = derive(b.build([conv(b, pixel, kernel=1)])).graph
    storages = Storages(graph, TARGET)
    images = Format.parse("NCHW")
    for element in (None, BF16):
        keys = {storages.key(pixel, Storage(fmt, element)) for fmt in (images, NHWC)}
        assert len(keys) == 1
    graph = derived()
    storages, x = Storages(graph, TARGET), graph.inputs[0]
    keys = [
        storages.key(x, NHWC),
        storages.key(x, Storage(NHWC)),
        storages.key(x, Storage(NHWC, dtype_of("f32"))),
    ]
    assert set(keys) == {"NHWC"}
    assert storages.key(x, Storage(NHWC, BF16)) == "NHWC bf16"
    assert storages.storage(x, "NHWC bf16") == Storage(NHWC, BF16)
    scaled = [Storage(NHWC, dtype_of("u8"), Quantization(scale)) for scale in (0.5, 0.25)]
    assert len({storages.key(x, way) for way in scaled}) == 2


def test_a_stored_tensor_has_the_bytes_of_its_elements():
    value = derived().values["x"]
    whole, half = (stored(value, Storage(NHWC, element)) for element in (None, BF16))
    assert (whole.dtype.name, half.dtype.name) == ("float32", "bfloat16")
    assert whole.nbytes == 2 * half.nbytes


def test_a_reorder_joins_two_storages_and_may_convert():
    value = derived().values["x"]
    same = TARGET.reorder_spec(value, Storage(value.origin or NHWC), Storage(NHWC))
    assert str(same) == "reorder src=f32:1x3x12x12:abcd dst=f32:1x3x12x12:acdb"
    half = TARGET.reorder_spec(value, Storage(value.origin or NHWC), Storage(NHWC, BF16))
    assert str(half) == "reorder src=f32:1x3x12x12:abcd dst=bf16:1x3x12x12:acdb"
    assert half.nbytes == same.nbytes * 3 // 4
    byte = Storage(NHWC, dtype_of("u8"), Quantization(0.5, 3))
    assert str(TARGET.reorder_spec(value, Storage(NHWC), byte)) == (
        "reorder src=f32:1x3x12x12:acdb dst=u8:1x3x12x12:acdb scaling"
    )


def test_a_reorder_within_one_quantization_moves_bytes():
    value, numbers = derived().values["x"], Quantization(0.5, 3)
    planar, rows = (Storage(fmt, dtype_of("u8"), numbers) for fmt in (value.origin or NHWC, NHWC))
    moved = TARGET.reorder_spec(value, planar, rows)
    assert str(moved) == "reorder src=u8:1x3x12x12:abcd dst=u8:1x3x12x12:acdb"
    other = replace(rows, quantization=Quantization(0.25, 3))
    assert str(TARGET.reorder_spec(value, planar, other)).endswith(" scaling")


def test_a_storage_as_text_has_the_element_type_where_it_is_not_the_own_one():
    assert (str(Storage(NHWC)), str(Storage(NHWC, BF16))) == ("NHWC", "NHWC bf16")
    quantized = Storage(NHWC, dtype_of("u8"), Quantization(0.5, 3))
    assert str(quantized) == "NHWC u8 (scale 0.5 zero 3)"


# --- plans over formats and element types ---------------------------------------------------------


HALF = onednn_cpu(MACHINE, dtype="bfloat16")


def small(seed: int) -> Graph:
    """Return a graph of few nodes, one of which has two readers."""
    b, x = net(1, 32, 4, 4)
    y = conv(b, x, kernel=1)
    if seed % 2:
        return b.build(
            [b.op("max_pool", [y], {"kernel": (2, 2)}), b.op("softmax", [y], {"axis": 1})]
        )
    return b.build([b.op("concat", [b.op("lrn", [y], {"size": 3}), y], {"axis": 1})])


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_the_joint_plan_is_the_cheapest_of_all_combinations(seed: int):
    derived = derive(simplify(small(seed)).graph)
    plan = make_plan(derived, HALF, MACHINE, random_costs(seed))
    assert any(way.dtype == BF16 for c in plan.candidates.nodes["conv"] for way in c.option.makes)
    assert plan.cost_ns == pytest.approx(Everything(plan).least(lambda _: True))
    assert plan.gap <= 1e-9
    alone = make_plan(derived, TARGET, MACHINE, random_costs(seed))
    assert alone.candidates.nodes.keys() == plan.candidates.nodes.keys()


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_more_element_types_never_cost_more(seed: int):
    derived = derive(simplify(residual()).graph)
    oracle = random_costs(seed)
    whole, half = (make_plan(derived, target, MACHINE, oracle) for target in (TARGET, HALF))
    assert half.cost_ns <= whole.cost_ns
    kernels = {str(c.option.calls) for group in whole.candidates.nodes.values() for c in group}
    assert kernels <= {
        str(c.option.calls) for group in half.candidates.nodes.values() for c in group
    }


def test_uniform_plans_are_of_one_element_type():
    oracle = Roofline(1e11, 4e10, HALF.efficiency, bfloat16_rate=2.0)
    plans = {
        p.name: p for p in make_plans(derive(simplify(residual()).graph), HALF, MACHINE, oracle)
    }
    assert {f"all {kind.name}" for kind in HALF.kinds} == plans.keys() - {"planned"}
    for name, plan in plans.items():
        for node in plan.graph.nodes:
            group = plan.candidates.nodes[node.name]
            if name.endswith(" bf16") and any(c.option.makes[0].dtype for c in group):
                assert plan.made(node.outputs[0]).dtype == BF16 or node.op == "matmul"


def test_inputs_and_outputs_keep_their_type():
    oracle = Roofline(1e11, 4e10, HALF.efficiency, bfloat16_rate=2.0)
    plan = make_plan(derive(simplify(residual()).graph), HALF, MACHINE, oracle)
    assert plan.storage("x").dtype.name == "float32"
    (name,) = plan.graph.outputs
    made, wanted = plan.made(name), plan.output_formats[name]
    assert made.dtype is None or (name, Storage(wanted)) in {
        (r.tensor, r.target) for r in plan.reorders
    }


@pytest.mark.parametrize("op", sorted({*UNARY, *FUNCTIONS}))
def test_no_function_with_jumps_reads_rounded_operands(op: str):
    b, x = net(1, 16, 8, 8)
    graph = derive(b.build([b.op(op, [conv(b, x)], name="f")]))
    oracle = Roofline(1e11, 4e10, HALF.efficiency, bfloat16_rate=2.0)
    plan = make_plan(graph, HALF, MACHINE, oracle)
    rounded = any(c.option.needs[0].dtype == BF16 for c in plan.candidates.nodes["f"])
    near = np.linspace(-3, 3, 121)[:, None] + [-1e-6, 1e-6]
    with np.errstate(all="ignore"):
        found = (
            UNARY[op].function(near, *default_parameters(op))
            if op in UNARY
            else FUNCTIONS[op][0](near)
        )
    below, above = found[np.abs(found).max(axis=1) < 1e3].T  # neither poles nor NaN
    assert not (rounded and np.abs(above - below).max() > 1e-2)


def test_without_avx512_float32_tensors_stay_float32():
    machine = Machine("some CPU", "AVX2", 2, "oneDNN 0")
    oracle = Roofline(1e11, 4e10, HALF.efficiency)
    derived = derive(simplify(residual()).graph)
    target = onednn_cpu(machine, dtype="bfloat16")
    plan = make_plan(derived, target, machine, oracle)
    alone = make_plan(derived, onednn_cpu(machine), machine, oracle)
    assert plan.cost_ns == alone.cost_ns
    assert not any(plan.made(v).dtype for node in plan.graph.nodes for v in node.outputs)
    reason = "the library has kernels on bfloat16 tensors with AVX-512 only"
    assert {(r.rule, r.reason) for r in plan.refusals} >= {("dtype", reason)}


def test_the_model_of_costs_knows_what_bfloat16_saves():
    def product(dtype: str) -> KernelSpec:
        roles = ("src", "weights", "dst")
        memories = tuple((role, MemorySpec((1000, 1000), "ab", dtype=dtype)) for role in roles)
        return KernelSpec("matmul", memories, flops=2e9)

    whole, half = product("f32"), product("bf16")
    assert half.nbytes * 2 == whole.nbytes
    by_flops = Roofline(1e9, 1e15, lambda _: 1.0, 0.0, bfloat16_rate=2.0).costs([whole, half])
    by_bytes = Roofline(1e15, 1e9, lambda _: 1.0, 0.0).costs([whole, half])
    for costs in (by_flops, by_bytes):
        (one,), (other,) = costs[whole], costs[half]
        assert one.cost_ns == pytest.approx(2 * other.cost_ns)
