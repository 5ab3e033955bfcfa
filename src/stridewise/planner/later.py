"""Sequences whose items are computed at their first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Generic, TypeVar, cast, overload

__all__ = ["Later"]

Item = TypeVar("Item")


class Later(Sequence[Item], Generic[Item]):
    """A sequence with a given first item; the others are computed once, at their first use.

    It is equal to any sequence of equal items.

    >>> found = Later(1, lambda: (2, 3))
    >>> found[0], list(found)
    (1, [1, 2, 3])
    """

    def __init__(self, first: Item, others: Callable[[], Iterable[Item]]) -> None:
        """Store the first item and the function that returns the others."""
        self._first, self._others = first, others

    @cached_property
    def _all(self) -> tuple[Item, ...]:
        return (self._first, *self._others())

    @overload
    def __getitem__(self, index: int, /) -> Item: ...

    @overload
    def __getitem__(self, index: slice, /) -> Sequence[Item]: ...

    def __getitem__(self, index: int | slice, /) -> Item | Sequence[Item]:
        return self._first if index == 0 else self._all[index]

    def __len__(self) -> int:
        return len(self._all)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return self._all == tuple(cast("Sequence[object]", other))

    def __hash__(self) -> int:
        return hash(self._all)

    def __repr__(self) -> str:
        return repr(self._all)
