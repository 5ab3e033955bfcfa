"""The native core against NumPy: primitives, programs, and everything that must be refused."""

import gc
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import pytest

from stridewise.runtime.binding.library import load_core

core = load_core()

ARENA, CONSTANTS, INPUTS, OUTPUTS = range(4)
THREADS = core.max_threads()
F32 = np.float32


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def desc(shape: Sequence[int], tag: str | None = None) -> Any:
    return core.MemoryDesc(list(shape), "f32", tag or "abcdefghijkl"[: len(shape)])


def block_tag() -> str:
    """The widest channel block that has kernels of its own on this machine."""
    return "aBcd16b" if core.effective_isa().startswith("AVX512") else "aBcd8b"


def convolve(x, w, bias=None, stride=1, pad=0, dilation=1, groups=1):
    """Straightforward reference; x is NCHW and w is OIHW, with I counted in one group."""
    n, _, height, width = x.shape
    channels_out, channels_in, kernel_h, kernel_w = w.shape
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    out_h = (height + 2 * pad - dilation * (kernel_h - 1) - 1) // stride + 1
    out_w = (width + 2 * pad - dilation * (kernel_w - 1) - 1) // stride + 1
    y = np.zeros((n, channels_out, out_h, out_w), np.float64)
    per_group = channels_out // groups
    for o, i, r, s in product(
        range(channels_out), range(channels_in), range(kernel_h), range(kernel_w)
    ):
        rows = slice(r * dilation, r * dilation + (out_h - 1) * stride + 1, stride)
        columns = slice(s * dilation, s * dilation + (out_w - 1) * stride + 1, stride)
        plane = padded[:, o // per_group * channels_in + i, rows, columns]
        y[:, o] += plane.astype(np.float64) * w[o, i, r, s]
    if bias is not None:
        y += bias.reshape(1, -1, 1, 1)
    return y.astype(F32)


def execute(pd: Any, arrays: dict[int, np.ndarray], out_shape: Sequence[int], out=None):
    """Run one primitive on plain arrays, reordering to and from the formats that it wants.

    ``out`` is what the destination holds before, for a sum post-op.
    """
    primitive = pd.create()
    scratchpad = primitive.scratchpad_nbytes
    dst = primitive.arg_desc(core.ARG_DST)
    packed = {
        arg: core.prepack(array, desc(array.shape), primitive.arg_desc(arg), THREADS)
        for arg, array in arrays.items()
    }
    target = core.prepack(
        np.zeros(out_shape, F32) if out is None else out, desc(out_shape), dst, THREADS
    )
    program = core.Program(scratchpad, list(packed.values()), [dst.nbytes], [dst.nbytes], THREADS)
    program.add_copy((OUTPUTS, 0, 0), (INPUTS, 0, 0), dst.nbytes)
    args = [(arg, primitive.arg_desc(arg), CONSTANTS, i, 0) for i, arg in enumerate(packed)]
    args.append((core.ARG_DST, dst, OUTPUTS, 0, 0))
    if scratchpad:
        args.append((core.ARG_SCRATCHPAD, primitive.arg_desc(core.ARG_SCRATCHPAD), ARENA, 0, 0))
    program.add_primitive(primitive, args)
    program.freeze()
    program.poison = True
    raw = np.empty(dst.nbytes, np.uint8)
    program.run([target.array()], [raw])
    plain = core.prepack(raw, dst, desc(out_shape), THREADS)
    return plain.array().view(F32).reshape(out_shape).copy()


def relu_program(shape=(1, 16, 8, 8), threads=THREADS):
    """y = relu(x)."""
    d = desc(shape)
    primitive = core.eltwise("relu", d, d, threads=threads).create()
    program = core.Program(0, [], [d.nbytes], [d.nbytes], threads)
    program.add_primitive(
        primitive, [(core.ARG_SRC, d, INPUTS, 0, 0), (core.ARG_DST, d, OUTPUTS, 0, 0)]
    )
    program.freeze()
    return program


def chain_program(c=16, size=10, threads=THREADS):
    """y = relu(x) * w + 0.5, with every space in use and both middle values in the arena."""
    d = desc((1, c, size, size))
    w = desc((1, c, 1, 1))
    relu = core.eltwise("relu", d, d, threads=threads).create()
    mul = core.binary("mul", d, w, d, threads=threads).create()
    add = core.binary("add", d, d, d, threads=threads).create()
    weights = random(c, seed=7)
    n = d.nbytes
    program = core.Program(3 * n, [core.Buffer.from_array(weights)], [n], [n], threads)
    program.add_fill((ARENA, 0, 2 * n), n // 4, 0.5)
    program.add_primitive(relu, [(core.ARG_SRC, d, INPUTS, 0, 0), (core.ARG_DST, d, ARENA, 0, 0)])
    program.add_primitive(
        mul,
        [
            (core.ARG_SRC, d, ARENA, 0, 0),
            (core.ARG_SRC_1, w, CONSTANTS, 0, 0),
            (core.ARG_DST, d, ARENA, 0, n),
        ],
    )
    program.add_primitive(
        add,
        [
            (core.ARG_SRC, d, ARENA, 0, n),
            (core.ARG_SRC_1, d, ARENA, 0, 2 * n),
            (core.ARG_DST, d, OUTPUTS, 0, 0),
        ],
    )
    program.freeze()
    return program, lambda x: np.maximum(x, 0) * weights.reshape(1, -1, 1, 1) + F32(0.5)


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


class TestResampling:
    @pytest.mark.parametrize("tag", ["abcd", "acdb", "blocked"])
    @pytest.mark.parametrize("mode", ["nearest", "linear"])
    @pytest.mark.parametrize("shape", [(8, 10), (6, 7), (2, 3), (4, 5), (13, 1)])
    def test_aligns_the_centers_of_pixels(self, tag, mode, shape):
        tag = block_tag() if tag == "blocked" else tag
        x = random(2, 17, 4, 5)

        def positions(count, size):
            at = (np.arange(count) + 0.5) * size / count - 0.5
            low = np.floor(at + 0.5) if mode == "nearest" else np.floor(at)
            part = 0 * at if mode == "nearest" else at - low
            return *(np.clip(low + i, 0, size - 1).astype(int) for i in (0, 1)), part

        (up, down, dy), (left, right, dx) = map(positions, shape, x.shape[2:])
        rows = x[:, :, up] * (1 - dy[:, None]) + x[:, :, down] * dy[:, None]
        want = rows[..., left] * (1 - dx) + rows[..., right] * dx
        pd = core.resampling(mode, desc(x.shape, tag), desc(want.shape, tag), threads=THREADS)
        assert not pd.impl.startswith("ref")
        got = execute(pd, {core.ARG_SRC: x}, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)

    def test_wrong_algorithm(self):
        d = desc((1, 16, 4, 4))
        with pytest.raises(ValueError, match="resampling: unknown algorithm 'cubic'"):
            core.resampling("cubic", d, d)


class TestDeconvolution:
    @pytest.mark.parametrize("tag", ["abcd", "acdb", "blocked"])
    @pytest.mark.parametrize(
        ("channels_in", "channels_out", "kernel", "stride", "pad", "end", "dilation"),
        [
            (16, 32, 2, 2, 0, 0, 1),
            (20, 12, 3, 2, 1, 0, 1),
            (16, 16, 3, 1, 1, 2, 2),
            (3, 5, 2, 3, 0, -2, 1),
        ],
    )
    def test_is_the_transpose_of_a_convolution(
        self, tag, channels_in, channels_out, kernel, stride, pad, end, dilation
    ):
        """For every y, convolve(y) . x is y . deconvolve(x); y = unit vectors would do, too."""
        tag = block_tag() if tag == "blocked" else tag
        x = random(2, channels_in, 4, 5, seed=1)
        w = random(channels_out, channels_in, kernel, kernel, seed=2)
        reach = dilation * (kernel - 1) + 1 - pad - end
        shape = (2, channels_out, 3 * stride + reach, 4 * stride + reach)
        pd = core.deconvolution(
            desc(x.shape, tag),
            desc(w.shape, "any"),
            None,
            desc(shape, tag),
            [stride] * 2,
            [dilation] * 2,
            [pad] * 2,
            [end] * 2,
        )
        got = execute(pd, {core.ARG_SRC: x, core.ARG_WEIGHTS: w}, shape)
        y = random(*shape, seed=3)
        room = ((0, 0), (0, 0), (pad, max(end, 0)), (pad, max(end, 0)))
        there = convolve(np.pad(y, room), w.transpose(1, 0, 2, 3), None, stride, 0, dilation)
        there = there[:, :, : x.shape[2], : x.shape[3]]
        assert (there * x).sum() == pytest.approx((y * got).sum(), rel=1e-4)

    def test_strided_destinations_are_refused(self):
        """The library would accept one and write out of bounds."""
        x, w = desc((1, 16, 4, 4), "acdb"), desc((16, 16, 2, 2), "any")
        wide = desc((1, 32, 8, 8), "acdb").submemory((1, 16, 8, 8), (0, 0, 0, 0))
        with pytest.raises(ValueError, match="deconvolution: expected a dense destination"):
            core.deconvolution(x, w, None, wide, [2, 2], [1, 1], [0, 0], [0, 0])
        with pytest.raises(ValueError, match="strides: expected one value for each spatial axis"):
            core.deconvolution(x, w, None, desc((1, 16, 8, 8)), [2], [1, 1], [0, 0], [0, 0])


class TestConvolution:
    @pytest.mark.parametrize("tag", ["abcd", "acdb", "blocked"])
    @pytest.mark.parametrize(
        ("channels_in", "channels_out", "kernel", "stride", "pad", "dilation", "groups"),
        [
            (16, 32, 3, 1, 1, 1, 1),
            (16, 32, 1, 1, 0, 1, 1),
            (20, 12, 3, 2, 1, 1, 1),
            (16, 16, 3, 1, 2, 2, 1),
            (32, 32, 3, 1, 1, 1, 32),
            (32, 64, 3, 1, 1, 1, 2),
        ],
    )
    def test_against_numpy(
        self, tag, channels_in, channels_out, kernel, stride, pad, dilation, groups
    ):
        tag = block_tag() if tag == "blocked" else tag
        x = random(2, channels_in, 9, 8, seed=1)
        w = random(channels_out, channels_in // groups, kernel, kernel, seed=2)
        bias = random(channels_out, seed=3)
        want = convolve(x, w, bias, stride, pad, dilation, groups)
        shape = w.shape if groups == 1 else (groups, channels_out // groups, *w.shape[1:])
        pd = core.convolution(
            desc(x.shape, tag),
            desc(shape, "any"),
            desc(bias.shape),
            desc(want.shape, tag),
            [stride] * 2,
            [dilation] * 2,
            [pad] * 2,
            [pad] * 2,
        )
        assert pd.args == [core.ARG_SRC, core.ARG_WEIGHTS, core.ARG_DST, core.ARG_BIAS]
        arrays = {
            core.ARG_SRC: x,
            core.ARG_WEIGHTS: w.reshape(shape),
            core.ARG_BIAS: bias,
        }
        got = execute(pd, arrays, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

    @staticmethod
    def simple(x, w, want, post_ops, tag="acdb", **options):
        return core.convolution(
            desc(x.shape, tag),
            desc(w.shape, "any"),
            None,
            desc(want.shape, tag),
            [1, 1],
            [1, 1],
            [1, 1],
            [1, 1],
            post_ops,
            **options,
        )

    def test_every_implementation_agrees(self):
        x, w = random(1, 16, 6, 6, seed=1), random(16, 16, 3, 3, seed=2)
        want = convolve(x, w, pad=1)
        pd = self.simple(x, w, want, [])
        names = []
        while True:
            names.append(pd.impl)
            got = execute(pd, {core.ARG_SRC: x, core.ARG_WEIGHTS: w}, want.shape)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=pd.impl)
            if not pd.next():
                break
        assert len(names) > 1
        assert names[-1].startswith("ref")
        assert pd.impl == names[-1]

    def test_post_ops_in_order(self):
        x, w = random(1, 16, 6, 6, seed=1), random(20, 16, 3, 3, seed=2)
        before, factor = random(1, 20, 6, 6, seed=3), random(1, 20, 1, 1, seed=4)
        want = np.maximum(convolve(x, w, pad=1) + before, 0) * factor
        ops = [
            ("sum", 1.0),
            ("eltwise", "relu", 0.0, 0.0),
            ("binary", "mul", desc(factor.shape)),
        ]
        pd = self.simple(x, w, want, ops)
        arrays = {core.ARG_SRC: x, core.ARG_WEIGHTS: w, core.post_op_arg(2): factor}
        assert pd.args == [core.ARG_SRC, core.ARG_WEIGHTS, core.ARG_DST, core.post_op_arg(2)]
        got = execute(pd, arrays, want.shape, out=before)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

    def test_leaky_relu(self):
        x, w = random(1, 16, 6, 6, seed=1), random(16, 16, 3, 3, seed=2)
        want = convolve(x, w, pad=1)
        pd = self.simple(x, w, want, [("eltwise", "relu", 0.25, 0)])
        got = execute(pd, {core.ARG_SRC: x, core.ARG_WEIGHTS: w}, want.shape)
        np.testing.assert_allclose(got, np.where(want > 0, want, want / 4), rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize(
        ("post_op", "message"),
        [
            (("eltwise", "step", 0.0, 0.0), "eltwise post-op: unknown algorithm 'step'"),
            (("binary", "ge", desc((1, 16, 1, 1))), "unknown algorithm 'ge'; expected one of add"),
            (("prelu", 1), "post_ops: expected"),
            ((), "post_ops: expected"),
        ],
    )
    def test_wrong_post_op(self, post_op: tuple[Any, ...], message: str):
        x, w = random(1, 16, 6, 6), random(16, 16, 3, 3)
        with pytest.raises(ValueError, match=message):
            self.simple(x, w, x, [post_op])

    def test_too_many_post_ops(self):
        x, w = random(1, 16, 6, 6), random(16, 16, 3, 3)
        with pytest.raises(ValueError, match="post_ops: expected at most 32, got 33"):
            self.simple(x, w, x, [("eltwise", "abs", 0.0, 0.0)] * 33)

    @pytest.mark.parametrize(
        ("which", "value", "message"),
        [
            (4, [1], "strides: expected one value for each spatial axis"),
            (4, [0, 1], "strides: expected values of at least 1"),
            (5, [0, 1], "dilations: expected values of at least 1"),
            (6, [-1, 0], "pads_begin: expected values of at least 0"),
            (7, [1, 1, 1], "pads_end: expected one value for each spatial axis"),
        ],
    )
    def test_wrong_window(self, which: int, value: list[int], message: str):
        d = desc((1, 16, 6, 6))
        arguments = [d, desc((16, 16, 3, 3)), None, d, [1, 1], [1, 1], [1, 1], [1, 1]]
        arguments[which] = value
        with pytest.raises(ValueError, match=message):
            core.convolution(*arguments)

    def test_shapes_that_do_not_fit(self):
        d = desc((1, 16, 6, 6))
        with pytest.raises(core.NativeError, match=r"a convolution .* \(status invalid_argum"):
            core.convolution(d, desc((16, 8, 3, 3)), None, d, [1, 1], [1, 1], [1, 1], [1, 1])

    def test_arguments_by_number(self):
        x, w = random(1, 16, 6, 6), random(16, 16, 3, 3)
        pd = self.simple(x, w, x, [("eltwise", "relu", 0.0, 0.0)])
        assert pd.arg_desc(core.ARG_SRC) == desc(x.shape, "acdb")
        assert not pd.arg_desc(core.ARG_WEIGHTS).is_any
        assert pd.arg_desc(core.ARG_SCRATCHPAD).nbytes == pd.scratchpad_nbytes
        for absent in (core.ARG_BIAS, core.post_op_arg(0), 12345):
            with pytest.raises(ValueError, match=f"has no argument {absent}"):
                pd.arg_desc(absent)


class TestOtherPrimitives:
    @pytest.mark.parametrize("tag", ["abcd", "acdb", "blocked"])
    @pytest.mark.parametrize("alg", ["max", "avg_include", "avg_exclude"])
    def test_pooling(self, tag: str, alg: str):
        tag = block_tag() if tag == "blocked" else tag
        x = random(2, 20, 7, 7)
        fill = -np.inf if alg == "max" else 0.0
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=fill)
        counted = np.pad(np.ones_like(x), ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view
        cells = windows(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
        if alg == "max":
            want = cells.max(axis=(-1, -2))
        else:
            counts = windows(counted, (3, 3), axis=(2, 3))[:, :, ::2, ::2].sum(axis=(-1, -2))
            want = cells.sum(axis=(-1, -2)) / (9 if alg == "avg_include" else counts)
        d_src, d_dst = desc(x.shape, tag), desc(want.shape, tag)
        pd = core.pooling(alg, d_src, d_dst, [3, 3], [2, 2], [1, 1], [1, 1], [1, 1])
        got = execute(pd, {core.ARG_SRC: x}, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize(
        ("alg", "alpha", "beta", "reference"),
        [
            ("relu", 0, 0, lambda x: np.maximum(x, 0)),
            ("relu", 0.1, 0, lambda x: np.where(x > 0, x, x * 0.1)),
            ("clip", -0.5, 0.7, lambda x: np.clip(x, -0.5, 0.7)),
            ("clip_v2", -0.5, 0.7, lambda x: np.clip(x, -0.5, 0.7)),
            ("logistic", 0, 0, lambda x: 1 / (1 + np.exp(-x))),
            ("tanh", 0, 0, np.tanh),
            ("elu", 1.5, 0, lambda x: np.where(x > 0, x, 1.5 * np.expm1(x))),
            ("swish", 1.0, 0, lambda x: x / (1 + np.exp(-x))),
            ("hardswish", 1 / 6, 0.5, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
            ("hardsigmoid", 0.2, 0.5, lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
            ("exp", 0, 0, np.exp),
            ("log", 0, 0, lambda x: np.log(np.where(x > 0, x, np.nan))),
            ("sqrt", 0, 0, lambda x: np.sqrt(np.where(x > 0, x, np.nan))),
            ("abs", 0, 0, np.abs),
            ("square", 0, 0, np.square),
            ("gelu_tanh", 0, 0, None),
            ("gelu_erf", 0, 0, None),
            ("linear", 2.0, -1.0, lambda x: 2 * x - 1),
            ("pow", 2.0, 3.0, lambda x: 2 * x**3),
            ("soft_relu", 1.0, 0, lambda x: np.logaddexp(0, x)),
            ("mish", 0, 0, lambda x: x * np.tanh(np.logaddexp(0, x))),
            ("round", 0, 0, np.round),
        ],
    )
    def test_eltwise(self, alg: str, alpha: float, beta: float, reference: Any):
        x = random(1, 20, 5, 5)
        d = desc(x.shape, "acdb")
        got = execute(core.eltwise(alg, d, d, alpha, beta), {core.ARG_SRC: x}, x.shape)
        if reference is None:
            inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
            want, tolerance = x * 0.5 * (1 + np.tanh(inner)), 1e-3
        else:
            want, tolerance = reference(x), 1e-5
            got = np.where(np.isnan(want), np.nan, got)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=tolerance)

    @pytest.mark.parametrize(
        ("alg", "reference"),
        [
            ("add", np.add),
            ("sub", np.subtract),
            ("mul", np.multiply),
            ("div", np.divide),
            ("max", np.maximum),
            ("min", np.minimum),
        ],
    )
    @pytest.mark.parametrize("other", [(1, 20, 5, 5), (1, 20, 1, 1), (1, 1, 1, 1)])
    def test_binary(self, alg: str, reference: Any, other: tuple[int, ...]):
        x, y = random(1, 20, 5, 5), random(*other, seed=1) + F32(3)
        d = desc(x.shape, "acdb")
        pd = core.binary(alg, d, desc(other, "acdb"), d)
        got = execute(pd, {core.ARG_SRC: x, core.ARG_SRC_1: y}, x.shape)
        np.testing.assert_allclose(got, reference(x, y), rtol=1e-5)

    def test_binary_with_post_ops(self):
        x, y = random(1, 16, 5, 5), random(1, 16, 5, 5, seed=1)
        d = desc(x.shape, "acdb")
        pd = core.binary("add", d, d, d, [("eltwise", "relu", 0.0, 0.0)])
        got = execute(pd, {core.ARG_SRC: x, core.ARG_SRC_1: y}, x.shape)
        np.testing.assert_allclose(got, np.maximum(x + y, 0), rtol=1e-6)

    @pytest.mark.parametrize("name", ["matmul", "inner_product"])
    def test_products(self, name: str):
        x, w, bias = random(3, 20), random(20, 10, seed=1), random(10, seed=2)
        want = np.maximum(x @ w + bias, 0)
        relu = [("eltwise", "relu", 0.0, 0.0)]
        if name == "matmul":
            w_given, bias_given = w, bias.reshape(1, 10)
        else:
            w_given, bias_given = np.ascontiguousarray(w.T), bias
        pd = getattr(core, name)(
            desc(x.shape),
            desc(w_given.shape, "any"),
            desc(bias_given.shape),
            desc(want.shape),
            relu,
        )
        arrays = {core.ARG_SRC: x, core.ARG_WEIGHTS: w_given, core.ARG_BIAS: bias_given}
        got = execute(pd, arrays, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("relu", [False, True])
    @pytest.mark.parametrize("tag", ["abcd", "acdb", "blocked"])
    def test_scale_shift(self, tag: str, relu: bool):
        tag = block_tag() if tag == "blocked" else tag
        x, scale, shift = random(2, 20, 4, 4), random(20, seed=1), random(20, seed=2)
        pd = core.scale_shift(desc(x.shape, tag), desc(x.shape, tag), relu)
        arrays = {
            core.ARG_SRC: x,
            core.ARG_SCALE: scale,
            core.ARG_SHIFT: shift,
            core.ARG_MEAN: np.zeros(20, F32),
            core.ARG_VARIANCE: np.zeros(20, F32),
        }
        assert sorted(pd.args) == sorted([*arrays, core.ARG_DST])
        want = x * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)
        got = execute(pd, arrays, x.shape)
        np.testing.assert_allclose(got, np.maximum(want, 0) if relu else want, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("affine", [False, True])
    @pytest.mark.parametrize("tag", ["abcd", "acdb", "blocked"])
    def test_batch_norm(self, tag: str, affine: bool):
        tag = block_tag() if tag == "blocked" else tag
        x, scale, shift = random(2, 20, 4, 4), random(20, seed=1), random(20, seed=2)
        pd = core.batch_norm(desc(x.shape, tag), desc(x.shape, tag), 0.5, affine)
        arrays = {core.ARG_SRC: x}
        centered = x - x.mean((0, 2, 3), keepdims=True)
        want = centered / np.sqrt(np.square(centered).mean((0, 2, 3), keepdims=True) + 0.5)
        if affine:
            arrays |= {core.ARG_SCALE: scale, core.ARG_SHIFT: shift}
            want = want * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)
        assert sorted(pd.args) == sorted([*arrays, core.ARG_DST])
        np.testing.assert_allclose(execute(pd, arrays, x.shape), want, rtol=1e-4, atol=1e-5)

    def test_a_batch_norm_without_an_epsilon_is_refused(self):
        d = desc((1, 8, 2, 2), "abcd")
        with pytest.raises(ValueError, match="batch_norm: expected a positive epsilon"):
            core.batch_norm(d, d, 0.0, False)

    @pytest.mark.parametrize("shift", [False, True])
    @pytest.mark.parametrize("scale", [False, True])
    def test_layer_norm(self, scale: bool, shift: bool):
        x = random(6, 20)
        d = desc(x.shape, "ab")
        pd = core.layer_norm(d, d, 0.5, scale, shift)
        arrays = {core.ARG_SRC: x}
        centered = x - x.mean(1, keepdims=True)
        want = centered / np.sqrt(np.square(centered).mean(1, keepdims=True) + 0.5)
        if scale:
            arrays[core.ARG_SCALE] = random(20, seed=1)
            want = want * arrays[core.ARG_SCALE]
        if shift:
            arrays[core.ARG_SHIFT] = random(20, seed=2)
            want = want + arrays[core.ARG_SHIFT]
        assert sorted(pd.args) == sorted([*arrays, core.ARG_DST])
        np.testing.assert_allclose(execute(pd, arrays, x.shape), want, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("tag", ["abcd", "acdb", "blocked"])
    def test_prelu(self, tag: str):
        tag = block_tag() if tag == "blocked" else tag
        x, slope = random(2, 20, 4, 4), random(1, 20, 1, 1, seed=1)
        pd = core.prelu(desc(x.shape, tag), desc(slope.shape, tag), desc(x.shape, tag))
        got = execute(pd, {core.ARG_SRC: x, core.ARG_WEIGHTS: slope}, x.shape)
        np.testing.assert_allclose(got, np.where(x < 0, slope * x, x), rtol=1e-6)

    def test_lrn_across(self):
        x = random(1, 20, 3, 3)
        squares = np.pad(np.square(x), ((0, 0), (2, 2), (0, 0), (0, 0)))
        total = sum(squares[:, i : i + 20] for i in range(5))
        want = x / (1.5 + 0.3 / 5 * total) ** 0.75
        d = desc(x.shape, "acdb")
        got = execute(core.lrn(d, d, "across", 5, 0.3, 0.75, 1.5), {core.ARG_SRC: x}, x.shape)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)

    def test_lrn_within(self):
        x = random(1, 4, 6, 6)
        squares = np.pad(np.square(x), ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(squares, (3, 3), axis=(2, 3))
        want = x / (1.0 + 0.9 / 9 * windows.sum(axis=(-1, -2))) ** 0.75
        d = desc(x.shape)
        got = execute(core.lrn(d, d, "within", 3, 0.9, 0.75, 1.0), {core.ARG_SRC: x}, x.shape)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("log", [False, True])
    @pytest.mark.parametrize("axis", [0, 1])
    def test_softmax(self, axis: int, log: bool):
        x = random(5, 7)
        e = np.exp(x)
        want = e / e.sum(axis=axis, keepdims=True)
        pd = core.softmax(desc(x.shape), desc(x.shape), axis, log)
        got = execute(pd, {core.ARG_SRC: x}, x.shape)
        np.testing.assert_allclose(got, np.log(want) if log else want, rtol=1e-4, atol=1e-6)

    def test_concat(self):
        xs = [random(1, c, 3, 3, seed=c) for c in (3, 16, 5)]
        want = np.concatenate(xs, axis=1)
        pd = core.concat(desc(want.shape, "acdb"), 1, [desc(x.shape, "acdb") for x in xs])
        arrays = {core.ARG_MULTIPLE_SRC + i: x for i, x in enumerate(xs)}
        np.testing.assert_array_equal(execute(pd, arrays, want.shape), want)
        assert isinstance(pd.next(), bool)

    def test_concat_of_nothing(self):
        with pytest.raises(ValueError, match="expected at least one source"):
            core.concat(desc((1, 4)), 1, [])

    def test_reorder_primitive(self):
        x = random(1, 20, 3, 3)
        pd = core.reorder(desc(x.shape), desc(x.shape, block_tag()))
        np.testing.assert_array_equal(execute(pd, {core.ARG_SRC: x}, x.shape), x)

    def test_shuffle(self):
        x = random(1, 24, 3, 3)
        group = 4
        pd = core.shuffle(desc(x.shape), desc(x.shape), 1, group)
        want = x.reshape(1, 24 // group, group, 3, 3).transpose(0, 2, 1, 3, 4).reshape(x.shape)
        np.testing.assert_array_equal(execute(pd, {core.ARG_SRC: x}, x.shape), want)

    @pytest.mark.parametrize("index", [-1, 32])
    def test_post_op_arg_out_of_range(self, index: int):
        with pytest.raises(ValueError, match="expected an index from 0 to 31"):
            core.post_op_arg(index)


class TestStreamedResults:
    """Resampling streams results that no cache holds, and crashes where no vector begins there."""

    @staticmethod
    def upsampling(side, tag, space):
        x, y = (desc((1, 64, size, size), tag) for size in (side, 2 * side))
        primitive = core.resampling("nearest", x, y, threads=THREADS).create()
        arena = y.nbytes + 64 if space == ARENA else 0
        program = core.Program(arena, [], [x.nbytes], [y.nbytes], THREADS)
        place = (ARENA, 0, 4) if space == ARENA else (OUTPUTS, 0, 0)
        program.add_primitive(
            primitive, [(core.ARG_SRC, x, INPUTS, 0, 0), (core.ARG_DST, y, *place)]
        )
        if space == ARENA:
            program.add_copy((OUTPUTS, 0, 0), place, y.nbytes)
        program.freeze()
        return program

    @pytest.mark.parametrize("tag", ["abcd", "acdb", "aBcd8b"])
    @pytest.mark.parametrize("space", [ARENA, OUTPUTS])
    @pytest.mark.parametrize("side", [4, 256])
    def test_results_may_begin_anywhere(self, side, tag, space):
        program = self.upsampling(side, tag, space)
        rng = np.random.default_rng(0)
        x = rng.random(64 * side**2, np.float32)
        memory = np.zeros(4 * x.size + 16, np.float32)
        begin = (-memory.ctypes.data % 64) // 4 + 1
        y = memory[begin : begin + 4 * x.size]
        channels, lanes = {"abcd": (64, 1), "acdb": (1, 64), "aBcd8b": (8, 8)}[tag]
        expected = x.reshape(channels, side, side, lanes).repeat(2, 1).repeat(2, 2)
        for _ in range(2):
            y[:] = 0
            program.run([x], [y])
            assert np.array_equal(y, expected.reshape(-1))


class TestMeasure:
    @staticmethod
    def relu(threads=THREADS):
        d = desc((1, 16, 8, 8))
        return core.eltwise("relu", d, d, threads=threads).create()

    def test_runs_until_the_maximum(self):
        samples = core.measure(
            self.relu(), threads=THREADS, min_runs=1, max_runs=7, budget_ns=10**10
        )
        assert len(samples) == 7
        assert all(sample > 0 for sample in samples)

    def test_runs_the_minimum_without_a_budget(self):
        samples = core.measure(self.relu(), threads=THREADS, min_runs=3, max_runs=7, budget_ns=0)
        assert len(samples) == 3

    def test_everything_a_primitive_needs_is_made_up(self):
        d, w = desc((1, 32, 8, 8), "acdb"), desc((32, 32, 3, 3), "any")
        ops = [("sum", 1.0), ("binary", "add", desc((1, 32, 1, 1)))]
        pd = core.convolution(d, w, desc((32,)), d, [1, 1], [1, 1], [1, 1], [1, 1], ops, threads=1)
        core.measure(pd.create(), threads=1, min_runs=1, max_runs=2, budget_ns=0)

    def test_one_thread_leaves_the_setting_alone(self):
        core.measure(self.relu(1), threads=1, min_runs=1, max_runs=1, budget_ns=0)
        assert core.max_threads() == THREADS

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"threads": THREADS + 1}, "expected threads="),
            ({"min_runs": 0}, "expected 1 <= min_runs <= max_runs"),
            ({"min_runs": 3, "max_runs": 2}, "expected 1 <= min_runs <= max_runs"),
            ({"budget_ns": -1}, "expected a budget_ns of at least 0"),
        ],
    )
    def test_wrong_options(self, options: dict[str, int], message: str):
        usual = {"threads": THREADS, "min_runs": 1, "max_runs": 1, "budget_ns": 0}
        with pytest.raises(ValueError, match=message):
            core.measure(self.relu(), **(usual | options))

    def test_weights_can_be_cold_and_operands_spread(self):
        x, w = desc((1, 16, 8, 8)), core.MemoryDesc((16, 16, 1, 1), "f32", "any")
        pd = core.convolution(x, w, None, x, [1, 1], [1, 1], [0, 0], [0, 0], threads=THREADS)
        samples = core.measure(
            pd.create(),
            threads=THREADS,
            min_runs=5,
            max_runs=5,
            budget_ns=0,
            cold=[core.ARG_WEIGHTS],
            spread_nbytes=100_000,
        )
        assert len(samples) == 5
        assert min(samples) > 0


class TestProgram:
    def test_all_spaces(self):
        program, reference = chain_program()
        x = random(1, 16, 10, 10)
        y = np.empty_like(x)
        for poison in (False, True):
            program.poison = poison
            program.run([x], [y])
            np.testing.assert_allclose(y, reference(x), rtol=1e-6)
        assert program.poison
        assert (program.step_count, program.context_count) == (4, 1)
        assert program.arena_nbytes == 3 * x.nbytes
        assert program.frozen
        assert program.threads == THREADS

    def test_other_arrays_each_run(self):
        program = relu_program()
        for seed in range(5):
            x = random(1, 16, 8, 8, seed=seed)
            y = np.full_like(x, np.nan)
            program.run((x,), (y,))
            np.testing.assert_array_equal(y, np.maximum(x, 0))

    def test_poison_shows_what_is_read_before_it_is_written(self):
        n = 64
        program = core.Program(n, [], [], [n], THREADS)
        program.add_copy((OUTPUTS, 0, 0), (ARENA, 0, 0), n)
        program.freeze()
        y = np.ones(16, F32)
        program.run([], [y])
        assert not y.any()
        program.poison = True
        program.run([], [y])
        assert np.isnan(y).all()

    def test_traces_fill_their_arenas_with_nan_whatever_else_runs(self):
        program = core.Program(64, [], [], [4], THREADS)
        program.add_fill((ARENA, 0, 0), 4, 1.0)
        program.add_copy((OUTPUTS, 0, 0), (ARENA, 0, 0), 4)
        program.freeze()
        seen: list[bool] = []

        def look(_step, arena, _outputs):
            if len(seen) == 0:
                seen.append(True)
                program.trace([], [np.zeros(1, F32)], look)
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(program.run, [], [np.zeros(1, F32)]).result()
            seen.append(bool((arena[16:] == 0xFF).all()))

        program.trace([], [np.zeros(1, F32)], look)
        assert seen == [True] * 5
        assert not program.poison

    def test_empty_program(self):
        program = core.Program(0, [], [], [], THREADS)
        program.freeze()
        program.run([], [])

    def test_constants_are_kept_alive(self):
        constant = np.arange(16, dtype=F32)
        constant.flags.writeable = False
        program = core.Program(0, [constant, core.Buffer(8)], [], [64], THREADS)
        del constant
        gc.collect()
        program.add_copy((OUTPUTS, 0, 0), (CONSTANTS, 0, 0), 64)
        program.freeze()
        y = np.zeros(16, F32)
        program.run([], [y])
        assert y.tolist() == list(range(16))

    def test_primitive_outlives_its_python_object(self):
        program = relu_program()
        gc.collect()
        x = random(1, 16, 8, 8)
        y = np.empty_like(x)
        program.run([x], [y])
        np.testing.assert_array_equal(y, np.maximum(x, 0))

    def test_submemory_writes_its_box_only(self):
        whole = desc((1, 8, 2, 2), "acdb")
        part = whole.submemory([1, 3, 2, 2], [0, 5, 0, 0])
        dense = desc((1, 3, 2, 2))
        x = random(1, 3, 2, 2)
        program = core.Program(0, [], [x.nbytes], [whole.nbytes], THREADS)
        program.add_fill((OUTPUTS, 0, 0), whole.nbytes // 4, 9.0)
        program.add_primitive(
            core.reorder(dense, part).create(),
            [(core.ARG_SRC, dense, INPUTS, 0, 0), (core.ARG_DST, part, OUTPUTS, 0, 0)],
        )
        program.freeze()
        y = np.empty((1, 2, 2, 8), F32)
        program.run([x], [y])
        np.testing.assert_array_equal(y[..., 5:], x.transpose(0, 2, 3, 1))
        assert (y[..., :5] == 9).all()

    def test_threads_setting_is_restored(self):
        program = relu_program(threads=1)
        x = random(1, 16, 8, 8)
        program.run([x], [np.empty_like(x)])
        assert core.max_threads() == THREADS
        with pytest.raises(ValueError, match="bytes"):
            program.run([x[:, 1:].copy()], [np.empty_like(x)])
        assert core.max_threads() == THREADS

    @pytest.mark.parametrize("threads", [1, THREADS])
    def test_many_callers_at_once(self, threads: int):
        program, reference = chain_program(c=32, size=40, threads=threads)
        program.poison = True
        callers, failures = 8, []
        barrier = threading.Barrier(callers)

        def call(seed: int) -> None:
            x = random(1, 32, 40, 40, seed=seed)
            want, y = reference(x), np.empty_like(x)
            barrier.wait()
            for _ in range(30):
                y[:] = np.nan
                program.run([x], [y])
                if not np.allclose(y, want, rtol=1e-6):
                    failures.append(seed)

        workers = [threading.Thread(target=call, args=(seed,)) for seed in range(callers)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not failures
        assert 1 <= program.context_count <= callers

    def test_convolutions_with_scratchpads_at_once(self):
        x, w = random(1, 32, 12, 12, seed=1), random(32, 32, 3, 3, seed=2)
        d = desc(x.shape)
        pd = core.convolution(d, desc(w.shape, "any"), None, d, [1, 1], [1, 1], [1, 1], [1, 1])
        primitive = pd.create()
        assert primitive.scratchpad_nbytes > 0
        packed = core.prepack(w, desc(w.shape), pd.arg_desc(core.ARG_WEIGHTS), THREADS)
        program = core.Program(
            primitive.scratchpad_nbytes, [packed], [d.nbytes], [d.nbytes], THREADS
        )
        program.add_primitive(
            primitive,
            [
                (core.ARG_SRC, d, INPUTS, 0, 0),
                (core.ARG_WEIGHTS, pd.arg_desc(core.ARG_WEIGHTS), CONSTANTS, 0, 0),
                (core.ARG_DST, d, OUTPUTS, 0, 0),
                (core.ARG_SCRATCHPAD, pd.arg_desc(core.ARG_SCRATCHPAD), ARENA, 0, 0),
            ],
        )
        program.freeze()
        want, failures = convolve(x, w, pad=1), []

        def call() -> None:
            y = np.empty_like(x)
            for _ in range(10):
                program.run([x], [y])
                if not np.allclose(y, want, rtol=1e-3, atol=1e-3):
                    failures.append(y)

        workers = [threading.Thread(target=call) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not failures


class TestProfileAndTrace:
    def test_profile(self):
        program, reference = chain_program()
        x = random(1, 16, 10, 10)
        y = np.empty_like(x)
        samples = program.profile([x], [y], 5)
        assert [len(run) for run in samples] == [4] * 5
        assert all(ns >= 0 for run in samples for ns in run)
        np.testing.assert_allclose(y, reference(x), rtol=1e-6)

    def test_profile_needs_a_run(self):
        with pytest.raises(ValueError, match="runs: expected at least 1, got 0"):
            relu_program().profile([], [], 0)

    def test_trace_sees_the_arena_after_each_step(self):
        program, reference = chain_program()
        x = random(1, 16, 10, 10)
        y = np.empty_like(x)
        seen = []

        def after(step: int, arena: np.ndarray, outputs: list[np.ndarray]) -> None:
            assert outputs[0] is y
            seen.append((step, arena.view(F32).reshape(3, *x.shape).copy()))

        program.trace([x], [y], after)
        assert [step for step, _ in seen] == [0, 1, 2, 3]
        assert (seen[0][1][2] == 0.5).all()
        np.testing.assert_array_equal(seen[1][1][0], np.maximum(x, 0))
        np.testing.assert_allclose(seen[2][1][1] + 0.5, reference(x), rtol=1e-6)

    def test_arena_outlives_the_program(self):
        program, _ = chain_program()
        x = random(1, 16, 10, 10)
        kept = []
        program.trace([x], [np.empty_like(x)], lambda _step, arena, _outputs: kept.append(arena))
        del program
        gc.collect()
        assert (kept[0].view(F32)[-1]) == 0.5

    def test_exception_of_the_callback(self):
        program, reference = chain_program()
        x = random(1, 16, 10, 10)
        y = np.empty_like(x)

        def refuse(*_: Any) -> None:
            raise KeyError("stop")

        with pytest.raises(KeyError, match="stop"):
            program.trace([x], [y], refuse)
        program.run([x], [y])
        np.testing.assert_allclose(y, reference(x), rtol=1e-6)
        assert program.context_count == 1


class TestRefusals:
    """Whatever would read or write out of bounds must never get as far as running."""

    d = desc((1, 16, 4, 4))
    n = 1024

    def program(self, arena: int = 2048) -> Any:
        return core.Program(arena, [np.zeros(256, F32)], [self.n], [self.n], THREADS)

    def relu(self, threads: int = THREADS) -> Any:
        return core.eltwise("relu", self.d, self.d, threads=threads).create()

    def args(self, src=(INPUTS, 0, 0), dst=(OUTPUTS, 0, 0), dst_desc: Any = None):
        return [
            (core.ARG_SRC, self.d, *src),
            (core.ARG_DST, dst_desc or self.d, *dst),
        ]

    @pytest.mark.parametrize(
        ("places", "message"),
        [
            ({"src": (ARENA, 0, 1028)}, "1024 bytes at offset 1028 do not fit into the 2048 bytes"),
            ({"src": (ARENA, 0, 2**62)}, "do not fit into the 2048 bytes of arena"),
            ({"src": (INPUTS, 0, 4)}, r"do not fit into the 1024 bytes of inputs\[0\]"),
            ({"src": (INPUTS, 1, 0)}, r"step 0: there is no inputs\[1\]"),
            ({"src": (CONSTANTS, 1, 0)}, r"step 0: there is no constants\[1\]"),
            ({"dst": (OUTPUTS, 7, 0)}, r"step 0: there is no outputs\[7\]"),
            ({"dst": (CONSTANTS, 0, 0)}, r"constants\[0\] is read only"),
            ({"dst": (INPUTS, 0, 0)}, r"inputs\[0\] is read only"),
            ({"src": (6, 0, 0)}, "space: expected 0 .*, got 6"),
            ({"src": (-1, 0, 0)}, "space: expected 0 .*, got -1"),
            ({"src": (INPUTS, -1, 0)}, "index: expected at least 0"),
            ({"src": (INPUTS, 0, -4)}, "offset_bytes: expected at least 0"),
            ({"dst_desc": desc((1, 16, 4, 4), "acdb")}, "argument 17 expected MemoryDesc"),
        ],
    )
    def test_places(self, places: dict[str, Any], message: str):
        program = self.program()
        with pytest.raises(ValueError, match=message):
            program.add_primitive(self.relu(), self.args(**places))
        assert program.step_count == 0

    def test_submemory_counts_its_offset(self):
        part = desc((1, 32, 4, 4)).submemory([1, 16, 4, 4], [0, 16, 0, 0])
        primitive = core.reorder(self.d, part).create()
        args = self.args(dst=(ARENA, 0, 0), dst_desc=part)
        self.program(2048).add_primitive(primitive, args)
        with pytest.raises(ValueError, match="2048 bytes at offset 0 do not fit into the 2047"):
            self.program(2047).add_primitive(primitive, args)

    def test_missing_and_surplus_arguments(self):
        program, args = self.program(), self.args()
        with pytest.raises(ValueError, match="expected argument 17 once, got it 0 times"):
            program.add_primitive(self.relu(), args[:1])
        with pytest.raises(ValueError, match="expected argument 1 once, got it 2 times"):
            program.add_primitive(self.relu(), [*args, args[0]])
        with pytest.raises(ValueError, match="expected 2 arguments, got 3"):
            program.add_primitive(self.relu(), [*args, (99, self.d, INPUTS, 0, 0)])

    def test_missing_scratchpad_and_operand(self):
        d = desc((1, 16, 4, 4))
        window = ([1, 1], [1, 1], [1, 1], [1, 1])
        ops = [("binary", "add", desc((1, 16, 1, 1)))]
        pd = core.convolution(d, desc((16, 16, 3, 3)), None, d, *window, ops)
        primitive = pd.create()
        places = {core.ARG_SRC: INPUTS, core.ARG_DST: OUTPUTS}
        args = [(a, pd.arg_desc(a), places.get(a, CONSTANTS), 0, 0) for a in pd.args]
        program = core.Program(0, [np.zeros(2304, F32)], [1024], [1024], THREADS)
        assert pd.scratchpad_nbytes > 0
        with pytest.raises(ValueError, match=f"argument {core.ARG_SCRATCHPAD} once, got it 0"):
            program.add_primitive(primitive, args)
        with pytest.raises(ValueError, match=f"argument {core.post_op_arg(0)} once, got it 0"):
            program.add_primitive(primitive, args[:-1])

    def test_other_number_of_threads(self):
        with pytest.raises(ValueError, match="expected a primitive made for threads="):
            self.program().add_primitive(self.relu(THREADS + 1), self.args())

    @pytest.mark.parametrize("threads", [0, -1])
    def test_wrong_number_of_threads(self, threads: int):
        with pytest.raises(ValueError, match="threads: expected at least 1"):
            core.Program(0, [], [], [], threads)

    @pytest.mark.parametrize(
        ("dst", "src", "nbytes", "message"),
        [
            ((ARENA, 0, 0), (INPUTS, 0, 0), 1025, "do not fit"),
            ((ARENA, 0, 2000), (INPUTS, 0, 0), 1024, "do not fit"),
            ((ARENA, 0, 0), (INPUTS, 0, 0), -1, "nbytes: expected at least 0"),
            ((INPUTS, 0, 0), (ARENA, 0, 0), 4, "read only"),
            ((ARENA, 0, 0), (ARENA, 1, 8), 16, "overlaps itself"),
            ((ARENA, 0), (ARENA, 0, 8), 16, "dst: expected 3 values, got 2"),
        ],
    )
    def test_copies(self, dst: Any, src: Any, nbytes: int, message: str):
        with pytest.raises(ValueError, match=message):
            self.program().add_copy(dst, src, nbytes)

    @pytest.mark.parametrize(
        ("dst", "count", "message"),
        [
            ((ARENA, 0, 0), 513, "do not fit"),
            ((ARENA, 0, 2), 1, "expected a multiple of 4"),
            ((CONSTANTS, 0, 0), 1, "read only"),
            ((ARENA, 0, 0), 2**62, "do not fit|too many values"),
        ],
    )
    def test_fills(self, dst: Any, count: int, message: str):
        with pytest.raises(ValueError, match=message):
            self.program().add_fill(dst, count, 0.0)

    def test_frozen_programs_do_not_change(self):
        program = self.program()
        with pytest.raises(RuntimeError, match=r"not frozen: call freeze\(\) before running"):
            program.run([np.zeros(256, F32)], [np.zeros(256, F32)])
        program.freeze()
        for add in (
            lambda: program.add_primitive(self.relu(), self.args()),
            lambda: program.add_copy((ARENA, 0, 0), (INPUTS, 0, 0), 4),
            lambda: program.add_fill((ARENA, 0, 0), 1, 0.0),
        ):
            with pytest.raises(RuntimeError, match="the program is frozen"):
                add()

    @pytest.mark.parametrize(
        ("inputs", "outputs", "message"),
        [
            ([], [np.zeros(256, F32)], "inputs: expected 1 arrays, got 0"),
            ([np.zeros(256, F32)], [], "outputs: expected 1 arrays, got 0"),
            ([np.zeros(255, F32)], [np.zeros(256, F32)], r"inputs\[0\]: expected 1024 bytes"),
            ([np.zeros(256, F32)], [np.zeros(257, F32)], r"outputs\[0\]: expected 1024 bytes"),
            ([np.zeros(512, F32)[::2]], [np.zeros(256, F32)], "inputs: expected a C-contiguous"),
            ([[0.0] * 256], [np.zeros(256, F32)], "inputs: expected a C-contiguous array, got"),
            ([np.zeros(256, F32)], [np.zeros((256, 2), F32)[:, 0]], "outputs: expected"),
        ],
    )
    def test_arrays_of_a_run(self, inputs: Any, outputs: Any, message: str):
        program = relu_program((1, 16, 4, 4))
        with pytest.raises(ValueError, match=message):
            program.run(inputs, outputs)

    def test_arrays_that_are_no_list(self):
        with pytest.raises(TypeError, match="expected a list of arrays"):
            relu_program((1, 16, 4, 4)).run(3, [])

    def test_read_only_output(self):
        x, y = random(1, 16, 4, 4), random(1, 16, 4, 4)
        y.flags.writeable = False
        with pytest.raises(ValueError, match="outputs: expected a writable C-contiguous array"):
            relu_program((1, 16, 4, 4)).run([x], [y])

    def test_arrays_that_overlap(self):
        memory = np.zeros(300, F32)
        with pytest.raises(ValueError, match=r"outputs\[0\]: shares memory with another array"):
            relu_program((1, 16, 4, 4)).run([memory[:256]], [memory[44:]])

    def test_constants_must_be_arrays(self):
        with pytest.raises(ValueError, match=r"constants\[1\]: expected a C-contiguous array"):
            core.Program(0, [core.Buffer(4), "text"], [], [], THREADS)

    def test_negative_sizes(self):
        for arguments in ((-1, [], [], []), (0, [], [-1], []), (0, [], [], [-1])):
            with pytest.raises(ValueError, match="expected at least 0, got -1"):
                core.Program(*arguments, THREADS)


def test_facts_about_the_library():
    assert core.version().split(".")[0] == "3"
    assert core.effective_isa() == core.effective_isa().upper()
    assert core.max_threads() >= 1
    assert issubclass(core.NativeError, RuntimeError)
