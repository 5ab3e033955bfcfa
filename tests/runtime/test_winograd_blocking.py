"""How Winograd kernels cut their work: the cut is never seen in results, and scratch is bounded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from .graphs import error
from .winograd_layers import CORE, KERNELS, KINDS, Runner, Shape, convolved, data

TOLERANCE = {2: 1e-6, 4: 4e-6}
DEEP = Shape(channels=600, outputs=96, height=13, width=11)
"""So many channels that their weights pass through the first-level cache in several parts."""


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_many_channels_are_summed_in_parts(kernel, tile):
    x, w, bias = data(DEEP)
    found = Runner(DEEP, "channels-last", kernel, tile)(x, w, bias)
    assert error(found, convolved(x, w, bias, DEEP)) <= TOLERANCE[tile]


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
    st.sampled_from([2, 4, 6]),
)
def test_results_are_the_same_bits_for_any_number_of_threads(shape, kernel, kind, tile):
    x, w, bias = data(shape)
    expected = Runner(shape, kind, kernel, tile, threads=1)(x, w, bias)
    for threads in (2, 3, 5, 33):
        found = Runner(shape, kind, kernel, tile, threads=threads)(x, w, bias)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        (Shape(channels=48, outputs=80, height=23, width=19, dilations=(2, 3)), 4),
        (Shape(channels=64, outputs=64, height=17, width=13, groups=2), 2),
        (Shape(channels=300, outputs=40, height=15, width=11, window=(5, 5)), 2),
        (Shape(channels=40, outputs=70, height=21, width=17, window=(7, 1)), 4),
        (Shape(channels=40, outputs=70, height=17, width=21, window=(1, 7)), 2),
    ],
    ids=["dilation", "groups", "5x5", "7x1", "1x7"],
)
def test_threads_change_no_bit_of_other_windows(shape, tile, kernel, kind, threads):
    x, w, bias = data(shape)
    expected = Runner(shape, kind, kernel, tile, threads=1)(x, w, bias)
    assert error(expected, convolved(x, w, bias, shape)) <= 8e-6
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
    """What a block needs fits into the last cache, and that is all."""
    for channels, side in ((64, 112), (256, 56), (512, 28)):
        one = scratch(1, channels, side, threads)
        for images in (4, 16, 64):
            # Rows of places begin on lines of their own, which the half does not count.
            limit = max(one, 0.55 * CORE.cache_nbytes(3))
            assert scratch(images, channels, side, threads) <= limit


def test_caches_grow_with_their_levels():
    first, second, third = (CORE.cache_nbytes(level) for level in (1, 2, 3))
    assert 4 << 10 <= first < second < third
    with pytest.raises(ValueError, match="level: expected 1 to 3, got 4"):
        CORE.cache_nbytes(4)


CACHES = (32 << 10, 1 << 20)


def partition(work: tuple[int, ...], lanes: int, threads: int) -> tuple[str, float, int, int]:
    """Divide (channels, outputs, tiles, results of a tile); eight cores share 32 MiB."""
    channels, outputs, tiles, tile = work
    third = (32 << 20) * max(1, threads // 8)
    rows = 14 if lanes == 16 else 6
    chunks, pairs = -(-channels // lanes), -(-outputs // (2 * lanes))
    window = (tile + 2) ** 2
    return CORE.winograd_partition(
        window, tiles, chunks, pairs, lanes, rows, threads, (*CACHES, third)
    )


@settings(deadline=None, max_examples=300)
@given(
    st.tuples(
        st.integers(16, 1024),
        st.integers(16, 1024),
        st.integers(4, 5000),
        st.sampled_from([2, 4, 6]),
    ),
    st.sampled_from([8, 16]),
    st.integers(1, 64),
)
def test_threads_are_busy_and_products_long_where_there_is_work(work, lanes, threads):
    channels, outputs, tiles, tile = work
    vectors = (tile + 2) ** 2 * tiles * channels * outputs / lanes
    share, busy, rows, weights = partition(work, lanes, threads)
    # Below, a barrier takes longer than the work that it would distribute.
    assume(vectors / threads >= 100_000)
    assert busy >= 0.85
    assert rows >= 4
    whole = (tile + 2) ** 2 * (channels + lanes) * (outputs + 2 * lanes) * 4
    if share != "blocks":
        assert weights <= 1.5 * whole / threads + whole / 8


def test_one_image_of_small_layers_keeps_many_cores_busy():
    """512 channels of 7x7: 4 tiles, 16 pairs of vectors of outputs."""
    share, busy, rows, weights = partition((512, 512, 4, 4), 16, 32)
    assert (share, rows) == ("places", 4)
    assert busy >= 0.85
    assert weights <= 36 * 512 * 512 * 4 / 16


def test_partitions_of_nothing_are_refused():
    with pytest.raises(ValueError, match="expected positive numbers, and three sizes of caches"):
        CORE.winograd_partition(36, 0, 1, 1, 8, 6, 1, (*CACHES, 1 << 25))
