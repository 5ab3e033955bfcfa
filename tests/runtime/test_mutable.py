"""Parameters and states of compiled models: after every run they are what NumPy says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stridewise as sw
from stridewise.errors import ExecutionError, InputError
from stridewise.graph import Graph
from stridewise.program import CopyStep, KernelStep
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.kernels import HOST

core = load_core()
F32 = np.float32
Array = np.ndarray[Any, np.dtype[Any]]


def compiled(graph: Graph, **options: Any) -> sw.CompiledModel:
    return sw.compile(graph, tune="model", threads=2, **options)


def stepped(graph: Graph, inputs: dict[str, Array], kept: dict[str, Array]) -> dict[str, Array]:
    """Run the reference once, and replace what the graph updates in ``kept``."""
    found = run_reference(graph, {**kept, **inputs})
    kept |= {name: found[value].copy() for name, value in graph.updates.items()}
    return {name: found[name] for name in graph.outputs}


def batch_norm(b: sw.GraphBuilder, x: str, channels: int) -> str:
    """A batch norm by the statistics of the batch, which keeps running ones."""
    axes = {"axes": (0, 2, 3), "keepdims": 1}
    shape = (1, channels, 1, 1)
    running = b.state(np.zeros(shape, F32), "mean"), b.state(np.ones(shape, F32), "variance")
    mean = b.op("reduce_mean", [x], axes)
    centered = b.op("sub", [x, mean])
    variance = b.op("reduce_mean", [b.mul(centered, centered)], axes)
    for state, batch in zip(running, (mean, variance), strict=True):
        old = b.mul(state, b.constant(F32(0.9), "old"))
        b.update(state, b.add(old, b.mul(batch, b.constant(F32(0.1), "new"))))
    deviation = b.op("sqrt", [b.add(variance, b.constant(F32(1e-5), "epsilon"))])
    return b.op("div", [centered, deviation])


def test_batch_norm_in_training_keeps_running_statistics():
    b = sw.GraphBuilder("norm")
    y = b.conv2d(b.input("x", (4, 3, 9, 9)), filters=17, kernel_size=3)
    graph = b.build([b.relu(batch_norm(b, y, 17))])
    model, kept = compiled(graph), {}
    rng = np.random.default_rng(0)
    for _ in range(4):
        x = rng.normal(size=(4, 3, 9, 9)).astype(F32)
        (expected,) = stepped(graph, {"x": x}, kept).values()
        np.testing.assert_allclose(model(x), expected, rtol=1e-3, atol=1e-4)
        for name in ("mean", "variance"):
            np.testing.assert_allclose(model.states[name], kept[name], rtol=1e-4, atol=1e-6)
    model.states.reset()
    assert (model.states["mean"] == 0).all()
    assert (model.states["variance"] == 1).all()


def test_an_average_is_computed_where_it_is_kept():
    b = sw.GraphBuilder("average")
    x, mean = b.input("x", (3, 5)), b.state(np.zeros((3, 5), F32), "mean")
    old, new = (b.constant(np.full((3, 5), share, F32)) for share in (0.9, 0.1))
    b.update(mean, b.add(b.mul(mean, old), b.mul(x, new)))
    model = compiled(b.build([]))
    assert not [step for step in model.program.steps if isinstance(step, CopyStep)]
    expected = np.zeros((3, 5), F32)
    for seed in range(3):
        given_x = np.random.default_rng(seed).normal(size=(3, 5)).astype(F32)
        model(given_x)
        expected = expected * F32(0.9) + given_x * F32(0.1)
        np.testing.assert_allclose(model.states["mean"], expected, rtol=1e-6)


def test_states_may_change_places():
    b = sw.GraphBuilder("swap")
    one, two = b.state(F32([[1, 2]]), "one"), b.state(F32([[3, 4]]), "two")
    b.update(one, two)
    b.update(two, one)
    model = compiled(b.build([b.op("identity", [one])]))
    for count in range(3):
        np.testing.assert_array_equal(model(), [[1, 2]] if count % 2 == 0 else [[3, 4]])
    np.testing.assert_array_equal(model.states["one"], [[3, 4]])
    np.testing.assert_array_equal(model.states["two"], [[1, 2]])


UNARY, BINARY = ("relu", "neg", "exp", "sigmoid", "hardmax"), ("add", "mul", "sub", "maximum")
# hardmax runs on the fallback.


@st.composite
def updating_graphs(draw: st.DrawFn) -> Graph:
    """Graphs over values of one shape, whose states and parameters take any of them."""
    shape = draw(st.sampled_from([(3,), (2, 17), (1, 3, 2, 2)]))
    b, rng = sw.GraphBuilder("updates"), np.random.default_rng(draw(st.integers(0, 99)))
    array = lambda: rng.uniform(-1, 1, shape).astype(F32)  # noqa: E731
    values = [b.input("x", shape), b.constant(array(), "c"), b.parameter(array(), "fixed")]
    kept = [b.state(array(), f"s{i}") for i in range(draw(st.integers(1, 3)))]
    kept.append(b.parameter(array(), "w"))
    values += kept
    for _ in range(draw(st.integers(1, 7))):
        if draw(st.booleans()):
            op = draw(st.sampled_from(UNARY))
            attrs = {"axis": 0} if op == "hardmax" else {}
            y = b.op(op, [draw(st.sampled_from(values))], attrs)
            values.append(b.op("clip", [y], {"alpha": -1.0, "beta": 1.0}))
        else:
            pair = [draw(st.sampled_from(values)), draw(st.sampled_from(values))]
            values.append(b.op(draw(st.sampled_from(BINARY)), pair))
        if draw(st.integers(0, 4)) == 0:
            flat = b.op("reshape", [values[-1]], {"shape": (int(np.prod(shape)),)})
            values.append(b.op("reshape", [flat], {"shape": shape}))
    for name in kept:
        if draw(st.integers(0, 3)):
            b.update(name, draw(st.sampled_from(values)))
    outputs = draw(st.lists(st.sampled_from(values), max_size=3, unique=True))
    return b.build(outputs or [values[-1]])


@given(updating_graphs())
@settings(max_examples=80, deadline=None)
def test_every_run_updates_like_the_reference(graph: Graph):
    model = compiled(graph, keep_parameters=True)
    kept: dict[str, Array] = {}
    rng = np.random.default_rng(1)
    for _ in range(3):
        x = rng.uniform(-1, 1, graph.value("x").shape).astype(F32)
        expected = stepped(graph, {"x": x}, kept)
        found = model.run({"x": x})
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
        for name in graph.updates:
            holder = model.states if name in graph.states else model.parameters
            np.testing.assert_allclose(holder[name], kept[name], rtol=1e-4, atol=1e-5)


# --- parameters -----------------------------------------------------------------------------------


def network() -> Graph:
    """Weights that kernels read packed, transformed, in the plain format, and on the fallback."""
    b, rng = sw.GraphBuilder("net"), np.random.default_rng(0)
    drawn = lambda *shape: rng.normal(0, 0.2, shape).astype(F32)  # noqa: E731
    x = b.input("x", (1, 16, 14, 14))
    attrs = {"pads": (1, 1, 1, 1)}
    y = b.op("conv", [x, b.parameter(drawn(32, 16, 3, 3), "w"), b.parameter(drawn(32), "b")], attrs)
    y = b.relu(y)
    y = b.op("conv", [y, b.parameter(drawn(32, 1, 3, 3), "depthwise")], {**attrs, "groups": 32})
    y = b.mul(y, b.parameter(drawn(1, 32, 1, 1), "scale"))
    table = b.parameter(drawn(1, 32, 1, 1), "table")
    y = b.mul(y, b.op("hardmax", [table], {"axis": 1}))
    y = b.flatten(b.global_avg_pool(y))
    y = b.op("matmul", [y, b.parameter(drawn(10, 32), "dense")], {"trans_b": 1})
    return b.build([y])


def test_a_replaced_parameter_reaches_every_form_of_it():
    graph = network()
    model = compiled(graph, keep_parameters=True)
    assert set(model.parameters) == set(graph.parameters)
    hosted = [s for s in model.program.steps if isinstance(s, KernelStep) and s.spec.kind == HOST]
    assert hosted
    x = np.random.default_rng(1).normal(size=(1, 16, 14, 14)).astype(F32)
    given_values = {name: item.array for name, item in graph.parameters.items()}
    for seed, name in enumerate(graph.parameters):
        shape = graph.value(name).shape
        new = np.random.default_rng(seed).normal(0, 0.2, shape).astype(F32)
        model.parameters[name] = given_values[name] = new
        np.testing.assert_array_equal(model.parameters[name], new)
        (expected,) = run_reference(graph, {"x": x, **given_values}).values()
        np.testing.assert_allclose(model(x), expected, rtol=1e-3, atol=1e-4)
    model.parameters.reset()
    (expected,) = run_reference(graph, {"x": x}).values()
    np.testing.assert_allclose(model(x), expected, rtol=1e-3, atol=1e-4)


def test_parameters_are_constants_by_default():
    graph = network()
    model = compiled(graph)
    assert not model.program.parameters
    assert not model.parameters
    with pytest.raises(InputError, match="none, as the model was compiled without"):
        model.parameters["w"] = np.zeros(1, F32)


def test_wrong_arrays_are_refused():
    model = compiled(network(), keep_parameters=True)
    with pytest.raises(InputError, match="expected shape"):
        model.parameters["b"] = np.zeros(31, F32)
    with pytest.raises(InputError, match="float32"):
        model.parameters["b"] = np.zeros(32, np.float64)
    with pytest.raises(InputError, match="parameters of the model: expected w, b"):
        model.parameters["no"] = np.zeros(32, F32)
    with pytest.raises(KeyError):
        model.parameters["no"]


def test_arrays_of_the_caller_stay_the_callers():
    model = compiled(network(), keep_parameters=True)
    mine = np.ones(32, F32)
    model.parameters["b"] = mine
    mine[:] = 7
    read = model.parameters["b"]
    assert (read == 1).all()
    read[:] = 8
    assert (model.parameters["b"] == 1).all()


def test_runs_of_several_threads_each_update_once():
    b = sw.GraphBuilder("count")
    count = b.state(np.zeros(1, F32), "count")
    new = b.add(count, b.input("x", (1,)))
    b.update(count, new)
    model = compiled(b.build([new]), streams=1)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: float(model(np.ones(1, F32))[0]), range(200)))
    assert sorted(found) == list(range(1, 201))
    assert model.states["count"] == 200


def test_a_trace_that_runs_the_model_again_is_an_error():
    b = sw.GraphBuilder("again")
    s = b.state(np.zeros(3, F32), "s")
    y = b.relu(b.add(s, b.input("x", (3,))))
    b.update(s, y)
    model, x = compiled(b.build([y])), np.ones(3, F32)
    with pytest.raises(ExecutionError, match="runs on this thread"):
        model.trace({"x": x}, lambda *_: model(x))


def test_simulated_targets_keep_no_state():
    b = sw.GraphBuilder("state")
    s = b.state(np.zeros((1, 3, 4, 4), F32), "s")
    b.update(s, b.relu(b.add(s, b.input("x", (1, 3, 4, 4)))))
    with pytest.raises(ExecutionError, match="as simulation keeps none"):
        sw.compile(b.build([]), target="ascend")


# --- the core -------------------------------------------------------------------------------------

ARENA, CONSTANTS, INPUTS, OUTPUTS, PARAMETERS, STATES = range(6)
D = core.MemoryDesc([16], "f32", "a")


def program(**options: Any) -> Any:
    return core.Program(256, [], [64], [64], 1, parameter_nbytes=[64], state_nbytes=[64], **options)


def relu() -> Any:
    return core.eltwise("relu", D, D, threads=1).create()


def args(src: tuple[int, int, int], dst: tuple[int, int, int]) -> list[Any]:
    return [(core.ARG_SRC, D, *src), (core.ARG_DST, D, *dst)]


@pytest.mark.parametrize("space", [ARENA, PARAMETERS, STATES])
def test_overlaps_must_be_declared(space):
    with pytest.raises(ValueError, match="expected them apart or declared in place"):
        program().add_primitive(relu(), args((space, 0, 0), (space, 0, 0)))
    pair = [(core.ARG_DST, core.ARG_SRC)]
    program().add_primitive(relu(), args((space, 0, 0), (space, 0, 0)), pair)


def test_what_is_declared_begins_at_the_same_byte():
    pair = [(core.ARG_DST, core.ARG_SRC)]
    with pytest.raises(ValueError, match="overlaps argument"):
        program().add_primitive(relu(), args((ARENA, 0, 0), (ARENA, 0, 32)), pair)
    with pytest.raises(ValueError, match="in place, expected a written and a read argument"):
        program().add_primitive(relu(), args((ARENA, 0, 0), (ARENA, 0, 64)), [(1, 17)])


def test_scratchpads_overlap_nothing():
    x = core.MemoryDesc([1, 64, 32, 32], "f32", "abcd")
    made = core.batch_norm(x, x, 1e-5, False, threads=1).create()
    if not made.scratchpad_nbytes:
        pytest.skip("this library needs no scratchpad here")
    pad = made.arg_desc(core.ARG_SCRATCHPAD)
    big = core.Program(pad.nbytes, [], [x.nbytes], [x.nbytes], 1)
    big.add_primitive(
        made,
        [
            (core.ARG_SRC, x, INPUTS, 0, 0),
            (core.ARG_DST, x, OUTPUTS, 0, 0),
            (core.ARG_SCRATCHPAD, pad, ARENA, 0, 0),
        ],
    )
    small = core.Program(x.nbytes + pad.nbytes, [], [x.nbytes], [], 1)
    with pytest.raises(ValueError, match="expected them apart"):
        small.add_primitive(
            made,
            [
                (core.ARG_SRC, x, INPUTS, 0, 0),
                (core.ARG_DST, x, ARENA, 0, 0),
                (core.ARG_SCRATCHPAD, pad, ARENA, 0, 0),
            ],
        )


def test_results_of_a_fallback_step_overlap_nothing():
    made = program()
    made.add_host(lambda _: None, [(STATES, 0, 0, 32, True), (STATES, 0, 32, 32, True)])
    with pytest.raises(ValueError, match=r"states\[0\] overlaps another argument"):
        made.add_host(lambda _: None, [(STATES, 0, 0, 33, True), (STATES, 0, 32, 32, True)])


@pytest.mark.parametrize("space", [PARAMETERS, STATES])
def test_bounds_of_mutable_spaces(space):
    with pytest.raises(ValueError, match="do not fit into the 64 bytes"):
        program().add_copy((space, 0, 4), (INPUTS, 0, 0), 64)
    with pytest.raises(ValueError, match="there is no"):
        program().add_copy((space, 1, 0), (INPUTS, 0, 0), 4)
    made = program()
    for call in (
        lambda: made.read((space, 0, 4), np.zeros(64, np.uint8)),
        lambda: made.write([((space, 0, 0), np.zeros(65, np.uint8))]),
        lambda: made.write([((space, 1, 0), np.zeros(4, np.uint8))]),
        lambda: made.write([((ARENA, 0, 0), np.zeros(4, np.uint8))]),
    ):
        with pytest.raises(ValueError, match=r"at most 64 bytes|there is no|expected a parameter"):
            call()


def test_parts_write_no_state():
    with pytest.raises(ValueError, match="read only in a program of parts"):
        program(parts=2).add_copy((STATES, 0, 0), (INPUTS, 0, 0), 64)


def test_mutable_memory_is_zero_at_first():
    made = program()
    for space in (PARAMETERS, STATES):
        found = np.ones(16, F32)
        made.read((space, 0, 0), found)
        assert (found == 0).all()


@st.composite
def regions(draw: st.DrawFn) -> tuple[Any, Any]:
    """Two boxes of the same extents in one dense tensor: extents, strides, offset in elements."""
    whole = [draw(st.integers(1, 4)) for _ in range(3)]
    dims = [draw(st.integers(1, extent)) for extent in whole]
    strides = [whole[1] * whole[2], whole[2], 1]
    begins = [
        [draw(st.integers(0, w - d)) for w, d in zip(whole, dims, strict=True)] for _ in range(2)
    ]
    return tuple((dims, strides, int(np.dot(begin, strides))) for begin in begins)


def _elements(dims: list[int], strides: list[int], offset: int) -> set[int]:
    indices = np.indices(dims).reshape(3, -1).T
    return {offset + int(np.dot(index, strides)) for index in indices}


@given(regions())
@settings(max_examples=200, deadline=None)
def test_strided_arguments_overlap_where_an_element_is_in_both(boxes: tuple[Any, Any]):
    made = core.Program(1024, [], [], [], 1)
    src, dst = (core.MemoryDesc.strided(dims, "f32", strides) for dims, strides, _ in boxes)
    copy = core.reorder(src, dst, threads=1).create()
    offsets = [4 * offset for _, _, offset in boxes]
    call = [(core.ARG_SRC, src, ARENA, 0, offsets[0]), (core.ARG_DST, dst, ARENA, 0, offsets[1])]
    if _elements(*boxes[0]) & _elements(*boxes[1]):
        with pytest.raises(ValueError, match="expected them apart"):
            made.add_primitive(copy, call)
    else:
        made.add_primitive(copy, call)


def test_model_files_have_no_parameters(tmp_path):
    b = sw.GraphBuilder("file")
    sw.save(b.build([b.op("relu", [b.input("x", (1, 2))])]), tmp_path / "model.onnx")
    with pytest.raises(InputError, match="expected a graph, found a model file"):
        sw.plan(tmp_path / "model.onnx", keep_parameters=True)
