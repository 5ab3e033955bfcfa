"""ncnn's Mat.

Source: ``docs/developer-guide/element-packing.md`` of Tencent/ncnn at a4d2ea1, and ``src/mat.h``. A
Mat has no batch axis, and its outermost axis is packed. With three or more axes, channels start at
multiples of 16 bytes. The gaps depend on the dtype, so they are omitted unless dtype= is given.
"""

from __future__ import annotations

import re

from stridewise.formats.data import Block, Digit, FormatData, Pitch
from stridewise.formats.dialects.dialect import Dialect, Parameters, first_equal

__all__ = ["DIALECT"]

_NAME = re.compile(r"Mat dims=(?P<dims>[1-4]) elempack=(?P<pack>\d{1,9})")
_AXES = (("W",), ("H", "W"), ("C", "H", "W"), ("C", "D", "H", "W"))
_PLANE = 16 * 8  # bits


def _parse(text: str, parameters: Parameters) -> FormatData | None:
    match = _NAME.fullmatch(text)
    if match is None:
        return None
    axes = _AXES[int(match["dims"]) - 1]
    digits: list[Digit] = list(axes)
    if len(axes) > 2 and parameters.bits is not None:
        digits.insert(1, Pitch(max(_PLANE // parameters.bits, 1)))
    if int(match["pack"]) != 1:
        digits.append(Block(axes[0], int(match["pack"])))
    return FormatData(axes, tuple(digits))


def _names() -> tuple[str, ...]:
    packs = {3: (1, 4, 8, 16), 2: (4, 8)}
    return tuple(
        f"Mat dims={dims} elempack={pack}" for dims, some in packs.items() for pack in some
    )


def _spell(fmt: FormatData, parameters: Parameters) -> str | None:
    pack = max(fmt.multiple(fmt.axes[0]), 1) if fmt.axes else 1
    return first_equal(_parse, fmt, parameters, [f"Mat dims={fmt.rank} elempack={pack}"])


DIALECT = Dialect("ncnn", "ncnn", _parse, _names, _spell, example="Mat dims=3 elempack=4")
