"""Reorders as steps of programs: the native core writes the bytes that the library writes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewise.dtypes import dtype_of
from stridewise.formats import parse
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.primitives import create, implementations
from stridewise.targets.kernels import KernelSpec, MemorySpec

CORE = load_core()
DTYPES = (dtype_of("f32"), dtype_of("bf16"))
TAGS = ("abcd", "acdb", "aBcd8b", "aBcd16b", "acbd", "ABcd16b16a")


def run(spec: KernelSpec, implementation: str, threads: int, x: np.ndarray) -> np.ndarray:
    kernel = create(spec, implementation, threads)
    source, destination = kernel.arg_desc(CORE.ARG_SRC), kernel.arg_desc(CORE.ARG_DST)
    stored = dtype_of(dict(spec.memories)["dst"].dtype)
    y = np.full(destination.nbytes // stored.itemsize, np.nan, stored.numpy)
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
