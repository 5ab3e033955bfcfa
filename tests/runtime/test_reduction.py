"""Reductions, softmax and norms by kernels of our own, in any format, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stridewise.runtime.binding.library import load_core

from .test_pointwise import blocked, stored

core = load_core()
ISAS = core.pointwise_isas()
INPUTS, OUTPUTS = 2, 3


def _log_sum_exp(x: np.ndarray, **where: Any) -> np.ndarray:
    greatest = np.max(x, axis=where["axis"], keepdims=True)
    greatest = np.where(np.isinf(greatest), 0, greatest)
    return np.log(np.sum(np.exp(x - greatest), **where)) + greatest


ALGORITHMS: dict[str, Callable[..., Any]] = {
    "max": np.max,
    "min": np.min,
    "sum": np.sum,
    "mean": np.mean,
    "mul": np.prod,
    "l1": lambda x, **where: np.sum(np.abs(x), **where),
    "l2": lambda x, **where: np.sqrt(np.sum(np.square(x), **where)),
    "sum_square": lambda x, **where: np.sum(np.square(x), **where),
    "log_sum": lambda x, **where: np.log(np.sum(x, **where)),
    "log_sum_exp": _log_sum_exp,
}


def _softmax(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    power = np.exp(x - x.max(axes, keepdims=True))
    return power / power.sum(axes, keepdims=True)


def _log_softmax(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    shifted = x - x.max(axes, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axes, keepdims=True))


def _norm(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 0.01)


NORMS = {"softmax": _softmax, "log_softmax": _log_softmax, "norm": _norm}


def run(kernel: Any, arrays: dict[int, np.ndarray], result: np.ndarray, threads: int) -> None:
    """Run a kernel over memory full of NaN, its scratchpad included."""
    scratch = kernel.scratchpad_nbytes
    arena = -(-scratch // 64) * 64
    program = core.Program(arena, [], [a.nbytes for a in arrays.values()], [result.nbytes], threads)
    if arena:
        program.add_fill((0, 0, 0), arena // 4, float("nan"))
    args = [(arg, kernel.arg_desc(arg), INPUTS, at, 0) for at, arg in enumerate(arrays)]
    args.append((core.ARG_DST, kernel.arg_desc(core.ARG_DST), OUTPUTS, 0, 0))
    if scratch:
        args.append((core.ARG_SCRATCHPAD, kernel.arg_desc(core.ARG_SCRATCHPAD), 0, 0, 0))
    program.add_primitive(kernel, args)
    program.freeze()
    result.fill(np.nan)
    program.run(list(arrays.values()), [result])


def reduced(algorithm: str, x: Any, y: Any, threads: int = 1, isa: str = "") -> np.ndarray:
    """Return a reduction of (description, bytes); y has the description and bytes of the result."""
    kernel = core.Reduction(algorithm, x[0], y[0], threads=threads, isa=isa)
    result = np.empty_like(y[1])
    run(kernel, {core.ARG_SRC: x[1]}, result, threads)
    return result


def without(shape: tuple[int, ...], gone: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if axis in gone else extent for axis, extent in enumerate(shape))


@st.composite
def walks(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return a shape, an order of its axes in memory, and the axes that go."""
    rank = draw(st.integers(1, 5))
    shape = tuple(draw(st.sampled_from([1, 2, 3, 7, 16, 67])) for _ in range(rank))
    while np.prod(shape) > 40000:
        shape = (*shape[:-1], 1) if shape[-1] > 1 else (*shape[:-2], 1, 1)
    order = tuple(draw(st.permutations(range(rank))))
    gone = tuple(axis for axis in range(rank) if draw(st.booleans()))
    return shape, order, gone


def drawn(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32)
    return x * np.where(np.arange(x.size).reshape(shape) % 3, 1, -1).astype(np.float32)


