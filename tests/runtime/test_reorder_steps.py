"""Reorders as steps of programs: the native core writes the bytes that the library writes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewise.dtypes import dtype_of
from stridewise.formats import parse
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.primitives import create, implementations
from stridewise.runtime.binding.reorders import best_isa
from stridewise.targets.kernels import KernelSpec, MemorySpec

CORE = load_core()
DTYPES = (dtype_of("f32"), dtype_of("bf16"))
TAGS = ("abcd", "acdb", "aBcd8b", "aBcd16b", "acbd", "ABcd16b16a")


def run(spec: KernelSpec, implementation: str, threads: int, x: np.ndarray) -> np.ndarray:
    kernel = create(spec, implementation, threads)
    source, destination = kernel.arg_desc(CORE.ARG_SRC), kernel.arg_desc(CORE.ARG_DST)
    stored = dtype_of(dict(spec.memories)["dst"].dtype)
    unwritten = np.nan if stored.itemsize > 1 else 77
    y = np.full(destination.nbytes // stored.itemsize, unwritten, stored.numpy)
    scratch = kernel.scratchpad_nbytes
    program = CORE.Program(scratch, [], [x.nbytes], [y.nbytes], threads)
    args = [(CORE.ARG_SRC, source, 2, 0, 0), (CORE.ARG_DST, destination, 3, 0, 0)]
    if scratch:
        args.append((CORE.ARG_SCRATCHPAD, kernel.arg_desc(CORE.ARG_SCRATCHPAD), 0, 0, 0))
    program.add_primitive(kernel, args)
    program.freeze()
    program.poison = True
    program.run([x.view(np.uint8)], [y.view(np.uint8)])
    return y


@settings(deadline=None, max_examples=60)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 9), st.integers(1, 9)),
    st.sampled_from(TAGS),
    st.sampled_from(TAGS),
    st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    st.integers(1, 3),
)
def test_all_implementations_of_a_reorder_write_the_same_bytes(dims, source, goal, types, threads):
    given_as, stored_as = types
    sides = (
        ("src", MemorySpec(dims, source, dtype=given_as.short)),
        ("dst", MemorySpec(dims, goal, dtype=stored_as.short)),
    )
    spec = KernelSpec("reorder", sides)
    fmt = parse(source, "onednn")
    x = np.zeros(fmt.nbytes(dims, given_as) // given_as.itemsize, given_as.numpy)
    logical = np.random.default_rng(0).standard_normal(dims, np.float32).astype(given_as.numpy)
    for index in np.ndindex(*dims):
        x[fmt.offset(index, dims)] = logical[index]
    names = implementations(spec, threads)
    assert names[-1].startswith("reorder:")
    results = {name: run(spec, name, threads, x) for name in names}
    wanted = parse(goal, "onednn")
    for index in np.ndindex(*dims):
        right = logical[index].astype(stored_as.numpy)
        assert results[names[-1]][wanted.offset(index, dims)] == right
    for found in results.values():
        np.testing.assert_array_equal(found.view(np.uint8), results[names[0]].view(np.uint8))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.data(),
    st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    st.integers(1, 3),
)
def test_strided_copies_write_what_numpy_writes(dims, data, types, threads):
    given_as, stored_as = types
    memories, orders, gaps = [], [], []
    for dtype in types:
        order = data.draw(st.permutations(range(len(dims))))
        gap = data.draw(st.integers(0, 2))
        strides, step = [0] * len(dims), 1
        for axis in reversed(order):
            strides[axis] = step
            step *= dims[axis] + gap
        memories.append(MemorySpec(tuple(dims), strides=tuple(strides), dtype=dtype.short))
        orders.append(order)
        gaps.append(step)
    spec = KernelSpec("reorder", (("src", memories[0]), ("dst", memories[1])))
    x = np.random.default_rng(0).standard_normal(gaps[0], np.float32).astype(given_as.numpy)
    (name,) = [item for item in implementations(spec, threads) if item.startswith("reorder:")]
    found = run(spec, name, threads, x)

    def seen(array: np.ndarray, memory: MemorySpec) -> np.ndarray:
        strides = [stride * array.itemsize for stride in memory.strides]
        return np.lib.stride_tricks.as_strided(array, dims, strides)

    wanted = seen(x, memories[0]).astype(stored_as.numpy)
    np.testing.assert_array_equal(seen(found, memories[1]), wanted)
    assert np.isnan(found.astype(np.float32)).sum() == found.size - wanted.size


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 12), min_size=2, max_size=4), st.data(), st.integers(1, 3))
def test_a_rearrangement_makes_all_of_its_copies(dims, data, threads):
    """Cut a tensor in two along an axis, and swap the halves of its transpose."""
    axis = data.draw(st.integers(0, len(dims) - 1))
    perm = data.draw(st.permutations(range(len(dims))))
    x = np.random.default_rng(0).standard_normal(dims, np.float32)
    cut = data.draw(st.integers(0, dims[axis]))
    wanted = np.ascontiguousarray(np.roll(x, -cut, axis).transpose(perm))
    given_steps = [step // 4 for step in x.strides]
    steps = [wanted.strides[perm.index(at)] // 4 for at in range(len(dims))]
    numbers: list[int] = []
    for begin, extent, place in ((cut, dims[axis] - cut, 0), (0, cut, dims[axis] - cut)):
        if extent == 0:
            continue
        numbers += (len(dims), begin * given_steps[axis], place * steps[axis])
        for at, whole in enumerate(dims):
            numbers += (extent if at == axis else whole, given_steps[at], steps[at])
    flat = MemorySpec((x.size,), "a")
    boxes = (("boxes", tuple(numbers)),)
    spec = KernelSpec("rearrange", (("src", flat), ("dst", flat)), boxes)
    (name,) = implementations(spec, threads)
    np.testing.assert_array_equal(run(spec, name, threads, x), wanted.reshape(-1))


@pytest.mark.parametrize("dtype", ["s8", "u8"])
@pytest.mark.parametrize(("channels", "is_own"), [(32, True), (24, False)])
def test_bytes_of_whole_blocks_are_moved_by_the_core(dtype, channels, is_own):
    dims = (2, channels, 5, 7)
    sides = (("src", MemorySpec(dims, "aBcd16b", dtype=dtype)),)
    sides += (("dst", MemorySpec(dims, "acdb", dtype=dtype)),)
    kernel = create(KernelSpec("reorder", sides), "", 2)
    assert kernel.impl.startswith("reorder:") == (is_own and best_isa() != "portable")
    fmt = parse("aBcd16b", "onednn")
    logical = np.random.default_rng(0).integers(0, 127, dims).astype(dtype_of(dtype).numpy)
    x = np.zeros(fmt.nbytes(dims, dtype_of(dtype)), dtype_of(dtype).numpy)
    for index in np.ndindex(*dims):
        x[fmt.offset(index, dims)] = logical[index]
    for name in ("", *implementations(KernelSpec("reorder", sides), 2)):
        found = run(KernelSpec("reorder", sides), name, 2, x)
        np.testing.assert_array_equal(
            found.reshape(2, 5, 7, channels), logical.transpose(0, 2, 3, 1)
        )
