"""Transposed depthwise convolution in every format and instruction set, in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.runtime.graphs import error
from tests.runtime.winograd_layers import CORE, format_of, stored
from tests.training.depthwise_layers import KINDS, TYPED, Layer, layers
from tests.training.one_kernel import run, tag_of

from stridewise.dtypes import dtype_of

Array = NDArray[Any]
Typed = tuple[str, tuple[int, str]]
"""The type of source and result; lanes and instruction set."""
LIMITS = {"f32": 1e-6, "bf16": 4e-3}


def wanted(x: Array, w: Array, layer: Layer) -> Array:
    reach = [(o - 1) * s + d * (t - 1) + 1 for o, s, d, t in zip(
        x.shape[2:], layer.strides, layer.dilations, layer.window, strict=True)]  # fmt: skip
    ends = [max(r, p + n) for r, p, n in zip(reach, layer.begins, layer.size, strict=True)]
    whole = np.zeros((*x.shape[:2], *ends))
    for tap in np.ndindex(layer.window):
        at = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, o, s in zip(tap, layer.dilations, x.shape[2:], layer.strides, strict=True)
        )
        whole[(..., *at)] += x.astype(float) * w[(slice(None), *tap)].reshape(-1, 1, 1)
    (top, left), (height, width) = layer.begins, layer.size
    return whole[:, :, top : top + height, left : left + width]


def found(
    arrays: tuple[Array, Array, Array], layer: Layer, kind: str, typed: Typed, n: int
) -> Array:
    dtype, (lanes, isa) = typed
    tag, fmt = tag_of(kind, lanes), format_of(kind, lanes)
    src, dst = (CORE.MemoryDesc(shape, dtype, tag) for shape in (layer.result, layer.source))
    posts = [("binary", "mul", dst), ("eltwise", "linear", 2.0, 1.0)]
    op = CORE.TransposedDepthwise(
        src, dst, layer.begins, posts, window=layer.window, strides=layer.strides,
        dilations=layer.dilations, lanes=lanes, threads=n, isa=isa,
    )  # fmt: skip
    x, w, factor = arrays
    given = {
        CORE.ARG_SRC: stored(x, fmt, dtype),
        CORE.ARG_WEIGHTS: w,
        CORE.post_op_arg(0): stored(factor, fmt, dtype),
    }
    return run(op, given, layer.source, kind, lanes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("typed", TYPED, ids=str)
@settings(max_examples=30, deadline=None)
@given(layers(taps=5, most_extra=12), st.integers(0, 99))
def test_any_window_in_any_format(typed: Typed, kind: str, layer: Layer, seed: int):
    rng, kept = np.random.default_rng(seed), dtype_of(typed[0]).numpy
    x, factor = (
        rng.normal(size=shape).astype(kept).astype(np.float32)
        for shape in (layer.result, layer.source)
    )
    w = rng.normal(size=(layer.channels, *layer.window)).astype(np.float32)
    one, two = (found((x, w, factor), layer, kind, typed, n) for n in (1, 2))
    np.testing.assert_array_equal(one, two)
    assert error(one, wanted(x, w, layer) * factor * 2 + 1) <= LIMITS[typed[0]]


def test_what_the_kernel_does_not_do_is_refused():
    desc = CORE.MemoryDesc((1, 8, 4, 4), "f32", "acdb")
    options = {"window": (3, 3), "strides": (1, 1), "dilations": (1, 1), "lanes": 8, "threads": 1}
    with pytest.raises(ValueError, match="a padding smaller than the window"):
        CORE.TransposedDepthwise(desc, desc, (3, 0), [], **options)
    with pytest.raises(ValueError, match="nothing is summed up"):
        CORE.TransposedDepthwise(desc, desc, (1, 1), [("sum", 1.0)], **options)
    far = CORE.MemoryDesc((1, 8, 9, 4), "f32", "acdb")
    with pytest.raises(ValueError, match="larger than what windows reach"):
        CORE.TransposedDepthwise(desc, far, (1, 1), [], **options)
