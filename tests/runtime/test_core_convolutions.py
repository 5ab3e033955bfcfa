"""Convolutions and resampling of the native core against NumPy."""

from typing import Any

import numpy as np
import pytest

from .core_cases import THREADS, block_tag, convolve, core, desc, execute, random


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
        widths = ((0, 0), (0, 0), (pad, max(end, 0)), (pad, max(end, 0)))
        there = convolve(np.pad(y, widths), w.transpose(1, 0, 2, 3), None, stride, 0, dilation)
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
