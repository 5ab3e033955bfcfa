"""CUTLASS' layouts.

Source: ``include/cutlass/layout/matrix.h`` and ``tensor.h`` of NVIDIA/cutlass at 7107b05. Rows and
columns are M and N. Template parameters may have any value.
"""

from __future__ import annotations

import re

from stridewise.formats.data import FormatData
from stridewise.formats.dialects.dialect import Dialect, Parameters, Table, first_equal
from stridewise.formats.dialects.notation import walk

__all__ = ["DIALECT"]

_TEMPLATES = {
    ("RowMajorInterleaved", 1): "M N {0}*M",
    ("ColumnMajorInterleaved", 1): "N M {0}*N",
    ("TensorNCxHWx", 1): "N C H W {0}*C; pad C {0} divide",
    ("TensorCxRSKx", 1): "I H W O {0}*I; pad I {0} divide",
    ("ColumnMajorBlockLinear", 2): "N M {1}*N {0}*M",
}
_NAME = re.compile(r"(\w+)<(\d{1,9}(?:, ?\d{1,9})*)>")

_TABLE = Table(
    "CUTLASS",
    {
        "RowMajor": "M N",
        "ColumnMajor": "N M",
        "TensorNHWC": "N H W C",
        "TensorNCHW": "N C H W",
        "TensorNWC": "N W C",
        "TensorNDHWC": "N D H W C",
    },
    refused={
        "*TensorOpMultiplicand{Crosswise,Congruous}": (
            "a swizzle of shared memory: exclusive or of address bits, which no digits express"
        )
    },
    prefixes=("cutlass::layout::", "layout::"),
)
_EXAMPLES = (
    *(f"{name}<{n}>" for (name, count), _ in _TEMPLATES.items() for n in (4, 32, 64) if count == 1),
    "ColumnMajorBlockLinear<16,32>",
)


def _parse(text: str, parameters: Parameters) -> FormatData | None:
    name = _TABLE.plain(text)
    if "TensorOpMultiplicand" in name:
        name = next(iter(_TABLE.refused))
    match = _NAME.fullmatch(name)
    if match is None:
        return _TABLE.parse(name, parameters)
    numbers = [int(number) for number in match[2].split(",")]
    template = _TEMPLATES.get((match[1], len(numbers)))
    return None if template is None else walk(template.format(*numbers))


def _spell(fmt: FormatData, parameters: Parameters) -> str | None:
    sizes = [str(block.size) for block in fmt.normal().blocks]
    written = (f"{name}<{','.join(reversed(sizes))}>" for name, _ in _TEMPLATES)
    return first_equal(_parse, fmt, parameters, (*_TABLE.entries, *written))


DIALECT = Dialect(
    "cutlass",
    "CUTLASS",
    _parse,
    lambda: (*_TABLE.entries, *_EXAMPLES, *_TABLE.refused),
    _spell,
    example="TensorNHWC",
)
