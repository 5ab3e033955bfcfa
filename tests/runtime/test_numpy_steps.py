"""Nodes that run in NumPy: every dtype and shape, beside kernels of the library."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stridewise as sw
from stridewise.dtypes import DTYPES, dtype_of
from stridewise.errors import ExecutionError, FormatError, InputError, ModelError, PlanError
from stridewise.formats import parse
from stridewise.graph import Graph, Refusal
from stridewise.ops import GraphBuilder
from stridewise.planner import derive
from stridewise.planning import make_plan
from stridewise.program import KernelStep
from stridewise.runtime.binding.fallback_steps import HOST_FUNCTIONS
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.lowering.memory_limit import plan_demand
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.simulation.reference import run_reference
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.kernel_times import KernelTimes
from stridewise.runtime.tuning.oracle import MeasuringOracle
from stridewise.targets.cost import KernelCost
from stridewise.targets.kernels import HOST
from stridewise.targets.onednn.target import onednn_cpu

from .clock import Clock
from .graphs import KINDS, ForcingOracle, Net, error, forced_plan, inputs_of

Array = np.ndarray[Any, Any]
MACHINE = this_machine(2)


def compiled(graph: Graph, **options: Any) -> sw.CompiledModel:
    return sw.compile(graph, tune="model", threads=2, **options)


def hosted(model: sw.CompiledModel) -> list[str]:
    """Return the nodes that run on the host."""
    steps = [step for step in model.program.steps if isinstance(step, KernelStep)]
    return [step.node for step in steps if step.spec.kind == HOST]


def drawn(dtype: str, *shape: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype_of(dtype).numpy)


# --- dtypes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_every_dtype_go_in_through_the_arena_and_out(dtype):
    b = GraphBuilder("g")
    x = b.input("x", (2, 3, 5), dtype)
    c = b.constant(drawn(dtype, 3, 1, seed=1))
    y = b.op("expand", [b.op("transpose", [x], {"perm": (0, 2, 1)})], {"shape": (4, 2, 5, 3)})
    flat = b.op("reshape", [y], {"shape": (120,)}, output="flat")
    z = b.op("where", [b.op("equal", [x, c]), c, x], output="z")
    model = compiled(b.build([flat, z, x, c]))
    given = drawn(dtype, 2, 3, 5)
    constant = drawn(dtype, 3, 1, seed=1)
    found = model(given)
    expected = (
        np.broadcast_to(given.transpose(0, 2, 1), (4, 2, 5, 3)).reshape(120),
        np.where(given == constant, constant, given),
        given,
        constant,
    )
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(ours, theirs)
    traced: dict[str, Array] = {}
    model.trace({"x": given}, lambda written, array: traced.setdefault(written.value, array.copy()))
    # Kernels take 16-bit floats as float32 where the machine has none for them.
    widened = np.dtype(np.float32) if dtype in ("float16", "bfloat16") else given.dtype
    assert {array.dtype for array in traced.values()} <= {np.dtype(bool), given.dtype, widened}
    np.testing.assert_array_equal(traced["z"], expected[1])


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name != "bool"])
def test_sums_of_every_dtype_are_those_of_numpy(dtype):
    b = GraphBuilder("g")
    x, y = b.input("x", (4, 1), dtype), b.input("y", (1, 3), dtype)
    model = compiled(b.build([b.op("add", [x, y], output="z")]))
    given = drawn(dtype, 4, 1), drawn(dtype, 1, 3, seed=1)
    assert not hosted(model)
    found = model(*given)
    assert found.dtype == given[0].dtype
    np.testing.assert_array_equal(found, given[0] + given[1])


def test_float64_is_computed_in_float64():
    b = GraphBuilder("g")
    x = b.input("x", (1, 2, 9, 9), "float64")
    w = np.random.default_rng(0).normal(size=(3, 2, 1, 1))
    y = b.op("relu", [b.op("conv", [x, b.constant(w)])])
    given = np.random.default_rng(1).normal(size=(1, 2, 9, 9))
    found = compiled(b.build([y]))(given)
    expected = np.maximum(np.einsum("nchw,oc->nohw", given, w[:, :, 0, 0]), 0)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


def test_inputs_are_never_cast_in_silence():
    b = GraphBuilder("g")
    model = compiled(b.build([b.op("cast", [b.input("x", (2,), "int64")], {"to": "int8"})]))
    for wrong in (np.zeros(2, np.int32), np.zeros(2), np.zeros(2, np.uint64), np.zeros(2, ">i8")):
        with pytest.raises(InputError, match="expected dtype int64"):
            model(wrong)
        with pytest.raises(InputError, match="expected dtype int64"):
            model.run({"x": wrong})
    np.testing.assert_array_equal(model(np.array([300, -1])), np.array([44, -1], np.int8))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "bfloat16"])
def test_inputs_of_any_strides_and_byte_offsets(dtype):
    b = GraphBuilder("g")
    x = b.input("x", (3, 4), dtype)
    model = compiled(b.build([b.op("transpose", [x], {"perm": (1, 0)})]))
    base = drawn(dtype, 8, 6)
    given = base[1:7:2, 1:5]
    np.testing.assert_array_equal(model(given), given.T)
    np.testing.assert_array_equal(model(np.asfortranarray(given)), given.T)


# --- shapes -------------------------------------------------------------------------------------


def test_scalars_have_no_axes_on_the_way_through():
    b = GraphBuilder("g")
    x, k = b.input("x", ()), b.input("k", (), "int64")
    y = b.op("add", [b.op("exp", [x]), b.op("cast", [k], {"to": "float32"})])
    model = compiled(b.build([y, b.op("equal", [k, b.constant(np.array(3))])]))
    value, flag = model(np.array(0, np.float32), np.array(3))
    assert (value.shape, flag.shape) == ((), ())
    assert (float(value), bool(flag)) == (4.0, True)


def test_tensors_without_elements():
    b = Net(0, 3, 8, 8)
    y = b.op("relu", [b.conv(b.x, 5, 3)])
    e = b.input("e", (2, 0), "int64")
    outputs = [y, b.op("concat", [e, b.constant(np.ones((2, 3), np.int64))], {"axis": 1})]
    model = compiled(b.build([*outputs, b.op("reshape", [e], {"shape": (0, 7)})]))
    found = model(np.zeros((0, 3, 8, 8), np.float32), np.zeros((2, 0), np.int64))
    assert [array.shape for array in found] == [(0, 5, 8, 8), (2, 3), (0, 7)]
    np.testing.assert_array_equal(found[1], np.ones((2, 3)))


@pytest.mark.parametrize("rank", [12, 13, 30])
def test_more_axes_than_the_library_takes(rank, tmp_path: Path):
    b = GraphBuilder("g")
    x = b.input("x", (2, *(1,) * (rank - 2), 3))
    y = b.op("add", [b.op("relu", [x]), x])
    graph = b.build([b.op("transpose", [y], {"perm": tuple(reversed(range(rank)))})])
    model = compiled(graph)
    assert bool(hosted(model)) == (rank > 12)
    given = np.random.default_rng(0).normal(size=(2, *(1,) * (rank - 2), 3)).astype(np.float32)
    np.testing.assert_array_equal(model(given), (np.maximum(given, 0) + given).T)
    model.plan.save(tmp_path / "plan.json")
    again = sw.load_plan(tmp_path / "plan.json", graph)
    np.testing.assert_array_equal(sw.compile(graph, plan=again)(given), model(given))


# --- beside kernels of the library --------------------------------------------------------------


def mixed() -> Graph:
    """Return convolutions around operators; two of them have no kernel."""
    b = Net(2, 17, 6, 5)
    index, lengths = b.input("index", (4,), "int64"), b.constant(np.array([2, 1]))
    y = b.op("relu", [b.conv(b.x, 24, 3)])
    y = b.op("gather", [y, index], {"axis": 1})
    y = b.op("reverse_sequence", [y, lengths], {"batch_axis": 0, "time_axis": 1})
    y = b.op("add", [b.conv(y, 24, 3), b.conv(b.x, 24, 1)])
    rounded = b.op("cast", [y], {"to": "int32"})
    power = b.op("pow", [rounded, b.constant(np.array(1, np.int32))], output="rounded")
    return b.build([y, power])


@pytest.mark.parametrize("how", ["model", *KINDS])
def test_host_steps_read_and_write_between_kernels_in_any_format(how):
    graph = mixed()
    model = compiled(graph) if how == "model" else load(lower_plan(forced_plan(graph, how)))
    assert len(hosted(model)) == 2
    feeds = inputs_of(graph)
    expected = run_reference(graph, feeds)
    found = model.run(feeds)
    assert error(found[graph.outputs[0]], expected[graph.outputs[0]]) <= 1e-5
    assert found["rounded"].dtype == np.int32
    assert int(np.abs(found["rounded"] - expected["rounded"]).max()) <= 1
    if how == "blocked":
        assert any(not reorder.target.format.is_blocked for reorder in model.plan.reorders)
    traced = model.trace(feeds, lambda *_: None)
    np.testing.assert_array_equal(traced["rounded"], found["rounded"])


def test_kernels_that_the_library_refuses_run_on_the_host_for_a_reason():
    class Poor(ForcingOracle):
        def _cost(self, spec: Any) -> Any:
            found = super()._cost(spec)
            kinds = ("softmax", "normalization", "normalized_columns", "normalized_rows")
            return Refusal("onednn", str(spec), "no") if spec.kind in kinds else found

    b = Net(2, 17, 6, 5)
    y = b.conv(b.op("softmax", [b.conv(b.x, 17)], {"axis": 1}, name="soft"), 17)
    graph = b.build([y])
    plan = make_plan(derive(graph), onednn_cpu(MACHINE), MACHINE, Poor("blocked"))
    model = load(lower_plan(plan))
    assert hosted(model) == ["soft"]
    reason = "the library has no kernel for these shapes in any format"
    assert Refusal("host", "soft", reason) in plan.refusals
    assert f"host: soft: {reason}" in str(plan.why("soft"))
    # The convolutions stay blocked, so that there are reorders around it.
    assert len(plan.reorders) >= 2
    feeds = inputs_of(graph)
    assert error(model(feeds["x"]), run_reference(graph, feeds)[y]) <= 1e-5


def test_users_in_channels_last_keep_their_order_on_the_host():
    b = GraphBuilder("g")
    x = b.input("x", (1, 6, 5, 3), "float64")
    w = np.random.default_rng(0).normal(size=(4, 3, 1, 1))
    y = b.op("conv", [x, b.constant(w)], {"data_format": "NHWC"})
    model = compiled(b.build([y]))
    given = np.random.default_rng(1).normal(size=(1, 6, 5, 3))
    np.testing.assert_allclose(model(given), given @ w[:, :, 0, 0].T, rtol=1e-13)


def test_reshapes_and_pieces_of_any_dtype_move_nothing():
    b = GraphBuilder("g")
    x, y = b.input("x", (2, 3), "int64"), b.input("y", (2, 3), "int64")
    total = b.op("reshape", [b.op("add", [x, y])], {"shape": (6,)})
    model = compiled(b.build([b.op("mul", [total, total])]))
    assert model.plan.views == ("reshape",)
    np.testing.assert_array_equal(model(np.full((2, 3), 2), np.full((2, 3), 1)), np.full(6, 9))


def test_formats_of_other_dtypes_are_the_users_own():
    b = GraphBuilder("g")
    x = b.input("image", (1, 4, 5, 3), "uint8")
    y = b.op("cast", [x], {"to": "float32"})
    w = b.constant(np.ones((8, 3, 1, 1), np.float32))
    graph = b.build([b.op("conv", [y, w], {"data_format": "NHWC"})])
    given = drawn("uint8", 1, 4, 5, 3)
    model = compiled(graph)
    assert model.plan.input_formats == {"image": parse("NHWC")}
    np.testing.assert_allclose(model(given)[..., 0], given.sum(-1), rtol=1e-6)
    with pytest.raises(FormatError, match="input 'image': expected the format NHWC, as uint8"):
        compiled(graph, input_formats={"image": "NCHW"})
    found = compiled(graph, input_formats={"image": ["NCHW", "NHWC"]})
    np.testing.assert_array_equal(found(given), model(given))


# --- costs and tuning ---------------------------------------------------------------------------


def test_host_kernels_are_priced_and_never_timed_alone(tmp_path: Path):
    graph = mixed()
    cache = CostCache(MACHINE, tmp_path)
    target = onednn_cpu(MACHINE)
    oracle = MeasuringOracle(KernelTimes(MACHINE, target, cache))
    plan = make_plan(derive(graph), target, MACHINE, oracle)
    for decision in plan.decisions:
        if decision.chosen.algorithm == "host":
            assert [(c.implementation, c.source) for c in decision.chosen.costs] == [
                ("numpy", "model")
            ]
    assert not any(key.startswith(HOST) for key in cache.load())


def test_tuning_corrects_host_kernels_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    times = {"planned alone": 2.0, "planned": 1.0}  # and uniform plans lose
    clock = Clock(times, lambda spec: 77.0 if spec.kind == HOST else None)
    monkeypatch.setattr("stridewise.runtime.tuning.tuning.run_in_turn", clock)
    model = sw.compile(mixed(), threads=2, tune="measure", cache_dir=tmp_path)
    assert model.run(inputs_of(mixed()))["rounded"].shape == (2, 24, 6, 5)
    assert hosted(model)
    for name in hosted(model):
        costs = model.plan.decision(name).chosen.costs
        assert [(cost.cost_ns, cost.source) for cost in costs] == [(77.0, "in place")]


def test_made_up_inputs_that_fail_leave_the_plan_as_it_is(tmp_path: Path, monkeypatch):
    def refuse(*_: Any) -> Callable[..., Any]:
        def fail(_operands: Any) -> Any:
            raise ValueError("no zeros, please")

        return fail

    monkeypatch.setitem(HOST_FUNCTIONS, "reverse_sequence", refuse)
    model = sw.compile(mixed(), threads=2, tune="measure", cache_dir=tmp_path)
    assert any("made-up inputs do not run" in note for note in model.plan.notes)
    assert "no zeros, please" in model.plan.explain()


def test_memory_of_host_kernels_counts():
    b = GraphBuilder("g")
    x = b.input("x", (1 << 20,), "float64")
    graph = b.build([b.op("exp", [x])])
    plan = compiled(graph).plan
    assert plan_demand(plan).activations == 4 * (8 << 20)  # input, output, and as much for NumPy
    with pytest.raises(ModelError, match="memory"):
        compiled(graph, memory_limit=24 << 20)


# --- functions, errors, threads, lifetimes ------------------------------------------------------


def index_graph() -> Graph:
    b = GraphBuilder("g")
    x, index = b.input("x", (5, 2), "float64"), b.input("index", (3,), "int8")
    return b.build([b.op("gather", [x, index], {"axis": 0}, name="pick")])


def picks(*numbers: int) -> Array:
    """Return indices of a type that no kernel takes."""
    return np.array(numbers, np.int8)


def test_errors_name_the_node_and_leave_the_model_usable():
    model = compiled(index_graph())
    x = np.arange(10, dtype=np.float64).reshape(5, 2)
    for _ in range(3):
        with pytest.raises(ExecutionError, match=r"node 'pick' \(gather\): .* -5 to 4, found 9"):
            model(x, picks(0, 9, 1))
        np.testing.assert_array_equal(model(x, picks(4, 0, 1)), x[[4, 0, 1]])


def test_errors_of_others_become_ours_with_the_name_of_the_node(monkeypatch):
    def take(operands: Any) -> list[Array]:
        return [operands[0][operands[1]]]

    monkeypatch.setitem(HOST_FUNCTIONS, "gather", lambda *_: take)
    model = compiled(index_graph())
    x = np.arange(10, dtype=np.float64).reshape(5, 2)
    for _ in range(3):
        with pytest.raises(ExecutionError, match=r"node 'pick' \(gather\), on the host") as caught:
            model(x, picks(0, 9, 1))
        assert isinstance(caught.value.__cause__, IndexError)
        np.testing.assert_array_equal(model(x, picks(4, 0, 1)), x[[4, 0, 1]])


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ([], "0 results instead of 1"),
        ([np.zeros((3, 2), np.float32)], r"float32\[3, 2\] instead of f64\[3,2\]"),
        ([np.zeros((2, 3), np.float64)], r"float64\[2, 3\] instead of f64\[3,2\]"),
    ],
)
def test_functions_that_give_something_else_are_found_out(monkeypatch, result, found):
    monkeypatch.setitem(HOST_FUNCTIONS, "gather", lambda *_: lambda _operands: result)
    with pytest.raises(ExecutionError, match=found):
        compiled(index_graph())(np.zeros((5, 2)), picks(0, 0, 0))


def test_operators_may_run_a_function_of_their_own(monkeypatch):
    made: list[str] = []

    def make(node: Any, graph: Graph, _threads: int) -> Callable[..., Any]:
        made.append(node.name)
        rows = graph.value(node.inputs[0]).shape[0]
        return lambda operands: [operands[0][(operands[1] + 1) % rows]]

    monkeypatch.setitem(HOST_FUNCTIONS, "gather", make)
    model = compiled(index_graph())
    x = np.arange(10, dtype=np.float64).reshape(5, 2)
    for _ in range(2):
        np.testing.assert_array_equal(model(x, picks(4, 0, 1)), x[[0, 1, 2]])
    assert made == ["pick"]


def test_operands_are_read_only_and_constants_too(monkeypatch):
    def make(*_: Any) -> Callable[..., Any]:
        def write(operands: Any) -> Any:
            assert not any(operand.flags.writeable for operand in operands)
            operands[0][:] = 0

        return write

    monkeypatch.setitem(HOST_FUNCTIONS, "pow", make)
    b = GraphBuilder("g")
    c = b.constant(np.ones(3, np.int64))
    graph = b.build([b.op("pow", [c, b.input("x", (3,), "int64")])])
    with pytest.raises(ExecutionError, match="read-only"):
        compiled(graph)(np.zeros(3, np.int64))


def test_threads_share_a_model_with_host_steps():
    graph = mixed()
    model = compiled(graph)
    feeds = [inputs_of(graph, seed) for seed in range(4)]
    expected = [model.run(feed) for feed in feeds]
    start = threading.Barrier(4, timeout=300)

    def call(which: int) -> bool:
        start.wait()
        found = [model.run(feeds[which]) for _ in range(20)]
        return all(
            (run[name] == expected[which][name]).all() for run in found for name in graph.outputs
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(4)))


def test_models_are_freed_when_they_are_dropped():
    model = compiled(mixed())
    model.run(inputs_of(mixed()))
    ref, native = weakref.ref(model), weakref.ref(model._native)
    gc.collect()
    gc.disable()
    try:
        del model
        assert (ref(), native()) == (None, None)  # by their counts alone: there are no cycles
    finally:
        gc.enable()


def test_infinity_and_nan_are_results_like_any_other():
    b = GraphBuilder("g")
    x, y = b.input("x", (4,), "float64"), b.input("y", (4,), "float64")
    found = compiled(b.build([b.op("div", [x, y])]))(np.array([1.0, -1, 0, 1e308]), np.zeros(4))
    np.testing.assert_array_equal(found, [np.inf, -np.inf, np.nan, np.inf])


def test_targets_without_a_host_refuse_what_they_cannot_compute():
    with pytest.raises(ModelError, match="expected dtype"):
        sw.compile(index_graph(), target="ascend")


def test_plans_with_host_steps_go_through_files(tmp_path: Path):
    graph = mixed()
    model = compiled(graph)
    model.plan.save(tmp_path / "plan.json")
    again = sw.compile(graph, plan=tmp_path / "plan.json", threads=2)
    assert hosted(again) == hosted(model)
    assert again.plan.to_json() == model.plan.to_json()
    feeds = inputs_of(graph)
    for name, wanted in model.run(feeds).items():
        np.testing.assert_array_equal(again.run(feeds)[name], wanted)
    text = (tmp_path / "plan.json").read_text()
    (tmp_path / "plan.json").write_text(
        text.replace('"algorithm": "host"', '"algorithm": "hos"', 1)
    )
    with pytest.raises(PlanError, match="'hos'"):
        sw.compile(graph, plan=tmp_path / "plan.json")


def test_costs_in_files_keep_nodes_with_other_attributes_apart():
    b = GraphBuilder("g")
    x, index = b.input("x", (4, 4), "float64"), b.input("i", (4,), "int64")
    graph = b.build([b.op("gather", [x, index], {"axis": axis}) for axis in (0, 1)])
    specs = [d.chosen.option.calls[0].spec for d in compiled(graph).plan.decisions]
    assert len({str(spec) for spec in specs}) == 2
    assert isinstance(compiled(graph).plan.decisions[0].chosen.costs[0], KernelCost)


# --- a law --------------------------------------------------------------------------------------

_NUMBERS = ("float32", "float64", "int64", "int32", "uint8")


@st.composite
def programs(draw: st.DrawFn) -> tuple[Graph, dict[str, Array]]:
    """Draw a graph of elementwise steps, casts, reshapes and copies over several dtypes."""
    b = GraphBuilder("g")
    values = {
        dtype: [b.input(f"{dtype}_{index}", (2, 3, 4), dtype) for index in range(2)]
        for dtype in _NUMBERS
    }
    for _ in range(draw(st.integers(1, 12))):
        dtype = draw(st.sampled_from(_NUMBERS))
        one, two = (draw(st.sampled_from(values[dtype])) for _ in range(2))
        step = draw(st.sampled_from(["add", "mul", "maximum", "cast", "where", "roll"]))
        if step == "cast":
            dtype = draw(st.sampled_from(_NUMBERS))
            new = b.op("cast", [one], {"to": dtype})
        elif step == "where":
            new = b.op("where", [b.op("equal", [one, two]), one, two])
        elif step == "roll":
            turned = b.op("transpose", [one], {"perm": (1, 2, 0)})
            new = b.op("reshape", [turned], {"shape": (2, 3, 4)})
        else:
            new = b.op(step, [one, two])
        values[dtype].append(new)
    outputs = [names[-1] for names in values.values()]
    feeds = {
        name: drawn(b.type(name).dtype.name, 2, 3, 4, seed=draw(st.integers(0, 99)))
        for names in values.values()
        for name in names[:2]
    }
    return b.build(outputs), feeds


def by_numpy(graph: Graph, feeds: dict[str, Array]) -> dict[str, Array]:
    """Run such a graph independently of Stridewise."""
    rules: dict[str, Callable[..., Array]] = {
        "add": np.add, "mul": np.multiply, "maximum": np.maximum, "equal": np.equal,
        "where": np.where,
    }  # fmt: skip
    values = dict(feeds)
    for node in graph.nodes:
        operands = [values[name] for name in node.inputs]
        if node.op == "cast":
            result = operands[0].astype(node.str_attr("to"))
        elif node.op == "transpose":
            result = operands[0].transpose(node.ints_attr("perm"))
        elif node.op == "reshape":
            result = operands[0].reshape(node.ints_attr("shape"))
        else:
            result = rules[node.op](*operands)
        values[node.outputs[0]] = result
    return {name: values[name] for name in graph.outputs}


@settings(max_examples=40, deadline=None)
@given(programs())
def test_graphs_of_several_dtypes_give_what_numpy_gives(drawn_program):
    graph, feeds = drawn_program
    with np.errstate(all="ignore"):
        expected = by_numpy(graph, feeds)
    found = compiled(graph).run(feeds)
    for name, wanted in expected.items():
        assert found[name].dtype == wanted.dtype
        if wanted.dtype.kind == "f" or wanted.dtype == ml_dtypes.bfloat16:
            np.testing.assert_allclose(found[name], wanted, rtol=1e-5)
        else:
            np.testing.assert_array_equal(found[name], wanted)
