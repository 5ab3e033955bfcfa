"""Primitives of the native core other than convolutions, against NumPy."""

from typing import Any

import numpy as np
import pytest

from .core_cases import F32, block_tag, core, desc, execute, random


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
