"""Reductions by our own kernel, against NumPy in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import stridewise as sw
from stridewise.runtime.binding.library import load_core

core = load_core()
INPUTS, OUTPUTS = 2, 3

ALGORITHMS: dict[str, Callable[..., Any]] = {
    "max": np.max,
    "min": np.min,
    "sum": np.sum,
    "mean": np.mean,
    "mul": np.prod,
    "l1": lambda x, **where: np.sum(np.abs(x), **where),
    "l2": lambda x, **where: np.sqrt(np.sum(np.square(x), **where)),
    "sum_square": lambda x, **where: np.sum(np.square(x), **where),
}


def folded(
    op: str, x: NDArray[np.float32], axes: tuple[int, ...], threads: int = 1
) -> NDArray[np.float32]:
    """Compile one reduction and run it."""
    b = sw.GraphBuilder("fold")
    y = b.op(op, [b.input("x", x.shape)], {"axes": axes, "keepdims": 1})
    model = sw.compile(b.build([y]), tune="model", threads=threads)
    assert {d.chosen.option.algorithm for d in model.plan.decisions} == {"fold"}
    found: NDArray[np.float32] = model(x)
    return found


@given(
    st.sampled_from(sorted(ALGORITHMS)),
    st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=1, max_size=5),
    st.integers(1, 3),
    st.integers(0, 9),
)
def test_fold_is_what_numpy_finds(
    algorithm: str, axes: list[tuple[int, bool]], threads: int, seed: int
) -> None:
    shape = tuple(extent for extent, _ in axes)
    gone = tuple(axis for axis, (_, goes) in enumerate(axes) if goes)
    x = np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32)
    x *= np.where(np.arange(x.size).reshape(shape) % 3, 1, -1)
    want = ALGORITHMS[algorithm](x.astype(np.float64), axis=gone, keepdims=True)
    kernel = core.Fold(algorithm, shape, want.shape, threads=threads)
    src, dst = (kernel.arg_desc(arg) for arg in (core.ARG_SRC, core.ARG_DST))
    program = core.Program(0, [], [src.nbytes], [dst.nbytes], threads)
    program.add_primitive(
        kernel, [(core.ARG_SRC, src, INPUTS, 0, 0), (core.ARG_DST, dst, OUTPUTS, 0, 0)]
    )
    program.freeze()
    y = np.full(want.shape, np.nan, np.float32)
    program.run([x], [y])
    np.testing.assert_allclose(y, want, rtol=2e-6, atol=2e-6 * x.size**0.5)


@pytest.mark.parametrize(("shape", "axes"), [((3, 1030, 700), (1,)), ((5, 9000), (1,))])
def test_long_sums_keep_their_digits(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).uniform(0, 1, shape).astype(np.float32)
    found = folded("reduce_sum", x, axes, threads=2)
    want = x.sum(axis=axes, keepdims=True, dtype=np.float64)
    assert np.abs(found / want - 1).max() < 5e-7


@pytest.mark.parametrize("axes", [(1,), (3,), (2, 3), (0, 2)])
@pytest.mark.parametrize(("op", "nothing"), [("reduce_max", -np.inf), ("reduce_min", np.inf)])
def test_fold_of_infinities_and_nan(op: str, nothing: float, axes: tuple[int, ...]) -> None:
    x = np.full((2, 16, 5, 6), nothing, np.float32)
    np.testing.assert_array_equal(folded(op, x, axes), np.max(x, axis=axes, keepdims=True))
    x = np.random.default_rng(0).normal(size=x.shape).astype(np.float32)
    x[1, 3, 2, 4] = np.nan
    want = (np.max if op == "reduce_max" else np.min)(x, axis=axes, keepdims=True)
    np.testing.assert_array_equal(folded(op, x, axes), want)


@pytest.mark.parametrize(
    ("algorithm", "source", "result", "match"),
    [
        ("median", (4, 4), (4, 1), "no algorithm median"),
        ("sum", (4, 4), (4,), "different ranks"),
        ("sum", (4, 4), (2, 4), "expected a result of extent 1 or 4"),
        ("sum", (), (), "1 to 12 dimensions"),
        ("sum", (1 << 40, 1 << 40), (1, 1), "larger than the address space"),
    ],
)
def test_what_is_no_fold(
    algorithm: str, source: tuple[int, ...], result: tuple[int, ...], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        core.Fold(algorithm, source, result, threads=1)
