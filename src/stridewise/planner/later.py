"""Sequences and values that are computed at their first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar, cast, overload

__all__ = ["Later", "Once"]

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

    def __reduce__(self) -> tuple[type[tuple[Any, ...]], tuple[tuple[Item, ...]]]:
        return tuple, (self._all,)  # the function cannot be pickled

    def __deepcopy__(self, _: dict[int, Any]) -> Later[Item]:
        return self  # no item is ever changed


class Once(Generic[Item]):
    """A function without arguments whose result is computed once, when it is first called.

    >>> import pickle
    >>> pickle.loads(pickle.dumps(Once(lambda: 3)))()
    3
    """

    def __init__(self, make: Callable[[], Item]) -> None:
        """Store the function that computes the result."""
        self._make = make

    @cached_property
    def _result(self) -> Item:
        return self._make()

    def __call__(self) -> Item:
        """Return the result."""
        return self._result

    def __reduce__(self) -> tuple[Callable[[Item], Once[Item]], tuple[Item]]:
        return _known, (self._result,)  # as above

    def __deepcopy__(self, _: dict[int, Any]) -> Once[Item]:
        return self


def _known(result: Item) -> Once[Item]:
    return Once(lambda: result)
