"""One suite, every executor: the reference, the planned program, and every uniform storage."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import pytest

import stridewise as sw
from stridewise.errors import InputError
from stridewise.formats import loops
from stridewise.graph import Graph
from stridewise.ops import OPS
from stridewise.planner.problem.candidates import Candidate
from stridewise.program import KernelStep, Written
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.onednn.table import OFFERS, TYPED

from .arena import check_arena
from .graphs import CASES, KINDS, Net, error, forced_plan, inputs_of
from .health import check_health

TOLERANCE = 1e-5
F32 = np.float32


def compiled(graph: Graph, how: str) -> CompiledModel:
    if how == "model":
        return sw.compile(graph, tune="model", threads=2)
    return load(lower_plan(forced_plan(graph, how)))


def padding(written: Written) -> np.ndarray[Any, Any]:
    """Return which places of a storage hold no element, found loop by loop."""
    fmt, shape = written.desc.storage.format, written.desc.canonical_shape
    walk = loops(fmt, shape)
    grids = np.indices([loop.extent for loop in walk])
    inside = np.ones(grids.shape[1:], bool)
    for axis, extent in zip(fmt.axes, shape, strict=True):
        index = sum(
            grid * loop.step for grid, loop in zip(grids, walk, strict=True) if loop.axis == axis
        )
        inside &= index < extent
    return ~inside


def agree(graph: Graph, model: CompiledModel) -> None:
    """Check a model against the reference, run plainly and over poisoned memory."""
    feeds = inputs_of(graph)
    expected = run_reference(graph, feeds)
    found = model.run(feeds)
    assert list(found) == list(dict.fromkeys(graph.outputs))
    for name, wanted in expected.items():
        assert error(found[name], wanted) <= TOLERANCE, name
    padded = 0

    def check(written: Written, stored: np.ndarray[Any, Any]) -> None:
        nonlocal padded
        spare = stored[padding(written)]
        padded += spare.size
        assert not np.isnan(stored).any(), f"{written.value} is not written everywhere"
        where = f"{written.value} in {written.desc.storage.format}"
        assert (spare == 0).all(), f"spare lanes of {where}"

    traced = model.trace(feeds, check)
    for name, wanted in found.items():
        np.testing.assert_array_equal(traced[name], wanted)


@pytest.mark.parametrize("how", ["model", *KINDS])
@pytest.mark.parametrize("case", CASES)
def test_all_executors_agree(case, how):
    """The one place where all cases are planned in all formats: all laws of plans are here."""
    graph = CASES[case]()
    model = compiled(graph, how)
    agree(graph, model)
    check_arena(model.program)
    # What the core chooses needs its original weights for that: see tests/runtime/test_verify.py.
    # Runs on older instruction sets compare results alone.
    if how != "model" and not os.environ.get("ONEDNN_MAX_CPU_ISA"):
        check_health(graph, model)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", ["chain_17_3", "concats_1", "dense", "post_ops", "nhwc"])
def test_unsimplified_graphs_give_the_same(case, kind):
    graph = CASES[case]()
    agree(graph, load(lower_plan(forced_plan(graph, kind, simplified=False))))


def test_every_operator_with_kernels_is_executed():
    executed = {node.op for make in CASES.values() for node in make().nodes}
    # Other files compare these kernels: tests/training/test_dropout.py (dropout draws in steps of
    # training only), test_elements.py, test_place_indices.py and test_positions.py.
    elsewhere = {"dropout", "gather", "scatter_nd"} | {*TYPED}
    assert (executed & OPS.keys()) | elsewhere >= OFFERS.keys()


def test_plans_can_be_forced_into_every_kind():
    formats = {}
    for kind in KINDS:
        plan = forced_plan(CASES["chain_24_1"](), kind)
        convolutions = [d for d in plan.decisions if d.chosen.algorithm.startswith("direct")]
        formats[kind] = {str(d.chosen.option.outputs[0])[:5] for d in convolutions}
    assert formats["plain"] == {"NCHW"}
    assert formats["channels-last"] == {"NHWC"}
    assert formats["blocked"] <= {"nChw8", "nChw1"}


def every_candidate(graph: Graph) -> list[tuple[str, Candidate]]:
    plan = forced_plan(graph, "blocked")
    return [(d.node, c) for d in plan.decisions for c in (d.chosen, *d.rejected)]


def test_the_cases_offer_all_kinds_of_algorithms():
    names = {
        candidate.algorithm
        for case in CASES
        if case != "reversed"
        for _, candidate in every_candidate(CASES[case]())
    }
    words = {"direct, plain", "direct, channels-last", "direct, blocked, sum in place", "view"}
    words |= {"first layer to blocked", "in place, blocked", "copy, blocked", "fill and copy"}
    words |= {"global pooling, blocked", "inner product", "matmul", "shuffle, blocked", "softmax"}
    assert all(any(word in name for name in names) for word in words)


# --- many callers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["chain_100_1", "nhwc", "products"])
def test_eight_threads_at_once_get_the_very_same_bits(case):
    graph = CASES[case]()
    model = compiled(graph, "model")
    feeds = [inputs_of(graph, seed) for seed in range(4)]
    alone = [model.run(feed) for feed in feeds]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda index: model.run(feeds[index % 4]), range(48)))
    for index, found in enumerate(together):
        for name, wanted in alone[index % 4].items():
            np.testing.assert_array_equal(found[name], wanted)


def test_results_belong_to_the_caller():
    model = compiled(CASES["chain_3_1"](), "model")
    feeds = inputs_of(model.plan.graph)
    first = model(feeds["x"])
    kept = first.copy()
    model(2 * feeds["x"])
    np.testing.assert_array_equal(first, kept)
    first[:] = 0
    np.testing.assert_array_equal(model(feeds["x"]), kept)


def test_inputs_are_not_written():
    graph = CASES["nhwc"]()
    feeds = inputs_of(graph)
    for array in feeds.values():
        array.flags.writeable = False
    before = {name: array.copy() for name, array in feeds.items()}
    for kind in KINDS:
        compiled(graph, kind).run(feeds)
    for name, array in feeds.items():
        np.testing.assert_array_equal(array, before[name])


# --- inputs ---------------------------------------------------------------------------------------


def two_inputs() -> CompiledModel:
    b = Net(2, 3)
    y = b.input("y", (3,))
    return sw.compile(b.build([b.op("add", [b.x, y], output="sum")]), tune="model", threads=2)


X, Y = np.arange(6, dtype=F32).reshape(2, 3), np.ones(3, F32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m(X), "model 'net': expected 2 inputs (x, y), found 1"),
        (lambda m: m(X, Y, Y), "model 'net': expected 2 inputs (x, y), found 3"),
        (lambda m: m.run({"x": X}), "model 'net': expected inputs x, y, found x"),
        (lambda m: m.run({}), "model 'net': expected inputs x, y, found none"),
        (lambda m: m.run({"x": X, "z": Y}), "model 'net': expected inputs x, y, found x, z"),
        (
            lambda m: m(X.astype(np.float64), Y),
            "input 'x': expected dtype float32, found float64; use .astype('float32')",
        ),
        (
            lambda m: m(X, np.ones(4, F32)),
            "input 'y': expected shape (3,), found (4,); compile with shapes={'y': (4,)}",
        ),
        (
            lambda m: m(X[None], Y),
            "input 'x': expected shape (2, 3), found (1, 2, 3); take the first axis off: x[0]",
        ),
        (
            lambda m: m(X, Y[:, None, None]),
            "input 'y': expected shape (3,), found (3, 1, 1); give an array with 1 axis",
        ),
        (
            lambda m: m([[1.0]], Y),
            "input 'x': expected an array (NumPy, or anything with DLPack), found list; "
            "use numpy.asarray(..., dtype='float32')",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_refused(call, message):
    with pytest.raises(InputError) as caught:
        call(two_inputs())
    assert str(caught.value) == message


def test_inputs_of_any_strides_are_read_right():
    model = two_inputs()
    expected = X + Y
    wide = np.zeros((2, 6), F32)
    wide[:, ::2] = X
    backwards = np.ascontiguousarray(X[:, ::-1])[:, ::-1]
    for x in (np.asfortranarray(X), wide[:, ::2], backwards, X.T.copy().T):
        np.testing.assert_array_equal(model(x, Y), expected)
    np.testing.assert_array_equal(model(X, np.broadcast_to(F32(1), 3)), expected)


class Exported:
    """Something that is no NumPy array but offers DLPack."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def test_inputs_may_come_by_dlpack():
    model = two_inputs()
    np.testing.assert_array_equal(model(Exported(X), Exported(Y)), X + Y)
    np.testing.assert_array_equal(
        model.run({"y": Exported(Y), "x": Exported(X.T.copy().T)})["sum"], X + Y
    )
    with pytest.raises(InputError, match="expected dtype float32, found int64"):
        model(Exported(X.astype(np.int64)), Y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tune": "guess"}, "tune: expected 'auto' or 'measure' or 'model', found 'guess'"),
        ({"target": "abacus"}, "target: expected one of onednn-cpu, ascend, "),
        ({"shapes": {"x": (1,)}}, "shapes: expected none for a graph, whose shapes are fixed"),
        ({"threads": 0}, "threads: expected a number from 1 to"),
    ],
)
def test_arguments_of_compile_that_do_not_fit_are_refused(options, message):
    b = Net(2, 3)
    with pytest.raises(InputError) as caught:
        sw.compile(b.build([b.op("relu", [b.x])]), **{"tune": "model", **options})
    assert str(caught.value).startswith(message)


