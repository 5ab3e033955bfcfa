"""Winograd kernels against double precision: shapes, post-ops, instruction sets, threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stridewise as sw
from stridewise.errors import InputError, PlanError
from stridewise.graph import Graph
from stridewise.ops.activation import UNARY, default_parameters
from stridewise.targets.onednn.activation import eltwise_steps

from .graphs import Net, error, inputs_of
from .winograd_layers import (
    CORE,
    F32,
    KERNELS,
    KINDS,
    Runner,
    Shape,
    check_weights,
    convolved,
    data,
    exact,
)

TOLERANCE = {2: 1e-6, 4: 4e-6, 6: 1.2e-5}


SHAPES = {
    "one tile": Shape(height=4, width=4),
    "tails of channels": Shape(channels=13, outputs=27, height=9, width=7),
    "one channel": Shape(channels=1, outputs=1),
    "no pads": Shape(height=7, width=8, pads=(0, 0, 0, 0)),
    "wide pads": Shape(pads=(3, 0, 2, 5)),
    "batch": Shape(images=5, channels=24, outputs=40, height=5, width=5),
    "one pixel": Shape(height=1, width=1),
    "one row": Shape(height=1, width=19),
    "outputs are shared": Shape(channels=64, outputs=160, height=7, width=7),
    "many blocks": Shape(channels=40, outputs=48, height=40, width=37),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("tile", [2, 4, 6])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name, kernel, kind, tile, threads):
    shape = SHAPES[name]
    x, w, bias = data(shape)
    found = Runner(shape, kind, kernel, tile, threads=threads)(x, w, bias)
    assert error(found, exact(shape)) <= TOLERANCE[tile]


@settings(deadline=None, max_examples=60)
@given(
    st.builds(
        Shape,
        images=st.integers(1, 3),
        channels=st.integers(1, 40),
        height=st.integers(1, 12),
        width=st.integers(1, 12),
        outputs=st.integers(1, 70),
        pads=st.tuples(*[st.integers(1, 3)] * 4),
    ),
    st.sampled_from(KERNELS),
    st.sampled_from(KINDS),
    st.sampled_from([2, 4, 6]),
    st.booleans(),
)
def test_any_shape(shape, kernel, kind, tile, has_bias):
    x, w, bias = data(shape)
    given_bias = bias if has_bias else None
    found = Runner(shape, kind, kernel, tile, bias=has_bias)(x, w, given_bias)
    assert error(found, convolved(x, w, given_bias, shape)) <= TOLERANCE[tile]


TAILS = Shape(channels=10, outputs=21, height=6, width=7, images=2)
_ACTIVATIONS = {
    "relu": (0.0, 0.0), "leaky_relu": (0.1, 0.0), "clip": (-0.5, 0.75), "sigmoid": (0, 0),
    "tanh": (0, 0), "hard_sigmoid": (0.2, 0.5), "hard_swish": (1 / 6, 0.5), "swish": (1.5, 0),
    "elu": (0.7, 0), "gelu": (0, 0), "exp": (0, 0), "abs": (0, 0),
    "neg": (0, 0), "selu": (1.5, 0.8), "linear": (-0.5, 0.8),
}  # fmt: skip


@pytest.mark.parametrize("tile", [2, 4, 6])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("name", _ACTIVATIONS)
def test_activations(name, kernel, kind, tile):
    parameters = _ACTIVATIONS[name]
    x, w, bias = data(TAILS)
    post_ops = [("eltwise", *step) for step in eltwise_steps(name, *parameters)]
    found = Runner(TAILS, kind, kernel, tile, post_ops=post_ops)(x, w, bias)
    expected = UNARY[name].function(exact(TAILS), *parameters)
    assert error(found, expected) <= 1.5 * TOLERANCE[tile]


@pytest.mark.parametrize("name", ["sqrt", "reciprocal"])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_functions_of_positive_numbers(name, kernel):
    x, w, bias = data(TAILS)
    clip = ("eltwise", "clip", 0.5, 3.0)
    post_ops = [clip, *(("eltwise", *step) for step in eltwise_steps(name, 0.0, 0.0))]
    found = Runner(TAILS, "blocked", kernel, 4, post_ops=post_ops)(x, w, bias)
    expected = UNARY[name].function(np.clip(exact(TAILS), 0.5, 3.0), 0, 0)
    assert error(found, expected) <= 1.5 * TOLERANCE[4]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_activations_of_extreme_numbers(kernel, kind):
    """The bias alone decides: what is far outside saturates, and is never NaN."""
    shape = Shape(outputs=24, channels=3)
    x, w = np.zeros(shape.src, F32), np.ones((24, 3, 3, 3), F32)
    bias = np.tile(np.array([-3e38, -200, -89, -1e-6, 1e-6, 89, 200, 3e38], F32), 3)
    for name in ("relu", "sigmoid", "tanh", "swish", "elu", "gelu", "hard_swish"):
        alpha, beta = default_parameters(name)
        post_ops = [("eltwise", *step) for step in eltwise_steps(name, alpha, beta)]
        found = Runner(shape, kind, kernel, 4, post_ops=post_ops)(x, w, bias)
        with np.errstate(over="ignore"):
            expected = UNARY[name].function(bias.astype(float), alpha, beta)
        np.testing.assert_allclose(found[0, :, 0, 0], expected, rtol=3e-6, atol=1e-36)


BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum,
    "min": np.minimum,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_operands_of_the_results_shape(name, kernel, kind):
    x, w, bias = data(TAILS)
    other = np.random.default_rng(1).uniform(0.5, 2, TAILS.dst).astype(F32)
    post_ops = [("binary", name), ("eltwise", "relu", 0.0, 0.0)]
    found = Runner(TAILS, kind, kernel, 4, post_ops=post_ops)(x, w, bias, [other])
    expected = np.maximum(BINARY[name](exact(TAILS), other), 0)
    assert error(found, expected) <= 2 * TOLERANCE[4]


@pytest.mark.parametrize("tile", [2, 4, 6])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_residual_sums_in_place_before_other_operands(kernel, kind, tile):
    x, w, bias = data(TAILS)
    rng = np.random.default_rng(2)
    held, factor = (rng.normal(size=TAILS.dst).astype(F32) for _ in range(2))
    post_ops = [("sum", 1.0), ("eltwise", "relu", 0.0, 0.0), ("binary", "mul")]
    runner = Runner(TAILS, kind, kernel, tile, post_ops=post_ops)
    found = runner(x, w, bias, [factor], held)
    expected = np.maximum(exact(TAILS) + held, 0) * factor
    assert error(found, expected) <= 2 * TOLERANCE[tile]


def test_nan_stays_within_its_tile_and_spreads_no_further():
    shape = Shape(height=12, width=12)
    x, w, bias = data(shape)
    x = x.copy()
    x[0, 0, 5, 5] = np.nan
    found = Runner(shape, "channels-last", KERNELS[0], 4, post_ops=[("eltwise", "relu", 0.0, 0.0)])(
        x, w, bias
    )
    # Pixel 5 is in the windows of the results 4..6, which are in the tiles 4..7 and no others.
    assert np.isnan(found[0, :, 4:7, 4:7]).all()
    outside = np.ones((12, 12), bool)
    outside[4:8, 4:8] = False
    assert not np.isnan(found[..., outside]).any()


# --- what is refused ------------------------------------------------------------------------------


def made(**changes: Any) -> Any:
    desc = CORE.MemoryDesc((1, 8, 6, 5), "f32", "aBcd8b")
    other = {"src": desc, "dst": desc, "begins": (1, 1), "ends": (1, 1), "post": [], "tile": 4}
    other |= {"lanes": 8, "threads": 1, "isa": "portable"} | changes
    return CORE.Winograd(
        other["src"], other["dst"], False, other["begins"], other["ends"], other["post"],
        tile=other["tile"], lanes=other["lanes"], threads=other["threads"], isa=other["isa"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tile": 3}, "there are no tiles of 3 for windows of 3x3"),
        ({"lanes": 4}, "expected vectors of 8 or 16 lanes, got 4"),
        ({"lanes": 16}, "expected a source of"),
        ({"isa": "neon"}, "there are no neon kernels of 8 lanes here"),
        ({"begins": (1,)}, "expected pads of two axes"),
        ({"begins": (-1, 1)}, "negative padding"),
        ({"begins": (0, 1)}, "expected a destination of"),
        ({"threads": 0}, "threads: expected at least 1, got 0"),
        ({"post": [("eltwise", "mish", 0.0, 0.0)]}, "there is no post-op mish"),
        ({"post": [("sum", 2.0)]}, "sums are not scaled"),
        (
            {"post": [("binary", "add", CORE.MemoryDesc((1, 8, 1, 1), "f32", "abcd"))]},
            "expected an operand of",
        ),
        ({"src": CORE.MemoryDesc((1, 8, 6), "f32", "abc")}, "expected images of two axes"),
    ],
)
def test_kernels_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        made(**changes)


def test_weights_are_packed_within_the_buffer():
    kernel = made()
    w = np.zeros((8, 8, 3, 3), F32)
    nbytes = kernel.arg_desc(CORE.ARG_WEIGHTS).nbytes
    with pytest.raises(ValueError, match="array: expected 2304 bytes, got 1536"):
        kernel.pack_into(w[..., :2].copy(), CORE.Buffer(nbytes), 0)
    for offset in (4, 2, -4, nbytes + 4):
        with pytest.raises(ValueError, match="offset"):
            kernel.pack_into(w, CORE.Buffer(nbytes), offset)


def test_arguments_and_threads_are_those_of_the_kernel():
    kernel = made()
    program = CORE.Program(kernel.scratchpad_nbytes, [], [192 * 4], [192 * 4], 1)
    desc = kernel.arg_desc(CORE.ARG_SRC)
    with pytest.raises(ValueError, match=r"winograd_4x4:portable\): expected argument"):
        program.add_primitive(kernel, [(CORE.ARG_SRC, desc, 2, 0, 0)])
    other = CORE.Program(0, [], [], [], 2)
    with pytest.raises(ValueError, match="threads=2 or 1, got one for 3"):
        other.add_primitive(made(threads=3), [])


def test_kernels_are_measured_like_primitives():
    measurement = CORE.Measurement(made(), cold=[CORE.ARG_WEIGHTS])
    samples, _ = measurement.run(min_runs=3, max_runs=3, budget_ns=0)
    assert len(samples) == 3
    assert min(samples) > 0


# --- plans ----------------------------------------------------------------------------------------


def network() -> Graph:
    b = Net(1, 32, 14, 13)
    x = b.conv(b.x, 64, 3)
    y = b.op("relu", [b.op("add", [b.conv(b.op("relu", [x]), 64, 3), x])])
    y = b.op("sigmoid", [b.conv(y, 56, 3, pads=(0, 1, 2, 1))])
    return b.build([b.op("clip", [b.conv(y, 64, 3)], {"alpha": 0.0, "beta": 6.0})])


def algorithms(plan: sw.Plan) -> list[str]:
    chosen = zip(plan.graph.nodes, plan.decisions, strict=True)
    return [decision.chosen.algorithm for node, decision in chosen if node.op == "conv"]


def test_a_network_is_computed_so_and_its_weights_are_reported():
    graph = network()
    model = sw.compile(graph, tune="model", threads=2)
    assert all(name.startswith("winograd F(") for name in algorithms(model.plan))
    weights = model.plan.winograd_weights
    assert weights.nodes == 4
    assert weights.plain_nbytes == 36 * (32 * 64 + 64 * 64 + 64 * 56 + 56 * 64)
    assert weights.nbytes == model.memory.winograd_weights <= model.memory.packed_weights
    assert str(weights) in model.plan.explain()
    feeds = inputs_of(graph)
    exact = sw.compile(graph, tune="model", threads=2, accuracy="exact")
    assert exact.memory.winograd_weights == 0
    for name, wanted in exact.run(feeds).items():
        assert error(model.run(feeds)[name], wanted) <= 4e-6


@pytest.mark.parametrize("taps", [2, 3, 4])
def test_pooling_behind_windows_of_all_tiles(taps):
    """Tiles with an odd number of results are not pooled."""
    b = Net(1, 64, 32, 32)
    w = b.rng.normal(0, (64 * taps * taps) ** -0.5, (64, 64, taps, taps)).astype(np.float32)
    pads = (taps // 2, taps // 2, (taps - 1) // 2, (taps - 1) // 2)
    y = b.op("relu", [b.op("conv", [b.x, b.constant(w, "w")], {"pads": pads})])
    graph = b.build([b.op("max_pool", [y], {"kernel": (2, 2), "strides": (2, 2)})])
    feeds = inputs_of(graph)
    (wanted,) = sw.compile(graph, tune="model", accuracy="exact").run(feeds).values()
    (found,) = sw.compile(graph, tune="model").run(feeds).values()
    assert error(found, wanted) <= 2e-5


def test_what_the_planner_thinks_of_weights_is_what_kernels_read():
    assert check_weights(sw.plan(network(), tune="model", threads=2)) >= 16


def test_measured_plans_know_the_kernels(tmp_path):
    graph = network()
    model = sw.compile(graph, threads=2, cache_dir=tmp_path)
    implementations = {
        candidate.implementation.partition(":")[0]
        for decision in model.plan.decisions
        for candidate in (decision.chosen, *decision.rejected)
    }
    assert {"winograd_2x2", "winograd_4x4"} <= implementations
    exact = sw.compile(graph, threads=2, cache_dir=tmp_path, accuracy="exact")
    assert not any("winograd" in name for name in algorithms(exact.plan))
    feeds = inputs_of(graph)
    for name, wanted in exact.run(feeds).items():
        assert error(model.run(feeds)[name], wanted) <= 4e-6


def test_plan_files_keep_the_kernels(tmp_path):
    graph = network()
    path = tmp_path / "plan.json"
    plan = sw.plan(graph, tune="model", threads=2)
    plan.save(path)
    again = sw.compile(graph, threads=2, plan=path)
    assert algorithms(again.plan) == algorithms(plan)
    assert again.plan.winograd_weights == plan.winograd_weights
    feeds = inputs_of(graph)
    expected = sw.compile(graph, tune="model", threads=2).run(feeds)
    for name, found in again.run(feeds).items():
        np.testing.assert_array_equal(found, expected[name])
    with pytest.raises(PlanError, match="which does not exist here"):
        sw.compile(graph, threads=2, plan=path, accuracy="exact")
    with pytest.raises(PlanError, match="expected at most 1000 bytes of transformed weights"):
        sw.compile(graph, threads=2, plan=path, weight_memory_limit=1000)


def test_a_limit_on_weights_is_kept():
    graph = network()
    free = sw.plan(graph, tune="model", threads=2).winograd_weights.nbytes
    taken = []
    # What is left fits whatever is picked, so that one of all tiles needs more than the plan takes.
    for limit in (0, free // 3, free // 2, free - 4, 64 * free):
        model = sw.compile(graph, tune="model", threads=2, weight_memory_limit=limit)
        assert model.memory.winograd_weights == model.plan.winograd_weights.nbytes <= limit
        refused = {r.subject for r in model.plan.refusals if r.rule == "weight_memory_limit"}
        assert refused or limit >= free
        taken.append(model.memory.winograd_weights)
    assert taken == sorted(taken)
    assert (taken[0], taken[-1]) == (0, free)
    assert taken[1] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accuracy": "high"}, "accuracy: expected 'fast' or 'exact', found 'high'"),
        (
            {"weight_memory_limit": -1},
            "weight_memory_limit: expected a number of bytes, 0 or more, found -1",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(options, message):
    with pytest.raises(InputError) as caught:
        sw.plan(network(), tune="model", **options)
    assert str(caught.value) == message