@given(
    walk=walks(),
    algorithm=st.sampled_from(sorted(ALGORITHMS)),
    isa=st.sampled_from(ISAS),
    threads=st.integers(1, 3),
)
def test_reductions_of_any_axes_in_any_order(
    walk: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    algorithm: str,
    isa: str,
    threads: int,
) -> None:
    shape, order, gone = walk
    x = np.abs(drawn(shape)) if algorithm == "log_sum" else drawn(shape)
    wanted = ALGORITHMS[algorithm](x.astype(np.float64), axis=gone, keepdims=True)
    plain = stored(np.asarray(wanted, np.float32), tuple(range(len(shape))))
    found = reduced(algorithm, stored(x, order), plain, threads, isa)
    scale = np.sqrt(x.size / wanted.size)
    np.testing.assert_allclose(found, wanted, rtol=4e-6, atol=2e-6 * scale)


@given(
    walk=walks(),
    algorithm=st.sampled_from(sorted(NORMS)),
    isa=st.sampled_from(ISAS),
    threads=st.integers(1, 3),
)
def test_norms_over_any_axes_in_any_order(
    walk: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    algorithm: str,
    isa: str,
    threads: int,
) -> None:
    shape, order, gone = walk
    x = 3 * drawn(shape)
    wanted = NORMS[algorithm](x.astype(np.float64), gone)
    desc, bytes_ = stored(x, order)
    statistics = stored(np.empty(without(shape, gone), np.float32), order)[0]
    kernel = core.Normalization(
        algorithm, desc, desc, statistics, epsilon=0.01, threads=threads, isa=isa
    )
    result = np.empty_like(bytes_)
    run(kernel, {core.ARG_SRC: bytes_}, result, threads)
    np.testing.assert_allclose(result, wanted.transpose(order), rtol=1e-5, atol=3e-6)


@given(
    rows=st.integers(1, 40),
    length=st.one_of(st.integers(1, 140), st.integers(1000, 5000)),
    algorithm=st.sampled_from(sorted(NORMS)),
    parameters=st.sampled_from(["", "scale", "shift", "scale shift"]),
    isa=st.sampled_from(ISAS),
    threads=st.integers(1, 3),
)
def test_dense_rows(
    rows: int, length: int, algorithm: str, parameters: str, isa: str, threads: int
) -> None:
    x = 3 * drawn((rows, length))
    desc, bytes_ = stored(x, (0, 1))
    statistics = stored(np.empty((rows, 1), np.float32), (0, 1))[0]
    wanted = NORMS[algorithm](x.astype(np.float64), (1,))
    row = np.linspace(1, 2, length, dtype=np.float32).reshape(1, -1)
    own = {name: stored(row, (0, 1))[0] for name in parameters.split() if algorithm == "norm"}
    wanted = wanted * row if "scale" in own else wanted
    wanted = wanted + row if "shift" in own else wanted
    roles = {"scale": core.ARG_SCALE, "shift": core.ARG_SHIFT}
    kernel = core.Normalization(
        algorithm, desc, desc, statistics, **own, epsilon=0.01, threads=threads, isa=isa
    )
    result = np.empty_like(bytes_)
    run(kernel, {core.ARG_SRC: bytes_, **{roles[name]: row for name in own}}, result, threads)
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=4e-6)


