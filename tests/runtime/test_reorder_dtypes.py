"""Reorders that convert and quantize."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest

import stridewise as sw
from stridewise.dtypes import DType, dtype_of
from stridewise.formats import Format
from stridewise.tensor.reorder import reference_reorder

from .reorder_cases import CONVERTIBLE, ENGINES, Array, bits, desc, dirty

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
    ("NCHW", "NHWC", (2, 3, 30, 30)),
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
