"""What calibration remembers of a tensor: counts of its values, and statistics of its channels.

Memory depends on the number of channels alone, so any number of samples can be observed.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.classes import dataclass

__all__ = ["BINS", "Histogram", "Observed"]

BINS = 4096
"""Bins of a histogram, half of them for negative numbers."""

Array = NDArray[Any]
_HALF = BINS // 2


@dataclass(slots=True)
class Histogram:
    """Counts of values in bins of equal width over ``[-limit, limit)``.

    The limit is a power of two that doubles where a value exceeds it. Two neighboring bins then
    become one, so the counts do not depend on the order of the values.

    Attributes:
        counts: values in each bin, without zeros; all quantizations represent zeros exactly.
        limit: end of the last bin.
        low: the least value, 0 if there is none below.
        high: the greatest value, 0 if there is none above.
        is_finite: whether all values are finite; the others are not counted.
    """

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))
    limit: float = 2.0**-40
    low: float = 0.0
    high: float = 0.0
    is_finite: bool = True

    def add(self, values: Array) -> None:
        """Count the values of an array of any shape."""
        if not values.size:
            return
        low, high = float(values.min()), float(values.max())
        if not np.isfinite(low) or not np.isfinite(high):
            self.is_finite = False
            return
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._reach(max(-low, high))
        scaled = np.multiply(values.reshape(-1), np.float32(_HALF / self.limit), dtype=np.float32)
        bins = np.floor(scaled[scaled != 0]).astype(np.int64) + _HALF
        self.counts += np.bincount(np.clip(bins, 0, BINS - 1), minlength=BINS)

    def merged(self, other: Histogram) -> Histogram:
        """Return the counts of both."""
        found = Histogram(
            self.counts.copy(),
            self.limit,
            min(self.low, other.low),
            max(self.high, other.high),
            self.is_finite and other.is_finite,
        )
        found._reach(np.nextafter(other.limit, 0.0))
        theirs = Histogram(other.counts.copy(), other.limit)
        theirs._reach(np.nextafter(found.limit, 0.0))
        found.counts += theirs.counts
        return found

    @property
    def centers(self) -> NDArray[np.float64]:
        """The value in the middle of each bin."""
        return (np.arange(BINS, dtype=np.float64) - _HALF + 0.5) * (self.limit / _HALF)

    def _reach(self, magnitude: float) -> None:
        while magnitude >= self.limit:
            pairs = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.zeros(BINS, np.int64)
            self.counts[_HALF // 2 : _HALF // 2 + _HALF] = pairs
            self.limit *= 2


@dataclass(slots=True)
class Channels:
    """What is known of each channel of a tensor.

    Attributes:
        total: sum of the values of each channel; empty before the first.
        peak: greatest magnitude in each channel.
        count: values of one channel so far.
    """

    total: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    peak: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    count: int = 0

    def add(self, values: Array, axis: int) -> None:
        """Observe one array whose channels are an axis."""
        others = tuple(a for a in range(values.ndim) if a != axis)
        total = values.sum(axis=others, dtype=np.float64)
        peak = np.maximum(values.max(axis=others), -values.min(axis=others)).astype(np.float64)
        self.total = self.total + total if self.count else total
        self.peak = np.maximum(self.peak, peak) if self.count else peak
        self.count += values.size // values.shape[axis]

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean of each channel."""
        return self.total / max(self.count, 1)


@dataclass(slots=True)
class Observed:
    """What is known of a tensor after calibration.

    Attributes:
        histogram: of all values.
        channels: of the channels, by the axis that some reader takes for that of channels.
    """

    histogram: Histogram = field(default_factory=Histogram)
    channels: dict[int, Channels] = field(default_factory=dict[int, Channels])

    def add(self, values: Array) -> None:
        """Observe one array."""
        self.histogram.add(values)
        for axis, item in self.channels.items():
            item.add(values, axis)