@given(
    images=st.tuples(st.integers(1, 3), st.integers(1, 9)),
    joined=st.booleans(),
    groups=st.integers(1, 40),
    each=st.integers(1, 70),
    pixels=st.integers(1, 100),
    parameters=st.sampled_from(["", "scale", "shift", "scale shift"]),
    isa=st.sampled_from(ISAS),
    threads=st.integers(1, 3),
)
@example((1, 1), False, 128, 33, 3, "scale", ISAS[0], 2)  # more channels than there are kernels for
@example((2, 4), True, 20, 4, 9, "shift", ISAS[0], 2)  # statistics of several images
def test_groups_of_channels_that_are_last(
    images: tuple[int, int],
    joined: bool,
    groups: int,
    each: int,
    pixels: int,
    parameters: str,
    isa: str,
    threads: int,
) -> None:
    shape, order, plain = (*images, groups, each, pixels), (0, 1, 4, 2, 3), (0, 1, 2, 3, 4)
    gone = (0, 3, 4) if joined else (3, 4)
    x = 3 * drawn(shape) + 10
    desc, bytes_ = stored(x, order)
    statistics = stored(np.empty(without(shape, gone), np.float32), plain)[0]
    wanted = _norm(x.astype(np.float64), gone)
    channels = (1, 1, groups, each, 1)
    row = np.linspace(1, 2, groups * each, dtype=np.float32).reshape(channels)
    own = {name: stored(row, plain)[0] for name in parameters.split()}
    wanted = wanted * row if "scale" in own else wanted
    wanted = wanted + row if "shift" in own else wanted
    roles = {"scale": core.ARG_SCALE, "shift": core.ARG_SHIFT}
    kernel = core.Normalization(
        "norm", desc, desc, statistics, **own, epsilon=0.01, threads=threads, isa=isa
    )
    result, arguments = np.empty_like(bytes_), {roles[name]: row for name in own}
    run(kernel, {core.ARG_SRC: bytes_, **arguments}, result, threads)
    np.testing.assert_allclose(result, wanted.transpose(order), rtol=2e-5, atol=1e-5)
    one = core.Normalization(
        "norm", desc, desc, statistics, **own, epsilon=0.01, threads=1, isa=isa
    )
    same = np.empty_like(bytes_)
    run(one, {core.ARG_SRC: bytes_, **arguments}, same, 1)
    np.testing.assert_array_equal(result, same)


