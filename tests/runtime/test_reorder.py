"""Reorders of the API beside NumPy, oneDNN and PyTorch, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats_strategies import shapes, simple_formats

import stridewise as sw
from stridewise.errors import FormatError, InputError
from stridewise.formats import Block, Format, element_count, names, offsets
from stridewise.formats.dialects.onednn import abstract_tag
from stridewise.runtime.binding.library import load_core
from stridewise.tensor.reorder import reference_reorder

from .reorder_cases import ENGINES, Array, bits, desc, stored

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


def test_tensors_that_may_be_stored_or_logical_are_refused():
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed: pip install torch==2.13.0"
    )
    x = torch.randn(2, 5, 5, 5)
    neither = x.permute(0, 3, 2, 1)
    for tensor in (x, neither, neither.numpy()):
        for src, shape in (
            ("NHWC", x.shape),
            (sw.TensorDesc(x.shape, "f32", "NCHW", "NHWC"), None),
        ):
            with pytest.raises(FormatError, match="expected strides that tell NCHW from NHWC"):
                sw.reorder(tensor, src, "NCHW", shape=shape)
    wide = torch.randn(2, 4, 5, 6)
    assert torch.equal(sw.reorder(wide, "NHWC", "NCHW", shape=wide.shape), wide)


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


def test_results_of_another_shape_than_that_of_the_storage_are_refused():
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    out = np.zeros_like(x)
    with pytest.raises(FormatError, match=r"array of shape \(1, 3, 4, 2\)"):
        sw.reorder(x, "NCHW", "NHWC", out=out)
    assert not out.any()


@pytest.mark.parametrize("given", [None, 5, ["NHWC"], b"NHWC"])
def test_what_is_no_format_is_refused(given: Any):
    x = np.zeros((1, 2, 3, 4), np.float32)
    for ends in ((given, "NCHW"), ("NCHW", given)):
        with pytest.raises(FormatError, match="expected a format, its name, or a TensorDesc"):
            sw.reorder(x, *ends)


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


def test_equal_formats_of_other_digits_keep_their_storage_shapes():
    axes = ("N", "C")
    one = Format(axes, (*axes, Block("C", 16)))
    two = Format(axes, (*axes, Block("C", 4), Block("C", 4)))
    assert one == two
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    for fmt in (one, two, one):
        found = sw.reorder(x, "NC", fmt)
        assert found.shape == fmt.storage_shape(x.shape)
        np.testing.assert_array_equal(sw.reorder(found, fmt, "NC", shape=x.shape), x)


def test_steps_of_axes_that_other_steps_make():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    fused = Format.parse("N,C: split C = x y 2; fuse K = x N; walk K y")
    found = x.reshape(3, 2, 2).transpose(1, 0, 2).reshape(6, 2)
    np.testing.assert_array_equal(sw.reorder(x, "NC", fused), found)
    split = Format.parse("N,C: fuse K = N C; split K = x y 2; walk y x")
    np.testing.assert_array_equal(sw.reorder(x, "NC", split), x.reshape(6, 2).T)


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
        (
            lambda: sw.reorder(
                X, "NCHW", "NHWC", dtype="s8", dst_quantization=sw.Quantization(1.0, 300)
            ),
            "quantization: expected zero points from -128 to 127, the range of int8, found 300",
        ),
        (
            lambda: sw.reorder(
                X.astype("u1"), "NCHW", "NHWC", dtype="f32", src_quantization=sw.Quantization(1, -1)
            ),
            "quantization: expected zero points from 0 to 255, the range of uint8, found -1",
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
