"""The graph: its text form, its invariants, and editing it."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.dtypes import DTYPES, dtype_of
from stridewise.errors import GraphError
from stridewise.formats import parse
from stridewise.graph import (
    Constant,
    Graph,
    Node,
    PostOp,
    TensorType,
    Value,
    from_text,
    to_text,
)
from stridewise.graph.rewrite import Rewriter
from stridewise.graph.verify import verify
from stridewise.ops import GraphBuilder, infer

F32 = dtype_of("f32")

# --- the text form --------------------------------------------------------------------------------

ORIGINS = {
    1: ["a"],
    2: ["NC", "ab", "ba"],
    3: ["NCW", "abc"],
    4: ["NCHW", "NHWC", "OIHW", "dacb"],
}
NAMES = st.one_of(
    st.text(min_size=1, max_size=6),
    st.sampled_from(
        [
            "_",
            "inf",
            "nan",
            "post",
            "sha",
            "return",
            'a"b',
            "a\\",
            "a b",
            "%x",
            "é\n",
            "x.1/y-z",
            "1",
        ]
    ),
)
FLOATS = st.floats()
INTS = st.integers(-(2**63), 2**63 - 1)
ATTRS = st.one_of(
    INTS,
    FLOATS,
    st.text(max_size=6),
    st.lists(INTS, max_size=3).map(tuple),
    st.lists(FLOATS, max_size=3).map(tuple),
    st.lists(st.text(max_size=3), max_size=3).map(tuple),
)
KEYS = st.from_regex(r"[a-z][a-z_]{0,6}", fullmatch=True).filter(lambda key: key not in "inf nan")


@st.composite
def values(draw: Any, name: str) -> Value:
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=4)))
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    origins = st.sampled_from(ORIGINS[len(shape)]).map(parse) if shape else st.none()
    return Value(name, TensorType(dtype_of(dtype), shape), draw(st.none() | origins))


@st.composite
def constants(draw: Any, value: Value) -> Constant:
    dtype = value.dtype.numpy
    count = int(np.prod(value.shape))
    if dtype.kind == "f":
        elements = st.floats(width=8 * dtype.itemsize)
    elif dtype.kind == "b":
        elements = st.booleans()
    elif dtype.kind == "V":  # bfloat16
        elements = st.floats(width=32)
    else:
        limits = np.iinfo(dtype)
        elements = st.integers(int(limits.min), int(limits.max))
    items = draw(st.lists(elements, min_size=count, max_size=count))
    return Constant(np.array(items, dtype).reshape(value.shape))


@st.composite
def graphs(draw: Any) -> Graph:
    """Return graphs of any syntax; the operators need not exist."""
    names = draw(st.lists(NAMES, min_size=3, max_size=9, unique=True))
    table = {name: draw(values(name)) for name in names}
    n_inputs, n_constants = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    defined = names[: n_inputs + n_constants]
    fixed = {name: draw(constants(table[name])) for name in defined[n_inputs:]}
    nodes = []
    results = names[len(defined) :]
    while results:
        count = draw(st.integers(1, min(2, len(results))))
        outputs, results = results[:count], results[count:]
        pool = st.sampled_from([*defined, ""])
        inputs = tuple(draw(st.lists(pool, max_size=3)))
        attrs = tuple(sorted(draw(st.dictionaries(KEYS, ATTRS, max_size=3)).items()))
        operand = st.none() | st.integers(0, 3)
        post = st.builds(PostOp, st.sampled_from(["relu", "add"]), FLOATS, FLOATS, operand)
        posts = tuple(draw(st.lists(post, max_size=2)))
        op = draw(st.sampled_from(["conv", "relu", "odd_op2"]))
        nodes.append(Node(draw(NAMES), op, inputs, tuple(outputs), attrs, posts))
        defined += outputs
    asked = tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)))
    return Graph(
        draw(st.text(max_size=5)),
        tuple(names[:n_inputs]),
        asked,
        tuple(nodes),
        MappingProxyType(table),
        MappingProxyType(fixed),
    )


def same(a: object, b: object) -> bool:
    """Return whether two trees of data are equal, type for type; NaN equals itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Node | PostOp):
        fields = [f.name for f in dataclasses.fields(a)]
        return all(same(getattr(a, f), getattr(b, f)) for f in fields)
    if isinstance(a, float):
        return repr(a) == repr(b)
    return a == b


