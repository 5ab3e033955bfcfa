"""TVM's layouts.

Source: ``src/s_tir/data_layout.cc`` of apache/tvm at 5d4dc87. Capitals are axes, outermost first;
``16c`` is a block of C. Brackets group blocks into one dimension of TVM's tensor and do not change
the order. Here, a layout needs a known set of letters (``NCHW``, ``OIHW``, ``ABC``, ...). TVM
allows at most one block per axis, so it has no name for oneDNN's ``OIhw4i16o4i``.
"""

from __future__ import annotations

import re
from collections import Counter

from stridewise.formats.axes import canonical
from stridewise.formats.data import Block, Digit, FormatData
from stridewise.formats.dialects.dialect import Dialect, Parameters, Table, first_equal, refuse

__all__ = ["DIALECT"]

_LAYOUT = re.compile(r"(?:[A-Z]|\d{1,9}[a-z]|\[(?:\d{1,9}[a-z])+\])+")
_ITEM = re.compile(r"([A-Z])|(\d+)([a-z])")

_TABLE = Table("TVM", {}, refused={"__undef__": "no layout"})
_USUAL = (
    *("NCHW", "NHWC", "NCHW4c", "NCHW8c", "NCHW16c", "NCHW32c", "HWNC", "CHWN", "HWNC8n32c"),
    *("NCW", "NWC", "NCW16c", "NCDHW", "NDHWC", "NCDHW16c"),
    *("OIHW", "OHWI", "HWIO", "HWOI", "IOHW", "OIHW16o", "OIHW4i", "OIHW4o4i", "OIHW[4o4i]"),
    *("OIHW16i16o", "OIHW16o16i", "OIHW4i16o4i", "OIDHW", "DHWIO", "OIDHW16i16o"),
)


def _parse(text: str, parameters: Parameters) -> FormatData | None:
    _TABLE.parse(text, parameters)
    if _LAYOUT.fullmatch(text) is None:
        return None
    items = _ITEM.findall(text)
    primal = [axis for axis, _, _ in items if axis]
    axes = canonical(primal) or canonical(axis.lower() for axis in primal)
    if axes is None or len(axes) != len(primal):
        return None
    named = {axis.upper(): axis for axis in axes}
    blocks = Counter(letter.upper() for _, _, letter in items if letter)
    if not blocks.keys() <= named.keys():
        return None
    if any(count > 1 for count in blocks.values()):
        raise refuse("TVM", text, "two blocks of an axis; TVM allows one")
    digits: list[Digit] = [
        named[axis] if axis else Block(named[letter.upper()], int(size))
        for axis, size, letter in items
    ]
    return FormatData(axes, tuple(digits))


def _spell(fmt: FormatData, parameters: Parameters) -> str | None:
    digits = fmt.normal().digits
    written = [
        f"{item.size}{item.axis.lower()}" if isinstance(item, Block) else str(item).upper()
        for item in digits
    ]
    return first_equal(_parse, fmt, parameters, ["".join(written)])


DIALECT = Dialect(
    "tvm", "TVM", _parse, lambda: (*_USUAL, *_TABLE.refused), _spell, example="NCHW16c"
)
