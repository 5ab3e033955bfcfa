"""What axes mean: where names start, how they flow, what stops them."""

from __future__ import annotations

from importlib import import_module
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simplified import simplify

from stridewise.errors import FormatError, InputError
from stridewise.formats import parse
from stridewise.graph import Graph
from stridewise.ops import GraphBuilder
from stridewise.planner import derive
from stridewise.planner.derivation.derive import Derived

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


# --- why a tensor is ND ---------------------------------------------------------------------------


def test_what_interrupts_is_named_from_both_sides():
    b, x = net()
    y = b.op("reshape", [b.op("tanh", [x], name="t")], {"shape": (1, 5, 4, 6)}, name="stop")
    y = b.op("relu", [conv(b, b.op("relu", [y], name="r"), "anchor")], name="s")
    loose = b.op("exp", [b.op("abs", [b.input("loose", (2, 3))], name="a")], name="e")
    found = derive(b.build([y, loose]))
    why = {name: str(item) for name, item in found.provenance.items()}
    assert why["stop"] == "from anchor through r"
    assert why["t"] == "ND: reshape 'stop' interrupts"
    assert why["x"] == "ND: reshape 'stop' interrupts, further down through t"
    assert why["e"] == why["loose"] == "ND: no operator around it names axes"


def test_what_interrupts_is_found_around_corners():
    b, x = net()
    y = b.op("reshape", [conv(b, x, "anchor")], {"shape": (4, 30)}, name="stop")
    total = b.op("add", [b.op("relu", [y], name="r"), b.input("other", (4, 30))], name="sum")
    found = derive(b.build([total]))
    why = {name: str(item) for name, item in found.provenance.items()}
    assert why["sum"] == "ND: reshape 'stop' interrupts, further up through r, sum"
    assert why["other"] == "ND: reshape 'stop' interrupts, reached through r, sum"


def test_values_behind_a_conflict_say_so():
    b, x = net(1, 5, 5, 5)
    y = b.op("transpose", [conv(b, x, "first", 5)], {"perm": (0, 2, 3, 1)}, name="torn")
    z = conv(b, b.op("relu", [y], name="between"), "second", 5)
    found = derive(b.build([z, b.op("tanh", [y], name="aside")]))
    assert origins(found)["torn"] == origins(found)["aside"] == "ND"
    aside = str(found.provenance["aside"])
    assert aside == "ND: the conflict about 'torn' interrupts, further up through aside"


def test_long_paths_are_kept_as_links_and_shown_in_part():
    b, x = net()
    y = conv(b, x, "anchor")
    for index in range(10_000):
        y = b.op("relu", [y], name=f"r{index}")
    found = derive(b.build([y]))
    last = found.provenance[y]
    assert last.distance == len(last.path) == 10_000
    assert last.path[:2] == ("r0", "r1")
    assert str(last) == "from anchor through 9996 more, then r9996, r9997, r9998, r9999"
    assert last.before is found.provenance["r9998"]
    assert len(found.explain()) < 200 * 10_000


def test_a_wide_concat_is_looked_at_a_few_times(monkeypatch):
    b, x = net()
    pieces = [b.op("relu", [x], name=f"p{index}") for index in range(2000)]
    graph = b.build([conv(b, b.op("concat", pieces, {"axis": 1}), "anchor")])
    visits: list[str] = []
    flow_of = import_module("stridewise.planner.derivation.derive")._Flow
    plain = flow_of.passed_on

    def counted(flow, node):
        visits.append(node.name)
        return plain(flow, node)

    monkeypatch.setattr(flow_of, "passed_on", counted)
    assert set(origins(derive(graph)).values()) == {"NCHW"}
    assert visits.count("concat") <= 3
    assert len(visits) <= 3 * len(graph.nodes)


# --- declared origins -----------------------------------------------------------------------------


