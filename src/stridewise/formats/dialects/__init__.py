"""Foreign spellings of formats. One file a system; this file is the table of them.

A dialect offers ``parse(text) -> Format`` and ``spell(format) -> str``; both raise
:class:`~stridewise.errors.FormatError` for what the system has no word for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stridewise.errors import FormatError, describe
from stridewise.formats.dialects import onednn
from stridewise.formats.format import Format

__all__ = ["DIALECTS", "Dialect", "dialects", "parse", "spell"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one system writes formats."""

    name: str
    parse: Callable[[str], Format]
    spell: Callable[[Format], str]


DIALECTS: dict[str, Dialect] = {
    "onednn": Dialect("onednn", onednn.parse, onednn.spell),
}


def dialects() -> tuple[str, ...]:
    """Return the names of the known dialects."""
    return tuple(DIALECTS)


def _dialect(name: str) -> Dialect:
    if name not in DIALECTS:
        raise FormatError(
            describe("dialect", expected=f"one of {', '.join(DIALECTS)}", found=repr(name))
        )
    return DIALECTS[name]


def parse(text: str, dialect: str = "onednn") -> Format:
    """Return the format that ``text`` names in a dialect.

    Raises:
        FormatError: the dialect is unknown, or has no format of that name.

    >>> parse("NHWC").order
    ('N', 'H', 'W', 'C')
    """
    return _dialect(dialect).parse(text)


def spell(fmt: Format, dialect: str = "onednn") -> str:
    """Return the name of a format in a dialect.

    Raises:
        FormatError: the dialect is unknown, or has no name for the format.
    """
    return _dialect(dialect).spell(fmt)
