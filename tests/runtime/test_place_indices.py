"""Reading and writing by known indices: as slices or rows, equal to the reference bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stridewise as sw
from stridewise.errors import ExecutionError
from stridewise.graph import Graph
from stridewise.ops import GraphBuilder
from stridewise.passes.place_indices import place_indices
from stridewise.program import KernelStep
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.simulation.reference import run_reference

Array = np.ndarray[Any, Any]
REDUCTIONS = ("none", "add", "mul", "max", "min")
SEEDS = st.integers(0, 2**32 - 1)


def kinds_of(graph: Graph) -> set[str]:
    """Compile, compare with the reference of the graph as it was, and return kinds of kernels."""
    rng = np.random.default_rng(0)
    values = {name: rng.normal(size=graph.value(name).shape).astype("f") for name in graph.inputs}
    model = sw.compile(graph, tune="model", threads=2)
    expected = run_reference(graph, values)
    for name, found in model.run(values).items():
        np.testing.assert_array_equal(found, expected[name])
    return {step.spec.kind for step in model.program.steps if isinstance(step, KernelStep)}


def indexed(op: str, shape: tuple[int, ...], indices: Array, updates: Any, **attrs: Any) -> Graph:
    b = GraphBuilder("g")
    inputs = [b.input("x", shape), b.constant(indices)]
    if updates is not None:
        inputs.append(b.input("updates", tuple(updates)))
    return b.build([b.op("neg", [b.op(op, inputs, attrs)])])


def points_of(lines: list[Array]) -> Array:
    """Return the points of a grid of coordinates along each axis."""
    return np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1)


@settings(max_examples=40)
@given(seed=SEEDS, reduction=st.sampled_from(REDUCTIONS), is_box=st.booleans())
def test_points_are_read_and_written_natively(seed, reduction, is_box):
    rng = np.random.default_rng(seed)
    shape = tuple(int(extent) for extent in rng.integers(1, 7, rng.integers(1, 5)))
    depth = int(rng.integers(1, len(shape) + 1))
    if is_box:
        starts = [int(rng.integers(0, extent)) for extent in shape[:depth]]
        lines = [
            np.arange(start, int(rng.integers(start, extent)) + 1, int(rng.integers(1, 3)))
            for start, extent in zip(starts, shape, strict=False)
        ]
        points = points_of(lines)
    else:
        columns = [rng.integers(-extent, extent, (2, 3)) for extent in shape[:depth]]
        points = np.stack(columns, axis=-1)
    rest = (*points.shape[:-1], *shape[depth:])
    assert "host" not in kinds_of(indexed("gather_nd", shape, points, None))
    assert "host" not in kinds_of(indexed("scatter_nd", shape, points, rest, reduction=reduction))


@settings(max_examples=40)
@given(seed=SEEDS, reduction=st.sampled_from(REDUCTIONS))
def test_elements_and_slices_along_an_axis_are_native(seed, reduction):
    rng = np.random.default_rng(seed)
    shape = tuple(int(extent) for extent in rng.integers(1, 7, rng.integers(1, 5)))
    axis = int(rng.integers(0, len(shape)))
    some = [int(rng.integers(1, extent + 1)) for extent in shape]
    some[axis] = int(rng.integers(1, 9))
    indices = rng.integers(-shape[axis], shape[axis], some)
    assert "host" not in kinds_of(indexed("gather_elements", shape, indices, None, axis=axis))
    graph = indexed("scatter_elements", shape, indices, some, axis=axis, reduction=reduction)
    assert "host" not in kinds_of(graph)
    indices = rng.integers(-shape[axis], shape[axis], rng.integers(1, 4, 2))
    assert "host" not in kinds_of(indexed("gather", shape, indices, None, axis=axis))


def test_a_part_of_attention_is_written_by_moves_of_boxes():
    points = points_of([np.arange(2), np.arange(3), np.arange(1, 17), np.arange(1, 5)])
    graph = indexed("scatter_nd", (2, 3, 17, 5), points, (2, 3, 16, 4))
    assert {node.op for node in place_indices(graph)[0].nodes} <= {
        "concat", "identity", "neg", "reshape", "slice"
    }  # fmt: skip
    assert "scatter_rows" not in kinds_of(graph)


def test_rows_are_written_into_a_copy_of_a_tensor_that_others_read():
    b = GraphBuilder("g")
    x, updates = b.input("x", (5, 4)), b.input("updates", (2, 4))
    y = b.op("abs", [x])
    written = b.op("scatter_nd", [y, b.constant(np.array([[3], [1]])), updates])
    of_constant = b.constant(np.ones((5, 4), np.float32))
    other = b.op("scatter_nd", [of_constant, b.constant(np.array([[3], [1]])), updates])
    assert "host" not in kinds_of(b.build([written, b.op("neg", [y]), other]))


def test_indices_outside_of_an_axis_are_found_in_the_run():
    for op, updates in (("gather_nd", None), ("scatter_nd", (1,))):
        model = sw.compile(indexed(op, (3,), np.array([[3]]), updates), tune="model")
        values = {"x": np.zeros(3, "f")} | ({"updates": np.zeros(1, "f")} if updates else {})
        with pytest.raises(ExecutionError, match="indices from -3 to 2"):
            model.run(values)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("inner", [(), (5,)])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_by_indices_of_the_run(dtype, inner, threads):
    rng = np.random.default_rng(0)
    b = GraphBuilder("words")
    table, x = rng.standard_normal((9, *inner)).astype("f"), b.input("x", (3, 7, *inner))
    words, places = b.input("words", (4, 3), dtype), b.input("places", (600,), dtype)
    known = b.op("gather", [b.constant(table), words], {"axis": 0})
    computed = b.op("gather", [x, places], {"axis": 1}, name="computed")
    graph = b.build([b.op("relu", [known]), b.op("relu", [computed])])
    model = sw.compile(graph, tune="model", threads=threads)
    steps = [step for step in model.program.steps if isinstance(step, KernelStep)]
    assert [step.spec.kind for step in steps].count("gather_rows") == 2
    values = {
        "x": rng.standard_normal((3, 7, *inner)).astype("f"),
        "words": rng.integers(-9, 9, (4, 3)).astype(dtype),
        "places": rng.integers(-7, 7, 600).astype(dtype),
    }
    expected = run_reference(graph, values)
    for name, found in model.run(values).items():
        np.testing.assert_array_equal(found, expected[name])
    for outside in (7, -8, *([1 << 32, -(1 << 40)] if dtype == "int64" else [])):
        wrong = values["places"].copy()
        wrong[417] = outside
        message = f"node 'computed': expected indices from -7 to 6, found {outside}; check"
        with pytest.raises(ExecutionError, match=message):
            model.run({**values, "places": wrong})
    for name, found in model.run(values).items():
        np.testing.assert_array_equal(found, expected[name])


def test_known_indices_beyond_an_axis_are_an_error_of_the_run_among_other_moves():
    b = GraphBuilder("windows")
    y = b.input("x", (2, 4, 6, 5))
    for axis in (2, 4):
        places = b.constant(np.array([[0, 1], [2, 9]]))
        y = b.op("gather", [y, places], {"axis": axis}, name=f"axis {axis}")
    graph = b.build([b.op("transpose", [y], {"perm": (0, 1, 2, 4, 3, 5)})])
    model = sw.compile(graph, tune="model")
    with pytest.raises(ExecutionError, match="indices from -6 to 5, found 9"):
        model(np.zeros((2, 4, 6, 5), np.float32))


def test_kernels_check_tables_and_arguments():
    core = load_core()

    def plain(*dims: int) -> Any:
        return core.MemoryDesc(dims, "f32", "abc"[: len(dims)])

    with pytest.raises(ValueError, match="gather: expected two dense tensors"):
        core.GatherRows(plain(1, 2, 3), plain(1, 2, 4), threads=1)
    with pytest.raises(ValueError, match="gather: expected as many outer parts"):
        core.GatherRows(plain(1, 2, 3), plain(2, 2, 3), threads=1)
    with pytest.raises(ValueError, match="scatter: expected none, or add"):
        core.ScatterRows("first", plain(2, 3), plain(4, 3), threads=1)
    with pytest.raises(
        ValueError, match="recurrent: expected lstm, gru, tanh or relu, got peephole"
    ):
        core.Recurrent(
            "peephole", "forward", plain(1, 2, 4), plain(1, 2, 1),
            has_bias=False, has_state=False, has_cell=False, threads=1,
        )  # fmt: skip
    with pytest.raises(ValueError, match="recurrent: expected as many units"):
        core.Recurrent(
            "lstm", "forward", plain(1, 2, 9), plain(1, 2, 2),
            has_bias=False, has_state=False, has_cell=False, threads=1,
        )  # fmt: skip


def test_numbers_of_rows_are_exact():
    """float32 has no numbers between 2**24 and 2**24 + 2."""
    places = np.array([2**24 + 1, 2**24 + 3, 0])
    graph = indexed("gather", (2**24 + 4,), places, None, axis=0)
    x = np.zeros(2**24 + 4, np.float32)
    x[[2**24, 2**24 + 1, 2**24 + 2, 2**24 + 3]] = 1, 2, 3, 4
    model = sw.compile(graph, tune="model", threads=2)
    np.testing.assert_array_equal(model(x), [-2, -4, 0])
