"""Depthwise convolutions of any window, for the tests of their gradients."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from tests.runtime.winograd_layers import HALF_KERNELS, KERNELS

KINDS = ("blocked", "channels-last")
TYPED = [("f32", kernel) for kernel in KERNELS] + [("bf16", kernel) for kernel in HALF_KERNELS]
Pair = tuple[int, int]


@dataclass(frozen=True)
class Layer:
    """A convolution that reads ``source`` and writes ``result``."""

    images: int
    channels: int
    size: Pair
    window: Pair
    strides: Pair
    dilations: Pair
    begins: Pair
    ends: Pair

    @property
    def source(self) -> tuple[int, ...]:
        return self.images, self.channels, *self.size

    @property
    def result(self) -> tuple[int, ...]:
        axes = zip(
            self.size, self.window, self.strides, self.dilations, self.begins, self.ends,
            strict=True,
        )  # fmt: skip
        extents = [(n + p + e - d * (t - 1) - 1) // s + 1 for n, t, s, d, p, e in axes]
        return self.images, self.channels, *extents


@st.composite
def layers(draw: st.DrawFn, taps: int, most_extra: int) -> Layer:
    """Draw a convolution of up to ``taps`` each way, and images up to ``most_extra`` larger."""

    def pair(low: int, high: int) -> Pair:
        return draw(st.integers(low, high)), draw(st.integers(low, high))

    window, strides, dilations = pair(1, taps), pair(1, 4), pair(1, 3)
    reach = [d * (t - 1) + 1 for t, d in zip(window, dilations, strict=True)]
    begins, ends = (tuple(draw(st.integers(0, most - 1)) for most in reach) for _ in range(2))
    least = [max(1, most - p - e) for most, p, e in zip(reach, begins, ends, strict=True)]
    size = tuple(low + extra for low, extra in zip(least, pair(0, most_extra), strict=True))
    return Layer(
        draw(st.integers(1, 3)),
        draw(st.sampled_from([1, 3, 8, 16, 19, 40, 72])),
        (size[0], size[1]), window, strides, dilations, (begins[0], begins[1]), (ends[0], ends[1]),
    )  # fmt: skip