@given(graphs())
def test_parse_after_print_is_identity(graph):
    text = to_text(graph)
    back = from_text(text, graph.constants)
    assert to_text(back) == text
    assert (back.name, back.inputs, back.outputs) == (graph.name, graph.inputs, graph.outputs)
    assert dict(back.values) == dict(graph.values)
    assert dict(back.constants) == dict(graph.constants)
    assert same(back.nodes, graph.nodes)


def test_large_constants_are_named_by_their_digest_and_small_ones_written_out():
    b = GraphBuilder("g")
    x = b.input("x", (3,))
    b.constant(np.arange(9, dtype=np.float32), "big")
    b.constant(np.array([0.5, -np.inf, 3], np.float32), "small")
    graph = b.build([b.op("add", [x, "small"], output="y")])
    digest = graph.constants["big"].digest
    assert to_text(graph) == (
        'graph "g" (%x: f32[3]) {\n'
        f"  const %big: f32[9] sha {digest}\n"
        "  const %small: f32[3] = [0.5, -inf, 3.0]\n"
        '  %y: f32[3] = add(%x, %small) "add"\n'
        "  return %y\n"
        "}\n"
    )
    assert from_text(to_text(graph), graph.constants) == graph
    assert str(graph) == to_text(graph)
    with pytest.raises(GraphError) as caught:
        from_text(to_text(graph))
    assert f"line 2: expected constants=... with the constant of digest {digest}" in str(
        caught.value
    )


def test_the_documented_example_parses():
    text = """graph "net" (%x: f32[1,3,8,8] @NCHW) {
      const %b: f32[4] = [0.0, 1.0, 2.0, 3.0]
      %y: f32[1,4,8,8] @NCHW = conv(%x, _, %b) {pads=[1, 1]} post [add(0.0, 0.0, 2)] "conv1"
      return %y
    }"""
    graph = from_text(text)
    assert graph.nodes == (
        Node(
            "conv1",
            "conv",
            ("x", "", "b"),
            ("y",),
            (("pads", (1, 1)),),
            (PostOp("add", 0.0, 0.0, 2),),
        ),
    )
    assert graph.values["y"].origin == parse("NCHW")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("net", "line 1: expected graph, found 'net'"),
        ('graph "g" (x: f32[1]) {', "line 1: expected a ref, found 'x: f32[1]) {'"),
        ('graph "g" (%x f32[1]) {', "line 1: expected :, found 'f32[1]) {'"),
        ('graph "g" () {\n  %y: f32[1] = relu(%x)\n}', "line 2: expected a string, found '}'"),
        ('graph "g" () {\n\n  ?\n}', "expected a token, found '?'"),
        (
            'graph "g" (%x: f32[1]) {\n  %x: f32[1] = relu(%x) "r"\n  return %x\n}',
            "line 2: expected a new name instead of 'x', found '= relu(%x) \"r\"'",
        ),
        (
            'graph "g" () {\n  const %c: f32[9] sha 00ff\n}',
            "line 2: expected constants=... with the constant of digest 00ff",
        ),
        ('graph "g" () {\n  return %x\n} more', "line 3: expected a end, found 'more'"),
    ],
)
def test_parse_errors_name_the_line_and_what_was_expected(text, message):
    with pytest.raises(GraphError) as caught:
        from_text(text)
    assert str(caught.value).startswith("graph text, line ")
    assert message in str(caught.value)


def test_equality_of_constants_is_equality_of_type_and_content():
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert Constant(data) == Constant(data.copy()) == Constant(np.asfortranarray(data))
    assert hash(Constant(data)) == hash(Constant(data.copy()))
    assert Constant(data) != Constant(data.reshape(3, 2))
    assert Constant(data) != Constant(data.astype(np.float64))
    assert Constant(data) != Constant(data + 1)
    assert Constant(data) != "something else"
    assert repr(Constant(data)) == "Constant(f32[2, 3])"


def test_constants_cannot_be_written():
    constant = Constant(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="read-only"):
        constant.array[0] = 1


