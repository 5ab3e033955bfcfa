"""Operators in all element types that ONNX allows: against its reference, and by laws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.dtypes import dtype_of
from stridewise.errors import GraphError
from stridewise.graph import Attr, Node, TensorType
from stridewise.ops import evaluate, infer
from stridewise.ops.einsum import parse_equation

from .onnx_case import F32, Array, Case, expected

BF16 = np.dtype(ml_dtypes.bfloat16)
SIGNED = ("int8", "int16", "int32", "int64")
INTEGERS = (*SIGNED, "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
NUMBERS = (*INTEGERS, *FLOATS)
WIDE = ("int32", "int64", "uint32", "uint64", *FLOATS)
"""What ONNX reduces and multiplies."""


def run(op: str, *arrays: Array, **attrs: Attr) -> Array:
    """Evaluate one node, and check that inference says the same of its type."""
    names = tuple(f"x{index}" for index in range(len(arrays)))
    node = Node("n", op, names, ("y",), tuple(sorted(attrs.items())))
    types = tuple(TensorType(dtype_of(array.dtype), array.shape) for array in arrays)
    (inferred,) = infer(node, types)
    (result,) = evaluate(node, arrays)
    assert TensorType(dtype_of(result.dtype), result.shape) == inferred
    return result


def random(dtype: str, *shape: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape) > 0
    if dtype.startswith("uint"):
        return rng.integers(0, 9, shape).astype(dtype)
    if dtype.startswith("int"):
        return rng.integers(-9, 9, shape).astype(dtype)
    return (3 * rng.normal(size=shape)).astype(dtype)


TYPED: list[tuple[str, str, int, tuple[str, ...], dict[str, Any], dict[str, Attr]]] = [
    ("add", "Add", 2, NUMBERS, {}, {}),
    ("sub", "Sub", 2, NUMBERS, {}, {}),
    ("mul", "Mul", 2, NUMBERS, {}, {}),
    ("maximum", "Max", 2, NUMBERS, {}, {}),
    ("minimum", "Min", 2, NUMBERS, {}, {}),
    ("mod", "Mod", 2, NUMBERS, {"fmod": 1}, {"fmod": 1}),
    ("mod", "Mod", 2, INTEGERS, {}, {}),
    ("less", "Less", 2, NUMBERS, {}, {}),
    ("equal", "Equal", 2, (*NUMBERS, "bool"), {}, {}),
    ("bitwise_xor", "BitwiseXor", 2, INTEGERS, {}, {}),
    ("abs", "Abs", 1, NUMBERS, {}, {}),
    ("sign", "Sign", 1, NUMBERS, {}, {}),
    ("neg", "Neg", 1, (*SIGNED, *FLOATS), {}, {}),
    ("relu", "Relu", 1, (*SIGNED, *FLOATS), {}, {}),
    ("round", "Round", 1, FLOATS, {}, {}),
    ("floor", "Floor", 1, FLOATS, {}, {}),
    ("exp", "Exp", 1, FLOATS, {}, {}),
    ("erf", "Erf", 1, FLOATS[:2], {}, {}),
    ("tanh", "Tanh", 1, FLOATS, {}, {}),
    ("softmax", "Softmax", 1, FLOATS, {"axis": 1}, {"axis": 1}),
    ("hardmax", "Hardmax", 1, FLOATS, {"axis": 1}, {"axis": 1}),
    ("arg_max", "ArgMax", 1, NUMBERS, {"axis": 1}, {"axis": 1}),
    ("arg_min", "ArgMin", 1, NUMBERS, {"axis": 0}, {"axis": 0}),
    *[
        (f"reduce_{ours}", f"Reduce{theirs}", 1, WIDE, {}, {"axes": (0, 1)})
        for ours, theirs in (("sum", "Sum"), ("l1", "L1"), ("l2", "L2"), ("prod", "Prod"))
    ],
    ("reduce_max", "ReduceMax", 1, (*NUMBERS, "bool"), {}, {"axes": (0, 1)}),
    ("reduce_min", "ReduceMin", 1, (*NUMBERS, "bool"), {}, {"axes": (0, 1)}),
    # ONNX's evaluator gives 64 bits for 32.
    ("reduce_sum_square", "ReduceSumSquare", 1, ("int64", *FLOATS), {}, {"axes": (0, 1)}),
]


@pytest.mark.parametrize(
    ("op", "theirs", "count", "dtype", "attrs", "ours"),
    [(a, b, count, dtype, *more) for a, b, count, dtypes, *more in TYPED for dtype in dtypes],
)
def test_every_type_gives_what_onnx_defines(
    op: str, theirs: str, count: int, dtype: str, attrs: dict[str, Any], ours: Mapping[str, Attr]
):
    arrays = [random(dtype, 4, 5, seed=seed) for seed in range(count)]
    if op == "mod":
        arrays[1] = np.where(arrays[1] == 0, np.ones_like(arrays[1]), arrays[1])
    wanted = expected(Case(arrays, [(theirs, [f"x{i}" for i in range(count)], attrs)]))
    found = run(op, *arrays, **ours)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    # ONNX's evaluator rounds every step of its own.
    rtol = {"float16": 5e-3, "float32": 2e-6}.get(dtype, 1e-12)
    np.testing.assert_allclose(found, wanted, rtol=rtol)


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("shapes", [((4, 5), (5, 3)), ((2, 3, 4), (4,)), ((5,), (2, 5, 3))])
def test_products_in_every_type(dtype: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]):
    a, b = (random(dtype, *shape, seed=seed) for seed, shape in enumerate(shapes))
    exact = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(dtype)
    rtol = {"float16": 1e-3, "float32": 1e-6}.get(dtype, 1e-12)
    np.testing.assert_allclose(run("matmul", a, b), exact, rtol=rtol)


@pytest.mark.parametrize(
    ("op", "count"),
    [("add", 2), ("div", 2), ("pow", 2), ("exp", 1), ("sin", 1), ("erf", 1), ("gelu", 1)],
)
@pytest.mark.parametrize("dtype", [BF16, np.dtype(np.float16)], ids=str)
def test_halves_are_rounded_once(op: str, count: int, dtype: np.dtype[Any]):
    arrays = [np.abs(random("float32", 64, seed=seed)).astype(dtype) for seed in range(count)]
    precise = run(op, *(array.astype(F32) for array in arrays))
    np.testing.assert_array_equal(run(op, *arrays), precise.astype(dtype))


@given(
    st.sampled_from(INTEGERS).flatmap(
        lambda dtype: st.tuples(
            st.just(dtype),
            st.integers(np.iinfo(dtype).min, np.iinfo(dtype).max),
            st.integers(np.iinfo(dtype).min, np.iinfo(dtype).max).filter(bool),
        )
    )
)
def test_quotients_of_integers_are_those_of_c(numbers: tuple[str, int, int]):
    dtype, a, b = numbers
    exact = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    least, bits = np.iinfo(dtype).min, np.iinfo(dtype).bits
    wrapped = (exact - least) % (1 << bits) + least
    assert int(run("div", np.array([a], dtype), np.array([b], dtype))[0]) == wrapped


@given(st.sampled_from(SIGNED), st.integers(-300, 300), st.integers(-80, 80))
def test_bits_that_are_moved_out_are_gone(dtype: str, value: int, amount: int):
    bits = np.iinfo(dtype).bits
    x = np.array([value]).astype(dtype)
    y = np.array([amount], dtype)
    out = not 0 <= amount < bits
    right = (-1 if x[0] < 0 else 0) if out else int(x[0]) >> amount
    left = 0 if out else np.array([int(x[0]) << amount], object)[0]
    assert int(run("bit_shift", x, y, direction="right")[0]) == right
    assert (int(run("bit_shift", x, y, direction="left")[0]) - left) % (1 << bits) == 0


@pytest.mark.parametrize("direction", ["", "up"])
def test_bits_move_left_or_right(direction: str):
    x = np.ones(3, np.uint8)
    with pytest.raises(GraphError, match="expected direction left or right"):
        run("bit_shift", x, x, direction=direction)


# --- no elements, and no numbers ------------------------------------------------------------------

EMPTY: dict[str, dict[str, float]] = {
    "reduce_l1": {"float32": 0, "int64": 0},
    "reduce_l2": {"float32": 0},
    "reduce_log_sum": {"float32": -np.inf},
    "reduce_log_sum_exp": {"float32": -np.inf},
    "reduce_max": {"float32": -np.inf, "int8": -128, "bool": 0},
    "reduce_mean": {"float32": np.nan},
    "reduce_min": {"float32": np.inf, "uint8": 255, "bool": 1},
    "reduce_prod": {"float32": 1, "int32": 1},
    "reduce_sum": {"float64": 0, "int32": 0},
    "reduce_sum_square": {"float32": 0},
}


@pytest.mark.parametrize(
    ("op", "dtype", "wanted"),
    [(op, dtype, value) for op, row in EMPTY.items() for dtype, value in row.items()],
)
def test_reductions_of_nothing(op: str, dtype: str, wanted: float):
    nothing = np.zeros((2, 0, 4), dtype)
    found = run(op, nothing, axes=(1,), keepdims=0)
    np.testing.assert_array_equal(found, np.full((2, 4), wanted, dtype))
    assert run(op, nothing, axes=(0,)).shape == (1, 0, 4)


def test_the_sum_of_exponentials_neither_overflows_nor_loses_infinity():
    rows = np.array([[1000, 1000], [-1000, -1000], [np.inf, 1], [-np.inf, -np.inf]], F32)
    found = run("reduce_log_sum_exp", rows, axes=(1,), keepdims=0)
    log2 = np.log(2)
    np.testing.assert_allclose(found, [1000 + log2, -1000 + log2, np.inf, -np.inf], rtol=1e-6)


def test_powers_of_integers_with_negative_exponents():
    base, exponent = np.array([1, -1, 2, 0, -1]), np.array([-3, -3, -1, 2, -2])
    assert run("pow", base, exponent).tolist() == [1, -1, 0, 0, 1]


def test_the_last_of_equal_elements():
    x = np.array([[2, 3, 3, 1], [0, 0, 0, 0]], F32)
    assert run("arg_max", x, axis=1, keepdims=0).tolist() == [1, 0]
    assert run("arg_max", x, axis=1, keepdims=0, last=1).tolist() == [2, 3]
    with pytest.raises(GraphError, match="expected elements along axis 1"):
        run("arg_max", np.zeros((2, 0), F32), axis=1)


# --- Einstein's notation --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("equation", "ranks", "inputs", "output"),
    [
        ("ij,jk->ik", (2, 2), ("ij", "jk"), "ik"),
        (" b i j , b j k ", (3, 3), ("bij", "bjk"), "ik"),
        ("ba", (2,), ("ba",), "ab"),
        ("Ba", (2,), ("Ba",), "Ba"),
        ("...ij,...jk->...ik", (3, 4), ("bij", "abjk"), "abik"),
        ("i...->...", (3,), ("iab",), "ab"),
        ("i...", (3,), ("iab",), "abi"),
        ("...i,i", (1, 1), ("i", "i"), ""),
    ],
)
def test_every_axis_gets_a_letter(
    equation: str, ranks: tuple[int, ...], inputs: tuple[str, ...], output: str
):
    terms = parse_equation(equation, ranks)
    assert (terms.inputs, terms.output) == (inputs, output)


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij,jk->ik", [(2, 3)], "2 terms for 1 operands"),
        ("ij->i", [(2, 3, 4)], "'ij' for 3 axes"),
        ("ij->ik", [(2, 3)], "a result 'ik' of 'ij'"),
        ("ij->ii", [(2, 3)], "a result 'ii' of 'ij'"),
        ("i1->i", [(2, 3)], "'i1' for 2 axes"),
        ("..i->i", [(2, 3)], "'..i' for 2 axes"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "'j' has extents 3 and 4"),
    ],
)
def test_equations_that_do_not_fit_are_refused(
    equation: str, shapes: list[tuple[int, ...]], message: str
):
    with pytest.raises(GraphError) as caught:
        run("einsum", *(np.zeros(shape, F32) for shape in shapes), equation=equation)
    assert str(caught.value) == (
        f"node 'n' (einsum): expected operands that fit {equation!r}, found {message}"
    )


Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def contractions(draw: Draw) -> tuple[str, list[tuple[int, ...]]]:
    """Return random equations of up to three operands, with diagonals and broadcast axes."""
    letters = "abcde"
    extents = {letter: draw(st.integers(1, 3)) for letter in letters}
    terms = draw(st.lists(st.text(letters, max_size=4), min_size=1, max_size=3))
    used = sorted(set("".join(terms)))
    output = "".join(draw(st.permutations(used))[: draw(st.integers(0, len(used)))])
    return f"{','.join(terms)}->{output}", [tuple(extents[i] for i in term) for term in terms]


@given(contractions())
def test_random_equations_agree_with_numpy(case: tuple[str, list[tuple[int, ...]]]):
    equation, shapes = case
    rng = np.random.default_rng(0)
    arrays = [np.asarray(rng.integers(-5, 5, shape)) for shape in shapes]
    np.testing.assert_array_equal(
        run("einsum", *arrays, equation=equation), np.einsum(equation, *arrays)
    )
