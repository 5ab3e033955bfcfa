"""Formats of the Arm Compute Library.

Source: ``arm_compute/core/CoreTypes.h`` of ARM-software/ComputeLibrary at 42cbf4e. The names of
weights are ``OHWIo<outputs>i<inputs>``, blocks innermost. The suffix ``_bf16`` gives the element
type and does not change the order.
"""

from __future__ import annotations

import re

from stridewise.formats.data import FormatData
from stridewise.formats.dialects.dialect import Dialect, Parameters, Table, first_equal
from stridewise.formats.dialects.notation import walk

__all__ = ["DIALECT"]

_WEIGHTS = re.compile(r"OHWIo(\d{1,9})(?:i(\d{1,9}))?(?:_bf16)?")
_QUERY = "a value of queries, not a layout"

_TABLE = Table(
    "Arm Compute Library",
    {
        "NCHW": "N C H W",
        "NHWC": "N H W C",
        "NCDHW": "N C D H W",
        "NDHWC": "N D H W C",
        "OHWI": "O H W I",
    },
    refused={"ANY": _QUERY, "UNSPECIFIED": _QUERY},
    prefixes=("DataLayout::", "WeightFormat::"),
)


def _parse(text: str, parameters: Parameters) -> FormatData | None:
    match = _WEIGHTS.fullmatch(_TABLE.plain(text))
    if match is None:
        return _TABLE.parse(text, parameters)
    outputs, inputs = match.groups()
    return walk(f"O H W I {outputs}*O" + (f" {inputs}*I" if inputs else ""))


def _names() -> tuple[str, ...]:
    blocks = [f"OHWIo{n}" for n in (2, 4, 8, 16, 32, 64, 128)]
    pairs = [f"OHWIo{n}i{m}" for n in (4, 8, 16, 32, 64) for m in (2, 4, 8)]
    return (*_TABLE.entries, *blocks, "OHWIo2i8", *pairs, *_TABLE.refused)


def _spell(fmt: FormatData, parameters: Parameters) -> str | None:
    weights = "OHWI" + "".join(f"{b.axis.lower()}{b.size}" for b in fmt.normal().blocks)
    return first_equal(_parse, fmt, parameters, (*_TABLE.entries, weights))


DIALECT = Dialect("acl", "Arm Compute Library", _parse, _names, _spell, example="OHWIo8i4")
