"""Elementwise operators of two operands by kernels of our own: any broadcast, any format."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.runtime.binding.library import load_core

core = load_core()
ALGORITHMS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "max": np.maximum, "min": np.minimum,
}  # fmt: skip
ARENA, INPUTS, OUTPUTS = 0, 2, 3


def strides_of(shape: tuple[int, ...], order: tuple[int, ...]) -> list[int]:
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return strides


def stored(array: np.ndarray, order: tuple[int, ...]) -> tuple[Any, np.ndarray]:
    """Return the description of an array stored in an order of its axes, and its bytes."""
    desc = core.MemoryDesc.strided(array.shape, "f32", strides_of(array.shape, order))
    return desc, np.ascontiguousarray(array.transpose(order))


def run(kernel: Any, arrays: list[np.ndarray], result: np.ndarray, threads: int) -> None:
    """Run a kernel over memory full of NaN."""
    program = core.Program(0, [], [a.nbytes for a in arrays], [result.nbytes], threads)
    args = [
        (core.ARG_SRC, kernel.arg_desc(core.ARG_SRC), INPUTS, 0, 0),
        (core.ARG_SRC_1, kernel.arg_desc(core.ARG_SRC_1), INPUTS, 1, 0),
        (core.ARG_DST, kernel.arg_desc(core.ARG_DST), OUTPUTS, 0, 0),
    ]
    program.add_primitive(kernel, args)
    program.freeze()
    result.fill(np.nan)
    program.run(arrays, [result])


@st.composite
def cases(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    rank = draw(st.integers(1, 5))
    shape = tuple(draw(st.sampled_from([1, 2, 3, 7, 16, 33])) for _ in range(rank))
    operands = []
    for _ in range(2):
        kept = [draw(st.booleans()) for _ in shape]
        operands.append(tuple(n if keep else 1 for n, keep in zip(shape, kept, strict=True)))
    result = tuple(np.broadcast_shapes(*operands))
    return operands[0], operands[1], result


@given(
    shapes=cases(),
    algorithm=st.sampled_from(sorted(ALGORITHMS)),
    isa=st.sampled_from(core.pointwise_isas()),
    threads=st.integers(1, 4),
    data=st.data(),
)
def test_every_broadcast_in_every_order_is_that_of_numpy(
    shapes: tuple[tuple[int, ...], ...], algorithm: str, isa: str, threads: int, data: Any
) -> None:
    rng = np.random.default_rng(0)
    first, second, shape = shapes
    a, b = (rng.uniform(0.5, 2, s).astype(np.float32) for s in (first, second))
    orders = list(permutations(range(len(shape))))
    desc_a, bytes_a = stored(a, data.draw(st.sampled_from(orders)))
    desc_b, bytes_b = stored(b, data.draw(st.sampled_from(orders)))
    order = data.draw(st.sampled_from(orders))
    wanted = ALGORITHMS[algorithm](a, b)
    desc, result = stored(np.empty(shape, np.float32), order)
    kernel = core.Pointwise(algorithm, desc_a, desc_b, desc, threads=threads, isa=isa)
    assert kernel.impl == f"pointwise:{isa}"
    run(kernel, [bytes_a, bytes_b], result, threads)
    np.testing.assert_array_equal(result, wanted.transpose(order))


@pytest.mark.parametrize("isa", core.pointwise_isas())
@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize("second", [(2, 32, 1, 1), (1, 32, 1, 1), (2, 1, 5, 3), (1, 1, 1, 3)])
@pytest.mark.parametrize("blocked", [True, False])
def test_blocks_of_channels(blocked: bool, second: tuple[int, ...], block: int, isa: str) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((2, 32, 5, 3)).astype(np.float32)
    b = rng.standard_normal(second).astype(np.float32)
    tag = f"aBcd{block}b"

    def in_blocks(array: np.ndarray) -> np.ndarray:
        n, c, h, w = array.shape
        if c == 1:  # a block with one channel and zeros
            array = np.concatenate([array, np.zeros((n, block - 1, h, w), np.float32)], 1)
            c = block
        return np.ascontiguousarray(
            array.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2)
        )

    result = np.empty_like(in_blocks(a))
    other = core.MemoryDesc(b.shape, "f32", tag if blocked else "abcd")
    desc = core.MemoryDesc(a.shape, "f32", tag)
    kernel = core.Pointwise("sub", desc, other, desc, threads=2, isa=isa)
    run(kernel, [in_blocks(a), in_blocks(b) if blocked else b], result, 2)
    np.testing.assert_array_equal(result, in_blocks(a - b))


@pytest.mark.parametrize("isa", core.pointwise_isas())
def test_nan_of_either_operand_is_the_result(isa: str) -> None:
    values = np.array([np.nan, 1, -np.inf, np.inf, 0], np.float32)
    a, b = (np.ascontiguousarray(x) for x in np.broadcast_arrays(values[:, None], values[None]))
    for algorithm in ("max", "min"):
        desc, result = stored(np.empty_like(a), (0, 1))
        kernel = core.Pointwise(algorithm, desc, desc, desc, threads=1, isa=isa)
        run(kernel, [a, b], result, 1)
        np.testing.assert_array_equal(result, ALGORITHMS[algorithm](a, b))


@pytest.mark.parametrize(
    ("operands", "reason"),
    [
        ((("f32", (2, 3), "ab"), ("f32", (2, 2), "ab"), ("f32", (2, 3), "ab")),
         "an extent of 1 or 3, got 2"),
        ((("f32", (2, 3), "ab"), ("f32", (3,), "a"), ("f32", (2, 3), "ab")), "different ranks"),
        ((("f32", (1, 20, 2, 2), "aBcd16b"),) * 3, "a format without padding"),
        ((("f32", (1, 32, 2, 2), "aBcd8b"), ("f32", (1, 32, 1, 1), "abcd"),
          ("f32", (1, 32, 2, 2), "aBcd16b")), "the blocks of the result, or none"),
        ((("bf16", (2, 3), "ab"),) * 3, "expected float32 in a known format"),
        ((("f32", (2, 3), "any"), ("f32", (2, 3), "ab"), ("f32", (2, 3), "ab")), "a known format"),
    ],
)  # fmt: skip
def test_what_is_refused(operands: Any, reason: str) -> None:
    descs = [core.MemoryDesc(dims, dtype, tag) for dtype, dims, tag in operands]
    with pytest.raises(ValueError, match=reason):
        core.Pointwise("add", *descs, threads=1)
    plain = core.MemoryDesc((2, 3), "f32", "ab")
    with pytest.raises(ValueError, match="there is no algorithm pow"):
        core.Pointwise("pow", plain, plain, plain, threads=1)
    with pytest.raises(ValueError, match="there are no sse kernels here"):
        core.Pointwise("add", plain, plain, plain, threads=1, isa="sse")
