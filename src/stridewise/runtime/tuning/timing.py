"""What counts of a series of timings."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["median", "undisturbed"]


def undisturbed(samples: Sequence[float]) -> float:
    """Return the lower quartile of timings, of up to four the least.

    Other work on the machine only ever adds time, and parallel kernels wait for their slowest
    thread, so that on a busy machine most runs may be disturbed. The minimum itself would reward
    lucky cache contents.

    >>> undisturbed([5.0, 3.0, 4.0])
    3.0
    >>> undisturbed([9.0, 1.0, 2.0, 3.0, 4.0])
    2.0
    """
    return float(sorted(samples)[len(samples) // 4 if len(samples) > 4 else 0])


def median(samples: Sequence[float]) -> float:
    """Return the median; the module ``statistics`` takes long to import.

    >>> median([5.0, 3.0, 4.0])
    4.0
    >>> median([1.0, 4.0, 2.0, 9.0])
    3.0
    """
    ordered, count = sorted(samples), len(samples)
    return 0.5 * (ordered[(count - 1) // 2] + ordered[count // 2])