@given(
    slabs=st.integers(1, 12),
    length=st.one_of(st.integers(2, 140), st.integers(250, 600)),
    width=st.one_of(st.integers(2, 17), st.integers(18, 150)),
    algorithm=st.sampled_from(["softmax", "log_softmax"]),
    isa=st.sampled_from(ISAS),
    threads=st.integers(1, 3),
)
def test_rows_side_by_side(
    slabs: int, length: int, width: int, algorithm: str, isa: str, threads: int
) -> None:
    x = 3 * drawn((slabs, length, width))
    desc, bytes_ = stored(x, (0, 1, 2))
    statistics = stored(np.empty((slabs, 1, width), np.float32), (0, 1, 2))[0]
    wanted = NORMS[algorithm](x.astype(np.float64), (1,))
    kernel = core.Normalization(algorithm, desc, desc, statistics, threads=threads, isa=isa)
    result = np.empty_like(bytes_)
    run(kernel, {core.ARG_SRC: bytes_}, result, threads)
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=4e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", [2, 3, 4, 6, 8, 11, 16, 20, 64, 70])
@pytest.mark.parametrize("algorithm", ["softmax", "log_softmax"])
def test_infinities_and_nan_of_rows_side_by_side(algorithm: str, width: int, isa: str) -> None:
    """Masked elements are exact zeros; what has no softmax is NaN, and no neighbor is."""
    x = 3 * drawn((9, 21, width))
    x[0, 1:, 0] = -np.inf
    x[1, 20, width // 2] = np.nan
    x[2, -1, -1] = np.inf
    x[3, :, 1] = -np.inf
    x[4, -1, 0] = -np.inf
    desc, bytes_ = stored(x, (0, 1, 2))
    statistics = stored(np.empty((9, 1, width), np.float32), (0, 1, 2))[0]
    kernel = core.Normalization(algorithm, desc, desc, statistics, threads=1, isa=isa)
    result = np.empty_like(bytes_)
    run(kernel, {core.ARG_SRC: bytes_}, result, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        wanted = NORMS[algorithm](x.astype(np.float64), (1,))
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("length", [3, 16, 49, 196])
@pytest.mark.parametrize("algorithm", ["softmax", "log_softmax"])
def test_rows_with_infinities_and_nan(algorithm: str, length: int, isa: str) -> None:
    """Masked elements are exact zeros; what has no softmax is NaN, and no other row is."""
    x = 3 * drawn((6, length))
    x[0, 1:] = -np.inf
    x[1, length // 2] = np.nan
    x[2, -1] = np.inf
    x[3] = -np.inf
    x[4, -1] = -np.inf
    desc, bytes_ = stored(x, (0, 1))
    statistics = stored(np.empty((6, 1), np.float32), (0, 1))[0]
    kernel = core.Normalization(algorithm, desc, desc, statistics, threads=1, isa=isa)
    result = np.empty_like(bytes_)
    run(kernel, {core.ARG_SRC: bytes_}, result, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        wanted = NORMS[algorithm](x.astype(np.float64), (1,))
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=3e-6)


@given(
    shape=st.tuples(
        st.sampled_from([1, 2]), st.sampled_from([1, 3, 16, 20, 40]),
        st.sampled_from([1, 5]), st.sampled_from([1, 13]),
    ),
    gone=st.sets(st.integers(0, 3)),
    block=st.sampled_from([8, 16]),
    algorithm=st.sampled_from([*sorted(ALGORITHMS), *sorted(NORMS)]),
    keeps_blocks=st.booleans(),
    isa=st.sampled_from(ISAS),
    threads=st.integers(1, 3),
)  # fmt: skip
@example((1, 20, 1, 1), {1, 3}, 16, "norm", False, "portable", 1)  # sanitizers: rows end early
def test_blocks_of_channels_with_padding(
    shape: tuple[int, ...],
    gone: set[int],
    block: int,
    algorithm: str,
    keeps_blocks: bool,
    isa: str,
    threads: int,
) -> None:
    x = np.abs(drawn(shape)) if algorithm == "log_sum" else drawn(shape)
    desc, bytes_ = blocked(x, block)
    axes = tuple(sorted(gone))
    if algorithm in ALGORITHMS:
        wanted = ALGORITHMS[algorithm](x.astype(np.float64), axis=axes, keepdims=True)
        wanted = np.asarray(wanted, np.float32)
        place = blocked(wanted, block) if keeps_blocks else stored(wanted, (0, 1, 2, 3))
        found = reduced(algorithm, (desc, bytes_), place, threads, isa)
        np.testing.assert_allclose(found, place[1], rtol=4e-6, atol=2e-5)
        return
    kept = np.empty(without(shape, axes), np.float32)
    statistics = (blocked(kept, block) if keeps_blocks else stored(kept, (0, 1, 2, 3)))[0]
    row = np.linspace(1, 2, shape[1], dtype=np.float32).reshape(1, -1, 1, 1)
    scale = stored(row, (0, 1, 2, 3))
    own = {"scale": scale[0], "shift": scale[0]} if algorithm == "norm" else {}
    kernel = core.Normalization(
        algorithm, desc, desc, statistics, **own, epsilon=0.01, threads=threads, isa=isa
    )
    result = np.empty_like(bytes_)
    extra = {core.ARG_SCALE: scale[1], core.ARG_SHIFT: scale[1]} if own else {}
    run(kernel, {core.ARG_SRC: bytes_, **extra}, result, threads)
    wanted = NORMS[algorithm](x.astype(np.float64), axes)
    wanted = wanted * row + row if own else wanted
    np.testing.assert_allclose(result, blocked(wanted, block)[1], rtol=1e-5, atol=4e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (0, 2, 1)])
@pytest.mark.parametrize("gone", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("algorithm", [*sorted(ALGORITHMS), *sorted(NORMS)])
def test_any_number_of_threads_gives_the_same_bits(
    algorithm: str, gone: tuple[int, ...], order: tuple[int, ...], isa: str
) -> None:
    # Few results, of so many elements that tasks are cut into slices.
    shape = (130, 9, 301)
    x = np.random.default_rng(0).uniform(0.9, 1.1, shape).astype(np.float32)
    desc, bytes_ = stored(x, order)
    place = stored(np.empty(without(shape, gone), np.float32), (0, 1, 2))
    found: set[bytes] = set()
    for threads in (1, 2, 3):
        if algorithm in ALGORITHMS:
            result = reduced(algorithm, (desc, bytes_), place, threads, isa)
        else:
            kernel = core.Normalization(
                algorithm, desc, desc, place[0], epsilon=0.01, threads=threads, isa=isa
            )
            result = np.empty_like(bytes_)
            run(kernel, {core.ARG_SRC: bytes_}, result, threads)
        found.add(result.tobytes())
    assert len(found) == 1
    exact = x.astype(np.float64)
    if algorithm == "mul":
        wanted = np.prod(exact, gone, keepdims=True).astype(np.float32)
        np.testing.assert_allclose(result, wanted, rtol=1e-3)
    elif algorithm in ALGORITHMS:
        wanted = ALGORITHMS[algorithm](exact, axis=gone, keepdims=True)
        np.testing.assert_allclose(result, wanted, rtol=1e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("algorithm", [*sorted(ALGORITHMS), *sorted(NORMS)])
def test_nan_and_infinity_are_those_of_numpy(algorithm: str, axis: int, isa: str) -> None:
    special = [np.nan, np.inf, -np.inf, 1.0, -1.0, 0.0]
    x = np.ones((len(special) ** 2 + 2, 21), np.float32)
    for row, (first, second) in enumerate((a, b) for a in special for b in special):
        x[row, 3], x[row, 18] = first, second
    x[-2:] = np.array([-np.inf, np.inf])[:, None]
    x = np.ascontiguousarray(x.T) if axis == 0 else x
    with np.errstate(all="ignore"):
        if algorithm in ALGORITHMS:
            wanted = ALGORITHMS[algorithm](x.astype(np.float64), axis=(axis,), keepdims=True)
            place = stored(np.asarray(wanted, np.float32), (0, 1))
            found = reduced(algorithm, stored(x, (0, 1)), place, 1, isa)
        else:
            wanted = NORMS[algorithm](x.astype(np.float64), (axis,))
            statistics = core.MemoryDesc(without(x.shape, (axis,)), "f32", "ab")
            desc = stored(x, (0, 1))[0]
            kernel = core.Normalization(
                algorithm, desc, desc, statistics, epsilon=0.01, threads=1, isa=isa
            )
            found = np.empty_like(x)
            run(kernel, {core.ARG_SRC: x}, found, 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "source", "result", "match"),
    [
        ("median", (4, 4), (4, 1), "no algorithm median"),
        ("sum", (4, 4), (4,), "different ranks"),
        ("sum", (4, 4), (2, 4), "expected an extent of 1 or 4, got 2"),
    ],
)
def test_what_is_no_reduction(
    algorithm: str, source: tuple[int, ...], result: tuple[int, ...], match: str
) -> None:
    descs = [core.MemoryDesc(dims, "f32", "abcd"[: len(dims)]) for dims in (source, result)]
    with pytest.raises(ValueError, match=match):
        core.Reduction(algorithm, *descs, threads=1)
    with pytest.raises(ValueError, match=match):
        core.Normalization(algorithm, descs[0], *descs, threads=1)


def test_what_is_no_normalization() -> None:
    desc, row = core.MemoryDesc((4, 4), "f32", "ab"), core.MemoryDesc((4, 1), "f32", "ab")
    with pytest.raises(ValueError, match="no algorithm sum"):
        core.Normalization("sum", desc, desc, row, threads=1)
    with pytest.raises(ValueError, match="no scale or shift of softmax"):
        core.Normalization("softmax", desc, desc, row, row, threads=1)
    with pytest.raises(ValueError, match="there are no sse kernels here"):
        core.Reduction("sum", desc, row, threads=1, isa="sse")
