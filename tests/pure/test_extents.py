"""Shapes that are not fixed, and whether graphs keep the items of a batch apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.dtypes import dtype_of
from stridewise.errors import InputError
from stridewise.graph import Extent, Graph, InputSpec, Refusal, Signature
from stridewise.ops import GraphBuilder, evaluate
from stridewise.ops.batch import batch_outputs

F32 = dtype_of("float32")
NUMBERS = st.integers(0, 10**6)


@st.composite
def extents(draw: st.DrawFn) -> Extent:
    symbol = draw(st.sampled_from(["", "N", "batch_size", "s0"]))
    numbers = draw(st.lists(NUMBERS, max_size=4))
    found = Extent() if not numbers else Extent.parse(numbers)
    if draw(st.booleans()) and numbers:
        found = Extent.parse((min(numbers), max(numbers)))
    return Extent((symbol,) if symbol else (), found.low, found.high, found.choice)


@given(extents())
def test_an_extent_prints_as_it_is_parsed(extent: Extent) -> None:
    assert Extent.parse(str(extent)) == extent


@given(extents(), NUMBERS)
def test_what_fits_is_the_least_of_what_may_be(extent: Extent, size: int) -> None:
    found = extent.fits(size)
    is_padded = bool(extent.choice) and size < extent.low
    inside = is_padded or extent.low <= size <= (size if extent.high is None else extent.high)
    assert (found is not None) == inside
    if found is not None:
        allowed = extent.choice or (size,)
        assert found == min(item for item in allowed if item >= size)


@pytest.mark.parametrize(
    "wrong", ["", "1..", "=3", "N=", -1, "5..2", True, 1.5, (1, 2, 3), [], (-1, 3), "1|x", "N M"]
)
def test_extents_that_are_none(wrong: object) -> None:
    with pytest.raises(InputError, match=r"input 'x': expected a number, a symbol 'N', a range"):
        Extent.parse(wrong, "input 'x'")


def signature(**shapes: Any) -> Signature:
    specs = tuple(InputSpec(name, F32, None) for name in shapes)
    return Signature(specs).narrowed(shapes)


def test_limits_of_a_symbol_hold_wherever_it_is() -> None:
    found = signature(x=("N=1..4", 3), y=("N", "C"), z=(2, "C=5"))
    assert [str(item) for item in found] == ["(N=1..4, 3)", "(N=1..4, C=5)", "(2, C=5)"]
    assert found.default() == {"x": (1, 3), "y": (1, 5), "z": (2, 5)}
    assert not found.is_fixed
    assert found.without(["x", "y"]).is_fixed


def test_limits_of_a_model_hold_for_shapes_of_callers() -> None:
    extents = (Extent(("n",), 0, 4), Extent(("h",), 7), Extent.parse(3), Extent((), 2))
    own = Signature((InputSpec("x", F32, extents),))
    (found,) = own.narrowed({"x": ("N", "9..12", 5, "1..8")})  # callers replace fixed extents
    assert str(found) == "(N=0..4, h=9..12, 5, 1..8)"
    for wrong in (("1..8", "?", 3, 2), (4, "6..9", 3, 2), (5, 7, 3, 2), ([1, 8], 7, 3, 2)):
        with pytest.raises(InputError, match=r"a shape within \(n=0\.\.4, h=7\.\., 3, 2\.\.\)"):
            own.narrowed({"x": wrong})


def test_defaults_have_elements_where_they_may() -> None:
    found = signature(a=("0..4", 3), b=([0, 4], "C"), c=("N", 0), d=(2, "C=0"), e=[(0, 3), (2, 3)])
    assert found.default() == {"a": (1, 3), "b": (4, 0), "c": (1, 0), "d": (2, 0), "e": (2, 3)}
    empty = {"a": (0, 3), "b": (0, 0), "c": (0, 0), "d": (2, 0), "e": (0, 3)}
    assert found.fitted(empty) == empty
    for name, shape in (("a", (0, 0)), ("b", (0, 1)), ("c", (0, 1)), ("d", (0, 0))):
        with pytest.raises(InputError, match=f"input '{name}'"):
            found.fitted({**empty, name: shape})


def test_a_larger_batch_is_one_for_all_inputs_of_its_symbol() -> None:
    found = signature(x=("N=1|4", 3), y=("N", 2), z=("M", 2))
    shapes = {"x": (2, 3), "y": (2, 2), "z": (2, 2)}
    assert found.fitted(shapes) == {"x": (4, 3), "y": (4, 2), "z": (2, 2)}
    with pytest.raises(InputError, match="N = 2 as in input 'x', found"):
        found.fitted({**shapes, "y": (3, 2)})


# --- batches --------------------------------------------------------------------------------------

BATCH = 4


def run(graph: Graph, x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    known = {name: item.array for name, item in graph.constants.items()} | {"x": x}
    for node in graph.nodes:
        results = evaluate(node, [known[name] if name else None for name in node.inputs])
        known.update(zip(node.outputs, results, strict=True))
    return [known[name] for name in graph.outputs]


def net(op: str, attrs: dict[str, Any], others: list[Any], batch: int) -> Graph:
    b = GraphBuilder("net")
    x = b.input("x", (batch, 3, 6, 6))
    fixed = {key: tuple(batch if i == "B" else i for i in v) if isinstance(v, tuple) else v
             for key, v in attrs.items()}  # fmt: skip
    operands = [x if item is None else b.constant(item) for item in others]
    return b.build([b.op(op, [x, *operands], fixed)])


W = np.linspace(-1, 1, 5 * 3 * 9, dtype=np.float32).reshape(5, 3, 3, 3)
M = np.linspace(-1, 1, 6 * 4, dtype=np.float32).reshape(6, 4)
ONE = np.ones((1, 3, 1, 1), np.float32)
ROW = np.ones(3, np.float32)
TALL = np.arange(BATCH, dtype=np.float32).reshape(BATCH, 1, 1, 1)


@pytest.mark.parametrize(
    ("op", "attrs", "others", "apart"),
    [
        ("relu", {}, [], True),
        ("add", {}, [ONE], True),
        ("mul", {}, [ONE[0]], True),
        ("mul", {}, [None], True),
        ("concat", {"axis": 1}, [None], True),
        ("concat", {"axis": 0}, [None], False),
        ("softmax", {"axis": 1}, [], True),
        ("softmax", {"axis": 0}, [], False),
        ("reduce_mean", {"axes": (2, 3)}, [], True),
        ("reduce_mean", {"axes": (0,)}, [], False),
        ("reduce_max", {"axes": (0, 1), "keepdims": 0}, [], False),
        ("reduce_l2", {"axes": (1,)}, [], True),
        ("arg_max", {"axis": 2, "keepdims": 1}, [], True),
        ("arg_max", {"axis": 0, "keepdims": 1}, [], False),
        ("cumsum", {"axis": 3}, [], True),
        ("cumsum", {"axis": 0}, [], False),
        ("space_to_depth", {"block": 3}, [], True),
        ("group_norm", {"groups": 3, "epsilon": 0.5}, [ROW, ROW], True),
        ("layer_norm", {"axes": (1, 2, 3), "epsilon": 0.5}, [], True),
        ("layer_norm", {"axes": (0,), "epsilon": 0.5}, [], False),
        ("top_k", {"axis": 1, "k": 2}, [], True),
        ("top_k", {"axis": 0, "k": 2}, [], False),
        ("reshape", {"shape": ("B", 108)}, [], True),
        ("transpose", {"perm": (0, 2, 3, 1)}, [], True),
        ("transpose", {"perm": (1, 0, 2, 3)}, [], False),
        ("slice", {"starts": (0, 1, 0, 0), "stops": ("B", 3, 6, 6), "steps": (1, 1, 1, 1)}, [],
         True),
        ("slice", {"starts": (1, 0, 0, 0), "stops": ("B", 3, 6, 6), "steps": (1, 1, 1, 1)}, [],
         False),
        ("pad", {"pads": (0, 0, 1, 1, 0, 0, 1, 1)}, [], True),
        ("pad", {"pads": (1, 0, 0, 0, 0, 0, 0, 0)}, [], False),
        ("conv", {"pads": (1, 1, 1, 1)}, [W], True),
        ("matmul", {}, [M], True),
        ("matmul", {}, [None], True),
    ],
)  # fmt: skip
def test_only_what_keeps_items_apart_may_be_padded(
    op: str, attrs: dict[str, Any], others: list[Any], apart: bool
) -> None:
    graph, larger = (net(op, attrs, others, batch) for batch in (BATCH, BATCH + 1))
    found = batch_outputs(graph, frozenset({"x"}), larger)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BATCH, 3, 6, 6)).astype(np.float32)
    other = x.copy()
    other[2:] = rng.standard_normal((2, 3, 6, 6)) * 9
    (one,), (two,) = run(graph, x), run(graph, other)
    same = one.shape[0] == BATCH and np.array_equal(one[:2], two[:2])
    if apart:
        assert found == frozenset(graph.outputs)
        assert same
    else:
        assert isinstance(found, Refusal)
        assert found.rule == "batch"


def test_constants_of_the_batch_are_found() -> None:
    graph, larger = (net("add", {}, [np.full((1, 1), batch, np.float32)], batch)
                     for batch in (BATCH, BATCH + 1))  # fmt: skip
    found = batch_outputs(graph, frozenset({"x"}), larger)
    assert isinstance(found, Refusal)
    assert found.reason == "a constant depends on the batch"
    tall = net("add", {}, [TALL], BATCH)
    found = batch_outputs(tall, frozenset({"x"}), tall)
    assert isinstance(found, Refusal)
    assert "add mixes items" in found.reason


def test_an_expansion_to_a_stated_batch_fits_no_other_batch() -> None:
    """Where the model names four items, parts of one item would have four each."""

    def expanded(items: int) -> Graph:
        b = GraphBuilder("net")
        mean = b.op("reduce_mean", [b.input("x", (items, 3, 6, 6))], {"axes": (2, 3)})
        return b.build([b.op("relu", [b.op("expand", [mean], {"shape": (4, 3, 6, 6)})])])

    found = batch_outputs(expanded(1), frozenset({"x"}), expanded(4))
    assert isinstance(found, Refusal)
    assert found.reason == "expand makes another number of items"


def test_items_that_are_gathered_are_refused() -> None:
    b = GraphBuilder("net")
    graph = b.build(
        [b.op("gather", [b.input("x", (4, 3)), b.constant(np.array([0]))], {"axis": 0})]
    )
    found = batch_outputs(graph, frozenset({"x"}), graph)
    assert isinstance(found, Refusal)
