"""Kernels on elements of any type: against the definitions, and without a step in NumPy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stridewise as sw
from stridewise.dtypes import dtype_of
from stridewise.graph import Graph
from stridewise.ops import GraphBuilder
from stridewise.ops.logic import COMPARISONS, CONNECTIVES
from stridewise.program import KernelStep
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.onednn.elements import _FUNCTIONS, _OPERATORS

from .net import Net

Array = np.ndarray[Any, Any]
SEEDS = st.integers(0, 2**32 - 1)
TYPES = ("float64", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")
UNARY = ("abs", "bitwise_not", "is_inf", "is_nan", "logical_not", "neg", "sign", *_FUNCTIONS)
OTHERS = ("abs", "add", "div", "maximum", "minimum", "mul", "neg", "sign", "sub")
"""Operators that have other kernels of float32."""

OWN = {"elements", "running", "top_k", "gather_rows", "pointwise", "positions"}
OWN |= {"gather_elements", "gather_nd", "scatter_elements", "scatter_nd"}


def numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return numbers with ties, zeros, limits of the type and, for floats, infinity and NaN."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1.5], kind)
        usual = rng.normal(0, 2, shape).round(1).astype(kind)
        return np.where(rng.random(shape) < 0.3, rng.choice(special, shape), usual).astype(kind)
    limits = np.iinfo(kind)
    special = np.array([limits.min, limits.max, 0, 1], kind)
    usual = rng.integers(max(limits.min, -9), 10, shape).astype(kind)
    return np.where(rng.random(shape) < 0.3, rng.choice(special, shape), usual).astype(kind)


def kinds(model: sw.CompiledModel) -> set[str]:
    return {step.spec.kind for step in model.program.steps if isinstance(step, KernelStep)}


def agrees(graph: Graph, feeds: dict[str, Array], known: Iterable[str] = OWN) -> set[str]:
    """Compile, compare with the reference, and return the kinds of kernels, which must be known."""
    model = sw.compile(graph, tune="model", threads=2)
    expected = run_reference(graph, feeds)
    for name, found in model.run(feeds).items():
        assert found.dtype == expected[name].dtype
        np.testing.assert_allclose(found, expected[name], rtol=3e-7, atol=0)
    assert kinds(model) <= set(known)
    return kinds(model)


def broadcast(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that broadcasts to another one."""
    some = tuple(1 if rng.random() < 0.3 else extent for extent in shape)
    return some[int(rng.integers(0, len(some) + 1)) :] if rng.random() < 0.3 else some


@pytest.mark.parametrize("op", sorted({*_OPERATORS, *_FUNCTIONS, "where"}))
@given(seed=SEEDS)
def test_operators_of_all_types_and_broadcasts(op, seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(extent) for extent in rng.integers(1, 9, rng.integers(0, 5)))
    others = {"float32"} if op in OTHERS else set[str]()
    known = sorted(_OPERATORS.get(op, {"float32", "float64"}) - others)
    dtype = str(rng.choice(known if op != "where" else [*TYPES, "float16", "bool"]))
    attrs: dict[str, Any] = {"fmod": int(rng.integers(2))} if op == "mod" else {}
    if op == "is_inf":
        attrs = {"positive": int(rng.integers(2)), "negative": 1}
    if op == "mod" and dtype.startswith("float"):
        attrs = {"fmod": 1}
    count = 1 if op in UNARY else 3 if op == "where" else 2
    types = ["bool", dtype, dtype] if op == "where" else [dtype] * count
    b, names, feeds = GraphBuilder("g"), [], {}
    for index, found in enumerate(types):
        own = shape if index == 0 else broadcast(rng, shape)
        values = numbers(rng, found, own)
        if index and rng.random() < 0.3:
            names.append(b.constant(values))
            continue
        names.append(b.input(f"x{index}", own, found))
        feeds[f"x{index}"] = values
    agrees(b.build([b.op(op, names, attrs)]), feeds)


@given(seed=SEEDS)
def test_casts_between_all_types(seed):
    rng = np.random.default_rng(seed)
    source, goal = (str(name) for name in rng.choice([*TYPES, "float32", "bool"], 2))
    shape = tuple(int(extent) for extent in rng.integers(1, 20, rng.integers(0, 4)))
    x = numbers(rng, source, shape)
    if goal != "bool" and np.dtype(source).kind == "f" and np.dtype(goal).kind in "iu":
        # What integers do not hold is undefined in ONNX, and in NumPy.
        limits = np.iinfo(goal)
        x = np.clip(np.nan_to_num(x, posinf=7, neginf=0), max(limits.min, -99), 99).astype(source)
    b = GraphBuilder("g")
    y = b.op("cast", [b.input("x", shape, source)], {"to": goal})
    agrees(b.build([y]), {"x": x})