def test_names_profile_and_memory_are_those_of_the_program():
    model = compiled(CASES["chain_17_3"](), "blocked")
    assert model.input_names == ("x",)
    assert model.output_names == model.plan.graph.outputs
    profile = model.profile(inputs_of(model.plan.graph), runs=2)
    assert len(profile.rows) == len(model.program.steps)
    assert profile.predicted_ns == pytest.approx(
        sum(step.cost_ns for step in model.program.steps if isinstance(step, KernelStep))
    )
    assert "in total" in str(profile)
    assert model.memory.arena >= model.memory.arena_lower_bound > 0
    assert model.memory.packed_weights > 0
    lines = model.program.text().splitlines()
    assert lines[1].startswith(f"arena: {model.memory.arena} bytes, ")
    assert sum(line.startswith("step ") for line in lines) == len(model.program.steps)


def test_padding_is_found_by_loops():
    model = compiled(CASES["conv_2d_17"](), "blocked")
    seen: list[tuple[int, int]] = []

    def check(written: Written, _stored: np.ndarray[Any, Any]) -> None:
        mask = padding(written)
        elements = int(np.prod(written.desc.shape))
        assert mask.size - mask.sum() == elements
        seen.append((mask.size, elements))

    model.trace(inputs_of(model.plan.graph), check)
    assert any(size > elements for size, elements in seen)
    assert list(product(seen))


def test_errors_of_a_callback_are_its_own():
    model = compiled(CASES["conv_2d_17"](), "blocked")
    problem = RuntimeError("no more paper")

    def refuse(_written: Written, _stored: np.ndarray[Any, Any]) -> None:
        raise problem

    with pytest.raises(RuntimeError, match="no more paper") as raised:
        model.trace(inputs_of(model.plan.graph), refuse)
    assert raised.value is problem


def test_an_input_of_another_dtype_without_readers():
    b = Net(1, 2)
    b.input("unread", (3,), "int64")
    model = sw.compile(b.build([b.op("relu", [b.x])]), threads=1, tune="model")
    x = np.array([[-1, 2]], F32)
    found = model(x, np.ones(3, np.int64))
    assert np.array_equal(found, [[0, 2]])
    with pytest.raises(sw.InputError, match="input 'unread': expected dtype int64, found float64"):
        model(x, np.ones(3))
