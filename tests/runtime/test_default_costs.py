"""What is assumed of the library's kernels without measurements, compared with the library."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.runtime.binding.primitives import create, implementations
from stridewise.runtime.machine.machine import this_machine
from stridewise.targets.cost import Roofline, is_reference
from stridewise.targets.kernels import KernelSpec, MemorySpec, PostOpSpec
from stridewise.targets.onednn.depthwise import in_pairs
from stridewise.targets.onednn.table import efficiency, is_naive

BLOCKED = "aBcd16b" if this_machine(1).has_avx512 else "aBcd8b"
TAGS = ("abcd", "acdb", BLOCKED)


def binaries() -> Iterator[KernelSpec]:
    """Yield additions of an operand that is broadcast along any axes, stored alike or plain."""
    for tag, batch, channels, side in product(TAGS, (1, 3), (8, 17, 32), ((1, 1), (7, 7), (7, 1))):
        dims = (batch, channels, *side)
        for kept in product((False, True), repeat=4):
            other = tuple(n if keep else 1 for n, keep in zip(dims, kept, strict=True))
            for stored in {tag, "abcd"}:
                memories = (
                    ("src", MemorySpec(dims, tag)),
                    ("src1", MemorySpec(other, stored)),
                    ("dst", MemorySpec(dims, tag)),
                )
                yield KernelSpec("binary", memories, (("algorithm", "add"),), flops=1.0)


def test_the_library_has_naive_loops_where_that_is_assumed():
    if this_machine(1).isa in ("SSE41", "AVX"):
        pytest.skip("blocks of 8 are no vectors of these instruction sets")
    wrong = [
        f"{spec}: {found[0]}"
        for spec in binaries()
        if is_reference((found := implementations(spec, 1))[0]) != is_naive(spec)
    ]
    assert not wrong


Groups = tuple[int, int, int]


def data_gradients(tag: str, groups: Groups) -> Iterator[KernelSpec]:
    """Yield gradients of a convolution's source, of all sizes that it can have."""
    count, outputs, inputs = groups
    numbers = product((1, 2, 3), (1, 2, 3), (1, 2), (0, 1), (0, 1, 2, -1, -2))
    for taps, stride, dilation, begin, end in numbers:
        reach, side = dilation * (taps - 1), 5
        result = (side - 1) * stride + reach + 1 - begin - end
        if begin > reach or -end >= stride or (taps == 1 and dilation > 1):
            continue
        weights = (count, outputs, inputs, taps, taps)[count == 1 :]
        memories = (
            ("src", MemorySpec((2, count * inputs, side, side), tag)),
            ("weights", MemorySpec(weights, "abcde"[: len(weights)])),
            ("dst", MemorySpec((2, count * outputs, result, result), tag)),
        )
        names = {"begins": begin, "dilations": dilation, "ends": end, "strides": stride}
        params = tuple((name, (number, number)) for name, number in names.items())
        yield KernelSpec("fitted_deconvolution", memories, params, flops=1.0)


@pytest.mark.skipif(BLOCKED != "aBcd16b", reason="other instruction sets have more naive loops")
@pytest.mark.parametrize("groups", [(1, 32, 48), (2, 16, 16), (32, 1, 1), (8, 4, 4)], ids=str)
@pytest.mark.parametrize("tag", ["acdb", BLOCKED])
def test_gradients_are_naive_where_that_is_assumed(tag: str, groups: Groups):
    wrong = [
        f"{spec}: {found}"
        for spec in data_gradients(tag, groups)
        if is_reference(found := create(spec, "", 1).impl) != is_naive(spec)
    ]
    assert not wrong


def windows_of(kind: str, channels: int, tag: str) -> Iterator[KernelSpec]:
    """Yield long, wide and gapped windows, with more padding than usual, of either operator."""
    other = tag if tag == "acdb" else BLOCKED
    pads = ((0, 0), (1, 0), (0, 2), (2, 0), (0, 3))
    windows = ((1, 1), (3, 3), (3, 14), (3, 15), (16, 3), (2, 2), (16, 16))
    numbers = product(windows, (1, 2), (1, 2), pads, ((0, 0), (1, 1), (0, 3)))
    for window, stride, gap, begins, ends in numbers:
        reach = [(taps - 1) * gap + 1 for taps in window]
        sides = [
            5 * stride + extent - begin - end
            for extent, begin, end in zip(reach, begins, ends, strict=True)
        ]
        if min(sides) < 1 or (window == (1, 1) and gap > 1):
            continue
        source = MemorySpec((2, channels, *sides), tag)
        result = MemorySpec((2, 48, 6, 6), other)
        weights = (48, channels, *window)
        both = {"dilations": (gap, gap), "strides": (stride, stride)}
        params = tuple(sorted({"begins": begins, "ends": ends, **both}.items()))
        memories = (("src", source), ("weights", MemorySpec(weights, "any")), ("dst", result))
        if kind == "conv_weight_gradient":
            memories = (("src", source), ("diff_dst", result), ("dst", MemorySpec(weights, "abcd")))
        yield KernelSpec(kind, memories, params, flops=1.0)


