"""Folding: which stretches of a graph repeat, so that they can be drawn as one box.

Networks are written as loops over blocks, and exporters unroll them. In the order of execution
such a loop is a *tandem repeat*: a word that follows itself. Each vertex is a letter, which says
what it is and how far back its inputs lie, so equal words have equal edges inside.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["repeats", "stretches"]

LONGEST = 48
"""Vertices of the longest block that is looked for; a box that hides more says little."""

LEAST_SAVED = 3
"""Boxes that a fold has to spare, to be worth a click to look inside."""


def _runs(codes: NDArray[np.intp], length: int) -> NDArray[np.intp]:
    """Return, for each place, how many letters from there on recur ``length`` places later."""
    count = len(codes)
    stops = np.arange(count)
    stops[: count - length][codes[:-length] == codes[length:]] = count
    return np.minimum.accumulate(stops[::-1])[::-1] - np.arange(count)


def repeats(
    letters: Sequence[Hashable], widths: Sequence[int] | None = None
) -> tuple[tuple[int, int, int], ...]:
    """Return the tandem repeats of a sequence that are worth the most when written once.

    Worth is twice the letters spared, less the length of the word: a box that hides much is worth
    less than several that hide little. Of all sets of repeats the best is found.

    Args:
        letters: what is compared.
        widths: how many tensors are alive before each letter. A repeat begins only where no place
            inside its word is narrower, so that words are the blocks that people know.

    Returns:
        Start, length and number of repetitions of each, in order, none overlapping.

    >>> repeats("xabcabcabcy")
    ((1, 3, 3),)
    >>> repeats("xabcabcabcay", [1, 2, 1, 2, 2, 1, 2, 2, 1, 2, 2, 1])
    ((2, 3, 3),)
    """
    known: dict[Hashable, int] = {}
    codes = np.array([known.setdefault(letter, len(known)) for letter in letters], np.intp)
    count = len(codes)
    widths = [0] * count if widths is None else widths
    tables = [_runs(codes, length) for length in range(1, min(LONGEST, count // 2) + 1)]
    # best[i]: what is gained from i on; choice[i]: the repeat that begins there, if any.
    best = [0] * (count + 1)
    choice: list[tuple[int, int] | None] = [None] * count
    for start in range(count - 1, -1, -1):
        best[start] = best[start + 1]
        for length, table in enumerate(tables, 1):
            if start + length > count or widths[start + length - 1] < widths[start]:
                break  # longer words have the narrower place inside, too
            times = int(table[start]) // length + 1
            saved = length * (times - 1)
            if saved < LEAST_SAVED:
                continue
            total = 2 * saved - length + best[start + length * times]
            if total > best[start]:
                best[start], choice[start] = total, (length, times)
    return tuple(_chosen(choice))


def _chosen(choice: Sequence[tuple[int, int] | None]) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    start = 0
    while start < len(choice):
        picked = choice[start]
        if picked is None:
            start += 1
            continue
        found.append((start, *picked))
        start += picked[0] * picked[1]
    return found


def stretches(
    count: int, taken: Sequence[tuple[int, int, int]], most: int
) -> tuple[tuple[int, int, int], ...]:
    """Return stretches of what does not repeat, so that at most about ``most`` boxes are left.

    Args:
        count: letters in all.
        taken: what :func:`repeats` has found.
        most: how many boxes a drawing may have; nothing is folded below.

    >>> stretches(10, [(2, 2, 2)], most=4)
    ((0, 2, 1), (6, 2, 1), (8, 2, 1))
    """
    visible = count - sum(length * times - 1 for _, length, times in taken)
    if visible <= most:
        return ()
    size = -(-visible // most)
    found: list[tuple[int, int, int]] = []
    begin = 0
    for start, length, times in (*taken, (count, 0, 0)):
        for first in range(begin, start, size):
            if min(size, start - first) > 1:
                found.append((first, min(size, start - first), 1))
        begin = start + length * times
    return tuple(found)
