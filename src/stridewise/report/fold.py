"""Folding: repeated stretches of a graph, which are drawn as one box.

Exporters unroll the loops over blocks of a network. In the order of execution such a loop is a
*tandem repeat*: a word that follows itself. Each vertex is a letter, made of its operator and the
distances to its inputs, so equal words have equal edges inside.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["repeats", "stretches"]

LONGEST = 48
"""Vertices of the longest block that is searched for."""

LEAST_SAVED = 3
"""Least number of boxes that a fold saves."""


def _runs(codes: NDArray[np.intp], length: int) -> NDArray[np.intp]:
    """Return for each position the number of letters that recur ``length`` positions later."""
    count = len(codes)
    stops = np.arange(count)
    stops[: count - length][codes[:-length] == codes[length:]] = count
    return np.minimum.accumulate(stops[::-1])[::-1] - np.arange(count)


def repeats(
    letters: Sequence[Hashable], widths: Sequence[int] | None = None
) -> tuple[tuple[int, int, int], ...]:
    """Return the tandem repeats of a sequence with the largest total worth.

    Worth is twice the number of saved letters, less the length of the word. So several small
    boxes are worth more than one that hides as much.

    Args:
        letters: the sequence.
        widths: number of tensors that are alive before each letter. A repeat begins only where no
            position inside its word is narrower, so words are the blocks of the network.

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
    # best[i]: the worth from i on; choice[i]: the repeat that begins there, if any.
    best = [0] * (count + 1)
    choice: list[tuple[int, int] | None] = [None] * count
    for start in range(count - 1, -1, -1):
        best[start] = best[start + 1]
        for length, table in enumerate(tables, 1):
            if start + length > count or widths[start + length - 1] < widths[start]:
                break  # longer words contain the narrower position, too
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
    """Return stretches without repeats, so that at most about ``most`` boxes are left.

    Args:
        count: number of letters.
        taken: the result of :func:`repeats`.
        most: largest number of boxes; nothing is folded below.

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
