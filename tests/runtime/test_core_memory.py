"""Descriptions, buffers and reorders of the native core against NumPy."""

import gc
from typing import Any

import numpy as np
import pytest

from .core_cases import (
    F32,
    THREADS,
    core,
    desc,
    random,
)


class TestMemoryDesc:
    def test_properties(self):
        d = desc((2, 20, 3, 4), "aBcd16b")
        assert (d.dims, d.ndims, d.dtype) == ([2, 20, 3, 4], 4, "f32")
        assert d.nbytes == d.extent == 2 * 32 * 3 * 4 * 4
        assert d.offset == 0
        assert not d.is_any
        assert repr(d) == ("MemoryDesc([2, 20, 3, 4], f32, strides=[384, 192, 64, 16], blocks=16b)")

    def test_any(self):
        d = desc((2, 20, 3, 4), "any")
        assert d.is_any
        assert d.nbytes == 0
        assert repr(d) == "MemoryDesc([2, 20, 3, 4], f32, any)"

    @pytest.mark.parametrize(
        ("dtype", "size"), [("f32", 4), ("s32", 4), ("bf16", 2), ("f16", 2), ("s8", 1), ("u8", 1)]
    )
    def test_dtypes(self, dtype: str, size: int):
        assert core.MemoryDesc([3, 5], dtype, "ab").nbytes == 15 * size

    def test_equality_is_about_bytes(self):
        assert desc((1, 4, 2, 2)) == core.MemoryDesc.strided([1, 4, 2, 2], "f32", [16, 4, 2, 1])
        assert hash(desc((1, 4, 2, 2))) == hash(desc((1, 4, 2, 2)))
        assert desc((1, 4, 2, 2)) != desc((1, 4, 2, 2), "acdb")
        assert desc((1, 4, 2, 2)) != "abcd"

    @pytest.mark.parametrize("tag", ["abcd", "acdb", "aBcd8b", "ABcd16b16a", "Acdb16a", "decab"])
    def test_tags_are_those_of_the_library(self, tag: str):
        rank = len(set(tag.lower()) & set("abcdefghijkl"))
        assert desc((1,) * rank, tag).ndims == rank

    def test_submemory_offset_is_in_bytes(self):
        whole = desc((1, 8, 2, 2), "acdb")
        view = whole.submemory([1, 3, 2, 2], [0, 5, 0, 0])
        assert view.offset == 5 * 4
        # The last element of the view is the last of the whole, so they end together.
        assert view.extent == whole.extent

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (([1, 2], "f64", "ab"), "unknown dtype 'f64'; expected one of f32"),
            (([1, 2], "f32", "nchw"), "unknown format tag 'nchw'"),
            (([1, 2], "f32", "undef"), "unknown format tag 'undef'"),
            (([], "f32", "a"), "expected 1 to 12 dimensions"),
            (([1] * 13, "f32", "a"), "expected 1 to 12 dimensions"),
            (([1, 0], "f32", "ab"), "expected positive dimensions"),
            (([1, -2], "f32", "ab"), "expected positive dimensions"),
            (([2**40, 2**40], "f32", "ab"), "larger than the address space"),
            (([2**62, 4], "f32", "ab"), "larger than the address space"),
        ],
    )
    def test_wrong_arguments(self, arguments: Any, message: str):
        with pytest.raises(ValueError, match=message):
            core.MemoryDesc(*arguments)

    def test_tag_of_another_rank(self):
        with pytest.raises(core.NativeError, match=r"^oneDNN: .* \(status invalid_arguments\)$"):
            desc((1, 2, 3), "abcd")

    @pytest.mark.parametrize(
        ("strides", "message"),
        [
            ([1], "expected one for each"),
            ([-2, 1], "expected none below 0"),
            ([2**62, 1], "larger than the address space"),
        ],
    )
    def test_wrong_strides(self, strides: list[int], message: str):
        with pytest.raises(ValueError, match=message):
            core.MemoryDesc.strided([3, 2], "f32", strides)

    @pytest.mark.parametrize(
        ("dims", "offsets"),
        [([1], [0]), ([3, 4], [0, 1]), ([3, 0], [0, 0]), ([1, 1], [-1, 0]), ([1, 1], [2**62, 0])],
    )
    def test_wrong_submemory(self, dims: list[int], offsets: list[int]):
        with pytest.raises(ValueError, match="submemory: "):
            desc((3, 4)).submemory(dims, offsets)


