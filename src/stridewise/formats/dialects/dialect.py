"""What a dialect is: how one system writes formats.

A name is one of three things to a dialect: a format, a format that the algebra cannot express
(:class:`FormatError` with the reason), or not its own (None).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from stridewise.dtypes import DTYPES, DType
from stridewise.errors import FormatError, describe
from stridewise.formats.axes import canonical
from stridewise.formats.data import FormatData, nd
from stridewise.formats.dialects.notation import walk

__all__ = ["Dialect", "Entry", "Parameters", "Table", "by_rank", "first_equal", "need", "refuse"]

# Names of element types that stridewise.dtypes, which knows what can be computed with, lacks.
_BITS = {
    **{spelling: 8 * d.itemsize for d in DTYPES.values() for spelling in (d.name, d.short)},
    **{"bfloat16": 16, "bf16": 16, "fp64": 64, "fp32": 32, "fp16": 16, "half": 16},
    **{"i64": 64, "i32": 32, "i16": 16, "i8": 8, "uint4": 4, "int4": 4, "u4": 4, "s4": 4, "i4": 4},
    **{"uint2": 2, "int2": 2, "u2": 2, "s2": 2, "i2": 2, "bin": 1, "u1": 1},
}


@dataclass(frozen=True, slots=True)
class Parameters:
    """What some names leave open; see :meth:`stridewise.Format.parse`."""

    dtype: str | DType | None = None
    block: int | None = None
    groups: int = 1
    rank: int | None = None
    device: str | None = None
    hidden_size: int | None = None

    @property
    def bits(self) -> int | None:
        """Bits of an element, where the dtype is given.

        Raises:
            FormatError: nobody knows the dtype.

        >>> Parameters(dtype="bf16").bits, Parameters(dtype="int4").bits, Parameters().bits
        (16, 4, None)
        """
        if self.dtype is None:
            return None
        name = str(self.dtype)
        if name not in _BITS:
            raise FormatError(
                describe("dtype", expected="an element type such as float16 or int4", found=name)
            )
        return _BITS[name]


Parse = Callable[[str, Parameters], FormatData | None]


def refuse(system: str, name: str, why: str, fix: str = "") -> FormatError:
    """Return the error for a name that a system has and that we cannot express."""
    return FormatError(
        describe(f"{system} format {name!r}", expected="a memory format", found=why, fix=fix)
    )


def need(system: str, name: str, what: str, fix: str) -> FormatError:
    """Return the error for a name that lacks a parameter, which ``fix`` tells how to give."""
    return FormatError(describe(f"{system} format {name!r}", expected=what, found="none", fix=fix))


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one system writes formats.

    Attributes:
        name: what users call the system.
        title: the system's full name.
        parse: text and parameters to a format; None where the text is not a name of this system,
            FormatError where it is one that the algebra cannot express or lacks a parameter.
        names: every name of the system, those that are refused included.
        spell: format and parameters to a name, None where there is none; by default the first of
            ``names`` that parses to an equal format.
        aliases: other names that users may know the dialect by.
        example: a name, for error messages.
    """

    name: str
    title: str
    parse: Parse
    names: Callable[[], tuple[str, ...]]
    spell: Callable[[FormatData, Parameters], str | None] | None = None
    aliases: tuple[str, ...] = ()
    example: str = ""


Entry = str | Callable[[Parameters], FormatData]
"""A name's format: in the notation of :func:`~.notation.walk`, or made of the parameters."""


@dataclass(frozen=True, slots=True)
class Table:
    """The names of a system that follow no grammar.

    Attributes:
        title: the system's full name.
        entries: what names mean.
        refused: names that the algebra cannot express, and why.
        prefixes: of which one may precede any name.
        synonyms: other spellings of names.
    """

    title: str
    entries: Mapping[str, Entry]
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    prefixes: tuple[str, ...] = ()
    synonyms: Mapping[str, str] = field(default_factory=dict[str, str])

    def plain(self, text: str) -> str:
        """Return a name without its prefix, and the usual one of synonyms."""
        name = next((text[len(p) :] for p in self.prefixes if text.startswith(p)), text)
        return self.synonyms.get(name, name)

    def parse(self, text: str, parameters: Parameters) -> FormatData | None:
        """Return the format of a name; this is :attr:`Dialect.parse`."""
        name = self.plain(text)
        if name in self.refused:
            raise refuse(self.title, text, self.refused[name])
        entry = self.entries.get(name)
        if entry is None or isinstance(entry, str):
            return None if entry is None else walk(entry)
        return entry(parameters)

    def names(self) -> tuple[str, ...]:
        """Return the names; this is :attr:`Dialect.names`."""
        return (*self.entries, *self.refused)


def first_equal(
    parse: Parse, fmt: FormatData, parameters: Parameters, candidates: Iterable[str]
) -> str | None:
    """Return the first of the candidates that means ``fmt``; for names without a bound."""
    for name in candidates:
        try:
            found = parse(name, parameters)
        except FormatError:
            continue
        if found == fmt:
            return name
    return None


_BY_RANK = {2: "NC", 3: "NCW", 4: "NCHW", 5: "NCDHW"}


def by_rank(parameters: Parameters, *, channels_last: bool = False) -> FormatData:
    """Return the row-major or channels-last format of ``rank``, which is 4 by default.

    Axes of other ranks than 2 to 5 have no usual names; of those, the second is the channels.

    >>> by_rank(Parameters(rank=3), channels_last=True).name, by_rank(Parameters(rank=6)).name
    ('NWC', 'abcdef')
    """
    rank = 4 if parameters.rank is None else parameters.rank
    axes = canonical(_BY_RANK.get(rank, "")) or nd(rank).axes
    order = (*axes[:1], *axes[2:], *axes[1:2]) if channels_last else axes
    return FormatData(axes, order)
