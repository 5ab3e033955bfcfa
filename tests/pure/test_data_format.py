"""Data formats: one network in NCHW and in NHWC is one network."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from tests.simplified import PASSES, simplify
from tests.twins import Twins, to_last, twins

import stridewise as sw
from stridewise.errors import FormatError, GraphError
from stridewise.graph import Graph, Node
from stridewise.ops import GraphBuilder, infer
from stridewise.ops.data_format import DATA_FORMATS
from stridewise.ops.registry import check_data_format
from stridewise.planner import derive
from stridewise.planning import Plan, make_plan
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.cost import Roofline
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import onednn_cpu

F32 = np.float32
MACHINE = Machine("cpu", "AVX2", 2, "library")
TARGET = onednn_cpu(MACHINE)


def planned(graph: Graph, *, sinking: bool = True) -> Plan:
    passes = [item for item in PASSES if sinking or item.name != "sink_transposes"]
    oracle = Roofline(1e11, 4e10, TARGET.efficiency)
    simplified = simplify(graph, passes, check=True).graph
    return make_plan(derive(simplified), TARGET, MACHINE, oracle)


# --- laws over random networks --------------------------------------------------------------------


@given(twins())
@settings(max_examples=40)
def test_both_data_formats_give_the_same_results(pair: Twins):
    x = np.random.default_rng(0).normal(size=pair.first.value("x").shape).astype(F32)
    first = run_reference(pair.first, {"x": x})
    last = run_reference(pair.last, {"x": to_last(x)})
    simple = run_reference(simplify(pair.last, check=True).graph, {"x": to_last(x)})
    for ours, theirs in zip(pair.first.outputs, pair.last.outputs, strict=True):
        scale = 1e-5 * max(float(np.abs(first[ours]).max()), 1e-3)
        np.testing.assert_allclose(last[theirs], to_last(first[ours]), rtol=0, atol=scale)
        np.testing.assert_allclose(simple[theirs], last[theirs], rtol=0, atol=2 * scale)


@given(twins())
@settings(max_examples=25)
def test_both_data_formats_get_the_same_plan(pair: Twins):
    """Between equal inputs and outputs: equal cost, and as many reorders, node for node."""
    first, framed = planned(pair.first), planned(pair.framed)
    # A reshape that splits no channels flattens NHWC and NCHW in different orders.
    assume(not any(node.op == "reshape" for plan in (first, framed) for node in plan.graph.nodes))
    assert framed.cost_ns == pytest.approx(first.cost_ns, rel=1e-9)
    assert len(framed.reorders) == len(first.reorders)
    # One value under two names is an identity there, and an output listed twice here.
    ops = [[n.op for n in plan.graph.nodes if n.op != "identity"] for plan in (first, framed)]
    assert ops[0] == ops[1]


# --- anchors --------------------------------------------------------------------------------------

ANCHORS: dict[str, dict[str, Any]] = {
    "avg_pool": {"kernel": (2, 3)},
    "channel_shuffle": {"groups": 2},
    "lrn": {"size": 3},
    "max_pool": {"kernel": (2, 3), "strides": (1, 2), "pads": (0, 1, 1, 0)},
}


@pytest.mark.parametrize("op", ANCHORS)
def test_anchors_carry_the_data_format_and_name_their_axes(op):
    b = GraphBuilder("g", data_format="NHWC")
    graph = b.build([b.op(op, [b.input("x", (1, 5, 6, 4))], ANCHORS[op])])
    assert graph.nodes[0].get("data_format") == "NHWC"
    assert {str(value.origin) for value in derive(graph).graph.values.values()} == {"NHWC"}


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_channels_last_of_every_rank(spatial):
    names = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}[spatial]
    extents = (5, 6, 7)[:spatial]
    results = []
    x = np.random.default_rng(1).normal(size=(2, 4, *extents)).astype(F32)
    for name in names:
        b = GraphBuilder("g", data_format=name)
        last = name.endswith("C")
        shape = (2, *extents, 4) if last else (2, 4, *extents)
        add = getattr(b, f"conv{spatial}d")
        y = b.batch_norm(add(b.input("x", shape), 6, 3, padding=1), mean=np.arange(6.0))
        graph = b.build([b.add(y, b.global_avg_pool(y))])
        assert (graph.nodes[0].get("data_format") == name) == last
        feed = np.moveaxis(x, 1, -1) if last else x
        (found,) = run_reference(graph, {"x": np.ascontiguousarray(feed)}).values()
        results.append(np.moveaxis(found, -1, 1) if last else found)
        assert str(derive(graph).graph.values["x"].origin) == name
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)


def test_matrices_have_no_data_format():
    b = GraphBuilder("g", data_format="NHWC")
    graph = b.build([b.batch_norm(b.input("x", (3, 4)))])
    assert graph.nodes[0].get("data_format") is None
    check_data_format(graph)


@pytest.mark.parametrize(
    ("name", "rank", "known"),
    [("NHWC", 3, "NCW or NWC"), ("NCW", 4, "NCHW or NHWC"), ("CHWN", 4, "NCHW or NHWC")],
)
def test_a_data_format_must_fit_its_input(name, rank, known):
    b = GraphBuilder("g")
    x = b.input("x", (2,) * rank)
    node = Node("n", "lrn", (x,), ("y",), (("data_format", name), ("size", 1)))
    with pytest.raises(GraphError) as caught:
        infer(node, (b.type(x),))
    assert str(caught.value) == (
        f"node 'n' (lrn), attribute 'data_format': expected {known} for an input of rank {rank}, "
        f"found '{name}'"
    )


def test_messages_show_shapes_in_the_users_order():
    b = GraphBuilder("g", data_format="NHWC")
    w = b.constant(np.ones((8, 4, 3, 3), F32), "w")
    with pytest.raises(GraphError, match=r"expected 4 input channels, found 5 in f32\[1,4,6,5\]"):
        b.op("conv", [b.input("x", (1, 4, 6, 5)), w])
    with pytest.raises(GraphError, match=r"a window that fits .* found f32\[1,2,9,4\]"):
        b.op("conv", [b.input("y", (1, 2, 9, 4)), w])


# --- one data format a model ----------------------------------------------------------------------

MIXED = (
    "graph 'g': expected one data format in a model, found NCHW at node 'one' (conv) and NHWC at "
    "node 'two' (lrn); build one of them in the other's format, with transposed inputs"
)


def mixed() -> GraphBuilder:
    b = GraphBuilder("g")
    y = b.conv2d(b.input("x", (1, 3, 4, 5)), 3, 1, name="one")
    b.op("lrn", [y], {"size": 1, "data_format": "NHWC"}, name="two", output="y")
    return b


def test_mixing_data_formats_is_an_error_that_names_both_nodes():
    with pytest.raises(FormatError) as caught:
        mixed().build(["y"])
    assert str(caught.value) == MIXED


def test_a_mixed_graph_is_refused_at_load_too(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("stridewise.ops.builder.check_data_format", lambda _graph: None)
        graph = mixed().build(["y"])
    with pytest.raises(FormatError) as caught:
        sw.load(graph)
    assert str(caught.value) == MIXED


def test_an_unknown_data_format_is_refused():
    with pytest.raises(FormatError, match="expected one of NCW, NCHW, NCDHW, NWC, NHWC, NDHWC"):
        GraphBuilder("g", data_format="CHWN")
    assert len(DATA_FORMATS) == 6


# --- layers ---------------------------------------------------------------------------------------


def layers(data_format: str) -> Graph:
    b = GraphBuilder("g", data_format=data_format, seed=3)
    x = b.input("x", (2, 3, 11, 9) if data_format == "NCHW" else (2, 11, 9, 3))
    x = b.relu(b.batch_norm(b.conv2d(x, 8, (3, 5), strides=2, padding="same", name="stem")))
    left = b.max_pool2d(x, 3, strides=1, padding=1)
    right = b.avg_pool2d(x, 3, strides=1, padding=(1, 1), count_padding=True)
    x = b.concat([left, b.conv2d(right, 8, 3, padding=1, groups=4, bias=np.arange(8.0))])
    gate = b.sigmoid(b.conv2d(b.global_avg_pool(x), 16, 1))
    x = b.softmax(b.mul(x, gate), axis="C")
    return b.build([b.dense(b.flatten(b.global_avg_pool(x)), 5, name="head"), x])


def test_layers_make_the_same_model_in_both_data_formats():
    first, last = layers("NCHW"), layers("NHWC")
    assert {n: c.digest for n, c in first.constants.items()} == {
        n: c.digest for n, c in last.constants.items()
    }
    assert first.constants["stem.weights"].shape == (8, 3, 3, 5)
    assert {"stem.bias", "head.weights", "head.bias", "batch_norm.scale"} <= set(first.constants)
    x = np.random.default_rng(0).normal(size=(2, 3, 11, 9)).astype(F32)
    ours = run_reference(first, {"x": x})
    theirs = run_reference(last, {"x": to_last(x)})
    logits, maps = first.outputs
    np.testing.assert_allclose(theirs[logits], ours[logits], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(theirs[maps], to_last(ours[maps]), rtol=1e-5, atol=1e-7)


def test_drawn_weights_have_the_variance_of_he_and_follow_the_seed():
    graphs = []
    for seed in (0, 0, 1):
        b = GraphBuilder("g", seed=seed)
        graphs.append(b.build([b.conv2d(b.input("x", (1, 64, 4, 4)), 256, 3, name="c")]))
    weights = [graph.constants["c.weights"].array for graph in graphs]
    assert weights[0].std() == pytest.approx(np.sqrt(2 / (64 * 9)), rel=0.01)
    assert (weights[0] == weights[1]).all()
    assert (weights[0] != weights[2]).any()


@pytest.mark.parametrize("extent", range(1, 9))
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (2, 1), (3, 2), (4, 1)])
def test_same_padding_divides_the_extent_by_the_stride(extent, stride, kernel, dilation):
    b = GraphBuilder("g", data_format="NWC")
    options = {"strides": stride, "padding": "same", "dilation": dilation}
    y = b.conv1d(b.input("x", (1, extent, 2)), 3, kernel, **options)
    assert b.type(y).shape == (1, -(-extent // stride), 3)
    begin, end = b.build([y]).nodes[0].ints_attr("pads")
    assert end - begin in (0, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b, x: b.conv2d(x, 4, 3, stride=2), "option of conv2d: expected one of strides"),
        (lambda b, x: b.conv2d(x, 4, 3, padding="valid"), "expected one of same, found 'valid'"),
        (lambda b, x: b.conv2d(x, 4, (1, 2, 3)), "kernel_size: expected one number, or 2"),
        (lambda b, x: b.conv1d(x, 4, 3), r"with 1 spatial axes, found f32\[1,4,5,3\]"),
        (lambda b, x: b.conv2d(x, 4, 1, groups=2), "input channels"),
        (lambda b, x: b.batch_norm(x, var=np.ones(3)), "statistic of batch_norm"),
        (lambda b, x: b.softmax(x, axis="D"), r"expected an axis of f32\[1,4,5,3\], found 'D'"),
        (lambda b, x: b.softmax(x, axis=4), r"expected an axis of f32\[1,4,5,3\], found 4"),
        (lambda b, _: b.concat([]), "expected at least one value"),
        (lambda b, x: b.global_avg_pool(b.flatten(x)), "a feature map with 1 to 3 spatial axes"),
    ],
)
def test_layers_refuse_what_does_not_fit(call, message):
    b = GraphBuilder("g", data_format="NHWC")
    with pytest.raises(GraphError, match=message):
        call(b, b.input("x", (1, 4, 5, 3)))


# --- passes ---------------------------------------------------------------------------------------


def kinds(graph: Graph) -> list[str]:
    simplified = simplify(graph, check=True).graph
    return ["+".join((n.op, *(post.op for post in n.post_ops))) for n in simplified.nodes]


def agree(graph: Graph) -> None:
    x = np.random.default_rng(0).normal(size=graph.value("x").shape).astype(F32)
    wanted = run_reference(graph, {"x": x})
    found = run_reference(simplify(graph, check=True).graph, {"x": x})
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)


def test_scales_and_rows_fold_into_channels_last_convolutions():
    b = GraphBuilder("g", data_format="NHWC")
    x = b.input("x", (1, 4, 4, 4))
    y = b.batch_norm(b.conv2d(x, 4, 1), mean=np.arange(4.0), scale=np.arange(1.0, 5.0))
    y = b.add(y, b.constant(np.arange(4).astype(F32)))
    y = b.mul(b.batch_norm(b.max_pool2d(b.relu(y), 2)), b.constant(np.full((1, 1, 1, 4), 2, F32)))
    graph = b.build([y])
    assert kinds(graph) == ["conv+relu", "max_pool", "scale_shift"]
    agree(graph)
    # A row over the width is none over the channels, though the extents are equal.
    b = GraphBuilder("g", data_format="NHWC")
    y = b.conv2d(b.input("x", (1, 4, 4, 4)), 4, 1)
    graph = b.build([b.add(y, b.constant(np.arange(4).astype(F32).reshape(4, 1)))])
    assert kinds(graph) == ["conv", "add"]
    agree(graph)


def test_pads_fold_into_the_spatial_axes_of_channels_last_windows():
    for pads, folded in (((0, 1, 2, 0, 0, 0, 1, 0), True), ((0, 0, 1, 1, 0, 0, 1, 0), False)):
        b = GraphBuilder("g", data_format="NHWC")
        y = b.op("pad", [b.input("x", (1, 5, 6, 3))], {"pads": pads})
        graph = b.build([b.conv2d(y, 4, 3, name="c")])
        assert (kinds(graph) == ["conv"]) == folded
        agree(graph)
        if folded:
            assert simplify(graph).graph.nodes[0].ints_attr("pads") == (1, 2, 0, 1)


@pytest.mark.parametrize("swapped", [True, False])
def test_shuffles_of_the_last_axis_are_recognized_in_channels_last_models(swapped):
    b = GraphBuilder("g", data_format="NHWC")
    y = b.conv2d(b.input("x", (1, 3, 2, 6)), 6, 1)
    y = b.op("reshape", [y], {"shape": (1, 3, 2, 2, 3)})
    y = b.op("transpose", [y], {"perm": (0, 1, 2, 4, 3) if swapped else (0, 2, 1, 3, 4)})
    graph = b.build([b.op("reshape", [y], {"shape": (1, 3, 2, 6)})])
    assert (kinds(graph) == ["conv", "channel_shuffle"]) == swapped
    agree(graph)


# --- values that anchors disagree about -----------------------------------------------------------


def test_kernels_in_channels_last_run_on_values_without_an_origin():
    b = GraphBuilder("g", data_format="NHWC")
    x = b.input("x", (1, 5, 5, 5))
    y = b.op("transpose", [b.conv2d(x, 5, 3, padding=1)], {"perm": (0, 2, 1, 3)})
    z = b.relu(y)
    graph = b.build([b.conv2d(b.add(z, b.conv2d(z, 5, 1)), 5, 1), z])
    derived = derive(graph)
    assert derived.conflicts
    make_plan(derived, TARGET, MACHINE, Roofline(1e11, 4e10, TARGET.efficiency))


def test_neighbors_of_a_chain_share_one_storage():
    b = GraphBuilder("g", data_format="NHWC")
    x = b.input("x", (1, 8, 8, 16))
    for _ in range(3):
        x = b.relu(b.conv2d(x, 16, 3, padding=1))
    plan = planned(b.build([x]))
    assert not [item for item in plan.reorders if item.tensor not in ("x", x)]
    for before, after in pairwise(plan.decisions):
        assert before.chosen.option.outputs[0] == after.chosen.option.inputs[0]
