"""Winograd convolution of weights that change, and its gradient, against double precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.graphs import error
from tests.runtime.winograd_layers import (
    CORE,
    HALF_KERNELS,
    KERNELS,
    Runner,
    Shape,
    convolved,
    format_of,
    stored,
)
from tests.training.one_kernel import Array, image, run, tag_of

KINDS = ("blocked", "channels-last")
LIMITS = {2: 1e-6, 4: 4e-6}
PAIRS = [kernel for kernel in HALF_KERNELS if kernel[1] in ("portable", "avx512_bf16")]


@st.composite
def layers(draw: st.DrawFn, *, most_groups: int) -> Shape:
    groups = draw(st.integers(1, most_groups))
    channels = st.sampled_from([16, 32] if groups > 1 else [1, 3, 8, 19, 40])
    return Shape(
        images=draw(st.integers(1, 3)),
        channels=groups * draw(channels),
        outputs=groups * draw(channels),
        height=draw(st.integers(2, 9)),
        width=draw(st.integers(2, 9)),
        pads=tuple(draw(st.integers(1, 2)) for _ in range(4)),  # pyright: ignore[reportArgumentType]
        groups=groups,
    )


def found(
    x: Array, w: Array, layer: Shape, kind: str, kernel: tuple[int, str], tile: int,
    threads: int, *, is_transposed: bool,
) -> Array:  # fmt: skip
    lanes, isa = kernel
    shapes = layer.src, layer.dst
    src, dst = (CORE.MemoryDesc(shape, "f32", tag_of(kind, lanes)) for shape in shapes)
    inner = CORE.Winograd(
        src, dst, False, layer.pads[:2], layer.pads[2:], [("eltwise", "linear", 2.0, 1.0)],
        tile=tile, lanes=lanes, threads=threads, groups=layer.groups, isa=isa,
    )  # fmt: skip
    op = CORE.FittedWinograd(inner, is_transposed)
    assert op.impl == f"fitted_winograd_{tile}x{tile}:{isa}"
    given = {CORE.ARG_SRC: image(x, kind, lanes), CORE.ARG_WEIGHTS: np.ascontiguousarray(w)}
    return run(op, given, layer.dst, kind, lanes)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_weights_of_a_run(
    kernel: tuple[int, str], kind: str, tile: int, is_transposed: bool, data: st.DataObject
):
    layer = data.draw(layers(most_groups=1 if is_transposed else 2))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, w = (rng.normal(size=size).astype(np.float32) for size in (layer.src, layer.weights))
    given = w[..., ::-1, ::-1].swapaxes(0, 1) if is_transposed else w
    one, two = (
        found(x, given, layer, kind, kernel, tile, n, is_transposed=is_transposed) for n in (1, 2)
    )
    np.testing.assert_array_equal(one, two)
    assert error(one, convolved(x, w, None, layer) * 2 + 1) <= LIMITS[tile]


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_weights_that_exceed_the_caches(kernel: tuple[int, str], is_transposed: bool):
    # Where their transform of 21 MB exceeds half of the third-level cache, up to six threads pack
    # the weights of a pair of vectors right before they multiply them; with 30, all are packed.
    layer = Shape(images=2, channels=376, outputs=392, height=7, width=7)
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=size).astype(np.float32) for size in (layer.src, layer.weights))
    given = w[..., ::-1, ::-1].swapaxes(0, 1) if is_transposed else w
    one, *more = (
        found(x, given, layer, "blocked", kernel, 4, n, is_transposed=is_transposed)
        for n in (1, 2, 3, 30)
    )
    for other in more:
        np.testing.assert_array_equal(one, other)
    assert error(one, convolved(x, w, None, layer) * 2 + 1) <= LIMITS[4]


def test_transposed_weights_have_no_groups():
    desc = CORE.MemoryDesc((1, 32, 4, 4), "f32", "acdb")
    kernel = CORE.Winograd(
        desc, desc, False, (1, 1), (1, 1), [], tile=2, lanes=16, threads=1, groups=2
    )
    with pytest.raises(ValueError, match="transposed weights have no groups"):
        CORE.FittedWinograd(kernel, True)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(
    layer=layers(most_groups=1), kernel=st.sampled_from(PAIRS), threads=st.integers(1, 3),
    made=st.sampled_from(["bf16", "f32"]), is_exact=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_products_of_pairs(
    layer: Shape, kernel: tuple[int, str], threads: int, made: str, kind: str, seed: int,
    *, is_exact: bool, is_transposed: bool,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    x = (rng.integers(-128, 128, layer.src) / 64).astype(np.float32)
    w = rng.normal(size=layer.weights).astype(np.float32)
    # Transforms of small integers are exact before they are rounded, in whatever order.
    w = np.round(8 * w) if is_exact else w
    dtypes = ("bf16", made)
    runner = Runner(
        layer, kind, kernel, 2, bias=False, threads=threads, dtypes=dtypes, in_pairs=True
    )
    op = CORE.FittedWinograd(runner.kernel, is_transposed)
    given_weights = w[..., ::-1, ::-1].swapaxes(0, 1) if is_transposed else w
    source = stored(x, format_of(kind, kernel[0]), "bf16")
    given = {CORE.ARG_SRC: source, CORE.ARG_WEIGHTS: np.ascontiguousarray(given_weights)}
    found = run(op, given, layer.dst, kind, kernel[0])
    if is_exact:
        constant = runner(x, w, None).astype(np.float32)
        np.testing.assert_array_equal(found, constant)
    wanted = convolved(x, w, None, layer)
    # Transformed weights and pixels are rounded, each to 2**-9, and so is the result.
    assert np.abs(found - wanted).max() <= 0.05 * np.abs(wanted).max()
