"""Shapes that are not fixed: what callers may ask for, and what a call then has.

An extent is a number, a symbol that stands for the same number wherever it appears, a range, or one
of a few numbers. A :class:`Signature` has those of all inputs of a model.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import index
from typing import SupportsIndex, TypeAlias, cast

from stridewise.classes import dataclass
from stridewise.dtypes import DType
from stridewise.errors import InputError

__all__ = ["Extent", "InputSpec", "ShapeLike", "Shapes", "Signature", "is_fixed", "parse_shape"]

ShapeLike: TypeAlias = "Sequence[int | str | Sequence[int] | None] | Sequence[Sequence[int]]"
"""A shape as callers write it: extents, or a list of whole shapes."""

Shapes = Mapping[str, ShapeLike]
"""Shapes of inputs by name."""

_SPELLING = "a number, a symbol 'N', a range '1..16', a choice '1|4|16', or 'N=1..16'"
_TEXT = re.compile(
    r"\s*(?:(?P<symbol>[A-Za-z_][A-Za-z0-9_]*|\?)\s*(?:=\s*|$))?"
    r"(?:(?P<low>[0-9]+)\s*\.\.\s*(?P<high>[0-9]+)|(?P<choice>[0-9]+(?:\s*\|\s*[0-9]+)*))?\s*"
)


@dataclass(frozen=True, slots=True)
class Extent:
    """What one extent may be.

    Attributes:
        symbols: names of the extent; extents that share one are equal in each call.
        low: the least.
        high: the greatest; None for no limit.
        choice: in increasing order, the only ones that there may be; () for all between the limits.

    >>> print(Extent.parse("N=1..16"), Extent.parse([8, 1]), Extent.parse(3))
    N=1..16 1|8 3
    """

    symbols: tuple[str, ...] = ()
    low: int = 0
    high: int | None = None
    choice: tuple[int, ...] = ()

    @classmethod
    def parse(cls, given: object, where: str = "extent") -> Extent:
        """Return an extent as a caller writes it.

        Args:
            given: a number; ``None`` or ``"?"`` for any; a symbol ``"N"``; a range ``"1..16"`` or
                ``(1, 16)``, both ends included, or a ``range``; a choice ``"1|4|16"`` or
                ``[1, 4, 16]``; with a symbol before it, ``"N=1..16"``.
            where: how messages name it.

        Raises:
            InputError: it is none of these, or holds a number below 0.
        """
        found = cls._parse(given)
        if found is None or found.low < 0 or (found.high is not None and found.high < found.low):
            raise InputError.at(where, expected=_SPELLING, found=repr(given))
        return found

    @classmethod
    def _parse(cls, given: object) -> Extent | None:
        if given is None:
            return cls()
        if isinstance(given, str):
            return cls._text(given)
        if isinstance(given, SupportsIndex) and not isinstance(given, bool):
            return cls._of(index(given))
        if isinstance(given, list | tuple | range):
            return cls._items(cast("Sequence[object]", given))
        return None

    @classmethod
    def _items(cls, given: Sequence[object]) -> Extent | None:
        numbers = [index(item) for item in given if isinstance(item, SupportsIndex)]
        if not numbers or len(numbers) != len(given):
            return None
        if isinstance(given, tuple):
            return cls((), numbers[0], numbers[1]) if len(numbers) == 2 else None
        if isinstance(given, range) and abs(given.step) == 1:
            return cls((), min(numbers), max(numbers))
        return cls._of(*numbers)

    @classmethod
    def _of(cls, *numbers: int) -> Extent:
        choice = tuple(sorted(set(numbers)))
        return cls((), choice[0], choice[-1], choice if len(choice) > 1 else ())

    @classmethod
    def _text(cls, text: str) -> Extent | None:
        match = _TEXT.fullmatch(text)
        if match is None or not text.strip():
            return None
        symbol, low, high, choice = match.group("symbol", "low", "high", "choice")
        found = cls()
        if low is not None:
            found = cls((), int(low), int(high))
        elif choice is not None:
            found = cls._of(*map(int, choice.split("|")))
        elif "=" in text:
            return None
        return found if symbol in (None, "?") else replace(found, symbols=(symbol,))

    @property
    def fixed(self) -> int | None:
        """The extent, where there is only one."""
        return self.low if self.low == self.high else None

    @property
    def least(self) -> int | None:
        """The least extent but 0, where the caller has given limits; else None.

        It is 0 where there is no other.
        """
        if self.high is None:
            return None
        return next((item for item in self.choice if item), max(self.low, min(self.high, 1)))

    def narrowed(self, given: Extent) -> Extent | None:
        """Return what this one is where a caller gives limits; None if they exceed its own ones.

        Extents without symbol have no limits: callers may replace an only one, and of those that
        are computed from others, only calls know which are taken.
        """
        symbols = (*dict.fromkeys((*given.symbols, *self.symbols)),)
        if not self.symbols or self.fixed is not None:
            return replace(given, symbols=symbols)
        if given.high is None and not given.low:
            return replace(self, symbols=symbols)
        is_over = self.high is not None and (given.high is None or given.high > self.high)
        return None if given.low < self.low or is_over else replace(given, symbols=symbols)

    def fits(self, extent: int) -> int | None:
        """Return the extent, or the least of a choice that is not below it; None if it is out."""
        if self.choice:
            return next((item for item in self.choice if item >= extent), None)
        is_over = self.high is not None and extent > self.high
        return None if extent < self.low or is_over else extent

    def __str__(self) -> str:
        limits = ""
        if self.choice:
            limits = "|".join(map(str, self.choice))
        elif self.high is not None:
            limits = str(self.low) if self.fixed is not None else f"{self.low}..{self.high}"
        elif self.low:
            limits = f"{self.low}.."
        return "=".join(filter(None, (*self.symbols[:1], limits))) or "?"


@dataclass(frozen=True, slots=True)
class InputSpec:
    """An input whose shape may differ from call to call.

    Attributes:
        name: the caller's name of it.
        dtype: element type.
        extents: of each axis; None where not even the rank is known.
        shapes: the only shapes that there may be; () for all that fit the extents.
    """

    name: str
    dtype: DType
    extents: tuple[Extent, ...] | None
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def where(self) -> str:
        """How messages name the input."""
        return f"input {self.name!r}"

    @property
    def is_fixed(self) -> bool:
        """Whether there is only one shape."""
        return self.extents is not None and all(e.fixed is not None for e in self.extents)

    def __str__(self) -> str:
        if self.shapes:
            return " or ".join(map(str, self.shapes))
        if self.extents is None:
            return "of any rank"
        return f"({', '.join(map(str, self.extents))}{',' if len(self.extents) == 1 else ''})"

    def narrowed(self, given: ShapeLike) -> InputSpec:
        """Return the input with a shape of the caller's.

        What it leaves open keeps its symbol and limits.

        Raises:
            InputError: it does not fit the rank or the limits, or is not a shape.
        """
        extents, shapes = parse_shape(given, self.where)
        if self.extents is not None and len(extents) != len(self.extents):
            expected = f"a shape of rank {len(self.extents)}, like {self}"
            raise InputError.at(self.where, expected=expected, found=str(tuple(given)))
        own = self.extents or (Extent(),) * len(extents)
        merged = tuple(before.narrowed(extent) for extent, before in zip(extents, own, strict=True))
        if None in merged:
            expected, found = f"a shape within {self}, as the model takes it", str(tuple(given))
            raise InputError.at(self.where, expected=expected, found=found)
        return replace(self, extents=tuple(filter(None, merged)), shapes=shapes)

    def fitted(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape that is run for one of a call: its own, or one of a larger batch.

        Raises:
            InputError: it is not among those that there may be.
        """
        found = self._fitted(shape)
        if found is None or found[1:] != shape[1:]:
            batched = self.shapes or any(extent.choice for extent in (self.extents or ())[:1])
            raise InputError.at(
                self.where,
                expected=f"shape {self}{', or a smaller batch' if batched else ''}",
                found=str(shape),
                fix="compile with shapes= that include it",
            )
        return found

    def _fitted(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        if self.extents is None:
            return shape
        if len(shape) != len(self.extents):
            return None
        if self.shapes:
            larger = [s for s in self.shapes if s[1:] == shape[1:] and s[:1] >= shape[:1]]
            return min(larger, default=None)
        pairs = zip(self.extents, shape, strict=True)
        found = [extent.fits(size) for extent, size in pairs]
        known = tuple(size for size in found if size is not None)
        return known if len(known) == len(found) else None


def is_fixed(shape: object) -> bool:
    """Return whether a shape of a caller is nothing but numbers.

    >>> is_fixed((8, 3, 224, 224)), is_fixed(("N", 3, 224, 224)), is_fixed([(1, 3), (8, 3)])
    (True, False, False)
    """
    if isinstance(shape, str) or not isinstance(shape, Sequence):
        return False
    return all(isinstance(item, SupportsIndex) for item in cast("Sequence[object]", shape))


def parse_shape(
    given: object, where: str = "shape"
) -> tuple[tuple[Extent, ...], tuple[tuple[int, ...], ...]]:
    """Return the extents of a shape as a caller writes it, and the whole shapes if it lists them.

    A list of sequences is one of whole shapes. A tuple holds extents, of which any may be a
    sequence; see :meth:`Extent.parse`.

    Raises:
        InputError: it is neither.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        expected = "a tuple of extents, or a list of shapes"
        raise InputError.at(where, expected=expected, found=repr(given))
    items = list(cast("Sequence[object]", given))
    if is_fixed(items) and not all(index(cast("SupportsIndex", item)) >= 0 for item in items):
        raise InputError.at(where, expected="extents of 0 or more", found=str(tuple(items)))
    whole = isinstance(given, list) and bool(items) and all(map(is_fixed, items))
    if not whole:
        return tuple(Extent.parse(item, where) for item in items), ()
    shapes = [tuple(map(index, cast("Sequence[SupportsIndex]", item))) for item in items]
    if len(set(map(len, shapes))) > 1 or any(extent < 0 for shape in shapes for extent in shape):
        expected = "shapes of one rank and of extents of 0 or more"
        raise InputError.at(where, expected=expected, found=str(shapes))
    extents = [Extent.parse(list(column), where) for column in zip(*shapes, strict=True)]
    return tuple(extents), tuple(shapes)


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs of a model whose shapes may differ from call to call."""

    inputs: tuple[InputSpec, ...]

    @property
    def is_fixed(self) -> bool:
        """Whether there is only one shape of each input."""
        return all(item.is_fixed for item in self.inputs)

    def narrowed(self, shapes: Shapes) -> Signature:
        """Return the signature with shapes of the caller's.

        Raises:
            InputError: a name is not one of an input, or a shape does not fit.
        """
        known = {item.name for item in self.inputs}
        for name in shapes:
            if name not in known:
                names = ", ".join(map(repr, (item.name for item in self.inputs))) or "none"
                expected = f"names of inputs ({names})"
                raise InputError.at("shapes", expected=expected, found=repr(name))
        found = [
            item.narrowed(shapes[item.name]) if item.name in shapes else item
            for item in self.inputs
        ]
        return Signature(_spread(found))

    def without(self, names: Collection[str]) -> Signature:
        """Return the signature without some inputs."""
        return Signature(tuple(item for item in self.inputs if item.name not in names))

    def __iter__(self) -> Iterator[InputSpec]:
        return iter(self.inputs)

    def fitted(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Return the shapes that are run for those of a call.

        Raises:
            InputError: a shape is not among those that there may be, or a symbol has two extents.
        """
        called = [item for item in self.inputs if item.name in shapes]
        found = {item.name: item.fitted(shapes[item.name]) for item in called}
        _check_symbols(called, shapes)
        grown = {
            symbol: found[item.name][0]
            for item in called
            if found[item.name] != shapes[item.name]
            for symbol in (item.extents or (Extent(),))[0].symbols
        }
        for item in called if grown else ():
            batches = [grown[s] for s in (item.extents or (Extent(),))[0].symbols if s in grown]
            if batches:
                found[item.name] = (max(batches), *found[item.name][1:])
        return found

    def default(self) -> dict[str, tuple[int, ...]]:
        """Return the default shapes: the least ones; an open batch, the first extent, is 1.

        They have elements wherever some allowed shape has.

        Inputs of which an extent is known neither from a limit nor from its symbol are left out.
        """
        symbols = self._least()
        found: dict[str, tuple[int, ...]] = {}
        for item in self.inputs:
            if item.shapes:
                found[item.name] = next((s for s in item.shapes if 0 not in s), item.shapes[0])
            elif item.extents is not None:
                sizes = [self._default(e, symbols, axis) for axis, e in enumerate(item.extents)]
                known = tuple(size for size in sizes if size is not None)
                if len(known) == len(sizes):
                    found[item.name] = known
        return found

    def _least(self) -> dict[str, int]:
        """Return the least extent of each symbol that has limits somewhere."""
        found: dict[str, int] = {}
        for item in self.inputs:
            for extent in item.extents or ():
                least = extent.least
                for symbol in extent.symbols if least is not None else ():
                    found[symbol] = max(found.get(symbol, 0), least or 0)
        return found

    @staticmethod
    def _default(extent: Extent, symbols: Mapping[str, int], axis: int) -> int | None:
        known = [symbols[symbol] for symbol in extent.symbols if symbol in symbols]
        if extent.least is not None:
            known.append(extent.least)
        return max(known) if known else (1 if axis == 0 else None)


def _spread(inputs: Sequence[InputSpec]) -> tuple[InputSpec, ...]:
    """Return inputs whose open extents have the limits that their symbols have elsewhere."""
    limited = {
        symbol: extent
        for item in inputs
        for extent in item.extents or ()
        if extent.high is not None
        for symbol in extent.symbols
    }

    def spread(extent: Extent) -> Extent:
        known = [limited[symbol] for symbol in extent.symbols if symbol in limited]
        if extent.high is not None or not known:
            return extent
        return replace(known[0], symbols=extent.symbols)

    return tuple(
        item if item.extents is None else replace(item, extents=tuple(map(spread, item.extents)))
        for item in inputs
    )


def _check_symbols(inputs: Sequence[InputSpec], shapes: Mapping[str, tuple[int, ...]]) -> None:
    symbols: dict[str, tuple[int, str]] = {}
    for item in inputs:
        for extent, size in zip(item.extents or (), shapes[item.name], strict=False):
            for symbol in extent.symbols:
                before, name = symbols.setdefault(symbol, (size, item.name))
                if before != size:
                    raise InputError.at(
                        item.where,
                        expected=f"{symbol} = {before} as in input {name!r}",
                        found=str(shapes[item.name]),
                    )