# --- attributes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda n: n.int_attr("axis"), "node 'n' (op): expected attribute 'axis', found none"),
        (
            lambda n: n.int_attr("real"),
            "node 'n' (op), attribute 'real': expected an integer, found 0.5",
        ),
        (
            lambda n: n.float_attr("word"),
            "node 'n' (op), attribute 'word': expected a number, found 'w'",
        ),
        (
            lambda n: n.str_attr("real"),
            "node 'n' (op), attribute 'real': expected a string, found 0.5",
        ),
        (
            lambda n: n.ints_attr("real"),
            "node 'n' (op), attribute 'real': expected a tuple of integers, found 0.5",
        ),
        (
            lambda n: n.ints_attr("mixed"),
            "node 'n' (op), attribute 'mixed': expected a tuple of integers, found (1, 0.5)",
        ),
    ],
)
def test_attributes_of_the_wrong_kind_are_refused(read, message):
    node = Node("n", "op", (), ("y",), (("mixed", (1, 0.5)), ("real", 0.5), ("word", "w")))
    with pytest.raises(GraphError) as caught:
        read(node)
    assert str(caught.value) == message


# --- invariants -----------------------------------------------------------------------------------


def chain() -> Graph:
    """Return x -> relu a -> relu b, and a constant c added to it."""
    b = GraphBuilder("g")
    x = b.input("x", (1, 3))
    c = b.constant(np.ones(3, np.float32), "c")
    a = b.op("relu", [x], name="a")
    return b.build([b.op("add", [b.op("relu", [a], name="b"), c], name="s")])


def edited(graph: Graph, **changes: Any) -> Graph:
    return dataclasses.replace(graph, **changes)


def with_node(graph: Graph, old: str, **changes: Any) -> Graph:
    nodes = tuple(
        dataclasses.replace(node, **changes) if node.name == old else node for node in graph.nodes
    )
    return edited(graph, nodes=nodes)


def with_value(graph: Graph, name: str, value: Value) -> Graph:
    return edited(graph, values=MappingProxyType({**graph.values, name: value}))


BROKEN = [
    (
        lambda g: with_node(g, "b", name="a"),
        "graph 'g', node 'a': expected a name used once, found a second node of that name",
    ),
    (
        lambda g: with_node(g, "a", inputs=("b",)),
        "graph 'g', node 'a': expected inputs defined before it, found 'b'",
    ),
    (
        lambda g: with_node(g, "b", outputs=("a",)),
        "graph 'g', node 'b': expected results defined once, found 'a'",
    ),
    (
        lambda g: with_node(g, "s", post_ops=(PostOp("add", operand=2),)),
        "graph 'g', node 's': expected post-ops that read inputs of the node, "
        "found PostOp(op='add', alpha=0.0, beta=0.0, operand=2)",
    ),
    (
        lambda g: with_node(g, "a", attrs=(("b", 1), ("a", 1))),
        "graph 'g', node 'a': expected attributes sorted by name, found (('b', 1), ('a', 1))",
    ),
    (
        lambda g: edited(g, outputs=("nowhere",)),
        "graph 'g', outputs: expected defined values, found 'nowhere'",
    ),
    (
        lambda g: with_value(g, "idle", Value("idle", TensorType(F32, ()))),
        "graph 'g', values: expected exactly the defined ones, found ['idle']",
    ),
    (
        lambda g: with_value(g, "a", Value("other", TensorType(F32, (1, 3)))),
        "graph 'g', value 'a': expected its own name, found 'other'",
    ),
    (
        lambda g: edited(g, values={k: v for k, v in g.values.items() if k != "a"}),
        "graph 'g', values: expected exactly the defined ones, found ['a']",
    ),
    (
        lambda g: with_value(g, "c", Value("c", TensorType(F32, (4,)))),
        "constant 'c': expected f32[4], found Constant(f32[3])",
    ),
    (
        lambda g: with_value(g, "a", Value("a", TensorType(F32, (1, 3)), parse("NCHW"))),
        "value 'a': expected an origin of rank 2, found NCHW",
    ),
    (
        lambda g: with_value(g, "a", Value("a", TensorType(F32, (1, 4)))),
        "node 'a' (relu): expected f32[1,3], found f32[1,4]",
    ),
    (
        lambda g: with_node(g, "a", op="frobnicate"),
        "node 'a': expected a known operator, found 'frobnicate'",
    ),
    (
        lambda g: with_node(g, "a", inputs=("x", "c")),
        "node 'a' (relu): expected 1 inputs, found 2",
    ),
]


