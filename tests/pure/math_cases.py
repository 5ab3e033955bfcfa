"""Cases of elementwise math, logic and reductions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .onnx_case import F32, Array, Case, Rng, draw, image, ints

__all__ = ["MATH_CASES"]

Make = Callable[[Rng], Case]


def function(op: str, low: float = -3.0, high: float = 3.0) -> Make:
    """Return cases of a function on an interval."""

    def make(rng: Rng) -> Case:
        x = rng.uniform(low, high, image(rng).shape).astype(F32)
        return Case([x], [(op, ["x0"], {})])

    return make


def special(op: str, attrs: Mapping[str, int] | None = None) -> Make:
    """Return cases of a test on elements that are no numbers, or infinite."""

    def make(rng: Rng) -> Case:
        x = rng.choice(np.array([np.nan, np.inf, -np.inf, -1.5, 0.0], F32), (3, 17))
        theirs = {f"detect_{key}": value for key, value in (attrs or {}).items()}
        return Case([x], [(op, ["x0"], theirs)], attrs or {})

    return make


def pair(rng: Rng, low: int, high: int, dtype: Any) -> tuple[Array, Array]:
    """Return two tensors of integers that broadcast, either of them smaller."""
    a = rng.integers(low, high, (2, 3, 5)).astype(dtype)
    shapes = [(2, 3, 5), (3, 1), (5,), (1,), (), (2, 1, 5)]
    b = rng.integers(low, high, shapes[rng.integers(len(shapes))]).astype(dtype)
    return (a, b) if rng.integers(2) else (b, a)


def of_integers(
    op: str, dtype: Any, low: int, high: int, attrs: Mapping[str, str] | None = None
) -> Make:
    def make(rng: Rng) -> Case:
        theirs = {key: value.upper() for key, value in (attrs or {}).items()}
        return Case(list(pair(rng, low, high, dtype)), [(op, ["x0", "x1"], theirs)], attrs or {})

    return make


def connective(op: str) -> Make:
    return of_integers(op, np.bool_, 0, 2)


def negation(op: str, dtype: Any) -> Make:
    def make(rng: Rng) -> Case:
        return Case([rng.integers(0, 2, (3, 17)).astype(dtype)], [(op, ["x0"], {})])

    return make


def mod(rng: Rng) -> Case:
    fmod = int(rng.integers(2))
    theirs = {"fmod": fmod}
    if fmod and rng.integers(2):
        a, b = 10 * draw(rng, 3, 17), draw(rng, 17)
        return Case([a, b], [("Mod", ["x0", "x1"], theirs)], theirs)
    a, b = rng.integers(-9, 9, (4, 5)), rng.choice([-3, -2, 2, 5], 5)
    return Case([a, b], [("Mod", ["x0", "x1"], theirs)], theirs)


def pow_(rng: Rng) -> Case:
    if rng.integers(2):
        a, b = rng.integers(-4, 5, (3, 5)), rng.integers(0, 5, 5)
    else:
        a, b = np.abs(draw(rng, 3, 5)), 2 * draw(rng, 5)
    return Case([a, b], [("Pow", ["x0", "x1"], {})], rtol=1e-5)


def power(rng: Rng) -> Case:
    exponent = float(rng.choice([3.0, 1.5, -2.0, 0.25]))
    constants = {"exponent": np.array(exponent, F32)}
    x = np.abs(image(rng)) + F32(0.1)
    return Case([x], [("Pow", ["x0", "exponent"], {})], {"alpha": exponent}, constants)


def pointwise(rng: Rng) -> Case:
    """An expression with broadcasts, literals, parameters and a choice."""
    x, y = image(rng, 2), draw(rng, 1, 1)
    expression = (
        "mul(x0, x1)", "tanh(t0)", "sub(t1, 0.25)", "greater(t2, x0)", "leaky_relu(x0, 0.5, 0.0)",
        "where(t3, t4, t2)",
    )  # fmt: skip
    nodes: list[tuple[str, Sequence[str], dict[str, Any]]] = [
        ("Mul", ["x0", "x1"], {}), ("Tanh", ["y0"], {}), ("Sub", ["y1", "quarter"], {}),
        ("Greater", ["y2", "x0"], {}), ("LeakyRelu", ["x0"], {"alpha": 0.5}),
        ("Where", ["y3", "y4", "y2"], {}),
    ]  # fmt: skip
    constants = {"quarter": np.array(0.25, F32)}
    return Case([x, y], nodes, {"expression": expression}, constants)


def where(rng: Rng) -> Case:
    arrays = [rng.integers(0, 2, (4, 1)) > 0, draw(rng, 3, 1, 5), draw(rng, 5)]
    return Case(arrays, [("Where", ["x0", "x1", "x2"], {})])


def reduction(op: str) -> Make:
    def make(rng: Rng) -> Case:
        x = image(rng)
        x = np.abs(x) + F32(0.1) if op in ("ReduceLogSum", "ReduceProd") else x
        axes = ints(rng.choice(x.ndim, rng.integers(1, x.ndim + 1), replace=False))
        keep = int(rng.integers(2))
        node = (op, ["x0", "axes"], {"keepdims": keep})
        constants = {"axes": np.array(axes, np.int64)}
        return Case([x], [node], {"axes": axes, "keepdims": keep}, constants, rtol=1e-5)

    return make


def position(op: str) -> Make:
    def make(rng: Rng) -> Case:
        x = rng.integers(0, 4, (3, 5, 7)).astype(F32)  # with elements that are equal
        attrs = {"axis": int(rng.integers(3)), "keepdims": int(rng.integers(2))}
        last = int(rng.integers(2))
        theirs = {**attrs, "select_last_index": last}
        return Case([x], [(op, ["x0"], theirs)], {**attrs, "last": last})

    return make


def _running(rng: Rng) -> tuple[dict[str, int], dict[str, int], dict[str, Array]]:
    axis = int(rng.integers(3))
    attrs = {"exclusive": int(rng.integers(2)), "reverse": int(rng.integers(2))}
    return {"axis": axis, **attrs}, attrs, {"axis": np.array(axis)}


def cumsum(rng: Rng) -> Case:
    ours, theirs, constants = _running(rng)
    x = draw(rng, 3, 5, 7)
    return Case([x], [("CumSum", ["x0", "axis"], theirs)], ours, constants)


def cumprod(rng: Rng) -> Case:
    # CumProd is younger than the evaluator's opset: the exponential of a sum of logarithms.
    ours, theirs, constants = _running(rng)
    x = rng.uniform(0.5, 1.5, (3, 5, 7)).astype(F32)
    nodes = [("Log", ["x0"], {}), ("CumSum", ["y0", "axis"], theirs), ("Exp", ["y1"], {})]
    return Case([x], nodes, ours, constants, rtol=1e-5)


def hardmax(rng: Rng) -> Case:
    x = rng.integers(0, 4, (3, 5, 7)).astype(F32)
    axis = int(rng.integers(3))
    return Case([x], [("Hardmax", ["x0"], {"axis": axis})], {"axis": axis})


def det(rng: Rng) -> Case:
    return Case([draw(rng, 2, 3, 4, 4)], [("Det", ["x0"], {})], rtol=1e-5)


EQUATIONS: dict[str, tuple[tuple[int, ...], ...]] = {
    "ij,jk->ik": ((3, 4), (4, 5)),
    "ij->ji": ((3, 4),),
    "ii->i": ((4, 4),),
    "bhid,bhjd->bhij": ((2, 3, 4, 5), (2, 3, 6, 5)),
    "...ij, ...jk": ((2, 1, 3, 4), (1, 5, 4, 6)),
    "i,i": ((4,), (4,)),
    "i,j->ij": ((4,), (3,)),
    "bij,bjk,bkl->bil": ((2, 3, 4), (2, 4, 5), (2, 5, 2)),
    "a...->...": ((3, 2, 4),),
}


def einsum(rng: Rng) -> Case:
    equation = list(EQUATIONS)[rng.integers(len(EQUATIONS))]
    arrays = [draw(rng, *shape) for shape in EQUATIONS[equation]]
    theirs = {"equation": equation}
    inputs = [f"x{index}" for index in range(len(arrays))]
    return Case(arrays, [("Einsum", inputs, theirs)], theirs, rtol=1e-5)


MATH_CASES: dict[str, Make] = {
    "acos": function("Acos", -1, 1),
    "acosh": function("Acosh", 1, 5),
    "arg_max": position("ArgMax"),
    "arg_min": position("ArgMin"),
    "asin": function("Asin", -1, 1),
    "asinh": function("Asinh"),
    "atan": function("Atan"),
    "atanh": function("Atanh", -0.99, 0.99),
    "bit_shift": of_integers("BitShift", np.uint32, 0, 31, {"direction": "left"}),
    "bitwise_and": of_integers("BitwiseAnd", np.int32, -99, 99),
    "bitwise_not": negation("BitwiseNot", np.int32),
    "bitwise_or": of_integers("BitwiseOr", np.uint8, 0, 255),
    "bitwise_xor": of_integers("BitwiseXor", np.int64, -99, 99),
    "ceil": function("Ceil"),
    "cos": function("Cos"),
    "cosh": function("Cosh"),
    "cumprod": cumprod,
    "cumsum": cumsum,
    "det": det,
    "einsum": einsum,
    "equal": of_integers("Equal", np.int64, 0, 3),
    "erf": function("Erf"),
    "floor": function("Floor"),
    "greater": of_integers("Greater", F32, 0, 3),
    "greater_equal": of_integers("GreaterOrEqual", np.int32, 0, 3),
    "hardmax": hardmax,
    "is_inf": special("IsInf", {"positive": 0, "negative": 1}),
    "is_nan": special("IsNaN"),
    "less": of_integers("Less", np.int64, 0, 3),
    "less_equal": of_integers("LessOrEqual", F32, 0, 3),
    "logical_and": connective("And"),
    "logical_not": negation("Not", np.bool_),
    "logical_or": connective("Or"),
    "logical_xor": connective("Xor"),
    "mod": mod,
    "pow": pow_,
    "pointwise": pointwise,
    "power": power,
    "reduce_l1": reduction("ReduceL1"),
    "reduce_l2": reduction("ReduceL2"),
    "reduce_log_sum": reduction("ReduceLogSum"),
    "reduce_log_sum_exp": reduction("ReduceLogSumExp"),
    "reduce_max": reduction("ReduceMax"),
    "reduce_mean": reduction("ReduceMean"),
    "reduce_min": reduction("ReduceMin"),
    "reduce_prod": reduction("ReduceProd"),
    "reduce_sum": reduction("ReduceSum"),
    "reduce_sum_square": reduction("ReduceSumSquare"),
    "round": function("Round"),
    "sign": function("Sign"),
    "sin": function("Sin"),
    "sinh": function("Sinh"),
    "tan": function("Tan", -1.2, 1.2),
    "where": where,
}
