"""Every pass by golden text and by its refusals; all together by the law that results stay."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.networks import F32, Net, networks, rng
from tests.simplified import PASSES, simplify

from stridewise.errors import GraphError, InputError
from stridewise.graph import Graph, Refusal
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.passes import Pass, passes_for, select
from stridewise.passes import simplify as simplify_with
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.onednn.target import ABILITY

from .pass_graphs import GOLDEN, net, stored

BY_NAME = {item.name: item.run for item in PASSES}


def run(name: str, graph: Graph) -> tuple[Graph, list[str]]:
    """Run one pass, verify its result, compare values, and return the reasons of refusals."""
    verify(graph, infer)
    after, refusals = BY_NAME[name](graph)
    verify(after, infer)
    same_results(graph, after)
    assert all(refusal.rule == name for refusal in refusals)
    return after, [f"{refusal.subject}: {refusal.reason}" for refusal in refusals]


def same_results(before: Graph, after: Graph) -> None:
    assert before.inputs == after.inputs
    assert before.outputs == after.outputs
    draw = rng()
    feeds = {name: draw.normal(size=before.value(name).shape).astype(F32) for name in before.inputs}
    expected, found = run_reference(before, feeds), run_reference(after, feeds)
    for name in before.outputs:
        assert found[name].dtype == expected[name].dtype
        finite = np.abs(expected[name][np.isfinite(expected[name])])
        scale = max(float(finite.max(initial=0)), 1e-3)
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=2e-5 * scale)


# --- golden texts ---------------------------------------------------------------------------------


def test_every_pass_has_a_golden_text():
    assert tuple(GOLDEN) == tuple(item.name for item in PASSES)


def test_the_page_about_simplification_lists_the_passes_in_order():
    page = (Path(__file__).parents[2] / "docs/stages/simplify.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", page, flags=re.MULTILINE)
    table = passes_for(ABILITY, keep_parameters=True)
    assert rows == [(item.name, item.help) for item in table]


@pytest.mark.parametrize("name", GOLDEN)
def test_a_pass_writes_its_golden_text(name, golden):
    graph = GOLDEN[name]()
    after, _ = run(name, graph)
    assert after != graph
    golden(f"pass_{name}", f"{graph}\n--- {name} --->\n\n{after}")


def _unrounded(b: Net, x: str) -> str:
    y = b.op("clip", [x], {"alpha": -128.0, "beta": 127.0})
    return b.op("cast", [y], {"to": "int8"})


@pytest.mark.parametrize(
    "store",
    [
        _unrounded,
        lambda b, x: b.op("cast", [b.op("round", [x])], {"to": "int8"}),
        lambda b, x: stored(b, x, 0.5, "int8", -128.0, 127.0),
        lambda b, x: stored(b, x, 1, "int8", -128.0, 128.0),
        lambda b, x: stored(b, x, 1, "int8", -128.5, 127.0),
        lambda b, x: stored(b, x, 1, "int32", -(2.0**31), 2.0**30),
    ],
    ids=["not rounded", "not limited", "broken shift", "wide", "broken limit", "beyond floats"],
)
def test_integers_that_change_values_stay(store):
    b, x = net(1, 3)
    graph = b.build([b.op("cast", [store(b, x)], {"to": "float32"})])
    after, reasons = run("skip_integers", graph)
    assert after == graph
    assert reasons == []


def test_sums_of_integers_that_others_read_stay():
    b, x = net(2, 3)
    whole = b.op("cast", [stored(b, x, 0, "int8", -128.0, 127.0)], {"to": "int32"})
    y = b.op("matmul", [whole, b.constant(np.ones((3, 2), np.int32))])
    graph = b.build([y, b.op("cast", [y], {"to": "float32"})])
    after, _ = run("multiply_floats", graph)
    assert after == graph


@pytest.mark.parametrize("largest", [255, 256, 1 << 30])
def test_products_of_long_integers_stay(largest):
    b, x = net(2, 3)
    whole = b.op("cast", [stored(b, x, 0, "int8", -128.0, 127.0)], {"to": "int32"})
    y = b.op("matmul", [whole, b.constant(np.array([[1], [1], [-largest]], np.int32))])
    after, _ = run("multiply_floats", b.build([b.op("cast", [y], {"to": "float32"})]))
    kept = [node.op for node in after.nodes if node.op in ("matmul", "cast")]
    assert kept == ["cast", "cast", "matmul", *(["cast"] if largest > 255 else [])]


def test_integers_that_others_read_stay():
    b, x = net(1, 3)
    kept = stored(b, x, 3, "int8", -128.0, 127.0)
    y = b.op("sub", [b.op("cast", [kept], {"to": "float32"}), b.const(3)])
    after, _ = run("skip_integers", b.build([kept, y]))
    assert [node.op for node in after.nodes] == ["round", "add", "clip", "cast", "clip"]
    last = after.nodes[-1]
    assert (last.float_attr("alpha"), last.float_attr("beta")) == (-131, 124)


@pytest.mark.parametrize("zeros", [(4, 4, 4), (1, 2, 3)])
def test_zero_points_that_differ_stay(zeros):
    b, x = net(1, 3)
    y = b.op("clip", [b.op("add", [b.op("round", [x]), b.const(*zeros)])], {"alpha": 0.0})
    graph = b.build([b.op("sub", [y, b.const(3, 3, 3)])])
    after, _ = run("skip_integers", graph)
    assert after == graph


def test_resizing_that_the_library_has_no_kernel_for_is_refused_with_a_reason():
    b, x = net(1, 2, 4, 4)
    nearest = {"shape": (1, 2, 6, 6), "mode": "nearest"}
    cubic = {"shape": (1, 2, 4, 8), "mode": "cubic"}
    after, reasons = run(
        "split_resize", b.build([b.op("resize", [x], a) for a in (nearest, cubic)])
    )
    assert reasons == [
        "resize: oneDNN has no kernel for nearest, half_pixel; it becomes a matrix product an axis",
        "resize.1: oneDNN has no kernel for cubic, half_pixel; it becomes a matrix product an axis",
    ]
    assert [node.op for node in after.nodes] == ["interpolate"] * 3


# --- refusals -------------------------------------------------------------------------------------


def test_outputs_that_depend_on_constants_alone_become_constants():
    b, x = net(1, 2)
    graph = b.build([b.op("neg", [b.const(1)], name="out"), b.op("relu", [x])])
    after, reasons = run("fold_constants", graph)
    assert reasons == []
    assert after.outputs == graph.outputs
    assert after.constants["out"].array == -1


def test_constants_that_would_grow_without_bound_stay_nodes():
    b, x = net(1, 2)
    big = b.op("expand", [b.const(1)], {"shape": (1 << 14, (1 << 12) + 1)}, name="big")
    graph = b.build([b.op("reduce_sum", [big], {"axes": (0,)}), b.op("relu", [x])])
    # The results are not compared, because computing them takes too long.
    _, refusals = BY_NAME["fold_constants"](graph)
    elements = (1 << 26) + (1 << 14)
    assert refusals[0] == Refusal(
        "fold_constants", "big", f"it takes {elements * 4} bytes and {elements} operations"
    )


@given(data=st.data())
def test_elementwise_operators_read_what_expansions_read(data: Any):
    rank = data.draw(st.integers(1, 4))
    whole = tuple(data.draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank)))
    op = data.draw(st.sampled_from(["add", "div", "pow", "where"]))
    b = Net("g")
    operands: list[str] = []
    for index in range(3 if op == "where" else 2):
        ones = data.draw(st.lists(st.booleans(), min_size=rank, max_size=rank))
        shape = tuple(1 if one else n for one, n in zip(ones, whole, strict=True))
        x = b.input(f"x{index}", shape[data.draw(st.integers(0, rank)) :])
        expanded = b.op("expand", [x], {"shape": whole})
        is_condition = op == "where" and index == 0
        operands.append(b.op("greater", [expanded, x]) if is_condition else expanded)
    after, _ = run("remove_no_ops", b.build([b.op(op, operands)]))
    # One stays if no other operand has all extents of the result.
    made = {node.outputs[0]: node.op for node in after.nodes}
    assert [made.get(name) for name in after.nodes[-1].inputs].count("expand") <= 1


def test_no_ops_whose_result_the_caller_asks_for_stay():
    b, x = net(1, 2)
    y = b.op("relu", [x])
    graph = b.build([b.op("identity", [x], name="same"), y, b.op("identity", [y], name="copy")])
    after, reasons = run("remove_no_ops", graph)
    assert reasons == [
        "same: the caller asks for its result by name",
        "copy: the caller asks for its result by name",
    ]
    assert after == graph


def test_factors_of_products_with_themselves_stay():
    """Both operands come from the same weights, so their factor would be applied twice."""
    b, x = net(1, 3, 4)
    y = b.op("matmul", [x, b.const(*range(16), shape=(4, 4))], name="y")
    scores = b.op("matmul", [y, y], {"perm_b": (0, 2, 1)})
    graph = b.build([b.op("relu", [b.op("mul", [scores, b.const(0.5)], name="scaled")])])
    after, reasons = run("hoist_factors", graph)
    assert after == graph
    assert reasons == ["scaled: other operands are 'y' as well"]


NOT_SPLIT = "the first reshape does not split the channels in two"
NOT_SWAPPED = "the transpose does not swap the two halves of the channels"


@pytest.mark.parametrize(
    ("first", "perm", "last", "reason"),
    [
        (
            (2, 2, 3, 3, 3),
            (0, 2, 1, 3, 4),
            (2, 54),
            "the shape after it differs from the one before",
        ),
        ((2, 6, 3, 3, 1), (0, 1, 3, 2, 4), (2, 6, 3, 3), NOT_SPLIT),
        ((2, 6, 9, 1), (0, 1, 3, 2), (2, 6, 3, 3), NOT_SPLIT),
        ((2, 3, 2, 9, 1), (0, 2, 1, 3, 4), (2, 6, 3, 3), NOT_SPLIT),
        ((2, 2, 3, 3, 3), (0, 2, 1, 4, 3), (2, 6, 3, 3), NOT_SWAPPED),
    ],
)
def test_what_is_no_channel_shuffle_is_refused(first, perm, last, reason):
    b, x = net(2, 6, 3, 3)
    y = b.op("transpose", [b.op("reshape", [x], {"shape": first})], {"perm": perm})
    graph = b.build([b.op("reshape", [y], {"shape": last}, name="last")])
    after, reasons = run("recognize_shuffle", graph)
    assert reasons == [f"last: {reason}"]
    assert after == graph


def test_scales_are_not_folded_where_the_value_before_has_other_readers():
    b, x = net()
    y = b.conv(x, 3)
    graph = b.build([b.scale(y), b.op("relu", [y])])
    after, reasons = run("fold_scale", graph)
    assert reasons == ["scale_shift: 'conv' has other readers"]
    assert after == graph


def test_scales_are_not_folded_into_what_is_not_constant():
    b = Net("g")
    x, w, v = b.input("x", (1, 2, 1, 1)), b.input("w", (2, 2, 1, 1)), b.input("v", (2,))
    batch = b.input("batch", (2, 2, 2))
    weights = b.scale(b.op("conv", [x, w], name="conv_w"))
    fixed = b.const(1, 2, 3, 4, shape=(2, 2, 1, 1))
    bias = b.op("mul", [b.op("conv", [x, fixed, v]), b.const(2)], name="bias")
    scale = b.op("scale_shift", [x, v, b.const(1, 2)], name="host")
    scale = b.op("mul", [scale, b.const(3)], name="scale")
    stack = b.const(*range(8), shape=(2, 2, 2))
    matrix = b.op("add", [b.op("matmul", [batch, stack]), b.const(1, 2)], name="matrix")
    after, reasons = run("fold_scale", b.build([weights, bias, scale, matrix]))
    assert sorted(reasons) == [
        "bias: the bias is not constant",
        "matrix: the weights are not one matrix",
        "scale: the scale before it is not constant",
        "scale_shift: the weights are not constant",
    ]
    assert len(after.nodes) == 8


@pytest.mark.parametrize("groups", [1, 2])
def test_scales_are_folded_into_transposed_convolutions(groups):
    b, x = net(1, 4, 3, 3)
    random = np.random.default_rng(groups)
    weights = b.constant(random.normal(size=(4, 3, 2, 2)).astype(F32), "w")
    y = b.op("conv_transpose", [x, weights], {"groups": groups, "strides": (2, 2)})
    graph = b.build([b.scale(y)])
    after, reasons = run("fold_scale", graph)
    assert [node.op for node in after.nodes] == ["conv_transpose"]
    assert not reasons
    feed = {"x": random.normal(size=(1, 4, 3, 3)).astype(F32)}
    (wanted,), (found,) = (run_reference(each, feed).values() for each in (graph, after))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_scales_are_folded_into_convolutions_without_padding(
    groups: int, inputs: int, outputs: int, window: int, has_bias: bool, is_padded: bool
):
    b, x = net(1, groups * inputs, 4, 4)
    random = np.random.default_rng(inputs)
    shape = (groups * outputs, inputs, window, window)
    constants = [b.constant(random.normal(size=shape).astype(F32), "w")]
    if has_bias:
        constants.append(b.constant(random.normal(size=shape[:1]).astype(F32), "c"))
    attrs = {"groups": groups, "pads": (int(is_padded),) * 4}
    y = b.op("conv", [b.scale(b.op("relu", [x])), *constants], attrs)
    graph = b.build([b.op("relu", [y])])
    after, _ = run("fold_scale", graph)
    ops = ["relu", "conv", "relu"]
    assert [node.op for node in after.nodes] == (
        ["relu", "scale_shift", *ops[1:]] if is_padded else ops
    )
    feed = {"x": random.normal(size=(1, groups * inputs, 4, 4)).astype(F32)}
    (wanted,), (found,) = (run_reference(each, feed).values() for each in (graph, after))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_scales_with_other_readers_are_not_folded_into_convolutions():
    b, x = net()
    y = b.scale(b.op("relu", [x]))
    graph = b.build([b.op("relu", [b.conv(y, 3)]), b.op("relu", [y])])
    assert "scale_shift" in [node.op for node in run("fold_scale", graph)[0].nodes]


@pytest.mark.parametrize("op", ["sub", "div"])
def test_scales_that_are_no_per_channel_constants_are_left_alone(op):
    b, x = net(1, 2, 2, 2)
    y = b.op(op, [b.const(5, 6, shape=(2, 1, 1)), b.conv(x, 2, bias=True)])
    z = b.op("mul", [b.conv(x, 2), b.const(1, 2)], name="columns")
    graph = b.build([y, z])
    after, reasons = run("fold_scale", graph)
    assert (after, reasons) == (graph, [])


PADS = (0, 0, 1, 1, 0, 0, 1, 1)


@pytest.mark.parametrize(
    ("window", "attrs", "pad", "reason"),
    [
        ("conv", {}, {"pads": (0, 1, 0, 0, 0, 1, 0, 0)}, "it pads batch or channels"),
        ("conv", {}, {"pads": PADS, "value": 0.5}, "conv pads with 0, not with 0.5"),
        (
            "max_pool",
            {"kernel": (2, 2)},
            {"pads": PADS},
            "max pooling pads with -inf, not with 0.0, and the input may be negative",
        ),
        (
            "max_pool",
            {"kernel": (1, 1)},
            {"pads": PADS, "value": float("-inf")},
            "a pooling window would lie in the padding alone",
        ),
        (
            "avg_pool",
            {"kernel": (2, 2)},
            {"pads": PADS, "value": 1.0},
            "avg_pool pads with 0, not with 1.0",
        ),
        (
            "avg_pool",
            {"kernel": (3, 3), "pads": (1, 0, 0, 0)},
            {"pads": PADS},
            "the pooling leaves its own padding out of the mean",
        ),
    ],
)
def test_pads_that_a_window_does_not_do_by_itself_are_refused(window, attrs, pad, reason):
    b, x = net()
    y = b.op("pad", [x], pad)
    y = b.conv(y, 2, 3) if window == "conv" else b.op(window, [y], attrs)
    graph = b.build([y])
    after, reasons = run("fold_pad", graph)
    assert reasons == [f"pad: {reason}"]
    assert after == graph


def test_pads_with_minus_infinity_are_those_of_max_pooling():
    b, x = net()
    y = b.op("pad", [x], {"pads": PADS, "value": float("-inf")})
    after, reasons = run("fold_pad", b.build([b.op("max_pool", [y], {"kernel": (2, 2)})]))
    assert reasons == []
    assert [node.op for node in after.nodes] == ["max_pool"]


def test_pads_are_not_folded_into_windows_that_would_see_nothing_else():
    b, x = net(1, 1, 1, 1)
    y = b.op("pad", [b.op("abs", [x])], {"pads": PADS})
    window = b.op("max_pool", [y], {"kernel": (2, 2), "dilations": (2, 2)})
    _, reasons = run("fold_pad", b.build([window]))
    assert reasons == ["pad: a pooling window would lie in the padding alone"]


def _refused_fusion(build: Any) -> tuple[Graph, Graph, list[str]]:
    b, x = net(1, 4, 3, 3)
    graph = b.build(build(b, x))
    return graph, *run("fuse_post_ops", graph)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (
            lambda b, x: [b.op("sigmoid", [b.scale(x)], name="f")],
            "f: a scale_shift kernel does not take sigmoid",
        ),
        (
            lambda b, x: [b.op("add", [b.scale(x), x], name="f")],
            "f: a scale_shift kernel does not take add",
        ),
        (lambda b, x: [b.op("sub", [b.conv(x, 4), x], name="f")], "f: sub is not commutative"),
        (
            lambda b, x: [b.op("mul", [b.conv(x, 4), "conv"], name="f")],
            "f: both operands are the same value",
        ),
        (
            lambda b, x: [b.op("add", [b.conv(x, 4), b.const(1)], name="f")],
            "f: the other operand has another shape",
        ),
        (
            lambda b, x: [
                b.op("add", [b.conv(x, 1), b.const(*range(9), shape=(1, 1, 3, 3))], name="f")
            ],
            "f: the other operand is a constant",
        ),
        (
            lambda b, x: [
                b.op(
                    "add",
                    [b.conv(x, 4), b.op("transpose", [x], {"perm": (0, 1, 3, 2)})],
                    name="f",
                )
            ],
            "f: the other operand's axes come in another order",
        ),
    ],
)
def test_followers_that_no_kernel_takes_are_refused(build, reason):
    graph, after, reasons = _refused_fusion(build)
    assert reasons == [reason]
    assert after == graph


def test_of_two_hosts_the_later_one_takes_the_sum():
    b, x = net(1, 4, 3, 3)
    first, second = b.conv(x, 4), b.conv(x, 4)
    after, reasons = run("fuse_post_ops", b.build([b.op("add", [first, second], name="f")]))
    assert reasons == ["f: 'conv.1', which runs later, takes it"]
    assert [(node.name, node.inputs[3:]) for node in after.nodes] == [
        ("conv", ()),
        ("conv.1", ("conv",)),
    ]


def test_a_node_takes_eight_post_ops_and_no_more():
    b, x = net(1, 4, 3, 3)
    y = b.conv(x, 4)
    for _ in range(9):
        y = b.op("tanh", [y])
    after, reasons = run("fuse_post_ops", b.build([y]))
    assert reasons == ["tanh.8: 'conv' has 8 post-ops already"]
    assert [len(node.post_ops) for node in after.nodes] == [8, 0]


def test_values_that_the_caller_sees_are_not_fused_away():
    b, x = net(1, 4, 3, 3)
    y = b.conv(x, 4)
    graph = b.build([y, b.op("relu", [y])])
    after, _ = run("fuse_post_ops", graph)
    assert after == graph


# --- what is easily got wrong ---------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1, 1, 1, 1), (2, 1, 1, 1, 1), (1, 1)])
def test_activations_with_a_divisor_of_higher_rank_keep_their_type(shape):
    b, x = net(1, 3, 2, 2)
    gate = b.op("clip", [b.op("add", [x, b.const(3)])], {"alpha": 0.0, "beta": 6.0})
    divisor = b.const(*[6] * shape[0], shape=shape)
    graph = b.build([b.op("div", [gate, divisor], name="y")])
    after, _ = run("recognize_activations", graph)
    assert after.value("y").shape == np.broadcast_shapes(shape, (1, 3, 2, 2))


def test_a_product_of_two_vectors_may_be_scaled():
    b, x = net(3)
    y = b.op("mul", [b.op("matmul", [x, b.const(1, 2, 3)]), b.const(2, shape=())])
    run("fold_scale", b.build([y]))


def test_simplify_reports_the_refusals_of_all_passes_in_order():
    b, x = net(1, 4, 3, 3)
    y = b.op("pad", [x], {"pads": PADS, "value": 1.0})
    y = b.conv(y, 4, 3)
    graph = b.build([b.op("sub", [y, x], name="f"), b.op("identity", [x], name="i")])
    simplified = simplify(graph, check=True)
    assert [str(refusal) for refusal in simplified.refusals] == [
        "remove_no_ops: i: the caller asks for its result by name",
        "fold_pad: pad: conv pads with 0, not with 1.0",
        "fuse_post_ops: f: sub is not commutative",
    ]
    assert simplified.before == 4


def test_with_check_a_pass_that_breaks_the_graph_is_caught():
    b, x = net(1, 2)
    graph = b.build([b.op("relu", [x])])
    broken = [Pass("bad", "", lambda g: (Graph(g.name, g.inputs, ("no",), g.nodes, g.values), ()))]
    assert simplify(graph, broken).graph.outputs == ("no",)
    with pytest.raises(GraphError, match="outputs: expected defined values, found 'no'"):
        simplify(graph, broken, check=True)


# --- the law --------------------------------------------------------------------------------------


@given(networks())
def test_simplify_keeps_all_results(graph):
    verify(graph, infer)
    simplified = simplify(graph, check=True)
    same_results(graph, simplified.graph)
    assert len(simplified.graph.nodes) <= simplified.before
    # Refusals are about nodes that are there.
    known = {node.name for node in graph.nodes}
    assert {refusal.subject for refusal in simplified.refusals} <= known


@given(networks(), st.sets(st.sampled_from([item.name for item in PASSES])))
def test_any_selection_of_passes_keeps_all_results(graph, skipped):
    seen: list[tuple[str, Graph]] = []
    chosen = select(PASSES, skip=skipped)
    simplified = simplify_with(
        graph, chosen, check=True, after=lambda item, found: seen.append((item.name, found))
    )
    assert [name for name, _ in seen] == [item.name for item in PASSES if item.name not in skipped]
    same_results(graph, simplified.graph)
    assert not seen or seen[-1][1] == simplified.graph


def test_passes_are_selected_by_name_in_the_order_of_the_table():
    chosen = select(PASSES, ["fold_pad", "fold_constants", "fold_scale"], ["fold_scale"])
    assert [item.name for item in chosen] == ["fold_constants", "fold_pad"]
    assert select(PASSES) == PASSES
    for wrong in ({"only": ["fuse_posts_ops"]}, {"skip": ["fuse_posts_ops"]}):
        with pytest.raises(InputError, match=r"did you mean fuse_post_ops\?"):
            select(PASSES, **wrong)


def test_simplify_shares_the_weights_that_it_does_not_change():
    b, x = net()
    y = b.op("relu", [b.conv(x, 3, 3, bias=True)])
    graph = b.build([b.op("add", [b.conv(y, 2), b.const(1)])])
    after = simplify(graph, check=True).graph
    assert [node.op for node in after.nodes] == ["conv", "conv"]
    for name in ("w", "b", "w.1"):
        assert after.constants[name].array is graph.constants[name].array