class TestBuffer:
    @pytest.mark.parametrize("nbytes", [0, 1, 63, 4096, (2 << 20) - 1, 2 << 20, (4 << 20) + 1])
    def test_zeroed_and_aligned(self, nbytes: int):
        buffer = core.Buffer(nbytes)
        view = buffer.array()
        assert buffer.nbytes == view.nbytes == nbytes
        assert not view.any()
        assert view.ctypes.data % (2 << 20 if nbytes >= 2 << 20 else 64) == 0

    def test_view_keeps_the_memory(self):
        view = core.Buffer(1 << 16).array()
        gc.collect()
        view[:] = 3
        assert view.sum(dtype=np.int64) == 3 << 16

    def test_views_share(self):
        buffer = core.Buffer(8)
        buffer.array()[2] = 9
        assert buffer.array().tolist() == [0, 0, 9, 0, 0, 0, 0, 0]

    def test_from_array_copies(self):
        array = np.arange(6, dtype=F32).reshape(2, 3)
        buffer = core.Buffer.from_array(array)
        array[:] = 0
        assert buffer.array().view(F32).tolist() == [0, 1, 2, 3, 4, 5]

    def test_from_array_needs_contiguous(self):
        with pytest.raises(ValueError, match="array: expected a C-contiguous array"):
            core.Buffer.from_array(np.zeros((4, 4)).T[:, ::2])

    @pytest.mark.parametrize("nbytes", [-1, -(2**62)])
    def test_negative_size(self, nbytes: int):
        with pytest.raises(ValueError, match="nbytes: expected at least 0"):
            core.Buffer(nbytes)

    @pytest.mark.parametrize("nbytes", [2**50, 2**63 - 1])
    def test_impossible_size(self, nbytes: int):
        with pytest.raises(MemoryError):
            core.Buffer(nbytes)


class TestReorder:
    @pytest.mark.parametrize("tag", ["aBcd16b", "aBcd8b", "acdb"])
    @pytest.mark.parametrize("channels", [1, 3, 16, 20])
    def test_pads_with_zeros(self, tag: str, channels: int):
        x = random(2, channels, 3, 5)
        target = desc(x.shape, tag)
        packed = core.prepack(x, desc(x.shape), target, THREADS).array().view(F32)
        block = {"aBcd16b": 16, "aBcd8b": 8, "acdb": 1}[tag]
        outer = -(-channels // block)
        if tag == "acdb":
            want = x.transpose(0, 2, 3, 1)
        else:
            padded = np.pad(x, ((0, 0), (0, outer * block - channels), (0, 0), (0, 0)))
            want = padded.reshape(2, outer, block, 3, 5).transpose(0, 1, 3, 4, 2)
        np.testing.assert_array_equal(packed.reshape(want.shape), want)

    def test_strided_source(self):
        x = random(2, 5, 4, 3)
        view = x.transpose(0, 3, 1, 2)
        source = core.MemoryDesc.strided(view.shape, "f32", [s // 4 for s in view.strides])
        packed = core.prepack(view, source, desc(view.shape), THREADS)
        np.testing.assert_array_equal(packed.array().view(F32).reshape(view.shape), view)

    def test_array_too_small(self):
        d = desc((1, 4, 4, 4))
        with pytest.raises(ValueError, match="array: expected at least the 256 bytes"):
            core.prepack(np.zeros(63, F32), d, d, THREADS)

    def test_read_only_array(self):
        x = random(1, 4, 4, 4)
        x.flags.writeable = False
        packed = core.prepack(x, desc(x.shape), desc(x.shape, "acdb"), THREADS)
        np.testing.assert_array_equal(packed.array().view(F32), x.transpose(0, 2, 3, 1).ravel())

    def test_any_is_no_destination(self):
        d = desc((1, 4, 4, 4))
        with pytest.raises(ValueError, match="expected formats that are not 'any'"):
            core.prepack(np.zeros(64, F32), d, desc((1, 4, 4, 4), "any"), THREADS)

    def test_prepack_into_fills_just_its_part_of_a_buffer(self):
        x = np.arange(20, dtype=F32).reshape(1, 20, 1, 1)
        target = desc(x.shape, "aBcd16b")
        buffer = core.Buffer(64 + target.nbytes + 64)
        buffer.array().view(F32)[:] = -1
        core.prepack_into(x, desc(x.shape), target, buffer, 64, THREADS)
        found = buffer.array().view(F32)
        assert (found[:16] == -1).all()
        assert (found[16:36] == np.arange(20)).all()
        assert (found[36:48] == 0).all()
        assert (found[48:] == -1).all()

    def test_prepack_into_stays_inside_the_buffer(self):
        d = desc((1, 16, 1, 1))
        buffer = core.Buffer(d.nbytes)
        with pytest.raises(ValueError, match="expected 64 bytes from offset 64 on"):
            core.prepack_into(np.zeros(16, F32), d, d, buffer, 64, THREADS)


def test_facts_about_the_library():
    assert core.version().split(".")[0] == "3"
    assert core.effective_isa() == core.effective_isa().upper()
    assert core.max_threads() >= 1
    assert issubclass(core.NativeError, RuntimeError)
