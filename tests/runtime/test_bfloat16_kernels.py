"""The core's kernels on bfloat16 tensors: float32 arithmetic, and each result rounded once."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewise.dtypes import dtype_of
from stridewise.runtime.binding.library import load_core

from .graphs import error
from .test_joint import ACTIVATIONS, BLOCKS, Block, Case, same
from .test_pointwise import cases, kernel_of, run, strides_of
from .test_reduction import ALGORITHMS, NORMS, drawn, walks, without
from .test_reduction import run as run_reduction
from .winograd_layers import HALF_KERNELS, KINDS, Runner, Shape, convolved, data

core = load_core()
BF16 = dtype_of("bf16").numpy
ISAS = core.pointwise_isas(halves=True)
DTYPES = ("f32", "bf16")
HALVES = [("bf16", "bf16"), ("bf16", "f32"), ("f32", "bf16")]
STEP = 2.0**-7
"""The largest distance of neighbors among numbers of bfloat16, over their size."""

Array = np.ndarray[Any, np.dtype[Any]]


def in_bfloat16(array: Array) -> Array:
    """Return float32 numbers that bfloat16 has."""
    return array.astype(BF16).astype(np.float32)


def placed(array: Array, order: tuple[int, ...], dtype: str) -> tuple[Any, Array]:
    desc = core.MemoryDesc.strided(array.shape, dtype, strides_of(array.shape, order))
    return desc, np.ascontiguousarray(array.transpose(order)).astype(dtype_of(dtype).numpy)


def in_blocks(array: Array, block: int, dtype: str) -> tuple[Any, Array]:
    n, c, h, w = array.shape
    padded = np.zeros((n, -(-c // block) * block, h, w), dtype_of(dtype).numpy)
    padded[:, :c] = array
    bytes_ = padded.reshape(n, -1, block, h, w).transpose(0, 1, 3, 4, 2)
    return core.MemoryDesc(array.shape, dtype, f"aBcd{block}b"), np.ascontiguousarray(bytes_)


def check(found: Array, wanted: Array, size: float = 1e-30, relative: float = 0.0) -> None:
    """Compare with exact results: half a step where elements are bfloat16, beside what is given."""
    step = STEP / 2 if found.dtype == BF16 else 0.0
    np.testing.assert_allclose(
        found.astype(np.float64), wanted, rtol=step + relative, atol=size * (1 + step)
    )


def special() -> Array:
    """Return numbers near ties, and those that are none; more than whole vectors of them."""
    bits = np.random.default_rng(0).integers(0, 1 << 32, 20001, np.uint32)
    ties = np.arange(0, 1 << 32, 0x8000, np.uint32) + np.uint32(1 << 31)
    beside = np.concatenate([ties - np.uint32(1), ties, ties + np.uint32(1)])
    return np.concatenate([bits, beside]).view(np.float32)


def converter(source: Any, target: Any, isa: str) -> Any:
    return core.Pointwise([("identity", [0], 0, 0)], [], [source], target, threads=1, isa=isa)


@pytest.mark.parametrize("isa", ISAS)
def test_numbers_are_rounded_to_the_nearest_even(isa: str) -> None:
    x = special()
    found = np.empty(x.size, BF16)
    source, target = (core.MemoryDesc((x.size,), dtype, "a") for dtype in ("f32", "bf16"))
    run(converter(source, target, isa), [x], found, 1)
    with np.errstate(invalid="ignore"):
        wanted = x.astype(BF16)
    if isa == "avx512_bf16":  # its instruction takes denormal numbers for zero
        is_tiny = np.abs(x) < np.finfo(np.float32).tiny
        assert (found[is_tiny].astype(np.float32) == 0).all()
        wanted[is_tiny] = found[is_tiny]
    assert (np.isnan(found.astype(np.float32)) == np.isnan(x)).all()
    is_number = ~np.isnan(x)
    np.testing.assert_array_equal(found[is_number].view("u2"), wanted[is_number].view("u2"))


@pytest.mark.parametrize("isa", ISAS)
def test_every_number_of_bfloat16_is_read_as_it_is(isa: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(BF16)
    found = np.empty(x.size, np.float32)
    source, target = (core.MemoryDesc((x.size,), dtype, "a") for dtype in ("bf16", "f32"))
    run(converter(source, target, isa), [x], found, 1)
    np.testing.assert_array_equal(found, x.astype(np.float32))


@given(
    shapes=cases(), isa=st.sampled_from(ISAS), threads=st.integers(1, 4), data=st.data(),
    dtypes=st.tuples(*[st.sampled_from(DTYPES)] * 4).filter(lambda types: "bf16" in types),
)  # fmt: skip
def test_expressions_of_operands_of_both_types(
    shapes: Any, isa: str, threads: int, data: Any, dtypes: tuple[str, ...]
) -> None:
    rng = np.random.default_rng(0)
    operands, shape = shapes
    arrays = [in_bfloat16(rng.uniform(0.5, 2, s).astype("f")) for s in operands]
    orders = st.sampled_from(list(permutations(range(len(shape)))))
    described = [
        placed(array, data.draw(orders), dtype)
        for array, dtype in zip(arrays, dtypes, strict=False)
    ]
    order = data.draw(orders)
    desc, result = placed(np.zeros(shape, np.float32), order, dtypes[3])
    expression = ("mul(x0, x1)", "add(t0, x2)")
    kernel = kernel_of(expression, [d for d, _ in described], desc, threads, isa)
    run(kernel, [bytes_ for _, bytes_ in described], result, threads)
    a, b, c = (array.astype(np.float64) for array in arrays)
    check(result, np.broadcast_to(a * b + c, shape).transpose(order), relative=1e-6)


@given(
    channels=st.sampled_from([1, 3, 8, 16, 20, 33]), size=st.sampled_from([(1, 1), (5, 3)]),
    block=st.sampled_from([8, 16]), dtypes=st.sampled_from(HALVES),
    isa=st.sampled_from(ISAS), threads=st.integers(1, 3),
)  # fmt: skip
def test_padding_of_blocks_stays_zero(
    channels: int, size: tuple[int, int], block: int, dtypes: tuple[str, str], isa: str,
    threads: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(0)
    x, row = rng.uniform(-2, 2, (2, channels, *size)), rng.uniform(-2, 2, (1, channels, 1, 1))
    x, row = (in_bfloat16(array.astype(np.float32)) for array in (x, row))
    sources = [in_blocks(x, block, dtypes[0]), in_blocks(row, block, "bf16")]
    wanted = np.exp(x.astype(np.float64) - row)
    desc, exact = in_blocks(wanted, block, dtypes[1])
    result = np.empty_like(exact)
    kernel = kernel_of(("sub(x0, x1)", "exp(t0)"), [d for d, _ in sources], desc, threads, isa)
    run(kernel, [bytes_ for _, bytes_ in sources], result, threads)
    check(result, in_blocks(wanted.astype(np.float32), block, "f32")[1], relative=1e-6)


@pytest.mark.parametrize("isa", ISAS)
def test_a_result_may_lie_where_a_source_of_its_type_does(isa: str) -> None:
    x = np.random.default_rng(0).standard_normal(1237).astype(BF16)
    desc = core.MemoryDesc(x.shape, "bf16", "a")
    kernel = kernel_of(("mul(x0, 3.0)",), [desc], desc, 2, isa)
    program = core.Program(0, [], [], [x.nbytes], 2)
    program.add_primitive(
        kernel, [(core.ARG_MULTIPLE_SRC, desc, 3, 0, 0), (core.ARG_DST, desc, 3, 0, 0)],
        [(core.ARG_DST, core.ARG_MULTIPLE_SRC)],
    )  # fmt: skip
    program.freeze()
    result = x.copy()
    program.run([], [result])
    check(result, 3 * x.astype(np.float64))


@given(
    walk=walks(), algorithm=st.sampled_from([*sorted(ALGORITHMS), *sorted(NORMS)]),
    isa=st.sampled_from(ISAS), threads=st.integers(1, 3), dtypes=st.sampled_from(HALVES),
)  # fmt: skip
def test_reductions_and_norms(
    walk: Any, algorithm: str, isa: str, threads: int, dtypes: tuple[str, str]
) -> None:
    shape, order, gone = walk
    x = in_bfloat16(np.abs(drawn(shape)) if algorithm == "log_sum" else drawn(shape))
    desc, bytes_ = placed(x, order, dtypes[0])
    exact = x.astype(np.float64)
    kept = np.zeros(without(shape, gone), np.float32)
    if algorithm in ALGORITHMS:
        wanted = np.asarray(ALGORITHMS[algorithm](exact, axis=gone, keepdims=True))
        place, result = placed(kept, tuple(range(len(shape))), dtypes[1])
        kernel = core.Reduction(algorithm, desc, place, threads=threads, isa=isa)
    else:
        wanted = NORMS[algorithm](exact, gone).transpose(order)
        statistics = placed(kept, order, "f32")[0]
        target, result = placed(x, order, dtypes[1])
        kernel = core.Normalization(
            algorithm, desc, target, statistics, epsilon=0.01, threads=threads, isa=isa
        )
    run_reduction(kernel, {core.ARG_SRC: bytes_}, result, threads)
    size = float(np.abs(x).sum()) if algorithm in ("sum", "mean") else 1.0
    check(result, wanted, size=1e-6 * max(size, 3.0), relative=4e-6)


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 20), st.integers(1, 90)),
    gone=st.sampled_from([(2, 3), (3,), (1, 2, 3), (1, 3)]),
    algorithm=st.sampled_from(sorted(NORMS)), isa=st.sampled_from(ISAS),
    threads=st.integers(1, 3), dtypes=st.sampled_from(HALVES),
)  # fmt: skip
def test_rows_and_groups_with_scale_and_shift(
    shape: Any, gone: tuple[int, ...], algorithm: str, isa: str, threads: int,
    dtypes: tuple[str, str],
) -> None:  # fmt: skip
    order = (0, 3, 1, 2) if gone == (2, 3) else (0, 1, 2, 3)  # pixels and channels, or rows
    x = in_bfloat16(drawn(shape))
    (desc, bytes_), (target, result) = placed(x, order, dtypes[0]), placed(x, order, dtypes[1])
    statistics = placed(np.zeros(without(shape, gone), np.float32), order, "f32")[0]
    own = (1, *shape[1:3], 1) if gone == (2, 3) else (1, 1, 1, shape[3])
    row, own_order = np.linspace(1, 2, np.prod(own), dtype=np.float32).reshape(own), (0, 1, 2, 3)
    affine = {name: placed(row, own_order, "f32")[0] for name in ("scale", "shift")}
    wanted = NORMS[algorithm](x.astype(np.float64), gone)
    arguments = {core.ARG_SRC: bytes_}
    if algorithm == "norm":
        wanted, arguments[core.ARG_SCALE], arguments[core.ARG_SHIFT] = wanted * row + row, row, row
    kernel = core.Normalization(
        algorithm, desc, target, statistics, **affine if algorithm == "norm" else {},
        epsilon=0.01, threads=threads, isa=isa,
    )  # fmt: skip
    run_reduction(kernel, arguments, result, threads)
    check(result, wanted.transpose(order), size=1e-5, relative=4e-6)


@pytest.mark.parametrize("algorithm", ["sum", "max", "log_sum_exp", "mean"])
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("block", [8, 16])
def test_reductions_of_padded_blocks(block: int, isa: str, algorithm: str) -> None:
    x = in_bfloat16(drawn((2, 19, 5, 7)))
    for gone in ((2, 3), (1,), (0, 2)):
        wanted = ALGORITHMS[algorithm](x.astype(np.float64), axis=gone, keepdims=True)
        place, exact = in_blocks(np.asarray(wanted, np.float32), block, "bf16")
        result = np.empty_like(exact)
        desc, bytes_ = in_blocks(x, block, "bf16")
        kernel = core.Reduction(algorithm, desc, place, threads=2, isa=isa)
        run_reduction(kernel, {core.ARG_SRC: bytes_}, result, 2)
        check(result, in_blocks(np.asarray(wanted, np.float32), block, "f32")[1], 1e-4)


@pytest.mark.parametrize("isa", ISAS)
def test_nan_and_infinity(isa: str) -> None:
    x = np.ones((4, 21), BF16)
    x[1, 3], x[2, 18], x[3, 20] = np.nan, np.inf, -np.inf
    desc, place = (core.MemoryDesc(dims, "bf16", "ab") for dims in ((4, 21), (4, 1)))
    found: dict[str, list[float]] = {}
    for algorithm in ("max", "min", "sum"):
        result = np.empty((4, 1), BF16)
        kernel = core.Reduction(algorithm, desc, place, threads=1, isa=isa)
        run_reduction(kernel, {core.ARG_SRC: x}, result, 1)
        found[algorithm] = result.astype(float).ravel().tolist()
    inf, nan = np.inf, np.nan
    np.testing.assert_array_equal(found["max"], [1, nan, inf, 1])
    np.testing.assert_array_equal(found["min"], [1, nan, 1, -inf])
    np.testing.assert_array_equal(found["sum"], [21, nan, inf, -inf])


# --- convolutions -----------------------------------------------------------------------------


def near(found: Array, wanted: Array, allowed: float) -> None:
    """Compare convolutions: what rounding of sums takes, beside half a step of bfloat16."""
    step = STEP / 2 if found.dtype == BF16 else 0.0
    most = float(np.abs(wanted).max())
    difference = np.abs(found.astype(np.float64) - wanted)
    assert (difference <= step * np.abs(wanted) + 2 * allowed * most).all()


@pytest.mark.parametrize("dtypes", HALVES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", HALF_KERNELS, ids=str)
@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("expands", [False, True])
def test_depthwise(expands: bool, name: str, kernel: Any, kind: str, dtypes: Any) -> None:
    block = BLOCKS[name]
    if not expands:
        block = replace(block, expands=False, channels=block.middle)
    first, between, second, last = ACTIVATIONS["clips"]
    case = Case(block)
    case.x = in_bfloat16(case.x)
    posts = [*first, *second] if expands else second
    biases = (expands, True)
    found = case.found(kind, kernel, posts, len(first) * expands, biases, dtypes=dtypes)
    near(found, case.wanted(between if expands else same, last, biases), 3e-6)


@pytest.mark.parametrize("kernel", HALF_KERNELS, ids=str)
@pytest.mark.parametrize("name", ["logistic", "swish", "tanh"])
def test_activations(name: str, kernel: Any) -> None:
    spread = np.array([0, *np.geomspace(1e-3, 300, 299), np.inf, np.nan], np.float32)
    numbers = in_bfloat16(np.concatenate([spread, -spread]).reshape(1, 4, 1, 151))
    block = Block(
        channels=4, middle=4, height=1, width=151, window=(1, 1), pads=(0, 0, 0, 0), expands=False
    )
    case = Case(block)
    case.x, case.d = numbers, np.ones_like(case.d)
    posts = [("eltwise", name, 1.0, 0.0)]
    found = case.found("blocked", kernel, posts, 0, (False, False), dtypes=("bf16", "bf16"))
    x = numbers.astype(float)
    with np.errstate(over="ignore", invalid="ignore"):
        logistic = 1 / (1 + np.exp(-x))
        wanted = {"logistic": logistic, "swish": x * logistic, "tanh": np.tanh(x)}[name]
    np.testing.assert_array_equal(np.isnan(found.astype(float)), np.isnan(wanted))
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(
        found[finite].astype(float), wanted[finite], rtol=STEP / 2 + 2e-4, atol=1e-36
    )


@settings(deadline=None, max_examples=60)
@given(
    shape=st.builds(
        Shape, images=st.integers(1, 3), channels=st.integers(1, 40), height=st.integers(1, 12),
        width=st.integers(1, 12), outputs=st.integers(1, 70),
        pads=st.tuples(*[st.integers(1, 3)] * 4),
    ),
    kernel=st.sampled_from(HALF_KERNELS), kind=st.sampled_from(KINDS),
    tile=st.sampled_from([2, 4, 6]), dtypes=st.sampled_from(HALVES), adds=st.booleans(),
)  # fmt: skip
def test_winograd(shape: Shape, kernel: Any, kind: str, tile: int, dtypes: Any, adds: bool) -> None:
    x, w, bias = data(shape)
    x = in_bfloat16(x)
    other = in_bfloat16(np.random.default_rng(1).normal(size=shape.dst).astype(np.float32))
    posts = [("binary", "add"), ("eltwise", "relu", 0.0, 0.0)] if adds else []
    made = Runner(shape, kind, kernel, tile, post_ops=posts, dtypes=dtypes)
    found = made(x, w, bias, [other] if adds else [])
    wanted = convolved(x, w, bias, shape)
    wanted = np.maximum(wanted + other, 0) if adds else wanted
    near(found, wanted, {2: 1e-6, 4: 4e-6, 6: 2e-5}[tile])


@pytest.mark.parametrize("kernel", HALF_KERNELS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changes", [{"pool": 2}, {"groups": 2}, {"window": (1, 7)}], ids=str)
def test_other_kinds_of_winograd(changes: Any, kind: str, kernel: Any) -> None:
    shape = replace(Shape(channels=32, outputs=64, height=9, width=14), **changes)
    x, w, bias = data(shape)
    x = in_bfloat16(x)
    found = Runner(shape, kind, kernel, 4, dtypes=("bf16", "bf16"))(x, w, bias)
    wanted = convolved(x, w, bias, replace(shape, pool=1))
    if shape.pool == 2:
        n, c, h, v = shape.dst
        wanted = wanted[:, :, : 2 * h, : 2 * v].reshape(n, c, h, 2, v, 2).max((3, 5))
    near(found, wanted, 1e-5)
    assert error(found.astype(float), wanted) <= STEP / 2


PAIRS = [kernel for kernel in HALF_KERNELS if kernel[1] in ("portable", "avx512_bf16")]


@settings(deadline=None, max_examples=60)
@given(
    shape=st.builds(
        Shape, images=st.integers(1, 3), channels=st.integers(1, 70), height=st.integers(1, 12),
        width=st.integers(1, 12), outputs=st.integers(1, 70), pool=st.just(1),
    ),
    kernel=st.sampled_from(PAIRS), kind=st.sampled_from(KINDS), threads=st.integers(1, 3),
    dtypes=st.sampled_from(HALVES[:2]), pool=st.sampled_from([1, 2]),
)  # fmt: skip
def test_products_of_pairs(
    shape: Shape, kernel: Any, kind: str, threads: int, dtypes: Any, pool: int
) -> None:
    x, w, bias = data(shape)
    x = in_bfloat16(x)
    if min(shape.dst[2:]) < pool:
        pool = 1
    made = Runner(
        replace(shape, pool=pool), kind, kernel, 2, threads=threads, dtypes=dtypes, in_pairs=True
    )
    found = made(x, w, bias).astype(np.float64)
    wanted = convolved(x, w, bias, shape)
    if pool == 2:
        n, c, h, v = made.shape.dst
        wanted = wanted[:, :, : 2 * h, : 2 * v].reshape(n, c, h, 2, v, 2).max((3, 5))
    # Transformed weights and pixels are rounded, each to 2**-9, and so is the result.
    assert np.abs(found - wanted).max() <= 0.05 * np.abs(wanted).max()
    if wanted.size > 200:
        assert np.linalg.norm(found - wanted) <= 6e-3 * np.linalg.norm(wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", PAIRS, ids=str)
@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("activations", ["none", "clips", "swish"])
def test_expansions_in_pairs(activations: str, name: str, kernel: Any, kind: str) -> None:
    first, between, second, last = ACTIVATIONS[activations]
    for channels in {BLOCKS[name].channels, 1, 33}:
        case = Case(replace(BLOCKS[name], channels=channels))
        case.x, case.w = in_bfloat16(case.x), in_bfloat16(case.w)
        posts = [*first, *second]
        halves = ("bf16", "bf16")
        found = case.found(kind, kernel, posts, len(first), dtypes=halves, in_pairs=True)
        near(found, case.wanted(between, last, (True, True)), 1e-4)


def test_products_of_pairs_need_tensors_of_bfloat16() -> None:
    case = Case(Block())
    with pytest.raises(ValueError, match="tensors of bfloat16"):
        case.found("blocked", (8, "portable"), [], 0, dtypes=("bf16", "f32"), in_pairs=True)


@pytest.mark.parametrize("changes", [{"groups": 2}, {"window": (5, 5)}], ids=str)
def test_what_is_not_multiplied_in_pairs(changes: Any) -> None:
    shape = replace(Shape(channels=32, outputs=32), **changes)
    with pytest.raises(ValueError, match=r"groups|there are no tiles"):
        Runner(shape, "blocked", (8, "portable"), 2, dtypes=("bf16", "bf16"), in_pairs=True)
    with pytest.raises(ValueError, match="of a source of bfloat16"):
        Runner(Shape(), "blocked", (8, "portable"), 2, in_pairs=True)
