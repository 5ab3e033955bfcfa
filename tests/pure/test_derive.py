"""What axes mean: where names start, how they flow, what stops them."""

from __future__ import annotations

import numpy as np
import pytest

from stridewise.graph import Graph
from stridewise.ops import GraphBuilder
from stridewise.passes import simplify
from stridewise.planner import derive
from stridewise.planner.derive import Derived

F32 = np.float32


def net(*shape: int) -> tuple[GraphBuilder, str]:
    b = GraphBuilder("g")
    return b, b.input("x", shape or (1, 4, 5, 6))


def conv(b: GraphBuilder, x: str, name: str, outputs: int = 4) -> str:
    shape = b.type(x).shape
    w = b.constant(np.ones((outputs, shape[1], *[1] * (len(shape) - 2)), F32), "w")
    return b.op("conv", [x, w], name=name)


def origins(found: Derived | Graph) -> dict[str, str]:
    graph = found if isinstance(found, Graph) else found.graph
    return {
        name: "ND" if value.origin is None else str(value.origin)
        for name, value in graph.values.items()
        if name not in graph.constants
    }


@pytest.mark.parametrize(
    ("shape", "data", "weights"),
    [
        ((1, 4, 5), "NCW", "OIW"),
        ((1, 4, 5, 6), "NCHW", "OIHW"),
        ((1, 4, 3, 5, 6), "NCDHW", "OIDHW"),
    ],
)
def test_a_convolution_names_its_data_and_its_weights(shape, data, weights):
    b, x = net(*shape)
    found = derive(b.build([conv(b, x, "anchor")]))
    assert origins(found) == {"x": data, "anchor": data}
    assert str(found.graph.values["w"].origin) == weights
    assert str(found.provenance["x"]) == "from anchor"
    assert "w" not in found.provenance


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("max_pool", {"kernel": (2, 2)}),
        ("avg_pool", {"kernel": (2, 2)}),
        ("lrn", {"size": 3}),
        ("channel_shuffle", {"groups": 2}),
    ],
)
def test_windows_and_channel_operators_are_anchors_too(op, attrs):
    b, x = net()
    assert origins(derive(b.build([b.op(op, [x], attrs, name="y")]))) == {"x": "NCHW", "y": "NCHW"}


def test_names_flow_forward_and_backward_with_the_path_that_they_took():
    b, x = net()
    before = b.op("tanh", [b.op("relu", [x], name="r")], name="t")
    y = conv(b, before, "anchor")
    after = b.op("sigmoid", [y], name="s")
    found = derive(b.build([b.op("softmax", [after], {"axis": 1}, name="m")]))
    assert set(origins(found).values()) == {"NCHW"}
    assert str(found.provenance["x"]) == "from anchor through t, r"
    assert str(found.provenance["m"]) == "from anchor through s, m"
    assert found.provenance["t"].path == ()


def test_both_operands_of_a_sum_get_the_names_of_the_other():
    b, x = net()
    other = b.input("other", (1, 4, 5, 6))
    y = b.op("add", [conv(b, x, "anchor"), other], name="sum")
    found = derive(b.build([y]))
    assert origins(found)["other"] == "NCHW"
    assert str(found.provenance["other"]) == "from anchor through sum"


def test_names_do_not_flow_to_operands_of_another_rank():
    b, x = net()
    row = b.input("row", (6,))
    found = derive(b.build([b.op("add", [conv(b, x, "anchor"), row], name="sum")]))
    assert origins(found)["row"] == "ND"
    assert str(found.provenance["row"]) == "ND: add 'sum' broadcasts it to another rank"


def test_operands_of_fused_sums_get_names_as_well():
    b, x = net()
    other = b.op("transpose", [b.input("nhwc", (1, 5, 6, 4))], {"perm": (0, 3, 1, 2)}, name="t")
    y = b.op("add", [other, conv(b, b.op("relu", [x]), "c")], name="sum")
    graph = b.build([y])
    assert origins(derive(graph)) == origins(derive(graph)) | {"nhwc": "NHWC", "t": "NCHW"}
    b, x = net()
    y = b.op("add", [b.input("other", (1, 4, 5, 6)), conv(b, x, "c")], name="sum")
    fused = simplify(b.build([y])).graph
    assert [node.op for node in fused.nodes] == ["conv"]
    assert origins(derive(fused)) == {"x": "NCHW", "other": "NCHW", "sum": "NCHW"}