def test_declared_origins_are_anchors():
    b, x = net()
    y = b.op("transpose", [b.op("relu", [x], name="r")], {"perm": (0, 3, 1, 2)}, name="t")
    graph = b.build([y])
    found = derive(graph, {"x": "NHWC"})
    assert origins(found) == {"x": "NHWC", "r": "NHWC", "t": "NCHW"}
    assert str(found.provenance["x"]) == "declared for x"
    assert str(found.provenance["t"]) == "declared for x through r, t"
    assert derive(graph, {"x": parse("NHWC")}).graph == found.graph


def test_a_declared_origin_is_an_order_of_axes():
    b, x = net()
    graph = b.build([conv(b, x, "anchor")])
    for declared in (5, None, ["NCHW"], "NC", "nChw16c"):
        with pytest.raises(FormatError, match="expected an order of 4 axes without blocks, for"):
            derive(graph, {"x": declared})


def test_a_declared_origin_may_not_contradict_an_operator():
    b, x = net()
    with pytest.raises(FormatError) as caught:
        derive(b.build([conv(b, x, "anchor")]), {"x": "NHWC"})
    assert str(caught.value) == (
        "origins: expected meanings of axes that agree about 'x', found 'anchor' makes it NCHW, "
        "the declared origin of 'x' makes it NHWC; leave 'x' out, or give what the operators say"
    )


def test_a_declared_origin_may_not_contradict_an_operator_further_down():
    b, x = net()
    y = b.op("relu", [x], name="r1")
    graph = b.build([conv(b, b.op("relu", [y], name="r2"), "anchor")])
    with pytest.raises(FormatError, match="leave 'x' out") as caught:
        derive(graph, {"x": "NHWC"})
    assert "the declared origin of 'x' makes it NHWC" in str(caught.value)
    assert "'anchor' makes it NCHW" in str(caught.value)
    assert not derive(graph, {"x": "NCHW"}).conflicts


def test_a_conflict_of_operators_is_no_fault_of_a_declared_origin():
    b, x = net()
    y = b.op("transpose", [conv(b, x, "c1")], {"perm": (0, 1, 3, 2)})
    z = b.input("z", (1, 4, 5, 6))
    found = derive(b.build([conv(b, y, "c2"), b.op("relu", [z])]), {"z": "NHWC"})
    assert found.conflicts
    assert origins(found)["z"] == "NHWC"


@pytest.mark.parametrize(
    ("declared", "error", "message"),
    [
        ({"z": "NCHW"}, InputError, "origins: expected inputs, 'x', found 'z'"),
        ({"x": "NCW"}, FormatError, r"an order of 4 axes without blocks, for f32\[1,4,5,6\]"),
        ({"x": "nChw8c"}, FormatError, "found nChw8c"),
    ],
)
def test_declared_origins_must_fit(declared, error, message):
    b, x = net()
    with pytest.raises(error, match=message):
        derive(b.build([b.op("relu", [x])]), declared)


# --- control: known architectures -----------------------------------------------------------------


def test_squeeze_and_excite_keeps_its_names_while_it_keeps_its_axes():
    b, x = net()
    y = conv(b, x, "anchor")
    kept = b.op("reduce_mean", [y], {"axes": (2, 3), "keepdims": 1}, name="squeeze")
    gate = b.op("sigmoid", [conv(b, kept, "excite")], name="gate")
    found = derive(b.build([b.op("mul", [y, gate], name="scaled")]))
    assert set(origins(found).values()) == {"NCHW"}
    # With matrices in between the gate is a matrix, and only its reshape is a feature map again.
    b, x = net()
    y = conv(b, x, "anchor")
    flat = b.op("reduce_mean", [y], {"axes": (2, 3), "keepdims": 0}, name="squeeze")
    dense = b.op("matmul", [flat, b.constant(np.ones((4, 4), F32))], name="dense")
    gate = b.op("reshape", [b.op("sigmoid", [dense], name="gate")], {"shape": (1, 4, 1, 1)})
    found = derive(b.build([b.op("mul", [y, gate], name="scaled")]))
    known = origins(found)
    assert known[gate] == known["scaled"] == "NCHW"
    assert str(found.provenance["squeeze"]) == "ND: reduce_mean 'squeeze' interrupts"
    assert str(found.provenance["dense"]) == "ND: matmul 'dense' interrupts"
    assert str(found.provenance["gate"]) == "ND: reshape 'reshape' interrupts"


