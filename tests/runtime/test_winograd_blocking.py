"""How Winograd kernels cut their work: the cut is never seen in results, and scratch is bounded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .test_winograd import CORE, KERNELS, KINDS, TOLERANCE, Runner, Shape, convolved, data

DEEP = Shape(channels=600, outputs=96, height=13, width=11)
"""So many channels that their weights pass through the first-level cache in several parts."""


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_many_channels_are_summed_in_parts(kernel, tile):
    x, w, bias = data(DEEP)
    found = Runner(DEEP, "channels-last", kernel, tile)(x, w, bias)
    expected = convolved(x, w, bias, DEEP.pads)
    assert np.abs(found - expected).max() <= TOLERANCE[tile] * np.abs(expected).max()


@settings(deadline=None, max_examples=25)
@given(
    st.builds(
        Shape,
        images=st.integers(1, 3),
        channels=st.sampled_from([3, 64, 300]),
        height=st.integers(1, 30),
        width=st.integers(1, 30),
        outputs=st.sampled_from([5, 32, 130]),
    ),
    st.sampled_from(KERNELS),
    st.sampled_from(KINDS),
    st.sampled_from([2, 4]),
)
def test_results_are_the_same_bits_for_any_number_of_threads(shape, kernel, kind, tile):
    x, w, bias = data(shape)
    expected = Runner(shape, kind, kernel, tile, threads=1)(x, w, bias)
    for threads in (2, 3, 5):
        found = Runner(shape, kind, kernel, tile, threads=threads)(x, w, bias)
        np.testing.assert_array_equal(found, expected)


def scratch(images: int, channels: int, side: int, threads: int) -> int:
    shape = (images, channels, side, side)
    desc = CORE.MemoryDesc(shape, "f32", "aBcd8b")
    kernel = CORE.Winograd(
        desc, desc, False, (1, 1), (1, 1), [], tile=4, lanes=8, threads=threads, isa="portable"
    )
    return kernel.scratchpad_nbytes


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_scratch_does_not_grow_with_images(threads):
    for channels, side in ((64, 112), (256, 56), (512, 28)):
        few, many = (scratch(images, channels, side, threads) for images in (4, 64))
        assert many <= 1.5 * few
