"""The static memory plan: one arena for all tensors of a run.

Tensors with lifetimes get offsets, one after the other, each in the lowest gap that is free during
its whole life. In which order is what matters: largest first (greedy by size; Pisarchyk and Lee
2020, "Efficient memory management for deep neural net inference") is best as a rule. Where it
leaves the arena above the lower bound, other orders are tried, and then the best of them is varied:
what lies at the very top is placed earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stridewise.classes import dataclass
from stridewise.runtime.binding.packing import ALIGNMENT

__all__ = ["Life", "arrange", "lower_bound"]

_ENOUGH = 1.02
"""How many times the lower bound is not worth looking further."""
_VARIATIONS = 60
"""How often the best order is varied; each takes about a millisecond for a hundred tensors."""

Arranged = tuple[tuple[int, ...], int]


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


class _Room:
    """The lives to be arranged, and which of them exclude each other."""

    def __init__(self, lives: Sequence[Life]) -> None:
        self.sizes = [_rounded(life.nbytes) for life in lives]
        self.beside: list[list[int]] = [[] for _ in lives]
        alive: list[int] = []
        for index in sorted(range(len(lives)), key=lambda i: lives[i].first):
            alive = [other for other in alive if lives[other].last >= lives[index].first]
            for other in alive:
                self.beside[index].append(other)
                self.beside[other].append(index)
            alive.append(index)

    def place(self, order: Sequence[int]) -> Arranged:
        """Return offsets and size of the arena for one order."""
        offsets = [-1] * len(order)
        total = 0
        for index in order:
            size, offset = self.sizes[index], 0
            busy = [(offsets[i], self.sizes[i]) for i in self.beside[index] if offsets[i] >= 0]
            for start, taken in sorted(busy):
                if start - offset >= size:
                    break
                offset = max(offset, start + taken)
            offsets[index] = offset
            total = max(total, offset + size)
        return tuple(offsets), total

    def varied(self, order: Sequence[int], arranged: Arranged, turn: int) -> list[int]:
        """Return an order in which what lies at the top comes before some of its neighbors."""
        offsets, total = arranged
        top = next(i for i in order if offsets[i] + self.sizes[i] == total)
        place = {index: position for position, index in enumerate(order)}
        before = sorted(place[i] for i in self.beside[top] if place[i] < place[top])
        if not before:
            return list(order)
        found = list(order)
        found.remove(top)
        found.insert(before[turn % len(before)], top)
        return found


def _orders(lives: Sequence[Life]) -> list[list[int]]:
    """Return the orders that are tried first."""

    def area(life: Life) -> int:
        return life.nbytes * (life.last - life.first + 1)

    keys: tuple[Callable[[Life], tuple[int, ...]], ...] = (
        lambda life: (-life.nbytes, life.first),
        lambda life: (-area(life), life.first),
        lambda life: (life.first - life.last, -life.nbytes),
        lambda life: (life.first, -life.nbytes),
        lambda life: (-life.last, -life.nbytes),
    )
    return [sorted(range(len(lives)), key=lambda i, key=key: key(lives[i])) for key in keys]


def arrange(lives: Sequence[Life]) -> Arranged:
    """Return the offset of each block and the size of the arena.

    >>> arrange([Life(64, 0, 1), Life(128, 1, 2), Life(64, 2, 3)])
    ((128, 0, 128), 192)
    """
    room, bound = _Room(lives), lower_bound(lives)
    best: tuple[list[int], Arranged] | None = None
    for order in _orders(lives):
        found = room.place(order)
        if best is None or found[1] < best[1][1]:
            best = order, found
        if best[1][1] <= bound:
            return best[1]
    assert best is not None  # there is an order at least
    present = best
    for turn in range(_VARIATIONS):
        if best[1][1] <= _ENOUGH * bound:
            break
        order = room.varied(*present, turn)
        present = order, room.place(order)
        if present[1][1] < best[1][1]:
            best = present
        elif turn % 8 == 7:
            present = best
    return best[1]