def test_flatten_before_a_matrix_product_interrupts():
    b, x = net()
    y = b.op("reshape", [conv(b, x, "anchor")], {"shape": (1, 120)}, name="flatten")
    y = b.op("matmul", [y, b.constant(np.ones((120, 3), F32))], name="gemm")
    found = derive(b.build([y]))
    assert origins(found) == {"x": "NCHW", "anchor": "NCHW", "flatten": "ND", "gemm": "ND"}
    assert str(found.provenance["flatten"]) == "ND: reshape 'flatten' interrupts"
    assert str(found.provenance["gemm"]) == "ND: matmul 'gemm' interrupts"


def test_attention_over_a_feature_map_is_nd_between_its_reshapes():
    b, x = net()
    y = conv(b, x, "anchor")
    tokens = b.op("reshape", [y], {"shape": (1, 4, 30)}, name="tokens")
    turned = b.op("transpose", [tokens], {"perm": (0, 2, 1)}, name="turned")
    scores = b.op("softmax", [b.op("matmul", [turned, tokens], name="scores")], {"axis": 2})
    mixed = b.op("matmul", [tokens, scores], name="mixed")
    back = b.op("reshape", [mixed], {"shape": (1, 4, 5, 6)}, name="back")
    found = derive(b.build([b.op("add", [y, back], name="residual")]))
    known = origins(found)
    assert known["back"] == known["residual"] == "NCHW"
    assert {known[name] for name in ("tokens", "turned", "scores", "mixed")} == {"ND"}
    assert str(found.provenance["tokens"]) == "ND: reshape 'tokens' interrupts"
    assert str(found.provenance["turned"]) == "ND: matmul 'scores' interrupts"
    assert str(found.provenance["mixed"]) == "ND: matmul 'mixed' interrupts"


@pytest.mark.parametrize("recognized", [True, False])
def test_a_channel_shuffle_is_an_anchor_once_it_is_recognized(recognized):
    b, x = net()
    y = b.op("reshape", [b.op("relu", [x])], {"shape": (1, 2, 2, 5, 6)}, name="split")
    y = b.op("transpose", [y], {"perm": (0, 2, 1, 3, 4)}, name="swap")
    y = b.op("reshape", [y], {"shape": (1, 4, 5, 6)}, name="join")
    graph = b.build([conv(b, y, "anchor")])
    found = derive(simplify(graph).graph if recognized else graph)
    assert origins(found)["x"] == ("NCHW" if recognized else "ND")
    if not recognized:
        why = {name: str(found.provenance[name]) for name in ("swap", "x")}
        assert why["swap"] == "ND: reshape 'join' interrupts"
        assert why["x"] == "ND: reshape 'split' interrupts, further down through relu"


# --- the oracle: every labeling of every axis -----------------------------------------------------

PERMS = list(permutations(range(3)))
NAMES = "NCW"


@st.composite
def small_graphs(draw: Any) -> Graph:
    """Up to six values of rank 3 with equal extents, tied together at random."""
    b = GraphBuilder("g")
    values = [b.input("x", (3, 3, 3)), b.input("y", (3, 3, 3))][: draw(st.integers(1, 2))]
    for index in range(draw(st.integers(1, 6 - len(values)))):
        kind = draw(st.sampled_from(["relu", "add", "transpose", "concat", "conv", "reshape"]))
        x, z = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        attrs: dict[str, Any] = {}
        inputs = [x]
        if kind == "add":
            inputs = [x, z]
        elif kind == "transpose":
            attrs = {"perm": draw(st.sampled_from(PERMS))}
        elif kind == "concat":
            inputs, attrs = [x], {"axis": 1}
        elif kind == "conv":
            inputs = [x, b.constant(np.ones((3, 3, 1), F32), "w")]
            attrs = {"data_format": "NWC"} if draw(st.integers(0, 3)) == 0 else {}
        elif kind == "reshape":
            attrs = {"shape": (3, 3, 3)}
        values.append(b.op(kind, inputs, attrs, name=f"{kind}{index}"))
    nodes = tuple(b.__dict__["_nodes"].values())
    inputs = tuple(name for name in values if name in ("x", "y"))
    return Graph("g", inputs, (values[-1],), nodes, b.__dict__["_values"], b.__dict__["_constants"])


