"""Sizes of the layers of a calibration: a sequence that covers them evenly."""

from __future__ import annotations

from collections.abc import Sequence

from stridewise.classes import dataclass

__all__ = ["MOST_FLOPS", "MOST_PIXELS", "Size", "size_at"]

MOST_FLOPS = 8e8
"""Operations of a layer's largest convolution, for one image."""
MOST_PIXELS = 56 * 56 * 256
"""Elements of a layer's largest image."""
_BATCHES = (1, 1, 1, 4)
_MULTIPLES = (8, 64, 16, 32, 1)
"""What numbers of channels are multiples of: most networks have powers of 2."""
_ROOT = 1.13472413840152


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of a layer.

    Attributes:
        batch: number of images.
        inputs: channels of its source.
        outputs: channels of its result.
        side: pixels along each side of its source.
        has_function: whether its activation is one of exponential functions, which take longer.
    """

    batch: int
    inputs: int
    outputs: int
    side: int
    has_function: bool


def _is_large(channels: Sequence[int], side: int) -> bool:
    """Return whether a layer of so many channels and pixels would take too long to measure."""
    flops = 18.0 * side * side * channels[0] * channels[1]
    return flops > MOST_FLOPS or side * side * max(channels) > MOST_PIXELS


def size_at(number: int) -> Size:
    """Return the sizes of a layer, even in logarithms: 8 to 1024 channels, 7 to 112 pixels.

    Most networks halve images of 224 pixels, so most sides are 7, 14, 28, 56 or 112: times of
    others tell less of these, as rows leave remainders. Where channels have any number, sides do.
    The sizes follow an additive recurrence by powers of the root of x^6 = x + 1, whose points are
    evenly spread in five dimensions for any range of numbers (M. Roberts, *The Unreasonable
    Effectiveness of Quasirandom Sequences*, 2018).
    """
    wide, high, far, even, many = ((0.5 + number * _ROOT**-power) % 1.0 for power in range(1, 6))
    multiple = _MULTIPLES[int(even * len(_MULTIPLES))]
    channels = [
        max(multiple, round(2.0 ** (3 + 7 * at) / multiple) * multiple) for at in (wide, high)
    ]
    side = round(7 * 2.0 ** (4 * far)) if multiple == 1 else 7 * 2 ** int(5 * far)
    # Networks have few channels where images are large: half of the sizes keep their images.
    while _is_large(channels, side):
        widest = channels.index(max(channels))
        if number % 2 and channels[widest] > multiple:
            channels[widest] = max(multiple, channels[widest] // 2 // multiple * multiple)
        else:
            side = -(-side // 2)
    batch = _BATCHES[int(many * len(_BATCHES))] if side <= 28 else 1
    return Size(batch, channels[0], channels[1], side, number % 3 == 0)