def moves(b: GraphBuilder, x: str, rng: np.random.Generator) -> str:
    """Add an operator that only moves elements."""
    shape = b.type(x).shape
    kind = str(rng.choice(["transpose", "slice", "concat", "expand", "tile", "constant"]))
    if kind == "transpose":
        return b.op("transpose", [x], {"perm": tuple(map(int, rng.permutation(len(shape))))})
    if kind == "slice":
        starts = tuple(int(rng.integers(0, extent)) for extent in shape)
        stops = tuple(int(rng.integers(s, e)) + 1 for s, e in zip(starts, shape, strict=True))
        steps = tuple(int(rng.integers(1, 3)) for _ in shape)
        return b.op("slice", [x], {"starts": starts, "stops": stops, "steps": steps})
    if kind == "expand":
        return b.op("expand", [x], {"shape": (2, *shape)})
    if kind == "tile":
        return b.op("tile", [x], {"repeats": tuple(map(int, rng.integers(1, 3, len(shape))))})
    other = x
    if kind == "constant":
        other = b.constant(numbers(rng, b.type(x).dtype.name, shape))
    return b.op("concat", [x, other], {"axis": int(rng.integers(len(shape)))})


@given(seed=SEEDS)
def test_what_only_moves_elements_moves_those_of_any_type(seed):
    rng = np.random.default_rng(seed)
    dtype = str(rng.choice([*TYPES, "bool"]))
    b = GraphBuilder("g")
    shape = tuple(int(extent) for extent in rng.integers(1, 6, rng.integers(1, 4)))
    y = moves(b, b.input("x", shape, dtype), rng)
    for _ in range(int(rng.integers(0, 3))):
        if len(b.type(y).shape) < 6:
            y = moves(b, y, rng)
    graph = b.build([y])
    agrees(graph, {"x": numbers(rng, dtype, shape)})


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
@given(data=st.data())
def test_top_k_with_ties_of_any_axis(dtype, data):
    shape = tuple(data.draw(st.lists(st.integers(1, 90), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    rng = np.random.default_rng(data.draw(SEEDS))
    attrs = {"axis": axis, "k": int(rng.integers(1, shape[axis] + 1)), "largest": 1}
    attrs["largest"] = int(rng.integers(2))
    b = GraphBuilder("g")
    values, places = b.node("top_k", [b.input("x", shape, dtype)], attrs, outputs=("v", "i"))
    x = numbers(rng, dtype, shape)
    if rng.random() < 0.5:
        x = np.sort(x, axis)[..., ::-1].copy()
    assert agrees(b.build([values, places]), {"x": x}) == {"top_k"}


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
@pytest.mark.parametrize("count", [1, 40, 200, 700, 1300, 5000, 40000, 70000])
def test_top_k_of_long_lines(count, dtype):
    rng = np.random.default_rng(count)
    shape = (3, 5000) if count <= 5000 else (1, 70000)
    x = (rng.normal(size=shape) * 1000).astype(dtype)
    x[0] = numbers(rng, dtype, shape[1:])
    b = GraphBuilder("g")
    values, places = b.node(
        "top_k", [b.input("x", x.shape, dtype)], {"axis": 1, "k": count}, outputs=("v", "i")
    )
    agrees(b.build([values, places]), {"x": x})


@given(seed=SEEDS)
def test_running_sums_and_products(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(extent) for extent in rng.integers(1, 80, rng.integers(1, 4)))
    dtype = str(rng.choice(["float32", "float64", "int32", "int64"]))
    attrs = {key: int(rng.integers(2)) for key in ("exclusive", "reverse")}
    attrs["axis"] = int(rng.integers(len(shape)))
    b = GraphBuilder("g")
    y = b.op(str(rng.choice(["cumsum", "cumprod"])), [b.input("x", shape, dtype)], attrs)
    x = np.nan_to_num(numbers(rng, dtype, shape), posinf=2, neginf=-2)
    assert agrees(b.build([y]), {"x": x}) == {"running"}


@given(seed=SEEDS)
def test_totals_of_few_elements_and_of_integers(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(extent) for extent in rng.integers(1, 40, rng.integers(1, 4)))
    dtype, op = (str(rng.choice(found)) for found in (["float32", "int32", "int64"], TOTALS))
    if op in FLOAT_TOTALS:
        dtype = "float32"
    first = int(rng.integers(len(shape)))
    axes = tuple(range(first, int(rng.integers(first, len(shape))) + 1))
    b = GraphBuilder("g")
    x = numbers(rng, dtype, shape)
    if np.issubdtype(x.dtype, np.floating):
        x = np.where(np.isinf(x) | np.isnan(x) & (rng.random() < 0.8), 1, x).astype(np.float32)
    attrs = {"axes": axes, "keepdims": int(rng.integers(2))}
    y = b.op(op, [b.input("x", shape, dtype)], attrs)
    model = sw.compile(b.build([y]), tune="model", threads=2)
    (found,), (expected,) = (
        model.run({"x": x}).values(),
        run_reference(model.plan.graph, {"x": x}).values(),
    )
    scale = np.abs(np.nan_to_num(x.astype(np.float64))).sum() + 1 if dtype == "float32" else 0
    np.testing.assert_allclose(found, expected, rtol=3e-7, atol=1e-7 * scale)
    assert "host" not in kinds(model)


FLOAT_TOTALS = ["reduce_l1", "reduce_l2", "reduce_mean", "reduce_sum_square"]
TOTALS = [*FLOAT_TOTALS, "reduce_max", "reduce_min", "reduce_sum"]


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("op", TOTALS)
def test_totals_over_channels_in_any_format(op, keepdims):
    b = Net(2, 19, 6, 7)
    graph = b.build([b.op(op, [b.named(b.x)], {"axes": (1,), "keepdims": keepdims})])
    x = np.random.default_rng(0).standard_normal((2, 19, 6, 7)).astype(np.float32)
    for fmt in ("NCHW", "NHWC"):
        model = sw.compile(graph, tune="model", threads=2, input_formats={"x": fmt})
        assert "totals" in kinds(model)
        given_x = x.transpose(0, 2, 3, 1).copy() if fmt == "NHWC" else x
        (found,), (expected,) = (
            model.run({"x": given_x}).values(),
            run_reference(graph, {"x": x}).values(),
        )
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize("upper", [0, 1])
def test_triangles_are_choices(dtype, upper):
    rng = np.random.default_rng(0)
    b = GraphBuilder("g")
    y = b.op("trilu", [b.input("x", (3, 5, 7), dtype)], {"upper": upper, "k": 1})
    agrees(b.build([y]), {"x": numbers(rng, dtype, (3, 5, 7))})


def indexed(rng: np.random.Generator, op: str) -> tuple[Graph, dict[str, Array], tuple[int, ...]]:
    """Return a graph of reading or writing by computed indices, what it takes, and extents."""
    shape = tuple(int(extent) for extent in rng.integers(1, 7, rng.integers(1, 5)))
    dtype = str(rng.choice([*TYPES, "float32", "bool"]))
    attrs: dict[str, Any] = {}
    if op.startswith("scatter"):
        attrs["reduction"] = "none"
        if rng.random() < 0.5:
            dtype, attrs["reduction"] = "float32", str(rng.choice(["add", "mul", "max", "min"]))
    if op in ("gather", "gather_elements", "scatter_elements"):
        axis = attrs["axis"] = int(rng.integers(len(shape)))
        extents = shape[axis : axis + 1]
        own = tuple(int(rng.integers(1, extent + 1)) for extent in shape)
        places = (*own[:axis], int(rng.integers(1, 9)), *own[axis + 1 :])
        places = (2, 3) if op == "gather" else places
        indices = rng.integers(-shape[axis], shape[axis], places)
        updates = places
    else:
        batch = int(rng.integers(0, len(shape))) if op == "gather_nd" else 0
        depth = int(rng.integers(1, len(shape) - batch + 1))
        extents = shape[batch : batch + depth]
        places = (*shape[:batch], int(rng.integers(1, 6)))
        indices = np.stack([rng.integers(-extent, extent, places) for extent in extents], -1)
        attrs |= {"batch_dims": batch} if op == "gather_nd" else {}
        updates = (*places, *shape[depth:])
    feeds = {"x": numbers(rng, dtype, shape)}
    feeds["i"] = indices.astype(rng.choice(["int32", "int64"]))
    b = GraphBuilder("g")
    is_constant = op.startswith("scatter") and rng.random() < 0.5
    x = b.constant(feeds.pop("x")) if is_constant else b.input("x", shape, dtype)
    names = [x, b.input("i", indices.shape, feeds["i"].dtype.name)]
    if op.startswith("scatter"):
        feeds["u"] = numbers(rng, dtype, updates)
        names.append(b.input("u", updates, dtype))
    return b.build([b.op(op, names, attrs)]), feeds, extents


INDEXED = ("gather", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd")


@pytest.mark.parametrize("op", INDEXED)
@given(seed=SEEDS)
def test_reading_and_writing_by_computed_indices(op, seed):
    graph, feeds, _ = indexed(np.random.default_rng(seed), op)
    agrees(graph, feeds, {"gather_rows" if op == "gather" else op, "elements"})


@pytest.mark.parametrize("op", INDEXED)
@given(seed=SEEDS)
def test_indices_beyond_their_axis_are_refused(op, seed):
    rng = np.random.default_rng(seed)
    graph, feeds, extents = indexed(rng, op)
    model = sw.compile(graph, tune="model", threads=2)
    places = feeds["i"].reshape(-1)
    at = int(rng.integers(places.size))
    extent = extents[at % len(extents)]
    places[at] = extent if rng.random() < 0.5 else -extent - 1
    with pytest.raises(sw.ExecutionError, match=f"from {-extent} to {extent - 1}"):
        model.run(feeds)


def heads(b: Net) -> str:
    """Return peaks of a map and what lies beside them, as detectors find them: masks and floats."""
    heat = b.op("sigmoid", [b.conv(b.x, 17, 3)])
    top = b.op("max_pool", [heat], {"kernel": (3, 3), "strides": (1, 1), "pads": (1,) * 4})
    peaks = b.op("equal", [heat, top])
    large = b.op("greater", [heat, b.constant(np.float32(0.4))])
    kept = b.op("logical_and", [peaks, b.op("logical_not", [large])])
    scaled = b.op("mul", [heat, b.op("cast", [kept], {"to": "float32"})])
    other = b.op("where", [peaks, scaled, b.op("neg", [heat])])
    return b.conv(b.op("where", [large, other, scaled]), 5, 1)


@pytest.mark.parametrize("shape", [(2, 17, 6, 5), (1, 3, 9, 8)])
@pytest.mark.parametrize("fmt", ["NCHW", "NHWC"])
def test_masks_are_part_of_expressions(shape, fmt):
    b = Net(*shape)
    graph = b.build([heads(b)])
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    model = sw.compile(graph, tune="model", threads=2, input_formats={"x": fmt})
    given_x = x.transpose(0, 2, 3, 1).copy() if fmt == "NHWC" else x
    (found,), (expected,) = (
        model.run({"x": given_x}).values(),
        run_reference(graph, {"x": x}).values(),
    )
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    assert "host" not in kinds(model)


@given(seed=SEEDS)
def test_masks_and_numbers_in_any_mixture(seed):
    """Whole numbers, so that all results are exact."""
    rng = np.random.default_rng(seed)
    shape = (2, int(rng.integers(1, 20)), 3, int(rng.integers(1, 9)))
    b, feeds = GraphBuilder("g"), {}
    values, masks = [], []
    for index in range(3):
        own = shape if index == 0 else broadcast(rng, shape)
        for kind, found in (("x", values), ("m", masks)):
            dtype = "float32" if kind == "x" else "bool"
            found.append(b.input(f"{kind}{index}", own, dtype))
            feeds[f"{kind}{index}"] = rng.integers(0, 2 if kind == "m" else 5, own).astype(dtype)
    for _ in range(int(rng.integers(1, 12))):
        one, two = (str(name) for name in rng.choice(values, 2))
        mask, other = (str(name) for name in rng.choice(masks, 2))
        kind = rng.integers(6)
        if kind == 0:
            values.append(b.op(str(rng.choice(["maximum", "minimum"])), [one, two]))
        elif kind == 1:
            values.append(b.op("where", [mask, one, two]))
        elif kind == 2:
            values.append(b.op("cast", [mask], {"to": "float32"}))
        elif kind == 3:
            masks.append(b.op(str(rng.choice([*COMPARISONS])), [one, two]))
        elif kind == 4:
            masks.append(b.op(str(rng.choice([*CONNECTIVES])), [mask, other]))
        else:
            masks.append(b.op("logical_not", [mask]))
    outputs = list(dict.fromkeys([values[-1], masks[-1]]))
    graph = b.build([name for name in outputs if name not in feeds] or [b.op("neg", [values[0]])])
    agrees(graph, feeds, {*OWN, "binary", "eltwise", "reorder"})


# --- what the core refuses ------------------------------------------------------------------------


def view(dtype: str, *dims: int) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    steps = np.cumprod((1, *dims[:0:-1]))[::-1]
    return dtype, dims, tuple(map(int, steps[: len(dims)]))


@pytest.mark.parametrize(
    ("op", "sources", "result", "message"),
    [
        ("add", [view("s64", 3)], view("s64", 3), "no loop of add"),
        ("add", [view("s64", 3), view("s32", 3)], view("s64", 3), "no loop of add"),
        ("add", [view("bool", 3), view("bool", 3)], view("bool", 3), "no loop of add"),
        ("frobnicate", [view("s64", 3), view("s64", 3)], view("s64", 3), "no loop of frobnicate"),
        ("equal", [view("s64", 3), view("s64", 2)], view("bool", 3), "extent of 1 or 3"),
        ("equal", [view("s64", 3), view("s64", 1, 3)], view("bool", 3), "as many axes"),
        ("copy", [("s64", (3,), (-1,))], view("s64", 3), "not negative"),
        ("copy", [("s64", (0,), (1,))], view("s64", 0), "positive extents"),
        ("copy", [("s128", (3,), (1,))], ("s128", (3,), (1,)), "no type s128"),
    ],
)
def test_the_core_refuses_elements(op, sources, result, message):
    with pytest.raises(ValueError, match=message):
        load_core().Elements(op, sources, result, threads=1)


def test_the_core_refuses_lines_and_places():
    core = load_core()
    with pytest.raises(ValueError, match="f32, s32 or s64"):
        core.TopK("f64", (1, 4, 1), 2, True, threads=1)
    for extents, count in (((1, 4), 2), ((1, 4, 0), 2), ((1, 4, 1), 5), ((1, 4, 1), 0)):
        with pytest.raises(ValueError, match="at most as many"):
            core.TopK("f32", extents, count, True, threads=1)
    for op, dtype in (("mean", "s64"), ("sum", "u8"), ("prod", "f32")):
        with pytest.raises(ValueError, match=f"no {op} of {dtype}"):
            core.Totals(op, dtype, (1, 4, 1), threads=1)
    with pytest.raises(ValueError, match="positive extents"):
        core.Totals("sum", "f32", (1, 0, 1), threads=1)
    with pytest.raises(ValueError, match="cumsum or cumprod"):
        core.Running("cummax", "f32", (1, 4, 1), False, False, threads=1)
    with pytest.raises(ValueError, match="f32, f64, s32 or s64"):
        core.Running("cumsum", "u8", (1, 4, 1), False, False, threads=1)
    for data, indices, axis, nbytes in (
        ((3, 4), (4, 4), 1, 4), ((3, 4), (3,), 1, 4), ((3, 4), (3, 4), 2, 4),
        ((3, 4), (3, 4), 1, 3), ((3, 0), (3, 4), 1, 4),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="lie inside of the data"):
            core.GatherElements(data, indices, axis, nbytes=nbytes, words=2, threads=1)
        with pytest.raises(ValueError, match="lie inside of the data"):
            core.ScatterElements(
                data, indices, axis, nbytes=nbytes, words=2, reduction="none", threads=1
            )
    with pytest.raises(ValueError, match="none, add, mul, max or min"):
        core.ScatterElements((3,), (3,), 0, nbytes=4, words=2, reduction="mean", threads=1)
    with pytest.raises(ValueError, match="f32 to combine"):
        core.ScatterElements((3,), (3,), 0, nbytes=8, words=2, reduction="add", threads=1)
    with pytest.raises(ValueError, match="positive extents"):
        core.GatherPoints(1, (), 2, row_nbytes=4, words=2, threads=1)
    with pytest.raises(ValueError, match="rows of f32"):
        core.ScatterPoints((3,), 2, row_nbytes=3, words=2, reduction="add")


def test_element_types_have_the_sizes_of_the_core():
    core = load_core()
    for name in ("bool", "float16", "bfloat16", *TYPES):
        dtype = dtype_of(name)
        kernel = core.Elements("copy", [view(dtype.short, 5)], view(dtype.short, 5), threads=1)
        assert kernel.arg_desc(core.ARG_DST).nbytes == 5 * dtype.itemsize