@pytest.mark.parametrize(("channels", "tag"), [(3, "abcd"), (32, BLOCKED), (32, "acdb")])
@pytest.mark.parametrize("kind", ["convolution", "conv_weight_gradient"])
def test_unusual_windows_are_naive_where_that_is_assumed(kind: str, channels: int, tag: str):
    if kind == "conv_weight_gradient" and this_machine(1).isa in ("SSE41", "AVX"):
        pytest.skip("all weight gradients in blocks are naive with these instruction sets")
    wrong = [
        f"{spec}: {found}"
        for spec in windows_of(kind, channels, tag)
        if is_reference(found := create(spec, "", 1).impl) != is_naive(spec)
    ]
    assert not wrong


def convolution(channels: int, side: int, window: int, *, groups: bool, tag: str) -> KernelSpec:
    weights = (channels, channels, window, window)
    if groups:
        weights = (channels, 1, 1, window, window)
    image = MemorySpec((1, channels, side, side), tag)
    memories = (("src", image), ("weights", MemorySpec(weights, "any")), ("dst", image))
    pads = (window // 2, window // 2)
    params = (("begins", pads), ("dilations", (1, 1)), ("ends", pads), ("strides", (1, 1)))
    return KernelSpec("convolution", memories, params, flops=1.0)


@pytest.mark.parametrize(
    ("channels", "side", "window", "groups"),
    [(32, 14, 3, True), (48, 7, 5, True), (64, 1, 1, False)],
)
def test_direct_kernels_are_used_where_nothing_was_measured(
    channels: int, side: int, window: int, groups: bool
):
    spec = convolution(channels, side, window, groups=groups, tag="acdb")
    there = implementations(spec, 1)
    used = create(spec, "", 1).impl
    direct = [name for name in there if name.startswith("jit")]
    assert used == (direct[0] if direct else there[0])
    assert create(spec, there[0], 1).impl == there[0]


@pytest.mark.parametrize("tag", TAGS)
def test_other_convolutions_use_the_first_choice_of_the_library(tag: str):
    spec = convolution(32, 14, 3, groups=False, tag=tag)
    assert create(spec, "", 1).impl == implementations(spec, 1)[0]


IMAGE, WINDOWS = (1, 256, 14, 14), (256, 256, 3, 3)
FACTORS = {
    "conv_weight_gradient": (("src", IMAGE), ("diff_dst", IMAGE), ("dst", WINDOWS)),
    "fitted_convolution": (("src", IMAGE), ("weights", WINDOWS), ("dst", IMAGE)),
    "fitted_deconvolution": (("src", IMAGE), ("weights", WINDOWS), ("dst", IMAGE)),
}


@pytest.mark.parametrize("kind", FACTORS)
def test_products_of_bfloat16_take_less_time_whatever_type_parameters_have(kind: str):
    costs = {
        dtype: Roofline(1e11, 1e12, lambda _: 1.0, bfloat16_rate=2.0).cost(
            KernelSpec(
                kind,
                tuple(
                    (role, MemorySpec(dims, "abcd", dtype=dtype if dims == IMAGE else "f32"))
                    for role, dims in FACTORS[kind]
                ),
                flops=1e9,
            )
        )
        for dtype in ("f32", "bf16")
    }
    assert costs["bf16"].cost_ns < 0.6 * costs["f32"].cost_ns


def transposed(tag: str, window: int, dtype: str, *, bias: bool, active: bool) -> KernelSpec:
    """Return a transposed convolution whose windows overlap by half, or not at all."""
    side, stride, pad = 8, 2, window // 2 - 1
    result = MemorySpec((1, 32, 2 * side, 2 * side), tag, dtype=dtype)
    memories = (
        ("src", MemorySpec((1, 48, side, side), tag, dtype=dtype)),
        ("weights", MemorySpec((32, 48, window, window), "any", dtype=dtype)),
        *((("bias", MemorySpec((32,), "a")),) if bias else ()),
        ("dst", result),
    )
    names = {"begins": pad, "dilations": 1, "ends": pad, "strides": stride}
    params = tuple((name, (number, number)) for name, number in names.items())
    flops = 2.0 * side * side * 48 * 32 * window * window
    posts = (PostOpSpec("eltwise", algorithm="relu"),) if active else ()
    return KernelSpec("deconvolution", memories, params, posts, flops=flops)


@pytest.mark.skipif(BLOCKED != "aBcd16b", reason="other instruction sets have other kernels")
@given(
    tag=st.sampled_from(TAGS),
    window=st.sampled_from([2, 4]),
    bias=st.booleans(),
    active=st.booleans(),
)
def test_transposed_convolutions_have_naive_passes_where_they_are_data_gradients(
    tag: str, window: int, bias: bool, active: bool
):
    spec = transposed(tag, window, "f32", bias=bias, active=active)
    alone = transposed(tag, window, "f32", bias=False, active=False)
    is_gradient = create(spec, "", 1).impl.startswith("conv:")
    assert (efficiency(spec) < 0.9 * efficiency(alone)) == (is_gradient and (bias or active))


@given(inputs=st.integers(8, 512), channels=st.integers(8, 1024), side=st.sampled_from([7, 14, 56]))
def test_bfloat16_products_halve_the_expansion_alone(inputs: int, channels: int, side: int):
    """The depthwise convolution behind it multiplies in float32, whatever the expansion does."""
    image = MemorySpec((1, channels, side, side), "acdb", dtype="bf16")
    between = side * side * channels
    memories = (
        ("src", MemorySpec((1, inputs, side, side), "acdb", dtype="bf16")),
        ("weights", MemorySpec((channels, inputs, 1, 1), "ABcd16b32a")),
        ("dst", image),
    )
    flops = 2.0 * between * (inputs + 9)
    exact = KernelSpec("expand_depthwise", memories, (("lanes", 16),), flops=flops)
    rounded = in_pairs(exact)
    costs = [spec.flops / rate / efficiency(spec) for spec, rate in ((exact, 1), (rounded, 2))]
    assert 0.5 * costs[0] < costs[1] < costs[0]
    assert 2.0 * between * inputs < costs[0]


@given(st.integers(1, 200))
def test_norms_of_pixels_pay_for_lanes_without_channels(channels: int):
    def efficient(count: int, tag: str) -> float:
        memory = MemorySpec((1, count, 100), tag)
        return efficiency(KernelSpec("batch_norm", (("src", memory), ("dst", memory)), flops=1.0))

    vectors = -(-channels // 16)
    assert efficient(channels, "acb") == pytest.approx(
        efficient(16, "acb") * channels / (16 * vectors)
    )
    assert efficient(channels, "abc") == efficient(16, "abc")


@pytest.mark.skipif(this_machine(1).isa in ("SSE41", "AVX"), reason="all of them are naive")
def test_weight_gradients_of_volumes_are_naive_where_that_is_assumed():
    tag, wrong = f"aBcde{BLOCKED[4:]}", list[str]()
    numbers = product((1, 2, 3, 4, 8), (2, 4), (1, 2, 3, 5), (1, 2), (0, 1, 2), (0, 1, 2), (1, 2))
    for slices, side, taps, stride, begin, end, gap in numbers:
        reach, extents = gap * (taps - 1) + 1, (slices, side, side)
        left = [extent + begin + end - reach for extent in extents]
        if max(begin, end) > taps // 2 or min(left) < 0 or (taps == 1 and gap > 1):
            continue
        memories = (
            ("src", MemorySpec((1, 32, *extents), tag)),
            ("diff_dst", MemorySpec((1, 16, *(n // stride + 1 for n in left)), tag)),
            ("dst", MemorySpec((16, 32, taps, taps, taps), "abcde")),
        )
        names = {"begins": begin, "dilations": gap, "ends": end, "strides": stride}
        params = tuple((name, (number,) * 3) for name, number in names.items())
        spec = KernelSpec("conv_weight_gradient", memories, params, flops=1.0)
        found = implementations(spec, 1)[0]
        # Without AVX-512, padding that strides pass over counts as padding, too.
        is_unused = BLOCKED == "aBcd8b" and begin == 0 < end and stride > 1
        if is_reference(found) != is_naive(spec) and (is_reference(found) or not is_unused):
            wrong.append(f"{spec}: {found}")
    assert not wrong


@pytest.mark.parametrize("kind", ["depthwise", "narrow_groups", "volume_depthwise", "resampling"])
@pytest.mark.parametrize("tag", ["acdb", "aBcd16b"])
def test_vectors_of_channels_take_as_long_if_they_are_not_full(kind: str, tag: str):
    def share(channels: int) -> float:
        dst = MemorySpec((1, channels, 9, 9), tag)
        return efficiency(KernelSpec(kind, (("dst", dst),), (("lanes", 16),)))

    for channels in (1, 3, 15, 17, 24, 33):
        full = -(-channels // 16) * 16
        assert share(channels) == pytest.approx(share(full) * channels / full)


@pytest.mark.parametrize(("axis", "inner"), [(0, 6 * 5 * 7), (1, 1), (2, 7 * 6), (3, 6)])
def test_concatenations_pay_for_each_row_that_they_copy(axis: int, inner: int):
    def share(pieces: int) -> float:
        dims = [3, 6, 5, 7]
        piece = MemorySpec(tuple(dims), "acdb")
        dims[axis] *= pieces
        sources = ((f"src{i}", piece) for i in range(pieces))
        memories = (*sources, ("dst", MemorySpec(tuple(dims), "acdb")))
        return efficiency(KernelSpec("concat", memories, (("axis", axis),)))

    row = 4 * inner * (3, 6, 5, 7)[axis]
    assert share(2) == share(5) == pytest.approx(0.4 * row / (row + 16))
