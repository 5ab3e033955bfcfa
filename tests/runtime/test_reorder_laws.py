"""Laws of reorders: every engine moves bytes as the reference does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.formats_strategies import formats

import stridewise as sw
from stridewise.dtypes import DType
from stridewise.errors import FormatError
from stridewise.formats import Format, Pitch, offsets
from stridewise.tensor.reorder import reference_reorder

from .reorder_cases import ENGINES, Array, bits, desc, dirty, pairs, stored

# --- laws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["u8", "f16", "f32", "f64"])
@settings(max_examples=150)
@given(data=st.data())
def test_every_engine_moves_bytes_as_the_reference_does(data, dtype):
    src, dst = data.draw(pairs(dtype=dtype))
    array = stored(src)
    expected = reference_reorder(array, src, dst)
    for engine in ENGINES:
        out = dirty(dst)
        assert sw.Reorder(src, dst, engine=engine)(array, out) is out
        np.testing.assert_array_equal(bits(out), bits(expected), engine)


@given(pairs())
def test_there_and_back_is_identity(pair):
    src, dst = pair
    array = np.zeros(src.storage.shape, np.float32)
    flat = array.reshape(-1)
    places = offsets(src.storage.format, src.canonical_shape)
    flat[places] = np.arange(1, places.size + 1, dtype=np.float32).reshape(places.shape)
    there = sw.reorder(array, src, dst)
    np.testing.assert_array_equal(sw.reorder(there, dst, src), array)


@given(st.data())
def test_reorders_compose(data):
    src, middle = data.draw(pairs())
    fmt = data.draw(formats(src.storage.format.axes))
    try:
        dst = desc(src.canonical_shape, "f32", fmt)
    except FormatError:
        assume(False)
        raise
    array = stored(src)
    direct = sw.reorder(array, src, dst)
    np.testing.assert_array_equal(
        bits(sw.reorder(sw.reorder(array, src, middle), middle, dst)), bits(direct)
    )


@given(pairs())
def test_padding_is_zero_whatever_the_destination_held(pair):
    src, dst = pair
    out = sw.reorder(stored(src), src, dst, out=dirty(dst))
    padding = np.ones(out.size, bool)
    padding[offsets(dst.storage.format, dst.canonical_shape).ravel()] = False
    assert not bits(out.reshape(-1)[padding]).any()


@st.composite
def framed(draw: Any, shape: tuple[int, ...], dtype: DType) -> tuple[Array, Array]:
    """Return an array with strides, and the whole that it is part of."""
    starts = [draw(st.integers(0, 2)) for _ in shape]
    steps = [draw(st.integers(1, 2)) for _ in shape]
    ends = [draw(st.integers(0, 1)) for _ in shape]
    whole_shape = [
        s + n * step + e for s, n, step, e in zip(starts, shape, steps, ends, strict=True)
    ]
    order = draw(st.permutations(range(len(shape))))
    whole = np.full([whole_shape[axis] for axis in order], 77, dtype.numpy)
    turned = whole.transpose(np.argsort(order))
    part = turned[
        tuple(slice(s, s + n * step, step) for s, n, step in zip(starts, shape, steps, strict=True))
    ]
    return part, whole


@settings(max_examples=150)
@given(st.data())
def test_views_are_read_and_written_in_place(data):
    src, dst = data.draw(pairs())
    gaps = [d for d in (src, dst) if any(isinstance(i, Pitch) for i in d.storage.format.digits)]
    assume(not gaps)  # they must be dense, as their storage shape hides strides
    array, _ = data.draw(framed(src.storage.shape, src.dtype))
    array[...] = np.arange(array.size).reshape(array.shape)
    out, whole = data.draw(framed(dst.storage.shape, dst.dtype))
    expected = reference_reorder(array, src, dst)
    sw.reorder(array, src, dst, out=out)
    np.testing.assert_array_equal(out, expected)
    # Nothing beside the view was touched.
    out[...] = 77
    assert (whole == 77).all()


TAGS = ["nchw", "nhwc", "chwn", "nChw4c", "nChw8c", "nChw16c", "NChw16n16c"]


@given(
    st.sampled_from(TAGS),
    st.sampled_from(TAGS),
    st.tuples(*[st.integers(1, 19), st.integers(1, 40), st.integers(1, 5), st.integers(1, 5)]),
)
def test_onednn_moves_bytes_as_we_do(before, after, shape):
    src, dst = (desc(shape, "f32", Format.parse(tag)) for tag in (before, after))
    # oneDNN assumes that the padding of a source is zero, as all kernels may.
    array = sw.reorder(stored(desc(shape, "f32", Format.parse("nchw"))), "nchw", src)
    run = sw.Reorder(src, dst, engine="onednn")
    np.testing.assert_array_equal(bits(run(array)), bits(reference_reorder(array, src, dst)))


SWIZZLED = "os_is_yx_osa4_isa8_osv8_isv4_swizzled_by_4"

REAL = [
    ("NCHW", "NHWC", (2, 37, 19, 23)),
    ("NHWC", "NCHW", (2, 37, 19, 23)),
    ("NCHW", "NHWC", (2, 3, 30, 30)),
    ("NCHW", "nChw16c", (2, 3, 30, 30)),
    ("NHWC", "nChw16c", (2, 17, 15, 14)),
    ("nChw16c", "NCHW", (3, 20, 11, 13)),
    ("nChw16c", "nChw8c", (2, 40, 9, 9)),
    ("nChw8c", "nChw16c", (2, 40, 9, 9)),
    ("nChw16c", "NChw16n16c", (18, 33, 5, 5)),
    ("NCHW", "N,C,H,W: walk C H W N 16*N 16*C", (40, 24, 3, 3)),
    ("NCHW", "N,C,H,W: fuse K = H W C; walk K N 16*N 16*K; pad C 4", (33, 3, 7, 7)),
    ("nChw16c", "N,C,H,W: walk N C H W 24*C", (2, 100, 4, 4)),
    ("NCHW", "N,C,H,W: walk N C H |16 W", (2, 3, 9, 21)),
    ("NCHW", "N,C,H,W: walk W H C N", (5, 70, 12, 90)),
    ("NCHW", "NCHW", (1, 3, 101, 170)),
    ("HWIO", SWIZZLED, (70, 40, 3, 3)),
    (SWIZZLED, "HWIO", (70, 40, 3, 3)),
    ("os_iyx_osv32__ai32", SWIZZLED, (64, 36, 3, 3)),
    ("NCHW", "bs_fs_yx_bsv32_fsv16", (16, 32, 9, 7)),
    ("NHWC", "NChw16n16c", (40, 16, 5, 6)),
]


@pytest.mark.parametrize("engine", ["auto", *ENGINES])
@pytest.mark.parametrize(("src", "dst", "shape"), REAL)
@pytest.mark.parametrize("dtype", ["u8", "bf16", "f32", "f64"])
def test_shapes_larger_than_a_tile(src, dst, shape, dtype, engine):
    a, b = (desc(shape, dtype, Format.parse(name)) for name in (src, dst))
    array = stored(a)
    found = sw.Reorder(a, b, engine=engine, threads=2)(array, dirty(b))
    np.testing.assert_array_equal(bits(found), bits(reference_reorder(array, a, b)))


FAR_ROWS = [
    ("NCHW", "NHWC", (2, 128, 16, 20)),
    ("NCHW", "NHWC", (1, 256, 48, 64)),
    ("NCHW", "NHWC", (1, 160, 26, 24)),
    ("NCHW", "NHWC", (1, 512, 64, 64)),
    ("NHWC", "NCHW", (1, 192, 24, 32)),
    ("nChw4c", "chwn", (128, 256, 3, 3)),
]


@pytest.mark.parametrize("engine", ["cached", "streaming"])
@pytest.mark.parametrize(("src", "dst", "shape"), FAR_ROWS)
@pytest.mark.parametrize("dtype", ["u8", "bf16", "f32", "f64"])
def test_many_long_rows_far_apart(src, dst, shape, dtype, engine):
    a, b = (desc(shape, dtype, Format.parse(name)) for name in (src, dst))
    array = stored(a)
    found = sw.Reorder(a, b, engine=engine, threads=2)(array, dirty(b))
    np.testing.assert_array_equal(bits(found), bits(reference_reorder(array, a, b)))


SMALL_TILES = [
    ("OIhw8i8o", "os_is_yx_osa4_isa8_osv8_isv4_swizzled_by_4", (64, 64, 3, 3)),
    ("OIhw8i16o2i", "os_is_yx_osa4_isa8_osv8_isv4_swizzled_by_4", (64, 64, 3, 3)),
    ("OIhw8i16o2i", "os_iyx_osv32__ai32", (64, 48, 3, 3)),
    ("OIhw8i16o2i", "OIHW", (32, 32, 3, 1)),
    ("OIhw4i16o4i", "IOHW", (32, 32, 3, 1)),
    ("yxfb", "bs_fs_yx_bsv4_fsv2", (16, 24, 5, 7)),
    ("bs_fs_yx_bsv4_fsv2", "yxfb", (16, 24, 5, 7)),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("src", "dst", "shape"), SMALL_TILES)
@pytest.mark.parametrize("dtype", ["u8", "f16", "f32", "f64"])
def test_many_small_tiles_are_shared_by_threads(src, dst, shape, dtype, engine):
    a, b = (desc(shape, dtype, Format.parse(name)) for name in (src, dst))
    array = stored(a)
    expected = reference_reorder(array, a, b)
    for threads in (1, 2, 3):
        found = sw.Reorder(a, b, engine=engine, threads=threads)(array, dirty(b))
        np.testing.assert_array_equal(bits(found), bits(expected))
