"""Quantization without kernels: histograms, ranges, selection, equal graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.models import run_reference
from tests.networks import F32, Net, rng

import stridewise as sw
from stridewise.graph import Graph
from stridewise.ops.quantize import has_reciprocal
from stridewise.quantization.equalize import equalized
from stridewise.quantization.rebuild import quantized_graph, simulated_graph
from stridewise.quantization.scheme import Scheme, make_scheme
from stridewise.quantization.selection import PRODUCTS, refusals, select, without_zero_point
from stridewise.quantization.settings import Settings
from stridewise.runtime.tuning.offers import channels_read, observed
from stridewise.tensor import Grid
from stridewise.tensor.ranges import parameters, quantized_weights
from stridewise.tensor.statistics import BINS, Channels, Histogram, Observed

Array = np.ndarray[Any, np.dtype[Any]]
METHODS = st.sampled_from(["minmax", "percentile", "mse"])
DTYPES = st.sampled_from(["uint8", "int8"])


@st.composite
def values(draw: st.DrawFn) -> Array:
    random = rng(draw(st.integers(0, 999)))
    data = random.standard_normal(draw(st.integers(1, 300))) * 10.0 ** draw(st.integers(-6, 6))
    data = data if draw(st.booleans()) else np.maximum(data, 0)
    return data.astype(F32)


# --- histograms -----------------------------------------------------------------------------------


@given(st.lists(values(), min_size=1, max_size=4), st.randoms())
def test_counts_do_not_depend_on_the_order_nor_on_the_parts(arrays, random):
    whole, parts, merged = Histogram(), Histogram(), Histogram()
    whole.add(np.concatenate(arrays))
    random.shuffle(arrays)
    for array in arrays:
        parts.add(array)
        one = Histogram()
        one.add(array)
        merged = merged.merged(one)
    for found in (parts, merged):
        assert found.counts.tolist() == whole.counts.tolist()
        assert (found.limit, found.low, found.high) == (whole.limit, whole.low, whole.high)


@given(values())
def test_counts_are_those_of_numpy(array):
    seen = Histogram()
    seen.add(array)
    edges = np.linspace(-seen.limit, seen.limit, BINS + 1)
    expected, _ = np.histogram(array[array != 0].astype(np.float64), edges)
    assert seen.counts.tolist() == expected.tolist()
    assert (seen.low, seen.high) == (min(array.min(), 0), max(array.max(), 0))


def test_values_that_are_not_finite_are_noticed():
    seen = Histogram()
    seen.add(np.array([1, np.nan], F32))
    assert not seen.is_finite
    assert not seen.counts.any()


# --- ranges ---------------------------------------------------------------------------------------


def rounded(array: Array, found: Any) -> Array:
    steps = np.rint(array / F32(found.scale)) + found.zero_point
    return (np.clip(steps, *found.limits) - found.zero_point) * F32(found.scale)


@given(values(), DTYPES)
def test_all_values_are_within_half_a_step(array, dtype):
    seen = Histogram()
    seen.add(array)
    found = parameters(seen, dtype, "minmax")
    # The zero point is rounded, which moves the range by up to half a step.
    assert np.abs(rounded(array, found) - array).max() <= 1.001 * found.scale
    assert rounded(np.zeros(1, F32), found) == 0


@given(st.sampled_from([0.0, 1e-40, -1e-31, 1e-29]), DTYPES, METHODS)
def test_scales_have_a_reciprocal(size, dtype, method):
    seen = Histogram()
    seen.add(np.full(9, size, F32))
    found = parameters(seen, dtype, method)
    assert has_reciprocal(np.asarray(found.scale, F32))
    assert found.scale == 1.0
    assert rounded(np.zeros(1, F32), found) == 0


@given(values(), DTYPES, METHODS)
def test_the_least_squared_error_is_not_beaten_by_the_others(array, dtype, method):
    seen = Histogram()
    seen.add(array)
    best, other = (
        np.square(rounded(array, parameters(seen, dtype, m)) - array).sum() for m in ("mse", method)
    )
    # The search takes rounding errors for uniform; few values are not.
    assert array.size < 100 or best <= 1.3 * other


@given(values(), DTYPES, METHODS)
def test_saturation_replaces_a_clip_only_if_it_does_the_same(array, dtype, method):
    seen = Histogram()
    seen.add(np.clip(array, 0, 6))
    found = parameters(seen, dtype, method)
    for low, high in ((0.0, float("inf")), (0.0, 6.0)):
        if found.saturates(low, high):
            assert (rounded(np.clip(array, low, high), found) == rounded(array, found)).all()
    assert dtype == "int8" or found.saturates(0.0, float("inf"))


@given(st.integers(0, 99), st.sampled_from([None, 0, 1]), st.sampled_from([63, 127]))
def test_weights_are_within_half_a_step_and_the_best_scales_are_better(seed, axis, steps):
    weights = rng(seed).standard_normal((5, 7, 3)).astype(F32) ** 3
    weights[2] = 0
    least = np.full(1 if axis is None else weights.shape[axis], 1e-9)
    plain = quantized_weights(weights, axis, least, best=False, steps=steps)
    error = np.abs(plain.real - weights)
    assert (error <= 0.501 * plain.spread(3)).all()
    assert np.abs(plain.integers).max() <= steps
    best = quantized_weights(weights, axis, least, best=True, steps=steps)
    assert np.square(best.real - weights).sum() <= np.square(error).sum() * (1 + 1e-6)


# --- graphs ---------------------------------------------------------------------------------------


def network(seed: int, *, depthwise: bool = False) -> Graph:
    """Return convolutions with activations, a residual addition, pooling, concat, and a product."""
    random, b = rng(seed), Net("network")

    def conv(x: str, outputs: int, kernel: int, groups: int = 1) -> str:
        shape = (outputs, b.type(x).shape[1] // groups, kernel, kernel)
        w = b.constant(random.standard_normal(shape).astype(F32) * F32(0.4), "w")
        bias = b.constant(random.standard_normal(outputs).astype(F32), "b")
        pads = (kernel // 2,) * 4
        return b.op("conv", [x, w, bias], {"pads": pads, "groups": groups})

    x = b.input("x", (1, 3, 8, 8))
    y = b.op("relu", [conv(x, 8, 3)])
    y = b.op("relu", [conv(y, 8, 3, 8 if depthwise else 2)])
    z = b.op("clip", [conv(y, 8, 3)], {"alpha": 0.0, "beta": 6.0})
    z = b.op("relu", [b.op("add", [conv(z, 8, 1), y])])
    pooled = b.op("max_pool", [z], {"kernel": (2, 2), "strides": (2, 2)})
    z = b.op("concat", [pooled, b.op("swish", [conv(pooled, 4, 1)])], {"axis": 1})
    z = b.op("reshape", [conv(z, 2, 3)], {"shape": (1, 32)})
    w = b.constant(random.standard_normal((32, 5)).astype(F32), "w")
    return b.build([b.op("matmul", [z, w], output="y")])


def inputs(seed: int) -> dict[str, Array]:
    return {"x": rng(seed).standard_normal((1, 3, 8, 8)).astype(F32)}


def seen_of(graph: Graph) -> dict[str, Observed]:
    """Return what calibration knows, by the reference."""
    found = {name: Observed() for name in select(graph, ()).tensors}
    for node in graph.nodes:
        if node.op in PRODUCTS:
            name, axis = channels_read(graph, node)
            found[name].channels[axis] = Channels()
    for seed in range(3):
        known = {**run_all(graph, inputs(seed)), **inputs(seed)}
        for name, item in found.items():
            item.add(known[name])
    return found


def run_all(graph: Graph, given: dict[str, Array]) -> dict[str, Array]:
    b = Net.of(graph)
    return run_reference(b.build([name for node in graph.nodes for name in node.outputs]), given)


def scheme_of(graph: Graph, method: Any = "mse", *, correct: bool = True) -> Scheme:
    return make_scheme(graph, seen_of(graph), method, Settings(), correct=correct)


def relative(found: dict[str, Array], right: dict[str, Array]) -> float:
    return float(np.linalg.norm(found["y"] - right["y"]) / np.linalg.norm(right["y"]))


def test_products_and_what_leads_to_them_are_selected():
    graph = network(0)
    chosen = select(graph, ())
    assert [node.name for node in graph.nodes if node.op in PRODUCTS] == [
        name for name in chosen.layers if name.startswith(("conv", "matmul"))
    ]
    assert {"add", "concat", "max_pool", "reshape"} <= set(chosen.layers)
    # The activation is between the convolution and the concat: one step of rounding follows it.
    assert "swish" in chosen.tensors
    assert "conv.4" not in chosen.tensors
    roots = chosen.tensors
    assert roots["max_pool"] == roots["swish"] == roots["concat"]
    assert not select(graph, chosen.layers).tensors


def dense(*, read: bool = False, positive: bool = False) -> Graph:
    """Return two dense layers with batch norms between concats and activations.

    Args:
        read: whether a convolution reads the second concat, too.
        positive: whether all pieces of the concats are results of ReLU.
    """
    b, random = Net("dense"), rng(4)

    def conv(x: str, kernel: int) -> str:
        shape = (4, b.type(x).shape[1], kernel, kernel)
        w = b.constant(random.standard_normal(shape).astype(F32), "w")
        return b.op("conv", [x, w], {"pads": (kernel // 2,) * 4})

    def piece(x: str, kernel: int) -> str:
        return b.op("relu", [conv(x, kernel)]) if positive else conv(x, kernel)

    def normed(x: str) -> str:
        return b.op("relu", [b.scale(x)])

    first = piece(b.input("x", (1, 3, 8, 8)), 3)
    second = b.op("concat", [first, piece(normed(first), 1)], {"axis": 1})
    third = b.op("concat", [second, piece(normed(second), 1)], {"axis": 1})
    results = [conv(normed(third), 1), *([conv(second, 1)] if read else [])]
    return b.build([b.op("concat", results, {"axis": 1}, output="y")])


def test_concats_before_a_scale_and_shift_have_int8():
    graph = dense()
    chosen = select(graph, ())
    # What is read once more, by a concat, is stored as integers; all pieces have one scale.
    pieces = {"conv", "conv.1", "conv.2", "concat", "concat.1"}
    assert pieces <= set(chosen.tensors)
    (root,) = {chosen.tensors[name] for name in pieces}
    assert without_zero_point(graph, chosen) == {root}
    assert not any(name.startswith("scale_shift") for name in chosen.tensors)
    stored = scheme_of(graph).tensors
    assert {name for name, item in stored.items() if item.dtype == "int8"} == pieces


def test_concats_without_negative_numbers_have_uint8():
    graph = dense(positive=True)
    stored = scheme_of(graph).tensors
    assert {(stored[n].dtype, stored[n].zero_point) for n in ("concat", "concat.1")} == {
        ("uint8", 0)
    }


def test_concats_that_a_product_reads_have_no_int8():
    graph = dense(read=True)
    chosen = select(graph, ())
    assert not without_zero_point(graph, chosen)
    # The product demands the concat that it reads, the scale and shift of the other none.
    assert "concat" in chosen.tensors
    assert "concat.1" not in chosen.tensors
    assert all(item.dtype == "uint8" for item in scheme_of(graph).tensors.values())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("left", [(), ("conv.1",), ("conv", "matmul", "add")])
def test_the_simulation_computes_what_the_integers_compute(seed, left):
    graph = network(seed)
    scheme = scheme_of(graph)
    stored, simulated = quantized_graph(scheme, left), simulated_graph(scheme)
    chosen = select(graph, left)
    is_open = {f"gate of tensor {name}" for name in chosen.tensors}
    is_open |= {f"gate of weights {name}" for name in chosen.layers}
    gates = {name: np.full(1, name in is_open, F32) for name in simulated.inputs if name != "x"}
    one = run_reference(stored, inputs(7))
    other = run_reference(simulated, {**inputs(7), **gates})
    right = run_reference(graph, inputs(7))
    assert relative(one, right) < 0.1
    # A value between two integers may become either.
    assert relative(other, one) < 0.02
    shut = {name: np.zeros(1, F32) for name in gates}
    assert relative(run_reference(simulated, {**inputs(7), **shut}), right) < 1e-6


def test_saturation_replaces_activations():
    stored = quantized_graph(scheme_of(network(0), "minmax"), ())
    kept = [node.name for node in stored.nodes if node.op in ("relu", "clip")]
    # The range of this one is that of a concat with negative numbers.
    assert kept == ["relu.2"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("depthwise", [False, True])
def test_equalized_weights_compute_the_same(seed, depthwise):
    graph = network(seed, depthwise=depthwise)
    found = equalized(graph, seen_of(graph))
    assert found is not None
    changed = [n for n, c in graph.constants.items() if found.constants[n] != c]
    assert changed
    assert relative(run_reference(found, inputs(9)), run_reference(graph, inputs(9))) < 1e-5


def test_corrected_biases_have_the_mean_of_the_float_layer():
    graph = network(1)
    errors = {}
    for correct in (False, True):
        scheme = scheme_of(graph, correct=correct)
        layer, node = scheme.layers["conv.3"], next(n for n in graph.nodes if n.name == "conv.3")
        mean = seen_of(graph)[node.inputs[0]].channels[1].mean
        weights, bias = (graph.constants[name].array for name in node.inputs[1:])
        assert layer.bias is not None
        right = weights[:, :, 0, 0] @ mean + bias
        errors[correct] = np.abs(layer.weights.real[:, :, 0, 0] @ mean + layer.bias.real - right)
    assert errors[True].max() < 1e-3 * errors[False].max() + 1e-4


@pytest.mark.parametrize("first", ["conv", "matmul"])
def test_a_tensor_has_other_channels_for_convolutions_than_for_matrix_products(first: str):
    def graph(*ops: str) -> Graph:
        b = Net("both")
        x, random = b.input("x", (1, 3, 8, 8)), rng(5)
        shapes = {"conv": (4, 3, 3, 3), "matmul": (8, 5)}
        drawn = {op: random.standard_normal(shape).astype(F32) for op, shape in shapes.items()}
        return b.build([b.op(op, [x, b.constant(drawn[op], op)], output=f"y:{op}") for op in ops])

    second = "matmul" if first == "conv" else "conv"
    together = graph(first, second)
    found, (_, biases) = scheme_of(together), offered(together)
    for op in (first, second):
        alone = scheme_of(graph(op))
        (node,) = alone.layers
        (layer,) = (found.layers[n.name] for n in together.nodes if n.op == op)
        bias, right = layer.bias, alone.layers[node].bias
        assert bias is not None
        assert right is not None
        np.testing.assert_array_equal(bias.real, right.real)
        assert biases.get(op) == offered(graph(op))[1].get(op)
    assert "conv" in biases


def offered(graph: Graph) -> tuple[dict[str, Grid], dict[str, tuple[float, ...]]]:
    return observed(graph, ({**run_all(graph, x), **x} for x in map(inputs, range(3))))


def test_reasons_of_products_that_stay_in_float():
    b = Net("refused")
    x, y = b.input("x", (2, 3)), b.input("y", (3, 4))
    b.op("matmul", [x, y], name="both")
    b.op("matmul", [x, b.constant(np.ones((2, 3, 4), F32))], name="ranks")
    graph = b.build([b.op("matmul", [x, b.constant(np.ones((2, 4), F32))], {"trans_a": 1})])
    assert refusals(graph) == {
        "both": "its second operand is no constant",
        "ranks": "its weights have rank 3",
        "matmul": "its first operand is transposed",
    }


@pytest.mark.parametrize("given", [("a",), (None,), (1.0, float("nan")), (1.0, float("inf"))])
def test_what_is_no_number_is_refused(given: Any) -> None:
    with pytest.raises(sw.FormatError, match=r"quantization: expected (numbers|whole|positive)"):
        sw.Quantization(*given)
