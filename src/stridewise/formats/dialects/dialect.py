"""The definition of a dialect: the notation that one system uses for formats.

A dialect maps a name to one of three results: a format, a :class:`FormatError` if the algebra
cannot express the format, or None if the name does not belong to the system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from stridewise.classes import dataclass
from stridewise.dtypes import DTYPES, DType
from stridewise.errors import FormatError
from stridewise.formats.axes import canonical
from stridewise.formats.data import FormatData, nd
from stridewise.formats.dialects.notation import walk

__all__ = ["Dialect", "Entry", "Parameters", "Table", "by_rank", "first_equal", "need", "refuse"]

# Includes element types without a DType: formats exist for types that Stridewise cannot compute
# with.
_BITS = {
    **{spelling: 8 * d.itemsize for d in DTYPES.values() for spelling in (d.name, d.short)},
    **{"bfloat16": 16, "bf16": 16, "fp64": 64, "fp32": 32, "fp16": 16, "half": 16},
    **{"i64": 64, "i32": 32, "i16": 16, "i8": 8, "uint4": 4, "int4": 4, "u4": 4, "s4": 4, "i4": 4},
    **{"uint2": 2, "int2": 2, "u2": 2, "s2": 2, "i2": 2, "bin": 1, "u1": 1},
}


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters that some names leave open; see :meth:`stridewise.Format.parse`."""

    dtype: str | DType | None = None
    block: int | None = None
    groups: int = 1
    rank: int | None = None
    device: str | None = None
    hidden_size: int | None = None

    def __post_init__(self) -> None:
        numbers = {"block": 1, "groups": 1, "rank": 0, "hidden_size": 1}
        for name, least in numbers.items():
            given: object = getattr(self, name)
            if given is not None and not (isinstance(given, int) and given >= least):
                expected = f"a whole number of {least} or more"
                raise FormatError.at(name, expected=expected, found=repr(given))

    @property
    def bits(self) -> int | None:
        """Bits of an element; None if no dtype is given.

        Raises:
            FormatError: the dtype is unknown.

        >>> Parameters(dtype="bf16").bits, Parameters(dtype="int4").bits, Parameters().bits
        (16, 4, None)
        """
        if self.dtype is None:
            return None
        name = str(self.dtype)
        if name not in _BITS:
            raise FormatError.at(
                "dtype", expected="an element type such as float16 or int4", found=name
            )
        return _BITS[name]


Parse = Callable[[str, Parameters], FormatData | None]


def refuse(system: str, name: str, why: str, fix: str = "") -> FormatError:
    """Return the error for a name of a system whose format the algebra cannot express.

    Args:
        system: the system's full name.
        name: the name of the format.
        why: the reason.
        fix: what the user can do; "" for no advice.
    """
    return FormatError.at(
        f"{system} format {name!r}", expected="a memory format", found=why, fix=fix
    )


def need(system: str, name: str, what: str, fix: str) -> FormatError:
    """Return the error for a missing parameter.

    Args:
        system: the system's full name.
        name: the name of the format.
        what: the parameter.
        fix: how to pass the parameter.
    """
    return FormatError.at(f"{system} format {name!r}", expected=what, found="none", fix=fix)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The notation that one system uses for formats.

    Attributes:
        name: the system's name in the API.
        title: the system's full name.
        parse: converts text and parameters to a format. Returns None if the text is not a name of
            this system. Raises FormatError if the algebra cannot express the format or a parameter
            is missing.
        names: returns every name of the system, including those that are refused.
        spell: converts a format and parameters to a name, or None if there is none; by default the
            first of ``names`` that parses to an equal format.
        aliases: other names of the dialect in the API.
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
"""A format in the notation of :func:`~.notation.walk`, or a function of the parameters."""


@dataclass(frozen=True, slots=True)
class Table:
    """Names of a system without a grammar.

    Attributes:
        title: the system's full name.
        entries: the format of each name.
        refused: names of formats that the algebra cannot express, with the reason.
        prefixes: optional prefixes of every name.
        synonyms: alternative names, with the name in ``entries``.
    """

    title: str
    entries: Mapping[str, Entry]
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    prefixes: tuple[str, ...] = ()
    synonyms: Mapping[str, str] = field(default_factory=dict[str, str])

    def plain(self, text: str) -> str:
        """Return a name without its prefix and with synonyms resolved."""
        name = next((text[len(p) :] for p in self.prefixes if text.startswith(p)), text)
        return self.synonyms.get(name, name)

    def parse(self, text: str, parameters: Parameters) -> FormatData | None:
        """Return the format of a name; used as :attr:`Dialect.parse`."""
        name = self.plain(text)
        if name in self.refused:
            raise refuse(self.title, text, self.refused[name])
        entry = self.entries.get(name)
        if entry is None or isinstance(entry, str):
            return None if entry is None else walk(entry)
        return entry(parameters)

    def names(self) -> tuple[str, ...]:
        """Return the names; used as :attr:`Dialect.names`."""
        return (*self.entries, *self.refused)


def first_equal(
    parse: Parse, fmt: FormatData, parameters: Parameters, candidates: Iterable[str]
) -> str | None:
    """Return the first candidate that parses to ``fmt``; for systems with unlimited names.

    Args:
        parse: the dialect's parser.
        fmt: the format.
        parameters: values that names leave open.
        candidates: the names to try.
    """
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
    """Return the row-major or channels-last format of a rank, by default 4.

    Axes have the usual names for ranks 2 to 5, else positional names. The second axis has the
    channels.

    >>> by_rank(Parameters(rank=3), channels_last=True).name, by_rank(Parameters(rank=6)).name
    ('NWC', 'abcdef')
    """
    rank = 4 if parameters.rank is None else parameters.rank
    axes = canonical(_BY_RANK.get(rank, "")) or nd(rank).axes
    order = (*axes[:1], *axes[2:], *axes[1:2]) if channels_last else axes
    return FormatData(axes, order)
