"""Gradients of weights by Winograd's algorithm, against double precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.graphs import error
from tests.runtime.winograd_layers import CORE, KERNELS, Shape
from tests.training.one_kernel import Array, image, run, tag_of

KINDS = ("blocked", "channels-last")
LIMITS = {2: 2e-6, 4: 5e-6}
CHANNELS = st.sampled_from([1, 3, 8, 16, 19, 40])
LAYERS = st.builds(
    Shape,
    images=st.integers(1, 3),
    channels=CHANNELS,
    outputs=CHANNELS,
    height=st.integers(5, 24),
    width=st.integers(5, 24),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    dilations=st.tuples(*[st.integers(1, 2)] * 2),
)


def wanted(x: Array, dy: Array, layer: Shape) -> Array:
    top, left, bottom, right = layer.pads
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (top, bottom), (left, right)))
    found = np.zeros(layer.weights)
    high, wide = dy.shape[2:]
    for row, column in np.ndindex(3, 3):
        y, z = row * layer.dilations[0], column * layer.dilations[1]
        met = padded[:, :, y : y + high, z : z + wide]
        found[:, :, row, column] = np.einsum("nohw,nchw->oc", dy, met)
    return found


def found(
    x: Array, dy: Array, layer: Shape, kind: str, kernel: tuple[int, str], tile: int, threads: int
) -> Array:
    lanes, isa = kernel
    shapes = layer.src, layer.dst
    src, dst = (CORE.MemoryDesc(shape, "f32", tag_of(kind, lanes)) for shape in shapes)
    forward = CORE.Winograd(
        src, dst, False, layer.pads[:2], layer.pads[2:], [],
        tile=tile, lanes=lanes, threads=threads, dilations=layer.dilations, isa=isa,
    )  # fmt: skip
    op = CORE.WinogradWeightGradient(forward)
    assert op.impl == f"weights_of_winograd_{tile}x{tile}:{isa}"
    given = {CORE.ARG_SRC: image(x, kind, lanes), CORE.ARG_DIFF_DST: image(dy, kind, lanes)}
    return run(op, given, layer.weights, "plain", lanes)


def check(
    layer: Shape, kind: str, kernel: tuple[int, str], tile: int, *threads: int, seed: int = 0
) -> None:
    """Compare a gradient with double precision, and its bits for several numbers of threads."""
    rng = np.random.default_rng(seed)
    x, dy = (rng.normal(size=size).astype(np.float32) for size in (layer.src, layer.dst))
    one, *more = (found(x, dy, layer, kind, kernel, tile, n) for n in (1, *threads))
    for other in more:
        np.testing.assert_array_equal(one, other)
    assert error(one, wanted(x, dy, layer)) <= LIMITS[tile]


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@settings(max_examples=20, deadline=None)
@given(LAYERS, st.integers(0, 99))
def test_any_image(kernel: tuple[int, str], kind: str, tile: int, layer: Shape, seed: int):
    check(layer, kind, kernel, tile, 2, seed=seed)


@pytest.mark.parametrize("channels", [64, 160])
@pytest.mark.parametrize("tile", [2, 4])
def test_sums_over_many_blocks(tile: int, channels: int):
    layer = Shape(images=5, channels=channels, outputs=channels + 8, height=30, width=31)
    check(layer, "blocked", KERNELS[-2], tile, 2)


@pytest.mark.parametrize("images", [1, 3, 7])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_sums_of_slices(kernel: tuple[int, str], images: int):
    # 1089, 3267 and 7623 tiles: two or four slices.
    layer = Shape(images=images, channels=19, outputs=40, height=66, width=65)
    check(layer, "channels-last", kernel, 2, 2, 3, 4)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_sums_of_many_channels_over_few_tiles(kernel: tuple[int, str]):
    # With up to eight threads, sums of a chunk of outputs are finished before those of the next.
    layer = Shape(images=3, channels=259, outputs=264, height=7, width=7)
    check(layer, "blocked", kernel, 4, 2, 3, 20)


@pytest.mark.parametrize(
    "changes", [{"groups": 2, "channels": 32, "outputs": 32}, {"window": (5, 5)}], ids=str
)
def test_what_has_no_kernel_is_refused(changes: dict[str, object]):
    layer = replace(Shape(pads=(2, 2, 2, 2)), **changes)  # pyright: ignore[reportArgumentType]
    src, dst = (CORE.MemoryDesc(shape, "f32", "acdb") for shape in (layer.src, layer.dst))
    forward = CORE.Winograd(
        src, dst, False, (2, 2), (2, 2), [],
        tile=2, lanes=16, threads=1, groups=layer.groups, window=layer.window,
    )  # fmt: skip
    with pytest.raises(ValueError, match="weight gradients"):
        CORE.WinogradWeightGradient(forward)
