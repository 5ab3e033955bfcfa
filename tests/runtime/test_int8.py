"""Kernels on integers against ONNX's definition, one operator at a time, and plans with them.

Each model quantizes its input, computes one operator and quantizes the result. A result may differ
from the definition by one step where the sum before the rounding is within float32's error of a
half, which a few elements are.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stridewise as sw
from stridewise.errors import ExecutionError
from stridewise.graph import Graph
from stridewise.ops.quantize import with_grids
from stridewise.program import KernelStep
from stridewise.runtime.binding.primitives import create
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.simulation.reference import run_reference
from stridewise.tensor import Grid

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32
NATIVE = this_machine(1).has_int8
HAS_PRODUCTS = this_machine(1).has_int8_products

SNAPS = {"u8": "snap_u8", "s8": "snap_s8"}


class Net:
    """A graph of tensors that are rounded to grids."""

    def __init__(self, seed: int = 0) -> None:
        self.b = sw.GraphBuilder("g")
        self.rng = np.random.default_rng(seed)

    def input(self, *shape: int, dtype: str = "u8", scale: float = 0.02, zero: int = 117) -> str:
        name = f"x{self.rng.integers(1 << 30)}"
        return self.snap(self.b.input(name, shape), dtype, scale, zero)

    def snap(self, x: str, dtype: str = "u8", scale: float = 0.05, zero: int = 121) -> str:
        zero = zero if dtype == "u8" else zero - 128
        return self.b.op(SNAPS[dtype], [x], {"alpha": scale, "beta": float(zero)})

    def weights(self, *shape: int, axis: int | None = 0, size: float = 1.0) -> str:
        count = 1 if axis is None else shape[axis]
        scales = (self.rng.uniform(0.001, 0.01, count) * size).astype(F32)
        spread = [1] * len(shape)
        if axis is not None:
            spread[axis] = count
        data = self.rng.integers(-127, 128, shape) * scales.reshape(spread)
        grid = Grid("s8", tuple(map(float, scales)), (0,), axis)
        return self.b.constant(data.astype(F32), "w", grid)

    def bias(self, count: int) -> str:
        return self.b.constant(self.rng.normal(size=count).astype(F32), "bias")

    def build(self, *results: str) -> Graph:
        return self.b.build(list(results))


def feeds(graph: Graph, seed: int = 1) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {n: rng.normal(size=graph.values[n].shape).astype(F32) for n in graph.inputs}


def stored(model: sw.CompiledModel, node: str) -> list[str]:
    """Return how the results of a node are stored."""
    nodes = {
        item.outputs[0]: decision
        for item, decision in zip(model.plan.graph.nodes, model.plan.decisions, strict=True)
    }
    return [str(way.dtype) for way in nodes[node].chosen.option.makes]


def check(graph: Graph, scale: float, *, is_native: bool = True, share: float = 0.01) -> Any:
    """Compile and compare with the reference: at most a few elements are one step off."""
    model = sw.compile(graph, tune="model", keep_originals=True)
    given = feeds(graph)
    (expected,) = run_reference(graph, given).values()
    found = np.asarray(model.run(given)[graph.outputs[0]])
    off = np.abs(found - expected)
    assert off.max(initial=0) <= 1.01 * scale
    assert np.count_nonzero(off > scale / 2) <= 2 + share * off.size
    algorithms = [decision.chosen.algorithm for decision in model.plan.decisions]
    if NATIVE and is_native:
        assert not any(item == "host" for item in algorithms)
        integers = [way for d in model.plan.decisions for way in d.chosen.option.makes if way.dtype]
        assert integers, algorithms
    assert sw.verify(model).ok
    return model


# --- operators ------------------------------------------------------------------------------------

KINDS = [("u8", 117), ("u8", 0), ("s8", 128), ("s8", 90)]
"""Types and zero points; 128 is a symmetric s8."""


@pytest.mark.parametrize(("dtype", "zero"), KINDS)
@pytest.mark.parametrize(
    ("channels", "outputs", "groups", "kernel", "stride", "axis"),
    [(16, 32, 1, 3, 1, 0), (3, 20, 1, 7, 2, 0), (33, 17, 1, 1, 1, None), (24, 24, 24, 3, 2, 0),
     (32, 64, 4, 3, 1, 0)],
)  # fmt: skip
def test_convolutions(
    dtype: str, zero: int, channels: int, outputs: int, groups: int, kernel: int, stride: int,
    axis: int | None,
) -> None:  # fmt: skip
    net = Net()
    x = net.input(2, channels, 14, 11, dtype=dtype, zero=zero)
    w = net.weights(outputs, channels // groups, kernel, kernel, axis=axis)
    attrs = {"strides": (stride, stride), "pads": (kernel // 2,) * 4, "groups": groups}
    y = net.b.op("conv", [x, w, net.bias(outputs)], attrs)
    y = net.b.op("relu", [y])
    model = check(net.build(net.snap(y, dtype, 0.03, 5)), 0.03)
    conv = model.plan.decisions[-1].chosen
    if HAS_PRODUCTS or (NATIVE and groups in (1, channels)):
        assert conv.option.calls[0].spec.memory("src").dtype == dtype


@pytest.mark.parametrize(
    ("op", "attrs", "zero", "is_needed"),
    [
        ("relu", {}, 0, False),
        ("relu", {}, 9, True),
        ("clip", {"alpha": 0.0, "beta": 6.0}, 0, True),
        ("clip", {"alpha": 0.0, "beta": 7.65}, 0, False),
        ("clip", {"alpha": -1.0, "beta": 8.0}, 33, False),
        ("clip", {"alpha": 1.0, "beta": 8.0}, 0, True),
        ("leaky_relu", {"alpha": 0.1}, 0, True),
        ("leaky_relu", {"alpha": -0.1}, 0, True),
    ],
)
@pytest.mark.parametrize("groups", [1, 32])
def test_saturation_replaces_bounds_that_it_has_too(
    op: str, attrs: dict[str, float], zero: int, is_needed: bool, groups: int
) -> None:
    net = Net()
    x = net.input(1, 32, 9, 9)
    w = net.weights(32, 32 // groups, 3, 3)
    y = net.b.op("conv", [x, w, net.bias(32)], {"pads": (1,) * 4, "groups": groups})
    y = net.b.op(op, [y], attrs)
    model = check(net.build(net.snap(y, "u8", 0.03, zero)), 0.03)
    if NATIVE:
        (call,) = model.plan.decisions[-1].chosen.option.calls
        steps = {post.algorithm for post in call.spec.post_ops}
        assert bool(steps & {"relu", "clip"}) == is_needed


@pytest.mark.parametrize(("dtype", "zero"), KINDS)
@pytest.mark.parametrize("channels", [40, 33])
@pytest.mark.parametrize("groups", [1, None])
@pytest.mark.parametrize("kernel", [1, 3])
def test_batch_norms_are_computed_by_the_convolution_before_them(
    dtype: str, zero: int, channels: int, groups: int | None, kernel: int
) -> None:
    """The result of the convolution is rounded to its own grid first, and is not stored."""
    net = Net()
    x = net.input(2, channels, 14, 11, dtype=dtype, zero=zero)
    w = net.weights(channels, channels // (groups or channels), kernel, kernel)
    attrs = {"pads": (kernel // 2,) * 4, "groups": groups or channels}
    y = net.snap(net.b.op("conv", [x, w, net.bias(channels)], attrs), dtype, 0.03)
    scale, shift = (
        net.b.constant(net.rng.uniform(low, high, channels).astype(F32), name)
        for low, high, name in ((0.5, 2.0, "scale"), (-1.0, 1.0, "shift"))
    )
    y = net.b.op("relu", [net.b.op("scale_shift", [y, scale, shift])])
    model = check(net.build(net.snap(y, dtype, 0.02, 5)), 0.02)
    if NATIVE:
        held = [decision.chosen.option.held for decision in model.plan.decisions]
        assert held == ["", "channels-last, batch norm", ""]


@pytest.mark.parametrize(("kernel", "pad"), [(1, 1), (3, 3), (2, 5)])
def test_paddings_that_are_no_smaller_than_the_window(
    kernel: int, pad: int, tmp_path: Path
) -> None:
    """Whatever kernels are measured for them."""
    net = Net()
    attrs = {"strides": (1, 1), "pads": (pad,) * 4}
    y = net.b.op("conv", [net.input(1, 6, 9, 8), net.weights(8, 6, kernel, kernel)], attrs)
    graph = net.build(net.snap(y, "u8", 0.03, 5))
    given = feeds(graph)
    (expected,) = run_reference(graph, given).values()
    for tune in ("model", "auto", "measure"):
        model = sw.compile(graph, tune=tune, tune_seconds=0.5, threads=1, cache_dir=tmp_path)
        off = np.abs(np.asarray(model.run(given)[graph.outputs[0]]) - expected)
        assert off.max() <= 1.01 * 0.03
        assert np.count_nonzero(off > 0.015) <= 2 + 0.01 * off.size


@pytest.mark.parametrize("dtype", ["u8", "s8"])
def test_residual_sums_are_one_kernel(dtype: str) -> None:
    net = Net()
    x = net.input(1, 32, 9, 9, dtype=dtype)
    first = net.b.op("conv", [x, net.weights(32, 32, 3, 3)], {"pads": (1, 1, 1, 1)})
    second = net.b.op("conv", [x, net.weights(32, 32, 1, 1)])
    first, second = net.snap(first, dtype, 0.06), net.snap(second, dtype, 0.04)
    y = net.b.op("relu", [net.b.op("add", [first, second])])
    model = check(net.build(net.snap(y, dtype, 0.07, 0)), 0.13, share=0.02)
    assert [node.op for node in model.plan.graph.nodes].count("conv") == 2
    assert "add" not in [node.op for node in model.plan.graph.nodes]


@pytest.mark.parametrize("dtype", ["u8", "s8"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_matrix_products(dtype: str, axis: int | None) -> None:
    net = Net()
    x = net.input(5, 70, dtype=dtype)
    shape, turned = ((30, 70), 1) if axis == 0 else ((70, 30), 0)
    y = net.b.op("matmul", [x, net.weights(*shape, axis=axis), net.bias(30)], {"trans_b": turned})
    check(net.build(net.snap(y, dtype, 0.04)), 0.04)


@pytest.mark.parametrize(("dtype", "zero"), KINDS)
@pytest.mark.parametrize("op", ["max_pool", "avg_pool"])
def test_pooling(dtype: str, zero: int, op: str) -> None:
    net = Net()
    x = net.input(1, 32, 12, 12, dtype=dtype, zero=zero)
    y = net.b.op(op, [x], {"kernel": (2, 2), "strides": (2, 2)})
    check(net.build(net.snap(y, dtype, 0.0171, zero)), 0.0171, share=0.0)


@pytest.mark.parametrize("axes", [(1,), (3,), (1, 2, 3), (0, 2), (2, 3)])
@pytest.mark.parametrize("size", [8, 40])
def test_means(size: int, axes: tuple[int, ...]) -> None:
    net = Net()
    x = net.input(2, 24, size, size)
    y = net.b.op("reduce_mean", [x], {"axes": axes, "keepdims": 1})
    graph = net.build(net.snap(y, "u8", 0.0431, 117))
    model = check(graph, 0.0431, is_native=axes == (2, 3))
    # Of other axes, the mean is that of real numbers, but never NumPy's.
    assert not any(d.chosen.algorithm == "host" for d in model.plan.decisions)


@pytest.mark.parametrize("op", ["add", "sub", "mul"])
@pytest.mark.parametrize("zeros", [(0, 0), (31, 0), (0, 31), (31, 77)])
@pytest.mark.parametrize("dtype", ["u8", "s8"])
def test_elementwise_functions_of_two(op: str, zeros: tuple[int, int], dtype: str) -> None:
    net = Net()
    x = net.input(2, 24, 6, 5, dtype=dtype, zero=zeros[0])
    y = net.input(2, 24, 6, 5, dtype=dtype, zero=zeros[1], scale=0.013)
    check(net.build(net.snap(net.b.op(op, [x, y]), "u8", 0.02)), 0.02, share=0.02)


@pytest.mark.parametrize("size", [1, 3])
def test_batch_norms_of_real_numbers_before_a_rounding(size: int) -> None:
    """With one pixel, strides do not tell channels from pixels, which some kernels mistake."""
    net = Net()
    x = net.b.op("avg_pool", [net.b.input("x", (4, 24, size, size))], {"kernel": (1, 1)})
    scale, shift = (
        net.b.constant(net.rng.uniform(0.5, 1.5, 24).astype(F32), name) for name in ("a", "b")
    )
    y = net.b.op("scale_shift", [x, scale, shift])
    check(net.build(net.snap(y, "u8", 0.03, 121)), 0.03, is_native=False, share=0.02)


def test_gates_of_channels() -> None:
    net = Net()
    x, gate = net.input(2, 24, 6, 5), net.input(2, 24, 1, 1, zero=0)
    x = net.b.op("max_pool", [x], {"kernel": (1, 1)})
    check(net.build(net.snap(net.b.op("mul", [x, gate]))), 0.05, share=0.02)


@pytest.mark.parametrize(
    "function",
    [
        lambda b, x: b.op("mul", [x, b.op("sigmoid", [x])]),
        lambda b, x: b.op("hard_swish", [x]),
        lambda b, x: b.op("leaky_relu", [x], {"alpha": 0.1}),
        lambda b, x: b.op("exp", [b.op("abs", [x])]),
    ],
)
@pytest.mark.parametrize("dtype", ["u8", "s8"])
def test_functions_of_one_tensor_are_looked_up(
    function: Callable[[sw.GraphBuilder, str], str], dtype: str
) -> None:
    net = Net()
    x = net.b.op("max_pool", [net.input(1, 7, 5, 3, dtype=dtype)], {"kernel": (1, 1)})
    model = check(net.build(net.snap(function(net.b, x), dtype)), 0.05, share=0.0)
    if NATIVE and "pointwise" in [node.op for node in model.plan.graph.nodes]:
        ways = [c.option.algorithm for item in model.plan.candidates.nodes.values() for c in item]
        assert any("lookup" in way for way in ways)


@pytest.mark.parametrize(("dtype", "zero"), [("u8", 9), ("s8", 90)])
@pytest.mark.parametrize(
    ("channels", "outputs", "groups", "kernel"),
    [(16, 96, 1, 1), (3, 40, 1, 3), (40, 7, 1, 1), (48, 48, 48, 3), (40, 40, 40, 5), (5, 5, 5, 3)],
)
@pytest.mark.parametrize("size", [1.0, 40.0])
def test_swish_behind_convolutions(
    dtype: str, zero: int, channels: int, outputs: int, groups: int, kernel: int, size: float
) -> None:
    """Every kernel that stores bytes is as near as the reference, also where exponents overflow."""
    net = Net()
    x = net.input(2, channels, 9, 7, dtype=dtype, zero=117)
    w = net.weights(outputs, channels // groups, kernel, kernel, size=size)
    attrs = {"pads": (kernel // 2,) * 4, "groups": groups}
    y = net.b.op("conv", [x, w, net.bias(outputs)], attrs)
    graph = net.build(net.snap(net.b.op("swish", [y]), dtype, 0.03 * size, zero))
    check(graph, 0.03 * size, share=0.02)
    plan = sw.plan(graph, tune="model")
    given, conv = feeds(graph), plan.graph.nodes[-1].name
    (expected,) = run_reference(graph, given).values()
    seen: set[str] = set()
    for index, candidate in enumerate(plan.candidates.nodes[conv]):
        (made,) = candidate.option.makes
        kind = candidate.option.calls[0].spec.kind
        if made.dtype is None or kind == "convolution":
            continue
        seen.add(kind)
        only = load(lower_plan(plan.restricted("one", {conv: (index,)})))
        (found,) = only.run_program(list(given.values()))
        off = np.abs(found - expected)
        assert off.max() <= 1.01 * 0.03 * size
        assert np.count_nonzero(off > 0.015 * size) <= 2 + 0.02 * off.size
    assert not NATIVE or seen == {"conv_int8" if groups == 1 else "depthwise_int8"}


def test_concats_of_other_scales_are_concats_of_rounded_pieces() -> None:
    net = Net()
    x, y = net.input(1, 64, 40, 40), net.input(1, 32, 40, 40, scale=0.03, zero=3)
    x, y = (net.b.op("max_pool", [item], {"kernel": (1, 1)}) for item in (x, y))
    model = check(net.build(net.snap(net.b.op("concat", [x, y], {"axis": 1}))), 0.05, share=0.0)
    (concat,) = [node for node in model.plan.graph.nodes if node.op == "concat"]
    ways = [item.option.makes[0].dtype for item in model.plan.candidates.nodes[concat.name]]
    assert any(ways) == NATIVE


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("reshape", {"shape": (1, 32 * 8 * 8)}),
        ("transpose", {"perm": (0, 2, 3, 1)}),
        ("slice", {"starts": (0, 3, 1, 0), "stops": (1, 19, 8, 7), "steps": (1, 1, 2, 1)}),
        ("channel_shuffle", {"groups": 4}),
        ("resize", {"mode": "nearest", "shape": (1, 32, 16, 16), "coordinates": "asymmetric",
                    "rounding": "floor"}),
    ],
)  # fmt: skip
def test_moves_of_bytes(op: str, attrs: dict[str, Any]) -> None:
    net = Net()
    x = net.b.op("max_pool", [net.input(1, 32, 8, 8)], {"kernel": (1, 1)})
    check(net.build(net.b.op(op, [x], attrs)), 0.02, share=0.0, is_native=op != "resize")


@pytest.mark.parametrize(("dtype", "zero"), KINDS)
def test_scalars_are_rounded(dtype: str, zero: int) -> None:
    net = Net()
    total = net.b.op("reduce_sum", [net.b.input("x", (7,))], {"axes": (0,), "keepdims": 0})
    model = sw.compile(net.build(net.snap(total, dtype, 0.125, zero)), tune="model")
    np.testing.assert_array_equal(model(np.full(7, -0.2, F32)), 0 if zero == 0 else -1.375)


def test_lines_times_a_number_are_rounded() -> None:
    net = Net()
    x, factor = net.b.input("x", (9,)), net.b.constant(np.array([0.5], F32), "factor")
    graph = net.build(net.snap(net.b.op("mul", [x, factor]), "u8", 0.125, 118))
    model = sw.compile(graph, tune="model")
    np.testing.assert_array_equal(model(np.full(9, -0.5, F32)), -0.25)


def test_linear_resize() -> None:
    net = Net()
    x = net.b.op("max_pool", [net.input(1, 32, 8, 8)], {"kernel": (1, 1)})
    y = net.b.op("resize", [x], {"mode": "linear", "shape": (1, 32, 16, 16)})
    check(net.build(net.snap(y, scale=0.0431)), 0.0431)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(KINDS), st.integers(1, 40), st.integers(1, 40))
def test_any_convolution(seed: int, kind: tuple[str, int], channels: int, outputs: int) -> None:
    net = Net(seed)
    dtype, zero = kind
    size = tuple(int(extent) for extent in net.rng.integers(3, 12, 2))
    x = net.input(int(net.rng.integers(1, 3)), channels, *size, dtype=dtype, zero=zero)
    kernel = int(net.rng.choice([1, 3]))
    w = net.weights(outputs, channels, kernel, kernel)
    y = net.b.op("conv", [x, w], {"pads": (kernel // 2,) * 4})
    check(net.build(net.snap(y, dtype, 0.05)), 0.05, share=0.02)


# --- plans ----------------------------------------------------------------------------------------


def _chain() -> Graph:
    net = Net()
    x = net.input(1, 16, 20, 20)
    y = net.snap(net.b.op("conv", [x, net.weights(32, 16, 3, 3)]))
    y = net.snap(net.b.op("conv", [y, net.weights(8, 32, 3, 3)]))
    return net.build(net.b.op("relu", [y]))


def _types(plan: sw.Plan) -> set[str]:
    made = [way for d in plan.decisions for way in d.chosen.option.makes]
    return {"f32" if way.dtype is None else way.dtype.short for way in made}


@pytest.mark.skipif(not NATIVE, reason="there are no kernels on 8-bit integers here")
def test_the_option_dtype_says_whether_integers_are_used() -> None:
    graph = _chain()
    assert "u8" in _types(sw.plan(graph, tune="model"))
    assert "u8" in _types(sw.plan(graph, tune="model", dtype="bfloat16"))
    assert _types(sw.plan(graph, tune="model", dtype="float32")) == {"f32"}


@pytest.mark.skipif(
    not HAS_PRODUCTS, reason="the library's products of integers are not exact here"
)
def test_kernels_whose_sums_saturate_cannot_be_named() -> None:
    model = sw.compile(_chain(), tune="model", threads=1)
    steps = [step for step in model.program.steps if isinstance(step, KernelStep)]
    specs = [step.spec for step in steps if step.spec.kind == "convolution"]
    assert specs
    for spec in specs:
        for name in ("brgconv:avx512_core", "brgconv_1x1:avx512_core", "jit_int8:avx512_core"):
            with pytest.raises(ExecutionError, match="none of that name"):
                create(spec, name, 1)


@pytest.mark.skipif(not NATIVE, reason="there are no kernels on 8-bit integers here")
def test_plan_files_keep_integers(tmp_path: Path) -> None:
    graph = _chain()
    plan = sw.plan(graph, tune="model")
    path = tmp_path / "plan.json"
    plan.save(path)
    again = sw.compile(graph, tune="model", plan=path)
    assert _types(again.plan) == _types(plan)
    x = feeds(graph)
    first = sw.compile(graph, tune="model").run(x)
    for name, array in again.run(x).items():
        np.testing.assert_array_equal(array, first[name])
    assert "u8 (scale" in plan.explain()
    conv = next(node.name for node in plan.graph.nodes if node.op == "conv")
    assert "u8" in str(plan.why(conv))


_CHILD = """
import json, sys
import numpy as np
import stridewise as sw
from tests.runtime.test_int8 import _chain, _types, feeds
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.simulation.reference import run_reference
graph = _chain()
model = sw.compile(graph, tune="model")
given = feeds(graph)
(expected,) = run_reference(graph, given).values()
found = np.asarray(model.run(given)[graph.outputs[0]])
print(json.dumps({
    "isa": this_machine(1).isa,
    "types": sorted(_types(model.plan)),
    "off": float(np.abs(found - expected).max()),
    "reasons": sorted({r.reason for r in model.plan.refusals if r.rule == "int8"}),
}))
"""


@pytest.mark.parametrize("isa", ["SSE41", "AVX2", "AVX512_CORE"])
def test_without_vnni_no_sum_saturates(isa: str) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", _CHILD], cwd=root, check=True, capture_output=True, text=True,
        env={"ONEDNN_MAX_CPU_ISA": isa, "PATH": "", "PYTHONPATH": str(root)},
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["off"] <= 0.051
    has_avx2 = found["isa"] == "AVX2"
    assert ("u8" in found["types"]) == has_avx2
    assert any("VNNI" in reason for reason in found["reasons"]) == (not has_avx2)


# --- lookups --------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 300))
@settings(max_examples=20, deadline=None)
def test_lookups_by_any_instruction_set(seed: int, count: int) -> None:
    from stridewise.runtime.binding.library import load_core

    core = load_core()
    assert core.lookup_isas()[-1] == "portable"
    desc = core.MemoryDesc((1, count), "u8", "ab")
    for isa in core.lookup_isas():
        kernel = core.Lookup(desc, desc, threads=2, isa=isa)
        assert kernel.impl == f"lookup:{isa}"
        rng = np.random.default_rng(seed)
        table, x = rng.integers(0, 256, 256), rng.integers(0, 256, (1, count))
        program = core.Program(0, [], [count, 256], [count], 2)
        args = [
            (core.ARG_SRC, desc, 2, 0, 0),
            (core.ARG_WEIGHTS, kernel.arg_desc(core.ARG_WEIGHTS), 2, 1, 0),
            (core.ARG_DST, desc, 3, 0, 0),
        ]
        program.add_primitive(kernel, args)
        program.freeze()
        out = np.zeros(count, np.uint8)
        program.run([x.astype(np.uint8), table.astype(np.uint8)], [out])
        np.testing.assert_array_equal(out, table[x[0]].astype(np.uint8))


def test_grids_follow_moves() -> None:
    net = Net()
    x = net.input(1, 4, 4, 4)
    y = net.b.op("max_pool", [x], {"kernel": (2, 2)})
    z = net.b.op("sigmoid", [y])
    graph = with_grids(net.build(y, z))
    assert graph.values[y].grid == graph.values[x].grid is not None
    assert graph.values[z].grid is None


@pytest.mark.parametrize(("dtype", "zero"), KINDS)
@pytest.mark.parametrize("stride", [1, 2])
def test_transposed_convolutions(dtype: str, zero: int, stride: int) -> None:
    net = Net()
    x = net.input(1, 24, 7, 6, dtype=dtype, zero=zero)
    w = net.weights(24, 16, 2, 2, axis=None)
    y = net.b.op("conv_transpose", [x, w, net.bias(16)], {"strides": (stride, stride)})
    check(net.build(net.snap(y, dtype, 0.03, 5)), 0.03, share=0.02)


def test_integers_of_outputs_are_in_the_order_of_the_user() -> None:
    net = Net()
    x = net.input(2, 1, 9, 8)
    turned = net.b.op("transpose", [x], {"perm": (0, 2, 3, 1)})
    again = net.b.op("transpose", [turned], {"perm": (0, 2, 3, 1)})
    mean = net.b.op("avg_pool", [turned], {"kernel": (8, 1)})  # says what the axes mean
    attrs = {"dtype": "uint8", "scale": 0.02, "zero_point": 117}
    stored_ = [net.b.op("quantize", [item], attrs) for item in (x, turned, again)]
    graph = net.build(*stored_, mean)
    given_ = feeds(graph)
    expected = run_reference(graph, given_)
    found = sw.compile(graph, tune="model").run(given_)
    for name in stored_:
        np.testing.assert_array_equal(found[name], expected[name])