def components(graph: Graph) -> list[list[str]]:
    """The values that operators tie together."""
    parent = {name: name for name in graph.values if name not in graph.constants}

    def root(name: str) -> str:
        while parent[name] != name:
            name = parent[name]
        return name

    tying = [node for node in graph.nodes if node.op not in ("reshape", "conv")]
    for node in tying:
        for name in node.inputs:
            parent[root(name)] = root(node.outputs[0])
    tops = dict.fromkeys(root(name) for name in parent)
    return [[name for name in parent if root(name) == top] for top in tops]


def consistent(graph: Graph, names: list[str]) -> np.ndarray[Any, Any]:
    """The labelings of one component; convolutions count for the values that they touch."""
    table = np.array(list(product(range(len(PERMS)), repeat=len(names))), np.int8)
    column = {name: index for index, name in enumerate(names)}
    for node in graph.nodes:
        ends = [name for name in (*node.inputs[:1], *node.outputs) if name in column]
        if node.op == "conv":
            wanted = PERMS.index((0, 2, 1) if node.get("data_format") else (0, 1, 2))
            for name in ends:
                table = table[table[:, column[name]] == wanted]
        elif node.op != "reshape" and ends:
            perm = node.ints_attr("perm") if node.op == "transpose" else (0, 1, 2)
            image = np.array([PERMS.index(tuple(p[axis] for axis in perm)) for p in PERMS])
            for name in node.inputs:
                table = table[image[table[:, column[name]]] == table[:, column[node.outputs[0]]]]
    return table


@given(small_graphs())
@settings(max_examples=300)
def test_derivation_agrees_with_every_consistent_labeling(graph: Graph):
    """A value has an Origin just where all labelings that no operator forbids agree about it.

    Where none is consistent, there is a conflict; where nothing names axes, they are not known.
    """
    found = derive(graph)
    known = origins(found)
    torn = {name for name, item in found.provenance.items() if "makes it" in item.reason}
    conflicts = {item.subject for item in found.conflicts}
    for names in components(graph):
        table = consistent(graph, names)
        anchored = any(
            node.op == "conv" and {node.inputs[0], node.outputs[0]} & set(names)
            for node in graph.nodes
        )
        assert bool(conflicts & set(names)) == (anchored and not len(table))
        for index, name in enumerate(names):
            labels = set(table[:, index].tolist())
            if len(table):
                label = "".join(NAMES[axis] for axis in PERMS[labels.pop()])
                assert known[name] == (label if not labels else "ND")
            elif not anchored or name in torn:
                assert known[name] == "ND"


@given(small_graphs(), st.randoms())
@settings(max_examples=100)
def test_the_order_of_the_nodes_does_not_matter(graph: Graph, random: Any):
    """A convolution may be looked at before or after another; the nearest one names a value."""
    ready, waiting = set(graph.inputs) | set(graph.constants), list(graph.nodes)
    nodes = []
    while waiting:
        node = random.choice([item for item in waiting if set(item.inputs) <= ready])
        waiting.remove(node)
        ready.update(node.outputs)
        nodes.append(node)
    shuffled = Graph(
        graph.name, graph.inputs, graph.outputs, tuple(nodes), graph.values, graph.constants
    )
    assert origins(derive(shuffled)) == origins(derive(graph))
