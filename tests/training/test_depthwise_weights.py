"""Gradients of the weights of depthwise convolutions, in double precision and beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.graphs import error
from tests.runtime.winograd_layers import CORE, KERNELS, format_of, stored
from tests.training.depthwise_layers import KINDS, TYPED, Layer, layers
from tests.training.one_kernel import Array, run, tag_of

from stridewise.dtypes import dtype_of


def wanted(x: Array, dy: Array, layer: Layer) -> Array:
    pads = zip(layer.begins, layer.ends, strict=True)
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), *pads))
    found = np.zeros((layer.channels, *layer.window))
    for tap in np.ndindex(layer.window):
        at = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, o, s in zip(tap, layer.dilations, dy.shape[2:], layer.strides, strict=True)
        )
        met = padded[(slice(None), slice(None), *at)]
        found[(slice(None), *tap)] = np.einsum("nchw,nchw->c", dy.astype(float), met)
    return found


def found(
    x: Array, dy: Array, layer: Layer, kind: str, kernel: tuple[int, str], dtype: str, threads: int
) -> Array:
    lanes, isa = kernel
    shapes = layer.source, layer.result
    src, diff_dst = (CORE.MemoryDesc(shape, dtype, tag_of(kind, lanes)) for shape in shapes)
    op = CORE.DepthwiseWeightGradient(
        src, diff_dst, layer.begins, window=layer.window, strides=layer.strides,
        dilations=layer.dilations, lanes=lanes, threads=threads, isa=isa,
    )  # fmt: skip
    assert op.impl == f"depthwise_weights:{isa}"
    fmt = format_of(kind, lanes)
    given = {CORE.ARG_SRC: stored(x, fmt, dtype), CORE.ARG_DIFF_DST: stored(dy, fmt, dtype)}
    return run(op, given, (layer.channels, *layer.window), "plain", lanes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "kernel"), TYPED, ids=str)
@settings(max_examples=25, deadline=None)
@given(layers(taps=9, most_extra=20), st.integers(0, 99))
def test_any_window_in_any_format(
    dtype: str, kernel: tuple[int, str], kind: str, layer: Layer, seed: int
):
    rng, kept = np.random.default_rng(seed), dtype_of(dtype).numpy
    x, dy = (
        rng.normal(size=shape).astype(kept).astype(np.float32)
        for shape in (layer.source, layer.result)
    )
    one, two = (found(x, dy, layer, kind, kernel, dtype, n) for n in (1, 2))
    np.testing.assert_array_equal(one, two)
    assert error(one, wanted(x, dy, layer)) <= 1e-6


def test_sums_over_many_parts():
    layer = Layer(40, 40, (30, 31), (5, 5), (1, 1), (1, 1), (2, 2), (2, 2))
    rng = np.random.default_rng(0)
    x, dy = (rng.normal(size=s).astype(np.float32) for s in (layer.source, layer.result))
    one, two = (found(x, dy, layer, "blocked", KERNELS[-2], "f32", n) for n in (1, 2))
    np.testing.assert_array_equal(one, two)
    assert error(one, wanted(x, dy, layer)) <= 1e-6


def test_what_the_kernel_does_not_do_is_refused():
    desc = CORE.MemoryDesc((1, 8, 4, 4), "f32", "acdb")
    options = {"window": (3, 3), "strides": (1, 1), "dilations": (1, 1), "lanes": 8, "threads": 1}
    with pytest.raises(ValueError, match="a padding smaller than the window"):
        CORE.DepthwiseWeightGradient(desc, desc, (3, 0), **options)
    far = CORE.MemoryDesc((1, 8, 9, 4), "f32", "acdb")
    with pytest.raises(ValueError, match="larger than what windows reach"):
        CORE.DepthwiseWeightGradient(desc, far, (1, 1), **options)
    other = CORE.MemoryDesc((1, 8, 4, 4), "bf16", "acdb")
    with pytest.raises(ValueError, match="expected"):
        CORE.DepthwiseWeightGradient(desc, other, (1, 1), **options)