@pytest.mark.parametrize(("damage", "message"), BROKEN)
def test_every_broken_invariant_is_named(damage, message):
    verify(chain(), infer)
    with pytest.raises(GraphError) as caught:
        verify(damage(chain()), infer)
    assert str(caught.value) == message


def test_structure_is_verified_without_types_where_no_inference_is_given():
    verify(with_value(chain(), "a", Value("a", TensorType(F32, (1, 4)))))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda b: b.input("y", (1, -1)),
            "input 'y': expected extents from 0 on, found (1, -1)",
        ),
        (lambda b: b.input("x", (1,)), "graph 'g': expected a new value name, found 'x'"),
        (lambda b: b.op("relu", ["no"]), "graph 'g': expected a known value, found 'no'"),
        (lambda b: b.build([]), "graph 'g': expected at least one output, found none"),
        (lambda b: b.build(["no"]), "graph 'g': expected a known value, found 'no'"),
        (
            lambda b: b.op("frobnicate", ["x"]),
            "node 'frobnicate': expected a known operator, found 'frobnicate'",
        ),
    ],
)
def test_the_builder_refuses_what_verify_would(build, message):
    b = GraphBuilder("g")
    b.input("x", (1, 3))
    with pytest.raises(GraphError) as caught:
        build(b)
    assert str(caught.value) == message


def test_the_builder_finds_fresh_names():
    b = GraphBuilder()
    x = b.input("relu", (2,))
    assert [b.op("relu", [x]), b.op("relu", [x])] == ["relu.1", "relu.2"]
    verify(b.build(["relu.1", "relu.2"]), infer)


# --- editing --------------------------------------------------------------------------------------


def test_bypass_redirects_readers_to_the_source():
    graph = chain()
    rewriter = Rewriter(graph)
    assert rewriter.bypass(graph.nodes[1], "a")
    after = rewriter.finish()
    verify(after, infer)
    assert [(node.name, node.inputs) for node in after.nodes] == [("a", ("x",)), ("s", ("a", "c"))]


def test_bypass_of_an_output_gives_its_name_to_the_producer_of_the_source():
    b = GraphBuilder("g")
    a = b.op("relu", [b.input("x", (1, 3))], name="a")
    other = b.op("exp", [a], name="other")
    graph = b.build([b.op("identity", [a], name="y"), other])
    rewriter = Rewriter(graph)
    assert rewriter.bypass(graph.nodes[2], "a")
    after = rewriter.finish()
    verify(after, infer)
    assert after.outputs == ("y", "other")
    assert [(n.name, n.inputs, n.outputs) for n in after.nodes] == [
        ("a", ("x",), ("y",)),
        ("other", ("y",), ("other",)),
    ]


@pytest.mark.parametrize("source", ["input", "output"])
def test_bypass_keeps_outputs_that_nothing_else_can_name(source):
    b = GraphBuilder("g")
    x = b.input("x", (1, 3))
    name = x if source == "input" else b.op("relu", [x], name="a")
    y = b.op("identity", [name], name="y")
    graph = b.build([y] if source == "input" else [name, y])
    rewriter = Rewriter(graph)
    assert not rewriter.bypass(graph.nodes[-1], name)
    assert rewriter.finish() == graph


def test_the_rewriter_knows_readers_producers_and_constants():
    graph = chain()
    rewriter = Rewriter(graph)
    assert rewriter.producer("x") is None
    assert rewriter.producer("a") is graph.nodes[0]
    assert rewriter.only_reader("a") is graph.nodes[1]
    assert rewriter.only_reader("s") is None
    assert rewriter.constant("x") is None
    assert rewriter.constant("c").tolist() == [1, 1, 1]
    assert rewriter.add_constant("c", np.zeros(1, np.float32)) == "c.1"


def test_finish_drops_what_no_output_needs_and_keeps_the_inputs():
    b = GraphBuilder("g")
    x, unused = b.input("x", (1, 3)), b.input("unused", (2,))
    b.op("exp", [unused])
    b.constant(np.ones(3, np.float32), "idle")
    after = Rewriter(b.build([b.op("relu", [x])])).finish()
    verify(after, infer)
    assert after.inputs == ("x", "unused")
    assert set(after.values) == {"x", "unused", "relu"}
    assert not after.constants
