"""Reorders: the fast path against the NumPy reference, and what is refused."""

from __future__ import annotations

import re
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.formats_strategies import formats, shapes, simple_formats

import stridewise as sw
from stridewise.dtypes import DType, dtype_of
from stridewise.errors import FormatError, InputError
from stridewise.formats import Format, Pitch, element_count, names, offsets
from stridewise.formats.dialects.onednn import abstract_tag
from stridewise.runtime.binding.library import load_core
from stridewise.tensor.reorder import reference_reorder

ENGINES = ("cached", "streaming", "portable")
CONVERTIBLE = ("f32", "f16", "bf16", "s8", "u8", "s32")
Array = np.ndarray[Any, np.dtype[Any]]


def bits(array: Array) -> Array:
    """Return the bytes of an array, so that NaN equals itself."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def desc(shape: tuple[int, ...], dtype: str, fmt: Format) -> sw.TensorDesc:
    return sw.TensorDesc(shape, dtype, Format(fmt.axes, fmt.axes), fmt)


def stored(d: sw.TensorDesc, seed: int = 0) -> Array:
    """Return an array of any bits in the storage shape; where padding lies, anything may be."""
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, d.nbytes, np.uint8)
    return raw.view(d.dtype.numpy).reshape(d.storage.shape)


def dirty(d: sw.TensorDesc) -> Array:
    """Return an array full of NaN, or of ones in all bits; it begins with a cache line."""
    memory = np.full(d.nbytes + 64, 0xFF, np.uint8)
    begin = -memory.ctypes.data % 64
    return memory[begin : begin + d.nbytes].view(d.dtype.numpy).reshape(d.storage.shape)


@st.composite
def pairs(draw: Any, dtype: str = "f32") -> tuple[sw.TensorDesc, sw.TensorDesc]:
    f = draw(formats())
    g = draw(formats(f.axes))
    shape = draw(shapes(f))
    try:
        return desc(shape, dtype, f), desc(shape, dtype, g)
    except FormatError:
        assume(False)
        raise


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


# --- dtypes ---------------------------------------------------------------------------------------

SPECIAL = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, 128.0, -128.5, -129.0, 254.5, 255.5]
SPECIAL += [1e-8, 6e-8, 3e-5, 65504.0, 65519.0, 65520.0, 1e30, -1e30, np.inf, -np.inf, np.nan]
SPECIAL += [
    2147483520.0,
    2147483648.0,
    -2147483648.0,
    -2147483904.0,
    3.389e38,
    1.1754944e-38,
    1e-45,
]


def values(dtype: DType, count: int, seed: int = 0) -> Array:
    """Return values of any size, special ones among them."""
    rng = np.random.default_rng(seed)
    if dtype.short in ("f32", "f16", "bf16"):
        some = rng.standard_normal(count) * 10.0 ** rng.integers(-6, 6, count)
        some[: len(SPECIAL)] = SPECIAL[:count]
        with np.errstate(over="ignore"):
            return rng.permutation(some).astype(np.float32).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    return rng.integers(limits.min, limits.max, count, dtype.numpy, endpoint=True)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("src", "dst"), list(product(CONVERTIBLE, CONVERTIBLE)))
@pytest.mark.parametrize("fmt", ["NCHW", "NHWC", "nChw8c"])
def test_dtypes_are_converted_on_the_way(src, dst, fmt, engine):
    shape = (2, 19, 7, 5)
    a = desc(shape, src, Format.parse("NCHW"))
    b = desc(shape, dst, Format.parse(fmt))
    array = values(a.dtype, 2 * 19 * 35).reshape(shape)
    found = sw.Reorder(a, b, engine=engine)(array, dirty(b))
    expected = reference_reorder(array, a, b)
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))
    if src == dst:
        np.testing.assert_array_equal(bits(found), bits(expected))


LARGE = [
    ("NCHW", "NHWC", (2, 64, 20, 23)),
    ("NHWC", "NCHW", (2, 64, 20, 23)),
    ("NCHW", "nChw16c", (2, 48, 20, 23)),
    ("nChw16c", "nChw8c", (2, 48, 20, 23)),
    ("nChw8c", "nChw16c", (2, 48, 20, 23)),
    ("nChw16c", "NHWC", (2, 48, 20, 23)),
    ("OIHW", "OIhw16i16o", (48, 64, 3, 3)),
    ("OIHW", "OIhw16i16o", (32, 320, 1, 1)),
    ("NCHW", "FRACTAL_Z", (96, 64, 3, 3)),
    ("NCHW", "FRACTAL_Z", (48, 32, 5, 5)),
    ("b_fs_yx_fsv16", "bs_fs_yx_bsv16_fsv16", (32, 32, 8, 40)),
    ("bs_fs_yx_bsv16_fsv16", "b_fs_yx_fsv16", (32, 32, 8, 40)),
]
LONG_ROWS = [
    ("OIHW", "OIhw16i16o", (48, 80, 3, 3)),
    ("OIHW", "OIhw16i16o", (32, 64, 5, 5)),
    ("OIHW", "OIhw16i16o", (16, 48, 9, 10)),
    ("NCHW", "NHWC", (3, 16, 8, 32)),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("src", "dst", "shape"), LARGE + LONG_ROWS)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "s8", "u8"])
def test_shapes_larger_than_a_tile_are_converted(src, dst, shape, dtype, engine):
    a = desc(shape, "f32", Format.parse(src))
    b = desc(shape, dtype, Format.parse(dst, block=16 if dst == "FRACTAL_Z" else None))
    array = values(a.dtype, prod(shape)).reshape(a.storage.shape)
    found = sw.Reorder(a, b, engine=engine, threads=2)(array, dirty(b))
    expected = reference_reorder(array, a, b)
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


KERNELS = [(1, 3), (2, 4), (3, 3), (2, 5), (1, 11), (3, 5)]
MIXED = [
    *((src, dst, shape) for src, dst, shape in LARGE if shape[-1] > 20 or shape[-1] == 1),
    *(("NCHW", "FRACTAL_Z", (64, 32, *kernel)) for kernel in KERNELS),
    *LONG_ROWS,
]


@pytest.mark.parametrize("engine", ["cached", "streaming"])
@pytest.mark.parametrize(("src", "dst", "shape"), MIXED)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "s8", "u8"])
def test_blocks_of_ordinary_values_and_blocks_of_others_are_converted(
    src, dst, shape, dtype, engine
):
    """Vectors take a shorter way where nothing is NaN or far out of range; here most of them do."""
    a = desc(shape, "f32", Format.parse(src))
    b = desc(shape, dtype, Format.parse(dst, block=16 if dst == "FRACTAL_Z" else None))
    rng = np.random.default_rng(0)
    array = rng.integers(-300, 300, prod(shape)).astype(np.float32) / 2
    rare = [*SPECIAL, -np.nan, -32767.5, -32768.0, -32768.5, -32769.0, 32767.0, 32768.0]
    array[rng.choice(array.size, len(rare), replace=False)] = rare
    array = array.reshape(a.storage.shape)
    found = sw.Reorder(a, b, engine=engine, threads=2)(array, dirty(b))
    expected = reference_reorder(array, a, b)
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_all_values_of_half_the_width_survive_both_ways(dtype, engine):
    kind = dtype_of(dtype)
    every = np.arange(1 << 16, dtype=np.uint16).view(kind.numpy).reshape(256, 256)
    nc, wide, narrow = Format.parse("NC"), "f32", dtype
    up = sw.Reorder(desc((256, 256), narrow, nc), desc((256, 256), wide, nc), engine=engine)(every)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(up, every.astype(np.float32))
    down = sw.Reorder(desc((256, 256), wide, nc), desc((256, 256), narrow, nc), engine=engine)(up)
    known = ~np.isnan(up)
    np.testing.assert_array_equal(bits(down[known]), bits(every[known]))
    assert np.isnan(down[~known].astype(np.float32)).all()


def quantizations(dtype: str, channels: int, axis: str | None) -> sw.Quantization | None:
    if dtype not in ("s8", "u8", "s32"):
        return None
    if axis is None:
        return sw.Quantization(0.037, 5)
    return sw.Quantization(np.linspace(0.01, 2, channels), np.arange(channels) % 7, axis)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("axis", [None, "C", "H"])
@pytest.mark.parametrize(
    ("src", "dst"),
    [("f32", "s8"), ("f32", "u8"), ("bf16", "s8"), ("u8", "f32"), ("s8", "u8"), ("s32", "s8")],
)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("NCHW", "NCHW"),
        ("NCHW", "NHWC"),
        ("NHWC", "NCHW"),
        ("NHWC", "nChw16c"),
        ("nChw16c", "NHWC"),
    ],
)
def test_quantization_is_that_of_onnx(src, dst, axis, before, after, engine):
    shape = (2, 21, 9, 5)
    count = {None: 1, "C": 21, "H": 9}[axis]
    a, b = desc(shape, src, Format.parse(before)), desc(shape, dst, Format.parse(after))
    array = values(a.dtype, int(np.prod(a.storage.shape))).reshape(a.storage.shape)
    scales = {
        "src_quantization": quantizations(src, count, axis),
        "dst_quantization": quantizations(dst, count, axis),
    }
    found = sw.Reorder(a, b, engine=engine, **scales)(array, dirty(b))
    expected = reference_reorder(array, a, b, **scales)
    np.testing.assert_array_equal(found, expected)


def test_quantize_linear_of_onnx_gives_the_same():
    onnx = pytest.importorskip("onnx", reason="onnx is a dependency of the package")
    from onnx.reference import ReferenceEvaluator

    helper, proto = onnx.helper, onnx.TensorProto
    x = values(dtype_of("f32"), 240).reshape(2, 5, 4, 6)
    x = np.clip(np.nan_to_num(x, nan=1.0), -1e6, 1e6)
    scale = np.linspace(0.1, 3, 5, dtype=np.float32)
    zero = np.arange(5, dtype=np.uint8) * 20
    graph = helper.make_graph(
        [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], axis=1)],
        "q",
        [helper.make_tensor_value_info("x", proto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", proto.UINT8, x.shape)],
        [onnx.numpy_helper.from_array(scale, "s"), onnx.numpy_helper.from_array(zero, "z")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    found = sw.reorder(
        x, "NCHW", "NHWC", dtype="u8", dst_quantization=sw.Quantization(scale, zero, "C")
    )
    np.testing.assert_array_equal(found.transpose(0, 3, 1, 2), expected)


# --- what others say ------------------------------------------------------------------------------


@given(st.data())
def test_blocks_are_what_pad_reshape_and_transpose_of_numpy_make(data):
    fmt = data.draw(simple_formats())
    shape = data.draw(shapes(fmt))
    x = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    parts: list[int] = []
    place: dict[tuple[str, int], int] = {}  # (axis, which of its digits) to dimension
    for axis, extent in zip(fmt.axes, shape, strict=True):
        sizes = [block.size for block in fmt.blocks if block.axis == axis]
        count = -(-extent // int(np.prod(sizes)))
        for digit, size in enumerate([count, *sizes]):
            place[(axis, digit)] = len(parts)
            parts.append(size)
    padded = fmt.padded_shape(shape)
    whole = np.pad(x, [(0, p - n) for p, n in zip(padded, shape, strict=True)]).reshape(parts)
    seen: dict[str, int] = {}
    order = []
    for axis in (*fmt.order, *(block.axis for block in fmt.blocks)):
        order.append(place[(axis, seen.get(axis, 0))])
        seen[axis] = seen.get(axis, 0) + 1
    np.testing.assert_array_equal(
        sw.reorder(x, Format(fmt.axes, fmt.axes), fmt), whole.transpose(order)
    )


def test_onednn_agrees_on_size_and_offsets_of_every_tag_that_it_knows():
    core = load_core()
    known = 0
    for name in names("onednn"):
        try:
            fmt = Format.parse(name, "onednn")
        except FormatError:
            continue
        tag = abstract_tag(fmt)
        shape = tuple([3, 5, 2, 3, 2, 2][: fmt.rank]) + (1,) * max(0, fmt.rank - 6)
        try:
            described = core.MemoryDesc(shape, "f32", tag)
        except (core.NativeError, ValueError):
            continue  # newer than the library
        known += 1
        assert described.nbytes == 4 * element_count(fmt, shape), name
        plain = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
        dense = core.MemoryDesc.strided(shape, "f32", [s // 4 for s in plain.strides])
        packed = core.prepack(plain, dense, described, 1).array().view(np.float32)
        expected = np.zeros(element_count(fmt, shape), np.float32)
        expected[offsets(fmt, shape)] = plain
        np.testing.assert_array_equal(packed[: expected.size], expected, name)
    assert known > 1000


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
def test_pytorch_tensors_are_taken_without_a_copy(dtype):
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed: pip install torch==2.13.0"
    )
    x = (torch.randn(2, 5, 3, 4) * 10).to(getattr(torch, dtype))
    last = x.contiguous(memory_format=torch.channels_last)
    for tensor, fmt in [(x, "NCHW"), (last, "channels_last"), (last, "NHWC")]:
        out = torch.empty(2, 3, 4, 5, dtype=x.dtype)
        assert sw.reorder(tensor, fmt, "NHWC", out=out) is out
        assert torch.equal(out, x.permute(0, 2, 3, 1))
        back = torch.empty_like(x)
        sw.reorder(tensor, fmt, "NCHW", out=back)
        assert torch.equal(back, x)


def test_pytorch_tensors_with_equal_extents_are_read_by_their_strides():
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed: pip install torch==2.13.0"
    )
    x = torch.randn(1, 5, 5, 5)
    last = x.contiguous(memory_format=torch.channels_last)
    image = sw.TensorDesc((1, 5, 5, 5), "f32", "NCHW", "NHWC")
    for src in ("NHWC", "channels_last", image):
        np.testing.assert_array_equal(sw.reorder(last, src, "NCHW"), x.numpy())
    out = torch.empty_like(last)
    sw.reorder(x, "NCHW", "NHWC", out=out)
    assert torch.equal(out, x)


def test_views_with_equal_extents_are_read_by_their_strides():
    x = np.arange(125, dtype=np.float32).reshape(1, 5, 5, 5)
    stored = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    last = stored.transpose(0, 3, 1, 2)
    image = sw.TensorDesc((1, 5, 5, 5), "f32", "NCHW", "NHWC")
    for array in (last, stored):
        np.testing.assert_array_equal(sw.reorder(array, image, "NCHW"), x)
        np.testing.assert_array_equal(sw.reorder(array, "NHWC", "NCHW", shape=x.shape), x)
    out = np.zeros_like(stored).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(sw.reorder(x, "NCHW", "NHWC", out=out), x)
    # A name alone says nothing about another shape than that of the array.
    found = sw.reorder(last, "NHWC", "NCHW")
    np.testing.assert_array_equal(found, last.transpose(0, 3, 1, 2))


def test_arrays_of_numpy_and_dlpack_are_taken_without_a_copy():
    class Foreign:
        def __init__(self, array: Array) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    np.testing.assert_array_equal(sw.reorder(Foreign(x), "NCHW", "NHWC"), x.transpose(0, 2, 3, 1))


def test_a_description_takes_arrays_in_the_order_of_the_user():
    x = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    image = sw.TensorDesc((2, 4, 5, 3), "f32", "NHWC", "NCHW")
    np.testing.assert_array_equal(sw.reorder(x.transpose(0, 2, 3, 1), image, "NCHW"), x)
    out = np.zeros((2, 4, 5, 3), np.float32)
    sw.reorder(
        x, "NCHW", sw.TensorDesc((2, 4, 5, 3), "f32", "NHWC", "NCHW"), out=out.transpose(0, 3, 1, 2)
    )
    np.testing.assert_array_equal(out, x.transpose(0, 2, 3, 1))


def test_the_shape_says_how_much_of_a_padded_storage_is_meant():
    x = np.zeros((1, 1, 2, 2, 16), np.float32)
    x[..., :3] = np.arange(12).reshape(1, 1, 2, 2, 3)
    whole = sw.reorder(x, "nChw16c", "NCHW")
    part = sw.reorder(x, "nChw16c", "NCHW", shape=(1, 3, 2, 2))
    assert whole.shape == (1, 16, 2, 2)
    np.testing.assert_array_equal(part, whole[:, :3])


def test_the_engine_is_chosen_by_measurement_and_remembered(tmp_path):
    shape = (4, 64, 56, 56)
    a, b = desc(shape, "f32", Format.parse("NCHW")), desc(shape, "f32", Format.parse("nChw16c"))
    array = stored(a)
    first = sw.Reorder(a, b, cache_dir=tmp_path)
    assert first.engine == "auto"
    expected = reference_reorder(array, a, b)
    np.testing.assert_array_equal(bits(first(array)), bits(expected))
    assert first.engine in ("cached", "streaming", "onednn")
    second = sw.Reorder(a, b, cache_dir=str(tmp_path))
    np.testing.assert_array_equal(bits(second(array)), bits(expected))
    assert second.engine == first.engine
    assert len(list(tmp_path.iterdir())) == 1


def test_small_tensors_are_moved_without_asking(tmp_path):
    a = desc((1, 8, 4, 4), "f32", Format.parse("NCHW"))
    run = sw.Reorder(a, desc((1, 8, 4, 4), "f32", Format.parse("NHWC")), cache_dir=tmp_path)
    assert (run.engine, run.threads) == ("cached", 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("engine", ["auto", *ENGINES])
def test_tensors_without_elements(engine):
    x = np.zeros((2, 0, 3, 3), np.float32)
    assert sw.reorder(x, "NCHW", "nChw16c", engine=engine).shape == (2, 0, 3, 3, 16)


# --- what is refused ------------------------------------------------------------------------------

X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
READ_ONLY = np.zeros((1, 3, 4, 2), np.float32)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: sw.reorder(X, "NCHW", "nope"),
            "format: expected a name of a memory format, found 'nope'; "
            "see `stridewise formats list`",
        ),
        (
            lambda: sw.reorder(X[0], "NCHW", "NHWC"),
            "array in format NCHW: expected storage shape (N, C, H, W), found (2, 3, 4); pass "
            "an array of the storage shape, which TensorDesc computes",
        ),
        (
            lambda: sw.reorder(X, "NCHW", "OIHW"),
            "tensor: expected an origin over the axes of the storage, O, I, H, W, found origin "
            "NCHW over N, C, H, W; Format.renamed gives axes other names",
        ),
        (
            lambda: sw.reorder(X[:, ::-1], "NCHW", "NHWC"),
            "source of a reorder: expected positive strides that do not overlap, found strides "
            "(96, -48, 16, 4); copy it with numpy.ascontiguousarray first",
        ),
        (
            lambda: sw.reorder(np.broadcast_to(X[:, :1], X.shape), "NCHW", "NHWC"),
            "source of a reorder: expected positive strides that do not overlap, found strides "
            "(0, 0, 16, 4); copy it with numpy.ascontiguousarray first",
        ),
        (
            lambda: sw.reorder(X, "NCHW", "NHWC", out=READ_ONLY),
            "destination of a reorder: expected a writable array, found a read-only one",
        ),
        (
            lambda: sw.reorder(X, "NCHW", "NHWC", out=np.zeros((1, 3, 4, 1), np.float32)),
            "destination of a reorder: expected float32 array of shape (1, 3, 4, 2), "
            "f32[1,2,3,4]@NCHW in NHWC, found float32 array of shape (1, 3, 4, 1)",
        ),
        (
            lambda: sw.reorder(X, "NCHW", "NHWC", out=np.zeros((1, 3, 4, 2), np.float64)),
            "destination of a reorder: expected float32 array of shape (1, 3, 4, 2), "
            "f32[1,2,3,4]@NCHW in NHWC, found float64 array of shape (1, 3, 4, 2)",
        ),
        (
            lambda: sw.reorder(X, "NCHW", "NHWC", out=X.reshape(1, 3, 4, 2)),
            "destination of a reorder: expected memory apart from that of the source, found "
            "arrays that overlap; leave out= away, or copy the source",
        ),
        (
            lambda: sw.reorder(X, "NCHW", "NHWC", dtype="f4"),
            "dtype: expected one of float64, float32, float16, bfloat16, int64, int32, int16, "
            "int8, uint64, uint32, uint16, uint8, bool, found f4",
        ),
        (
            lambda: sw.reorder(X.astype("f8"), "NCHW", "NHWC", dtype="f32"),
            "reorder: expected one dtype, or two of f32, f16, bf16, s8, u8, s32, found "
            "float64 and float32",
        ),
        (
            lambda: sw.reorder([1, 2], "NC", "CN"),
            "source of a reorder: expected an array in the memory of the CPU: NumPy, PyTorch, or "
            "DLPack, found list: 'list' object has no attribute '__dlpack__'",
        ),
        (
            lambda: sw.reorder(X, "NCHW", "NHWC", engine="magic"),
            "reorder: expected one of the engines auto, cached, streaming, onednn, portable, "
            "found magic",
        ),
        (
            lambda: sw.reorder(X.astype("u1"), "NCHW", "NHWC", engine="onednn"),
            "reorder: expected dense float32 tensors in formats that oneDNN has, found "
            "u8[1,2,3,4]@NCHW in NCHW to u8[1,2,3,4]@NCHW in NHWC; use engine='auto'",
        ),
        (
            lambda: sw.Quantization(-1.0),
            "quantization: expected positive, finite float32 scales, found -1.0",
        ),
        (
            lambda: sw.Quantization([1.0, 2.0]),
            "quantization: expected an axis for scales that vary, found 2 of them",
        ),
        (
            lambda: sw.reorder(
                X, "NCHW", "NHWC", dtype="s8", dst_quantization=sw.Quantization([1, 2, 3], axis="C")
            ),
            "quantization: expected 1 or 2 values along C, found 3",
        ),
        (
            lambda: sw.reorder(
                X, "NCHW", "NHWC", dtype="s8", dst_quantization=sw.Quantization([1, 2], axis="Q")
            ),
            "quantization: expected one of the axes N, C, H, W, found axis 'Q'",
        ),
    ],
)
def test_errors_say_what_was_expected_and_what_came(call, message):
    with pytest.raises(FormatError) as caught:
        call()
    assert str(caught.value) == message


def test_the_destination_is_untouched_where_a_call_is_refused():
    out = np.full((1, 3, 4, 2), 5, np.float32)
    for bad in (X[:, ::-1], X.astype("f8"), X[:, :1]):
        with pytest.raises(FormatError):
            sw.reorder(bad, "NCHW", "NHWC", out=out)
    assert (out == 5).all()


def test_sizes_that_overflow_are_refused():
    with pytest.raises(FormatError, match=r"2\*\*63"):
        sw.TensorDesc((2**31, 2**31, 4, 4), "f32", "NCHW", "nChw16c")


@pytest.mark.parametrize("threads", [0, -1, 5000])
def test_an_absurd_number_of_threads_is_refused(threads):
    with pytest.raises(InputError, match="a number from 1 to 1024"):
        sw.reorder(X, "NCHW", "NHWC", threads=threads)


def test_a_prepared_reorder_wants_the_strides_that_it_was_made_for():
    a = sw.TensorDesc((1, 2, 3, 4), "f32", "NCHW", "NCHW")
    run = sw.Reorder(a, a.stored_as("NHWC"))
    with pytest.raises(FormatError, match="strides of"):
        run(np.zeros((1, 2, 3, 8), np.float32)[..., ::2])
    with pytest.raises(FormatError, match="4 strides"):
        sw.Reorder(a, a.stored_as("NHWC"), src_strides=(4, 4))
    with pytest.raises(FormatError, match="multiples of 4 bytes"):
        sw.Reorder(a, a.stored_as("NHWC"), src_strides=(96, 48, 17, 4))


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