@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 3, 2)])
def test_transposes_permute_the_names_forward_and_backward(perm):
    b, x = net()
    y = b.op("transpose", [conv(b, x, "anchor")], {"perm": perm}, name="after")
    b.op("relu", [y])
    found = derive(b.build([y]))
    assert origins(found)["after"] == "".join("NCHW"[axis] for axis in perm)
    b = GraphBuilder("g")
    extents = (2, 4, 5, 6)
    x = b.input("x", tuple(extents[perm.index(axis)] for axis in range(4)))
    inverse = tuple(perm.index(axis) for axis in range(4))
    x = b.op("transpose", [x], {"perm": inverse}, name="before")
    assert b.type(x).shape == tuple(b.type("x").shape[axis] for axis in inverse)
    found = derive(b.build([conv(b, x, "anchor")]))
    assert origins(found)["x"] == "".join("NCHW"[axis] for axis in perm)
    assert found.provenance["x"].path == ("before",)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("reshape", {"shape": (1, 120)}),
        ("reduce_mean", {"axes": (2, 3), "keepdims": 0}),
        ("reduce_sum", {"axes": (1,), "keepdims": 0}),
    ],
)
def test_operators_that_change_axes_interrupt_the_flow_and_are_named(op, attrs):
    b, x = net()
    y = b.op(op, [conv(b, x, "anchor")], attrs, name="stop")
    found = derive(b.build([b.op("relu", [y], name="behind")]))
    assert origins(found) == {"x": "NCHW", "anchor": "NCHW", "stop": "ND", "behind": "ND"}
    assert str(found.provenance["stop"]) == f"ND: {op} 'stop' interrupts"
    further = f"ND: {op} 'stop' interrupts, further up through behind"
    assert str(found.provenance["behind"]) == further
    assert found.conflicts == ()


def test_a_graph_without_anchors_knows_no_names():
    b, x = net()
    found = derive(b.build([b.op("add", [b.op("relu", [x]), x])]))
    assert set(origins(found).values()) == {"ND"}


def test_constants_are_no_carriers_of_names():
    b, x = net()
    shared = b.constant(np.ones((1, 4, 5, 6), F32), "shared")
    loose = b.input("loose", (1, 4, 5, 6))
    named = b.op("add", [conv(b, x, "anchor"), shared], name="named")
    found = derive(b.build([named, b.op("add", [loose, shared], name="unnamed")]))
    assert origins(found)["unnamed"] == origins(found)["loose"] == "ND"
    assert found.graph.values["shared"].origin is None


def test_anchors_that_disagree_are_reported_and_the_tensor_is_nd():
    b, x = net(1, 5, 5, 5)
    y = b.op("transpose", [conv(b, x, "first", 5)], {"perm": (0, 2, 3, 1)}, name="turned")
    y = conv(b, b.op("relu", [y], name="between"), "second", 5)
    found = derive(b.build([y]))
    known = origins(found)
    assert known["x"] == known["second"] == "NCHW"
    assert "ND" in (known["turned"], known["between"])
    assert len(found.conflicts) >= 1
    conflict = found.conflicts[0]
    assert known[conflict.subject] == "ND"
    assert conflict.rule == "derive"
    assert "makes it NCHW" in conflict.reason
    assert {"'first'", "'second'"} <= set(conflict.reason.replace(",", "").split())
    assert str(found.provenance[conflict.subject]) == f"ND: {conflict.reason}"


def test_derivation_changes_nothing_but_origins_and_is_idempotent():
    b, x = net()
    graph = b.build([b.op("transpose", [conv(b, x, "c")], {"perm": (0, 2, 3, 1)})])
    once = derive(graph).graph
    assert once.nodes == graph.nodes
    assert {n: v.type for n, v in once.values.items()} == {
        n: v.type for n, v in graph.values.items()
    }
    assert derive(once).graph == once


def test_reductions_that_keep_their_axes_keep_their_names():
    b, x = net()
    y = b.op("reduce_sum", [conv(b, x, "anchor")], {"axes": (1,)}, name="sum")
    found = derive(b.build([b.op("relu", [y], name="behind")]))
    assert origins(found)["behind"] == "NCHW"
    assert found.provenance["behind"].path == ("sum", "behind")
