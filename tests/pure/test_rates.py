"""Predicted rates: exact where known, the parent's where not, and the same for the same samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from stridewise.targets.kernels import KernelSpec, MemorySpec
from stridewise.targets.onednn.traits import traits_of
from stridewise.targets.rates import UNKNOWN, Sample, Traits, _median, predicted

FAMILIES = ("plain", "blocked", "channels-last")
ratios = st.floats(-3, 3)


@st.composite
def samples(draw: st.DrawFn, least: int = 1) -> list[Sample]:
    def one(index: int) -> Sample:
        numbers = tuple(draw(st.floats(0, 8)) for _ in range(2))
        family, way = draw(st.sampled_from(FAMILIES)), draw(st.sampled_from("ab"))
        return Sample(Traits("k", family, way, numbers), draw(ratios), f"jit {index % 2}")

    return [one(index) for index in range(draw(st.integers(least, 60)))]


@given(arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=40), elements=ratios))
def test_the_median_is_that_of_numpy(values: np.ndarray):
    assert np.array_equal(_median(values), np.median(values, axis=1, keepdims=True))


def test_without_samples_nothing_is_known():
    traits = Traits("k", "plain", "a", (1.0,))
    assert predicted([], [traits]) == [UNKNOWN]
    assert predicted([Sample(traits, 1.0, "jit")], []) == []


@settings(deadline=None)
@given(samples(), ratios)
def test_a_shift_of_all_samples_shifts_a_kernel_that_was_measured(known: list[Sample], by: float):
    """Most of a common factor of all samples of a kind is a property of the kind."""
    # The fastest, as slower ones may count for less.
    wanted = [min(known, key=lambda sample: sample.ratio).traits]
    shifted = [Sample(s.traits, s.ratio + by, s.implementation) for s in known]
    (before,), (after,) = predicted(known, wanted), predicted(shifted, wanted)
    assert math.isclose(after.deviation, before.deviation, abs_tol=1e-9)
    assert abs(after.ratio - before.ratio - by) <= 0.1 * abs(by) + 1e-9


@settings(deadline=None)
@given(samples(), st.randoms())
def test_the_order_of_samples_does_not_matter(known: list[Sample], random):
    distinct = list({sample.traits: sample for sample in known}.values())
    mixed = list(distinct)
    random.shuffle(mixed)
    wanted = [Traits("k", "plain", "a", (3.0, 3.0))]
    if len(distinct) <= 32:  # with more, equally near ones may be left out
        (one,), (other,) = predicted(distinct, wanted), predicted(mixed, wanted)
        assert math.isclose(one.ratio, other.ratio, abs_tol=1e-6)
        assert math.isclose(one.deviation, other.deviation, abs_tol=1e-6)


@settings(deadline=None)
@given(samples(2), st.integers(1, 5))
def test_predictions_do_not_depend_on_what_else_is_asked(known: list[Sample], more: int):
    wanted = [Traits("k", "blocked", "b", (1.0, 2.0)), *(s.traits for s in known[:more])]
    together = predicted(known, wanted)
    for traits, rate in zip(wanted, together, strict=True):
        (alone,) = predicted(known, [traits])
        assert math.isclose(alone.ratio, rate.ratio, abs_tol=1e-6)


@settings(deadline=None)
@given(samples())
def test_more_samples_leave_less_doubt(known: list[Sample]):
    wanted = [Traits("k", "plain", "a", (4.0, 4.0))]
    nearest = Sample(wanted[0], -3.0, "jit")  # as fast as any: no other work disturbed it
    (few,), (many,) = predicted(known[:31], wanted), predicted([*known[:31], nearest], wanted)
    assert many.deviation <= few.deviation + 1e-9
    assert many.deviation < 0.1


def test_a_family_without_samples_has_the_rate_of_its_kind():
    known = [Sample(Traits("k", "plain", "a", (x, 1.0)), 1.0, "jit") for x in np.arange(0, 8, 0.5)]
    (own,) = predicted(known, [Traits("k", "plain", "a", (2.2, 1.0))])
    (other,) = predicted(known, [Traits("k", "blocked", "b", (2.2, 1.0))])
    assert own.ratio == pytest.approx(1.0, abs=0.05)
    assert 0.2 < other.ratio < own.ratio
    assert other.deviation > 2 * own.deviation
    assert own.implementation == "jit"


def test_a_rule_in_sizes_is_found():
    """Half of the samples of a known law predict the other half."""
    rng = np.random.default_rng(0)
    points = [(float(x), float(y)) for x, y in rng.uniform(0, 6, (300, 2))]
    all_of_them = [
        Sample(Traits("k", "plain", "a", p), 0.5 * math.sin(p[0]) + 0.2 * p[1], "jit")
        for p in points
    ]
    rates = predicted(all_of_them[::2], [s.traits for s in all_of_them[1::2]])
    errors = [abs(r.ratio - s.ratio) for r, s in zip(rates, all_of_them[1::2], strict=True)]
    assert np.median(errors) < 0.08
    assert np.median(np.abs([s.ratio - 0.6 for s in all_of_them])) > 0.3


def lawful(rng: np.random.Generator, count: int) -> list[Sample]:
    """Return samples of a law in sizes, with little noise, of three families."""
    return [
        Sample(
            Traits("k", FAMILIES[i % 3], "a", (float(x), float(y))),
            0.2 * (i % 3) + 0.2 * math.sin(x) + 0.1 * y + 0.02 * float(noise),
            "jit",
        )
        for i, (x, y, noise) in enumerate(rng.uniform(0, 6, (count, 3)))
    ]


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**32 - 1), st.floats(0.5, 4), st.floats(0, 0.15))
def test_other_work_during_some_measurements_hardly_moves_rates(
    seed: int, size: float, share: float
):
    """Kernels that took up to fifty times as long do not decide what others are said to take."""
    rng = np.random.default_rng(seed)
    clean = lawful(rng, 240)
    slower = size * (0.5 + rng.random(len(clean))) * (rng.random(len(clean)) < share)
    noisy = [
        Sample(s.traits, s.ratio + float(by), s.implementation)
        for s, by in zip(clean, slower, strict=True)
    ]
    wanted = [sample.traits for sample in lawful(rng, 60)]
    moved = np.abs(
        [
            a.ratio - b.ratio
            for a, b in zip(predicted(clean, wanted), predicted(noisy, wanted), strict=True)
        ]
    )
    assert np.median(moved) < 0.05
    assert np.quantile(moved, 0.9) < 0.25


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_a_calibration_of_a_busy_machine_is_no_worse_than_none(seed: int):
    """If each kernel takes up to fifty times as long, costs stay as good as the estimates."""
    rng = np.random.default_rng(seed)
    busy = [
        Sample(s.traits, s.ratio + 4.0 * float(rng.random()), s.implementation, is_disturbed=True)
        for s in lawful(rng, 240)
    ]
    truth = lawful(rng, 60)
    rates = predicted(busy, [sample.traits for sample in truth])
    # A factor that all kernels share changes no plan.
    errors = np.array([r.ratio - s.ratio for r, s in zip(rates, truth, strict=True)])
    without = np.array([-sample.ratio for sample in truth])
    assert errors.std() < 1.2 * without.std()


@settings(deadline=None)
@given(samples(), samples())
def test_rates_stay_within_the_measured_ones_and_the_estimate(
    known: list[Sample], others: list[Sample]
):
    found = [rate.ratio for rate in predicted(known, [sample.traits for sample in others])]
    measured = [sample.ratio for sample in known]
    assert min(0.0, *measured) <= min(found)
    assert max(found) <= max(0.0, *measured)


def test_the_implementation_with_the_least_expected_loss_is_named():
    """One that is the fastest for most kernels, and far slower for some, is not a good guess."""
    texts = ("jit 0.0, brg 0.05", "jit 0.0, brg 0.05", "brg 0.0, jit 0.6", "jit 0.0")
    known = [Sample(Traits("k", "f", "a", (float(i),)), 0.0, t) for i, t in enumerate(texts[:3])]
    (rate,) = predicted(known, [Traits("k", "f", "a", (1.0,))])
    assert rate.implementation == "brg"
    without = [Sample(s.traits, 0.0, texts[3]) for s in known]
    (rate,) = predicted(without, [Traits("k", "f", "a", (1.0,))])
    assert rate.implementation == "jit"


@given(
    st.lists(st.tuples(st.sampled_from(["3, 3", "5, 5"]), st.floats(0, 8)), max_size=20),
    st.lists(st.floats(0, 8), min_size=1, max_size=10),
)
def test_only_samples_of_the_same_window_name_an_implementation(
    others: list[tuple[str, float]], own: list[float]
):
    """However many samples of other windows are closer, and whatever is fast for them."""
    window = "whole strides=(1, 1) window=({})".format
    known = [
        *(Sample(Traits("k", "f", window(w), (x,)), 0.0, "jit 0.0, gemm 0.1") for w, x in others),
        *(Sample(Traits("k", "f", window("1, 1"), (x,)), 0.0, "jit 0.7, one 0.0") for x in own),
    ]
    wanted = Traits("k", "f, functions", "whole strides=(2, 2) window=(1, 1)", (4.0,))
    (rate,) = predicted(known, [wanted])
    assert rate.implementation in ("one", "")  # the nearest samples may all be of other windows


@given(st.floats(0, 8), st.floats(0, 2))
def test_general_implementations_are_named_only_if_samples_say_so(size: float, loss: float):
    """A single sample of another size says little about what is much slower for some sizes."""
    general = "jit", "jit_1x1", "jit_int8"
    texts = [f"{name}:x 0.0, brgconv_1x1:x {loss}" for name in general]
    for text in texts:
        known = [Sample(Traits("k", "f", "a", (size,)), 0.0, text)]
        (rate,) = predicted(known, [Traits("k", "f", "a", (0.0,))])
        assert rate.implementation.startswith("brg") == (loss <= 0.9)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_few_samples_of_implementations_without_a_usual_order_name_none(count: int):
    """Two transposed convolutions do not tell which implementation is fast for another size."""
    text = "conv:any+brgconv_strided:x 0.0, brg_conv:x+brgconv_strided:x 0.1"
    known = [Sample(Traits("k", "f", "a", (float(i),)), 0.0, text) for i in range(count)]
    (rate,) = predicted(known, [Traits("k", "f", "a", (9.0,))])
    assert rate.implementation == ("conv:any+brgconv_strided:x" if count >= 3 else "")


@given(st.text(), samples())
def test_any_text_of_implementations_is_read(text: str, known: list[Sample]):
    odd = [Sample(s.traits, s.ratio, text) for s in known]
    for rate in predicted(odd, [sample.traits for sample in odd]):
        assert rate.implementation in {
            "",
            *text.split(", "),
            *(item.rpartition(" ")[0] for item in text.split(", ")),
        }


def memory(tag: str, *dims: int) -> MemorySpec:
    return MemorySpec(dims, tag)


def convolution(tag: str, groups: int = 1, **params: tuple[int, ...]) -> KernelSpec:
    weights = (64, 64, 3, 3) if groups == 1 else (groups, 64 // groups, 64 // groups, 3, 3)
    memories = (
        ("src", memory(tag, 1, 64, 28, 28)),
        ("weights", MemorySpec(weights, "any")),
        ("dst", memory(tag, 1, 64, 28, 28)),
    )
    ones = dict.fromkeys(("strides", "dilations", "begins", "ends"), (1, 1))
    given_params = {**ones, **params}
    return KernelSpec("convolution", memories, tuple(sorted(given_params.items())), flops=5e7)


def test_traits_tell_storages_windows_and_groups_apart():
    plain, last, blocked = (traits_of(convolution(tag)) for tag in ("abcd", "acdb", "aBcd16b"))
    assert len({plain.family, last.family, blocked.family}) == 3
    assert plain.way == last.way == blocked.way
    assert traits_of(convolution("acdb", strides=(2, 2))).way != last.way
    assert traits_of(convolution("acdb", 64)).way.startswith("depthwise")
    assert traits_of(convolution("acdb", 4)).way.startswith("groups")
    # Eight channels a group are half of a block: the library has naive loops only.
    assert traits_of(convolution("aBcd16b", 8)).kind == "convolution naive"
    assert traits_of(convolution("acdb"), cold=True).family.endswith("cold weights")
    assert traits_of(convolution("acdb", begins=(0, 0))) == last


def product(src: tuple[int, ...], weights: tuple[int, ...]) -> KernelSpec:
    dst = (max(src[0], weights[0]), src[1], weights[2])
    memories = (("src", memory("abc", *src)), ("weights", memory("abc", *weights)))
    return KernelSpec("matmul", (*memories, ("dst", memory("abc", *dst))), flops=1e6)


def test_traits_tell_products_of_several_matrices_apart():
    one = traits_of(product((1, 7, 3), (1, 3, 2880)))
    same_weights = traits_of(product((120, 7, 3), (1, 3, 24)))
    same_source = traits_of(product((1, 7, 3), (120, 3, 24)))
    several = traits_of(product((120, 7, 3), (120, 3, 24)))
    assert one.way == "whole"
    assert len({found.way for found in (one, same_weights, same_source, several)}) == 4
    assert several.numbers[2] > one.numbers[2] == 0


def test_traits_and_their_version_change_together():
    """Samples in caches have the meaning of their version: raise VERSION if this test changes."""
    found = traits_of(convolution("acdb"))
    assert found.way == "whole dilations=(1, 1) strides=(1, 1) window=(3, 3)"
    assert found.family == "f32 channels-last > f32 channels-last"
    assert found.numbers == pytest.approx(
        (4.7665, 1.6273, 0, 2.0, 2.0, 2.4037, 1.6025, 0, 0, 0), abs=1e-3
    )
