"""oneDNN's format tags, named (``nChw16c``) and abstract (``aBcd16b``).

Source: ``dnnl_format_tag_t`` in oneDNN's ``dnnl_types.h``, commit 3f27bec; ``onednn_tags.txt``
lists its names. Grammar: one letter per axis in memory order, in upper case if the axis is blocked,
then ``<size><axis>`` per block. Without blocks, case does not matter, so that the usual ``NHWC``
parses too. Every tag of this grammar parses, but only names that oneDNN defines are printed.
"""

from __future__ import annotations

import re
from functools import lru_cache

from stridewise.errors import FormatError
from stridewise.formats.axes import POSITIONAL, canonical
from stridewise.formats.data import Block, FormatData
from stridewise.formats.dialects.dialect import Dialect, Parameters, refuse

__all__ = ["DIALECT", "abstract_tag"]

_TAG = re.compile(r"(?P<outer>[A-Za-z]+)(?P<blocks>(?:\d{1,9}[a-z])*)")
_BLOCK = re.compile(r"(\d{1,9})([a-z])")
_PREFIXES = ("dnnl::memory::format_tag::", "dnnl_")

# Names whose enumeration value differs from the format that the letters spell.
_MISLEADING = {
    "OhwI24o": "Ohwi24o",
    "OhwI32o": "Ohwi32o",
    "gOhwI24o": "gOhwi24o",
    "gOhwI32o": "gOhwi32o",
    "gIOhw2i8o16i2o": "gOIhw2i8o16i2o",
    "gIOdhw2i8o16i2o": "gOIdhw2i8o16i2o",
}

_REFUSED = {
    "any": "a request that the library choose",
    "undef": "no format",
    "format_kind_host_scalar": "a scalar on the host",
    "format_kind_opaque(cublaslt_blocked)": "a vendor's private format",
    "format_kind_opaque(rnn_packed)": "weights packed by the GEMM of the library, format private",
    "format_kind_opaque(wino: wino_wei_aaOio, wino_wei_aaOBiOo, wino_wei_OBaaIBOIio)": (
        "Winograd-transformed weights, whose values are computed, not moved"
    ),
    "format_kind_opaque(zen_packed)": "a vendor's private format",
    "format_kind_sparse(coo)": "a sparse tensor: values and one index buffer an axis",
    "format_kind_sparse(csr)": "a sparse tensor: values, indices and pointers",
    "format_kind_sparse(grouped)": "a sparse tensor: values and offsets",
    "format_kind_sparse(packed)": "a sparse tensor: compressed values, offsets and a bitmask",
    "memory_extra_flags(compensation/scale_adjust)": (
        "rows of compensation behind the data of a tag, which are computed, not moved"
    ),
}


def _axes_of(letters: str) -> tuple[str, ...] | None:
    """Return the canonical axes of the outer letters of a tag."""
    return canonical(letters.upper()) or canonical(letters.lower())


def _malformed(text: str, why: str) -> FormatError:
    return FormatError.at(
        f"oneDNN format {text!r}",
        expected="a tag such as NCHW, nhwc, nChw16c or aBcd16b",
        found=why,
    )


def _parse(text: str, parameters: Parameters) -> FormatData | None:
    del parameters
    name = next((text[len(p) :] for p in _PREFIXES if text.startswith(p)), text)
    if name in _REFUSED:
        raise refuse("oneDNN", name, _REFUSED[name])
    match = _TAG.fullmatch(_MISLEADING.get(name, name))
    if match is None:
        return None
    letters = match["outer"]
    axes = _axes_of(letters)
    if axes is None or len(set(letters.lower())) != len(letters):
        return None
    by_letter = {axis.lower(): axis for axis in axes}
    found = [(int(size), letter) for size, letter in _BLOCK.findall(match["blocks"])]
    if found:
        # TVM writes NCHW16c; oneDNN writes exactly the blocked axes in upper case.
        if letters.isupper() and {letter for _, letter in found} != set(letters.lower()):
            return None
        unknown = [letter for _, letter in found if letter not in by_letter]
        if unknown:
            raise _malformed(text, f"a block of the unknown axis {unknown[0]!r}")
        if {c.lower() for c in letters if c.isupper()} != {letter for _, letter in found}:
            raise _malformed(text, "capitals that do not mark the blocked axes")
    blocks = tuple(Block(by_letter[letter], size) for size, letter in found)
    return FormatData(axes, (*(by_letter[letter.lower()] for letter in letters), *blocks))


@lru_cache(maxsize=1)
def _names() -> tuple[str, ...]:
    from importlib.resources import files  # noqa: PLC0415 (only lists of names need it)

    text = files(__package__ or "").joinpath("onednn_tags.txt").read_text(encoding="ascii")
    return (*text.split(), *_REFUSED)


def abstract_tag(fmt: FormatData) -> str:
    """Return the abstract tag, in which axes are ``a``, ``b``, ... by canonical position.

    Raises:
        FormatError: the format is not a permutation with blocks innermost.

    >>> from stridewise.formats import parse
    >>> abstract_tag(parse("nhwc")), abstract_tag(parse("nChw16c"))
    ('acdb', 'aBcd16b')
    """
    if not fmt.is_simple:
        raise FormatError.at(
            f"format {fmt}", expected="a permutation with inner blocks", found="more"
        )
    letter = {axis: POSITIONAL[position] for position, axis in enumerate(fmt.axes)}
    blocked = {block.axis for block in fmt.blocks}
    outer = "".join(letter[a].upper() if a in blocked else letter[a] for a in fmt.order)
    return outer + "".join(f"{block.size}{letter[block.axis]}" for block in fmt.blocks)


DIALECT = Dialect("onednn", "oneDNN", _parse, _names, aliases=("dnnl",), example="nChw16c")
