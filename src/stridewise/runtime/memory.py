"""The static memory plan: one arena for all tensors of a run.

Tensors with lifetimes get offsets, largest first, each in the lowest gap that is free during its
whole life (greedy by size; Pisarchyk and Lee 2020, "Efficient memory management for deep neural
net inference").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ALIGNMENT", "Life", "arrange", "lower_bound"]

ALIGNMENT = 64
"""A cache line, and the width of an AVX-512 register."""


@dataclass(frozen=True, slots=True)
class Life:
    """A block of memory and the steps during which it is needed, both ends included."""

    nbytes: int
    first: int
    last: int


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def lower_bound(lives: Sequence[Life]) -> int:
    """Return the largest number of bytes needed at one step: no arrangement is smaller."""
    changes: dict[int, int] = {}
    for life in lives:
        changes[life.first] = changes.get(life.first, 0) + _rounded(life.nbytes)
        changes[life.last + 1] = changes.get(life.last + 1, 0) - _rounded(life.nbytes)
    level, highest = 0, 0
    for step in sorted(changes):
        level += changes[step]
        highest = max(highest, level)
    return highest


def arrange(lives: Sequence[Life]) -> tuple[tuple[int, ...], int]:
    """Return the offset of each block and the size of the arena.

    >>> arrange([Life(64, 0, 1), Life(128, 1, 2), Life(64, 2, 3)])
    ((128, 0, 128), 192)
    """
    offsets = [0] * len(lives)
    placed: list[int] = []
    total = 0
    order = sorted(range(len(lives)), key=lambda i: (-lives[i].nbytes, lives[i].first))
    for index in order:
        life = lives[index]
        busy = sorted(
            (offsets[other], offsets[other] + _rounded(lives[other].nbytes))
            for other in placed
            if lives[other].first <= life.last and life.first <= lives[other].last
        )
        offset = 0
        for start, end in busy:
            if start - offset >= _rounded(life.nbytes):
                break
            offset = max(offset, end)
        offsets[index] = offset
        placed.append(index)
        total = max(total, offset + _rounded(life.nbytes))
    return tuple(offsets), total
