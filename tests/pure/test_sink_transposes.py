"""Transposes on their way down: what lets them pass, what stops them, and that results stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.networks import F32, Net, networks, rng
from tests.simplified import assert_same, simplify

from stridewise.graph import Graph, Node
from stridewise.graph.verify import verify
from stridewise.ops import OPS, infer
from stridewise.ops.registry import Permuted, permute
from stridewise.passes.sink_transposes import sink_transposes
from stridewise.runtime.simulation.reference import run_reference

LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def net(*shape: int) -> tuple[Net, str]:
    b = Net("g")
    return b, b.input("x", shape or (2, 4, 5, 6))


def turn(b: Net, x: str, perm: tuple[int, ...] = LAST, name: str = "") -> str:
    return b.op("transpose", [x], {"perm": perm}, name=name)


def count(graph: Graph) -> int:
    return sum(node.op == "transpose" for node in graph.nodes)


def sunk(graph: Graph) -> tuple[list[str], list[str], Graph]:
    """The operators afterwards, the refusals, and the graph, which computes the same."""
    after, refusals = sink_transposes(graph)
    assert_same(graph, after, 1e-5)
    reasons = [f"{item.subject}: {item.reason}" for item in refusals]
    return [node.op for node in after.nodes], reasons, after


# --- what lets them pass --------------------------------------------------------------------------

PASSABLE: dict[str, tuple[str, dict[str, Any]]] = {
    "clip": ("clip", {"alpha": 0.0, "beta": 1.0}),
    "concat": ("concat", {"axis": 3}),
    "log_softmax": ("log_softmax", {"axis": 1}),
    "pad": ("pad", {"pads": (0, 1, 2, 3, 1, 0, 2, 0), "value": 0.5}),
    "reduce_max": ("reduce_max", {"axes": (1, 3), "keepdims": 1}),
    "reduce_sum": ("reduce_sum", {"axes": (2, 0), "keepdims": 0}),
    "relu": ("relu", {}),
    "slice": ("slice", {"starts": (0, 1, 2, 0), "stops": (2, 5, 6, 3), "steps": (1, 2, 1, 2)}),
    "softmax": ("softmax", {"axis": 2}),
}


def test_a_row_that_a_reshape_makes_is_turned_by_a_reshape():
    b, x = net()
    row = b.op("reshape", [b.input("row", (6,))], {"shape": (1, 6, 1, 1)})
    y = b.op("mul", [turn(b, x, FIRST), row])
    ops, _, _ = sunk(b.build([turn(b, y, LAST)]))
    assert "transpose" not in ops


@pytest.mark.parametrize("perm", [LAST, FIRST, (3, 1, 0, 2), (1, 0, 2, 3)])
@pytest.mark.parametrize("case", PASSABLE)
def test_operators_that_do_not_mind_let_transposes_pass(case, perm):
    op, attrs = PASSABLE[case]
    b, _ = net()
    x = b.input("y", tuple((2, 5, 6, 4)[perm.index(axis)] for axis in range(4)))
    y = b.op(op, [turn(b, x, perm)], attrs)
    ops, reasons, after = sunk(b.build([y]))
    assert ops[0] == op
    assert ops in ([op, "transpose"], [op])
    assert not reasons
    assert after.nodes[0].inputs[0] == "y"


@pytest.mark.parametrize("op", ["conv", "max_pool", "lrn", "scale_shift", "channel_shuffle"])
def test_anchors_take_the_other_data_format(op):
    for perm, name in ((FIRST, "NHWC"), (LAST, None)):
        b, x = net(2, 6, 6, 6)
        w, row = b.constant(np.ones((6, 6, 1, 1), F32)), b.constant(np.arange(6).astype(F32))
        inputs = {"conv": [w], "scale_shift": [row, row]}.get(op, [])
        attrs: dict[str, Any] = {"max_pool": {"kernel": (2, 1)}, "lrn": {"size": 3}}.get(op, {})
        attrs |= {"groups": 2} if op == "channel_shuffle" else {}
        attrs |= {} if name else {"data_format": "NHWC"}
        y = b.op(op, [turn(b, x, perm), *inputs], attrs)
        ops, _, after = sunk(b.build([turn(b, y, LAST if perm == FIRST else FIRST)]))
        assert ops == [op]
        assert after.nodes[0].get("data_format") == name


def test_constants_beside_a_transpose_are_transposed_and_numbers_stay():
    b, x = net()
    y = b.op("add", [turn(b, x), b.const(1, 2, 3, 4)])
    y = b.op("mul", [b.const(2), y])
    ops, _, after = sunk(b.build([turn(b, y, FIRST)]))
    assert ops == ["add", "mul"]
    shapes = [after.value(name).shape for name in after.constants]
    assert sorted(shapes) == [(1,), (1, 4, 1, 1)]


def test_both_operands_of_a_sum_go_before_one_transpose():
    b, x = net()
    other = b.input("other", (1, 4, 1, 1))
    y = b.op("sub", [turn(b, x), turn(b, other)])
    ops, _, _ = sunk(b.build([y]))
    assert ops == ["sub", "transpose"]


def test_reshapes_let_transposes_pass_that_move_no_element():
    b, x = net(3, 4, 1, 1)
    y = b.op("reshape", [turn(b, x)], {"shape": (3, 4)})
    assert sunk(b.build([y]))[0] == ["reshape"]


def test_outputs_keep_their_names_and_orders():
    b, x = net()
    a = b.op("relu", [turn(b, x)], name="a")
    z = turn(b, a, FIRST, name="z")
    same = turn(b, turn(b, x), FIRST, name="same")
    ops, _, after = sunk(b.build([a, z, same, z]))
    assert ops == ["relu", "transpose", "identity"]
    assert after.value("a").shape == (2, 5, 6, 4)
    assert after.value("z").shape == (2, 4, 5, 6)


# --- what stops them ------------------------------------------------------------------------------


def test_what_stops_a_transpose_is_named():
    b, x = net()
    flat = b.op("reshape", [turn(b, x, name="t1")], {"shape": (2, 120)}, name="flat")
    odd = b.conv(turn(b, x, (0, 1, 3, 2), name="t2"), 3)
    loose = b.op("add", [turn(b, x, name="t3"), b.input("y", (2, 5, 6, 4))], name="sum")
    torn = b.op("add", [turn(b, x, name="t4"), turn(b, x, (0, 2, 3, 1), name="t5")], name="fine")
    row = b.op("mul", [turn(b, x, name="t6"), b.input("row", (4,))], name="row_mul")
    ops, reasons, _ = sunk(b.build([flat, odd, loose, torn, row]))
    assert ops.count("transpose") == 5
    assert reasons == [
        "t1: it stops at reshape 'flat': it takes the elements as they come",
        "t2: it stops at conv 'conv': there is no data format NCWH",
        "t3: it stops at add 'sum': its operand 'y' is not transposed",
        "t6: it stops at mul 'row_mul': its operand 'row' is not transposed",
    ]


def test_operands_that_are_transposed_in_different_ways_stop_them():
    b, x = net(2, 5, 5, 5)
    y = b.op("add", [turn(b, x, name="t1"), turn(b, x, FIRST, name="t2")], name="sum")
    ops, reasons, _ = sunk(b.build([b.op("relu", [y])]))
    assert ops == ["transpose", "transpose", "add", "relu"]
    reason = "it stops at add 'sum': its operands are transposed in different ways"
    assert reasons == [f"t1: {reason}", f"t2: {reason}"]


def test_a_transpose_stays_where_it_would_become_two():
    b, x = net()
    y = turn(b, x, name="t")
    ops, reasons, _ = sunk(b.build([b.op("relu", [y]), b.op("tanh", [y])]))
    assert ops == ["transpose", "relu", "tanh"]
    assert reasons == ["t: it would have to be done more often further down"]


def test_fused_operands_stop_a_transpose():
    b, x = net()
    graph = simplify(b.build([b.op("add", [x, b.conv(x, 4)])])).graph
    (conv,) = graph.nodes
    assert conv.post_ops
    b, x = net(2, 5, 6, 4)
    graph_inputs = {conv.inputs[0]: turn(b, x, FIRST)}
    w = b.constant(graph.constants[conv.inputs[1]].array)
    y = b.op("conv", [graph_inputs[conv.inputs[0]], w])
    fused = b.build([y])
    (first, second) = fused.nodes
    node = Node(second.name, "conv", (*second.inputs, "", first.outputs[0]), second.outputs)
    node = Node(node.name, node.op, node.inputs, node.outputs, (), conv.post_ops)
    broken = Graph("g", fused.inputs, fused.outputs, (first, node), fused.values, fused.constants)
    _, reasons, _ = sunk(broken)
    assert reasons == ["transpose: it stops at conv 'conv': it has fused operands"]


# --- laws -----------------------------------------------------------------------------------------


def _turned_around(draw: Any, graph: Graph) -> Graph:
    """Compute some nodes on transposed operands, and transpose their results back."""
    b = Net(graph.name)
    names: dict[str, str] = {}
    for name in graph.inputs:
        names[name] = b.input(name, graph.value(name).shape)
    for name, constant in graph.constants.items():
        names[name] = b.constant(constant.array, name)
    for node in graph.nodes:
        inputs = [names[name] for name in node.inputs]
        attrs = dict(node.attrs)
        rank = len(b.type(inputs[0]).shape)
        perm = draw(st.permutations(range(rank))) if draw(st.booleans()) else range(rank)
        perm = draw(st.sampled_from([tuple(perm), FIRST if rank == 4 else tuple(perm)]))
        inverse = tuple(perm.index(axis) for axis in range(rank))
        inner = tuple(b.type(inputs[0]).shape[axis] for axis in inverse)
        tied = inputs if OPS[node.op].origin in ("elementwise", "same") else inputs[:1]
        even = all(b.data(name) is None and len(b.type(name).shape) == rank for name in tied)
        moved = permute(node, inner, perm) if even and node.op != "transpose" else "it stays"
        if isinstance(moved, Permuted):
            turned = {name: turn(b, name, inverse) for name in tied}
            inputs = [turned.get(name, name) for name in inputs]
            y = b.op(node.op, inputs, moved.attrs)
            names[node.outputs[0]] = turn(b, y, moved.perm)
        else:
            names[node.outputs[0]] = b.op(node.op, inputs, attrs)
    outputs = [names[name] for name in dict.fromkeys(graph.outputs)]
    values = b.__dict__["_values"]
    nodes = tuple(b.__dict__["_nodes"].values())
    return Graph(graph.name, graph.inputs, tuple(outputs), nodes, values, b.__dict__["_constants"])


@st.composite
def turned_networks(draw: Any) -> tuple[Graph, Graph]:
    graph = draw(networks())
    return graph, _turned_around(draw, graph)


@given(turned_networks())
@settings(max_examples=80)
def test_transposes_around_anything_change_nothing_and_become_no_more(pair):
    graph, turned = pair
    verify(turned, infer)
    feeds = {"x": rng().normal(size=graph.value("x").shape).astype(F32)}
    expected = run_reference(graph, feeds)
    for candidate in (turned, sink_transposes(turned)[0], simplify(turned, check=True).graph):
        found = run_reference(candidate, feeds)
        for ours, theirs in zip(dict.fromkeys(graph.outputs), candidate.outputs, strict=True):
            finite = np.abs(expected[ours][np.isfinite(expected[ours])])
            scale = max(float(finite.max(initial=0)), 1e-3)
            np.testing.assert_allclose(found[theirs], expected[ours], rtol=0, atol=2e-5 * scale)
    after, _ = sink_transposes(turned)
    assert count(after) <= count(turned)
    again, _ = sink_transposes(after)
    assert count(again) <= count(after)


def test_a_long_chain_is_walked_once():
    b, x = net(1, 2, 3, 4)
    for _ in range(2000):
        x = turn(b, b.op("relu", [turn(b, x)]), FIRST)
    after, _ = sink_transposes(b.build([x]))
    assert [node.op for node in after.nodes] == ["relu"] * 2000
