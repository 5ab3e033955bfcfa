"""The parser of Stridewise's own notation, which the tables of the dialects also use."""

from __future__ import annotations

import re

from stridewise.errors import FormatError
from stridewise.formats.axes import canonical
from stridewise.formats.data import Block, Digit, FormatData, Fuse, Pad, Pitch, Policy, Split

__all__ = ["read", "walk"]

_BLOCK = re.compile(r"(?P<size>\d{1,18})\*(?P<axis>[^@\s]+?)(?:@(?P<step>\d{1,18}))?")
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_POLICIES: dict[str, Policy] = {"zero": "zero", "unspecified": "unspecified", "divide": "divide"}


def _is_number(word: str) -> bool:
    return _NUMBER.fullmatch(word) is not None


def _digit(word: str) -> Digit:
    if word.startswith("|") and _is_number(word[1:]):
        return Pitch(int(word[1:]))
    block = _BLOCK.fullmatch(word)
    if block is None:
        return word
    step = None if block["step"] is None else int(block["step"])
    return Block(block["axis"], int(block["size"]), step)


def read(axes: tuple[str, ...] | None, clauses: str) -> FormatData:
    """Return the format of clauses such as ``walk N C 16*C; pad C 4``, outermost digit first.

    ``axes`` defaults to the axes of the walk in canonical order.

    Raises:
        FormatError: a clause cannot be parsed, or the format is malformed.
    """
    digits: tuple[Digit, ...] | None = None
    pads: list[Pad] = []
    steps: list[Fuse | Split] = []
    for clause in clauses.split("; "):
        match clause.split():
            case ["walk", *words] if digits is None:
                digits = tuple(map(_digit, words))
            case ["pad", axis, multiple] if _is_number(multiple):
                pads.append(Pad(axis, int(multiple)))
            case ["pad", axis, multiple, policy] if _is_number(multiple) and policy in _POLICIES:
                pads.append(Pad(axis, int(multiple), _POLICIES[policy]))
            case ["fuse", into, "=", *parts]:
                steps.append(Fuse(tuple(parts), into))
            case ["split", axis, "=", outer, inner, size] if _is_number(size):
                steps.append(Split(axis, outer, inner, int(size)))
            case _:
                raise FormatError.at(
                    f"format {clauses!r}",
                    expected="clauses such as 'walk N C 16*C', 'pad C 4', 'fuse K = H W'",
                    found=repr(clause),
                )
    found = digits or ()
    if axes is None:
        named = tuple(digit for digit in found if isinstance(digit, str))
        axes = canonical(named) or named
    return FormatData(axes, found, tuple(pads), tuple(steps))


def walk(text: str) -> FormatData:
    """Return the format of an entry of a table: ``[axes: ]digits[; clauses]``.

    >>> walk("N H W C; pad C 8").text
    'N,C,H,W: walk N H W C; pad C 8'
    >>> walk("C,N: C N 16*N").axes
    ('C', 'N')
    """
    axes, colon, digits = text.rpartition(": ")
    return read(tuple(axes.split(",")) if colon else None, f"walk {digits}")
