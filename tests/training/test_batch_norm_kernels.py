"""The core's batch norms in training, in every format, element type and instruction set.

They are compared with results in double precision, of operands that have the element type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.runtime.graphs import error
from tests.runtime.winograd_layers import stored
from tests.training.one_kernel import CORE

from stridewise.dtypes import dtype_of
from stridewise.formats import Format, algebra

Array = NDArray[Any]
KINDS = ("plain", "channels-last", "8", "16")
EPSILON = 0.01
TYPES = [(dtype, isa) for dtype in ("f32", "bf16") for isa in CORE.pointwise_isas(dtype == "bf16")]
HALF_STEP = {"f32": 0.0, "bf16": 2.0**-8}
"""How far a result may be from an exact one, over its size, because it is stored."""
BOUNDS = ((-np.inf, np.inf), (0.0, np.inf), (-0.5, 0.75))

shapes = st.tuples(
    st.integers(1, 4),
    st.sampled_from([1, 3, 8, 12, 16, 19, 24, 33, 70]),
    st.integers(1, 13),
    st.integers(1, 13),
).filter(lambda shape: shape[0] * shape[2] * shape[3] > 1)


def format_of(kind: str) -> Format:
    names = {"plain": "NCHW", "channels-last": "NHWC"}
    return Format.parse(names.get(kind, f"nChw{kind}c"))


def described(kind: str, shape: tuple[int, ...], dtype: str) -> Any:
    tag = {"plain": "abcd", "channels-last": "acdb"}.get(kind, f"aBcd{kind}b")
    return CORE.MemoryDesc(shape, dtype, tag)


def run(op: Any, given: Mapping[int, Array], kind: str, shape: tuple[int, ...]) -> list[Array]:
    """Return what a kernel writes, in a poisoned arena; spare lanes of images must be 0."""
    fmt, threads = format_of(kind), op.threads
    dtype = op.arg_desc(CORE.ARG_SRC).dtype
    sources = [stored(a, fmt, dtype) if a.ndim > 1 else a for a in given.values()]
    written = [arg for arg in op.args if arg not in given]
    types = [dtype_of(op.arg_desc(arg).dtype).numpy for arg in written]
    results = [
        np.full(op.arg_desc(arg).nbytes // own.itemsize, np.nan, own)
        for arg, own in zip(written, types, strict=True)
    ]
    program = CORE.Program(
        op.scratchpad_nbytes, [], [a.nbytes for a in sources], [a.nbytes for a in results], threads
    )
    places = {arg: (2, index) for index, arg in enumerate(given)}
    places |= {arg: (3, index) for index, arg in enumerate(written)}
    places[CORE.ARG_SCRATCHPAD] = (0, 0)
    args = [*op.args, CORE.ARG_SCRATCHPAD]
    program.add_primitive(op, [(a, op.arg_desc(a), *places[a], 0) for a in args])
    program.freeze()
    program.poison = True
    program.run(sources, results)
    at = algebra.offsets(fmt, shape)
    spare = np.ones(results[0].size, bool)
    spare[at] = False
    assert (results[0][spare] == 0).all(), "spare lanes"
    return [results[0][at].astype(np.float32), *results[1:]]


def same_for_any_threads(make: Any, *args: Any) -> list[Array]:
    """Return what a kernel computes, after a comparison of runs with other numbers of threads."""
    first, *others = (run(make(threads), *args) for threads in (1, 2, 3))
    for other in others:
        for a, b in zip(first, other, strict=True):
            assert a.tobytes() == b.tobytes()
    return first


def row(values: Array) -> Array:
    return values.reshape(1, -1, 1, 1)


def in_type(images: Array, dtype: str) -> Array:
    """Return float32 numbers that an element type has."""
    return images.astype(dtype_of(dtype).numpy).astype(np.float32)


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> tuple[Array, ...]:
    """Return x far from 0, dy, what is added, scale and shift."""
    rng = np.random.default_rng(seed)
    images = [rng.standard_normal(shape).astype(np.float32) for _ in range(3)]
    rows = [rng.standard_normal(shape[1]).astype(np.float32) for _ in range(3)]
    images[0] += row(100 * rows[2])
    return *(in_type(image, dtype) for image in images), rows[0], rows[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "isa"), TYPES)
@settings(max_examples=25, deadline=None)
@given(shape=shapes, adds=st.booleans(), bounds=st.sampled_from(BOUNDS), seed=st.integers(0, 99))
def test_forward(
    kind: str, dtype: str, isa: str, shape: tuple[int, ...], adds: bool,
    bounds: tuple[float, float], seed: int,
):  # fmt: skip
    x, _, other, scale, shift = drawn(shape, dtype, seed)
    given = {CORE.ARG_SRC: x, CORE.ARG_SCALE: scale, CORE.ARG_SHIFT: shift}
    given |= {CORE.post_op_arg(0): other} if adds else {}

    def make(threads: int) -> Any:
        low, high = bounds
        return CORE.BatchNorm(
            described(kind, shape, dtype), EPSILON, adds=adds, low=low, high=high, threads=threads,
            isa=isa,
        )  # fmt: skip

    y, mean, variance = same_for_any_threads(make, given, kind, shape)
    wide = x.astype(float)
    means, variances = wide.mean((0, 2, 3)), wide.var((0, 2, 3))
    assert error(mean, means) <= 1e-6
    assert (np.abs(variance - variances) <= 1e-5 * variances + 1e-9 * means**2).all()
    normal = (wide - row(means)) / np.sqrt(row(variances) + EPSILON)
    # A difference to a mean that is rounded to float32, in standard deviations of the channel.
    rounding = 2e-7 * (np.abs(row(means)) / np.sqrt(row(variances) + EPSILON)) + 1e-5
    result = normal * row(scale) + row(shift) + (other if adds else 0)
    wanted = np.clip(result, *bounds)
    most = rounding * (np.abs(row(scale)) + np.abs(result) + 1)
    # What is stored is the rounded sum.
    assert (np.abs(y - wanted) <= most + HALF_STEP[dtype] * (np.abs(wanted) + most)).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "isa"), TYPES)
@settings(max_examples=25, deadline=None)
@given(shape=shapes, bounds=st.sampled_from(BOUNDS), seed=st.integers(0, 99))
def test_gradient(
    kind: str, dtype: str, isa: str, shape: tuple[int, ...], bounds: tuple[float, float], seed: int
):
    x, dy, _, scale, shift = drawn(shape, dtype, seed)
    x = in_type(x - row(x.mean((0, 2, 3), dtype=np.float32)), dtype)
    masks = bounds != BOUNDS[0]
    wide = x.astype(float)
    mean = wide.mean((0, 2, 3)).astype(np.float32)
    variance = wide.var((0, 2, 3)).astype(np.float32)
    inverse = 1 / np.sqrt(row(variance).astype(float) + EPSILON)
    normal = (wide - row(mean)) * inverse
    result = normal * row(scale) + row(shift)
    # Of results that are as near to a bound as float32 is exact, the gradient may be either.
    near = min(np.abs(result - bound).min() for bound in bounds) < 1e-5
    dy = dy * 0 if near and masks else dy
    given = {
        CORE.ARG_SRC: x, CORE.ARG_DIFF_DST: dy, CORE.ARG_SCALE: scale, CORE.ARG_MEAN: mean,
        CORE.ARG_VARIANCE: variance,
    } | ({CORE.ARG_SHIFT: shift} if masks else {})  # fmt: skip

    def make(threads: int) -> Any:
        low, high = bounds
        return CORE.BatchNormGradient(
            described(kind, shape, dtype), EPSILON, masks=masks, low=low, high=high,
            threads=threads, isa=isa,
        )  # fmt: skip

    found = same_for_any_threads(make, given, kind, shape)
    low, high = bounds
    kept = np.where((low < result) & (result < high), dy, 0).astype(float)
    of_scale, of_shift = (kept * normal).sum((0, 2, 3)), kept.sum((0, 2, 3))
    count = x.size // shape[1]
    mixed = kept - (normal * row(of_scale) + row(of_shift)) / count
    # Sums of either sign may be near to 0.
    most = max(float(np.abs(kept).max(initial=0)), 1.0) * count
    assert (
        error(found[0], mixed * inverse * row(scale)) <= 1e-5 + HALF_STEP[dtype] or not kept.any()
    )
    assert np.abs(found[1] - of_scale).max() <= 1e-6 * most
    assert np.abs(found[2] - of_shift).max() <= 1e-6 * most


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "isa"), TYPES)
def test_masks_are_those_of_the_results_to_the_bit(kind: str, dtype: str, isa: str):
    shape, desc = (3, 19, 24, 24), described(kind, (3, 19, 24, 24), dtype)
    x, dy, _, scale, shift = drawn(shape, dtype, 1)
    # Results below the upper bound may be rounded to it.
    high = 0.5 if dtype == "f32" else np.inf
    given = {CORE.ARG_SRC: x, CORE.ARG_SCALE: scale, CORE.ARG_SHIFT: shift}
    options = {"low": 0.0, "high": high, "threads": 1, "isa": isa}
    y, mean, variance = run(CORE.BatchNorm(desc, EPSILON, **options), given, kind, shape)
    given = {CORE.ARG_SRC: x, CORE.ARG_DIFF_DST: np.ones_like(dy), CORE.ARG_SCALE: scale,
             CORE.ARG_MEAN: mean, CORE.ARG_VARIANCE: variance, CORE.ARG_SHIFT: shift}  # fmt: skip
    op = CORE.BatchNormGradient(desc, EPSILON, masks=True, **options)
    count = run(op, given, kind, shape)[2]
    assert count.tolist() == ((y > 0) & (y < high)).sum((0, 2, 3)).tolist()


@pytest.mark.parametrize(
    ("shape", "dtype", "tag", "given", "message"),
    [
        ((2, 3, 4, 4), "f32", "aBcd8b", {"low": 1.0}, "bounds on both sides of 0"),
        ((2, 3, 4, 4), "bf16", "bacd", {}, "images in a known format"),
        ((2, 3, 4, 4), "s8", "abcd", {}, "float32 or bfloat16"),
        ((2, 3, 4, 4), "f32", "abcd", {"epsilon": -1.0}, "an epsilon of 0 or more"),
        ((2,), "f32", "a", {}, "2 to 5 axes"),
    ],
)
def test_refusals(
    shape: tuple[int, ...], dtype: str, tag: str, given: dict[str, float], message: str
):
    desc, options = CORE.MemoryDesc(shape, dtype, tag), {"epsilon": 0.1, "threads": 1, **given}
    for make in (CORE.BatchNorm, CORE.BatchNormGradient):
        with pytest.raises(ValueError, match=message):
            make(desc, **options)
