"""oneDNN's format tags, named (``nChw16c``) and abstract (``aBcd16b``).

Source: ``dnnl_format_tag_t`` in oneDNN's ``dnnl_types.h``. The grammar: one letter an axis in
memory order, a capital where the axis is blocked, then ``<size><axis>`` a block. Without any
block, capitals and lower case mean the same, so that the usual ``NHWC`` parses too.
"""

from __future__ import annotations

import re

from stridewise.errors import FormatError, describe
from stridewise.formats.format import Block, Format

__all__ = ["abstract_tag", "parse", "spell"]

# Canonical axis order by set of axes: oneDNN's logical order, whatever the memory order.
_CANONICAL = (
    "NC",
    "NCW",
    "NCHW",
    "NCDHW",
    "OI",
    "OIW",
    "OIHW",
    "OIDHW",
    "GOIW",
    "GOIHW",
    "GOIDHW",
)
_CANONICAL_BY_SET = {frozenset(axes): tuple(axes) for axes in _CANONICAL}
_TAG = re.compile(r"(?P<outer>[A-Za-z]+)(?P<blocks>(?:\d+[a-z])*)")
_BLOCK = re.compile(r"(\d+)([a-z])")


def _reject(text: str, why: str) -> FormatError:
    return FormatError(
        describe(
            f"oneDNN format {text!r}",
            expected="a tag such as NCHW, nhwc, nChw16c or aBcd16b",
            found=why,
        )
    )


def _axes_of(text: str, letters: str) -> tuple[str, ...]:
    """Return the canonical axes that the outer letters of a tag stand for."""
    upper = letters.upper()
    if len(set(upper)) != len(upper):
        raise _reject(text, "a repeated axis")
    named = _CANONICAL_BY_SET.get(frozenset(upper))
    if named is not None:
        return named
    positional = tuple("abcdefghijkl"[: len(letters)])
    if set(letters.lower()) == set(positional):
        return positional
    raise _reject(text, f"axes {upper!r}, which no tag has")


def parse(text: str) -> Format:
    """Return the format of a named or abstract tag.

    Raises:
        FormatError: the text is no tag.

    >>> parse("aBcd16b").blocks
    (Block(axis='b', size=16),)
    """
    match = _TAG.fullmatch(text)
    if match is None:
        raise _reject(text, "something else")
    letters = match["outer"]
    axes = _axes_of(text, letters)
    by_letter = {axis.lower(): axis for axis in axes}
    found = [(int(size), letter) for size, letter in _BLOCK.findall(match["blocks"])]
    unknown = [letter for _, letter in found if letter not in by_letter]
    if unknown:
        raise _reject(text, f"a block of the unknown axis {unknown[0]!r}")
    if found:
        capitals = {letter.lower() for letter in letters if letter.isupper()}
        blocked = {letter for _, letter in found}
        if capitals != blocked:
            raise _reject(text, "capitals that do not mark the blocked axes")
    blocks = tuple(Block(by_letter[letter], size) for size, letter in found)
    return Format(axes, tuple(by_letter[letter.lower()] for letter in letters), blocks)


def spell(fmt: Format) -> str:
    """Return the tag of a format, in oneDNN's lower case (``nhwc``, ``nChw16c``)."""
    return fmt.name if fmt.is_blocked else fmt.name.lower()


def abstract_tag(fmt: Format) -> str:
    """Return the abstract tag: axes become ``a``, ``b``, ... by canonical position.

    >>> abstract_tag(parse("nhwc")), abstract_tag(parse("nChw16c"))
    ('acdb', 'aBcd16b')
    """
    letter = {axis: "abcdefghijkl"[position] for position, axis in enumerate(fmt.axes)}
    blocked = {block.axis for block in fmt.blocks}
    outer = "".join(letter[a].upper() if a in blocked else letter[a] for a in fmt.order)
    return outer + "".join(f"{block.size}{letter[block.axis]}" for block in fmt.blocks)
