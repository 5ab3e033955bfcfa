"""The native reorder by itself."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.dtypes import dtype_of
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.reorder_kernels import core_reorder
from stridewise.tensor.moves import Move, Moves, Nest

# --- the native core by itself --------------------------------------------------------------------


def native(**changes: Any) -> Any:
    core = load_core()
    tile: dict[str, Any] = {
        "is_zero": False,
        "is_runs": False,
        "src": 0,
        "dst": 0,
        "scale": 0,
        "loops": [],
        "width": 1,
        "zeros": 0,
        "width_scale": 0,
        "rows": [0, 4],
        "row_scales": [0, 0],
        "columns": [0, 2, 4, 6],
        "column_scales": [],
    }
    options: dict[str, Any] = {
        "src_itemsize": 4,
        "dst_itemsize": 4,
        "conversion": None,
        "scales": [],
        "src_nbytes": 32,
        "dst_nbytes": 32,
        "fill_nbytes": 0,
        "isa": "portable",
    }
    tile |= {key: value for key, value in changes.items() if key in tile}
    options |= {key: value for key, value in changes.items() if key in options}
    return core.Reorder([(changes.get("around", []), [tile])], **options)


def test_the_core_transposes_a_small_matrix():
    src = np.arange(8, dtype=np.float32)
    dst = np.zeros(8, np.float32)
    assert native().run(src, dst, 1, False, False)
    np.testing.assert_array_equal(dst, src.reshape(2, 4).T.ravel())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"src_nbytes": 28}, "a loop leaves the source"),
        ({"dst_nbytes": 28}, "a loop leaves the destination"),
        ({"rows": [0, -1]}, "a loop leaves the source"),
        ({"columns": [0, 2, 4, 7]}, "a loop leaves the destination"),
        ({"rows": []}, "expected rows and columns"),
        ({"width": 0}, "expected runs of at least one element"),
        ({"zeros": 1}, "a loop leaves the destination"),
        ({"width": 3, "src_nbytes": 999, "dst_nbytes": 999}, "no kernel for this width"),
        ({"loops": [(2, 8, 8, 0)]}, "a loop leaves the source"),
        ({"loops": [(0, 0, 0, 0)]}, "loops of at least one round"),
        ({"around": [(2**62, 2**62, 0, 0)]}, "an offset is out of range"),
        ({"row_scales": [0]}, "one scale for each row and column"),
        ({"src_itemsize": 2}, "one itemsize where nothing is converted"),
        ({"conversion": ("f32", "f64")}, "conversion: expected f32, f16, bf16, s8, u8 or s32"),
        ({"scales": [[1.0]]}, "scales: expected none or four lists"),
        ({"scales": [[1.0], [1.0], [1.0], [1.0]]}, "scales and zero points of one size"),
        (
            {"conversion": ("f32", "f32"), "scales": [[1.0] * 2] * 4, "row_scales": [0, 2]},
            "a loop leaves the scales",
        ),
        ({"fill_nbytes": 64}, "expected sizes of at least 0"),
        ({"isa": "abacus"}, "isa: expected one that reorder_isas() lists, got 'abacus'"),
    ],
)
def test_the_core_refuses_what_would_leave_memory(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        native(**changes)


def test_the_core_refuses_arrays_that_are_too_small_or_overlap():
    run = native()
    x = np.zeros(8, np.float32)
    with pytest.raises(ValueError, match="src: expected at least 32 bytes, got 16"):
        run.run(x[:4], np.zeros(8, np.float32), 1, False, False)
    with pytest.raises(ValueError, match="dst: expected at least 32 bytes, got 16"):
        run.run(x, np.zeros(4, np.float32), 1, False, False)
    assert not run.run(x, x, 1, False, False)


@st.composite
def strided(draw: Any, extents: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """Return the elements of a memory, and strides of an array in it without overlaps."""
    strides, span = [0] * len(extents), 1
    for axis in draw(st.permutations(range(len(extents)))):
        strides[axis] = span * draw(st.integers(1, 3))
        span = strides[axis] * extents[axis]
    return span, tuple(strides)


@given(
    st.data(),
    st.lists(st.integers(2, 40), min_size=1, max_size=3).map(tuple),
    st.sampled_from(["u8", "f16", "f32", "f64", "f32 bf16", "bf16 f32", "s8 f32"]),
)
def test_the_core_copies_between_elements_that_are_apart(data, extents, dtypes):
    types = [dtype_of(name) for name in dtypes.split()] * 2
    (before, given_as), (after, wanted) = data.draw(st.tuples(strided(extents), strided(extents)))
    loops = tuple(Move(*loop) for loop in zip(extents, given_as, wanted, strict=True))
    moves = Moves((Nest(0, 0, 0, loops),), fill=False)
    src = np.random.default_rng(0).integers(0, 100, before).astype(types[0].numpy)
    expected = np.full(after, 101, types[1].numpy)
    view(expected, extents, wanted)[...] = view(src, extents, given_as)
    sides = (types[0], src.nbytes), (types[1], expected.nbytes)
    for isa in load_core().reorder_isas():
        reorder = core_reorder(moves, *sides, scales=None, fill=False, isa=isa)
        for threads, stream in ((1, False), (2, True)):
            dst = np.full(after, 101, types[1].numpy)
            reorder.run(src.view(np.uint8), dst.view(np.uint8), threads, stream, False)
            np.testing.assert_array_equal(dst, expected)


def view(
    memory: np.ndarray[Any, Any], extents: tuple[int, ...], strides: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    steps = [stride * memory.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(memory, extents, steps)
