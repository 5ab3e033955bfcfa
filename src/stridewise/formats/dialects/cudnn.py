"""cuDNN's tensor formats.

Source: ``cudnnTensorFormat_t`` and ``cudnnReorderType_t`` of ``cudnn.h``. The same values describe
filters, which are written ``CUDNN_TENSOR_NHWC filter`` here (O and I for K and C). The vector
length of ``CUDNN_TENSOR_NCHW_VECT_C`` is part of the data type: pass dtype="int8x4" or "int8x32",
or block=.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from stridewise.formats.data import FormatData
from stridewise.formats.dialects.dialect import (
    Dialect,
    Entry,
    Parameters,
    Table,
    first_equal,
    need,
)
from stridewise.formats.dialects.notation import walk

__all__ = ["DIALECT"]

_VECTOR = re.compile(r"(?:CUDNN_DATA_)?u?int8x(4|32)", re.IGNORECASE)


def _vectors(digits: str) -> Callable[[Parameters], FormatData]:
    def made(parameters: Parameters) -> FormatData:
        match = _VECTOR.fullmatch(str(parameters.dtype))
        length = int(match[1]) if match else parameters.block
        if length not in (4, 32):
            raise need(
                "cuDNN",
                "CUDNN_TENSOR_NCHW_VECT_C",
                "a vector length of 4 or 32",
                'give dtype= or block= (dtype="int8x4", dtype="int8x32")',
            )
        return walk(digits.format(length))

    return made


_ENUMERATION: dict[str, Entry] = {
    "CUDNN_TENSOR_NCHW": "N C H W",
    "CUDNN_TENSOR_NHWC": "N H W C",
    "CUDNN_TENSOR_NCHW_VECT_C": _vectors("N C H W {0}*C; pad C {0} divide"),
}
_TABLE = Table(
    "cuDNN",
    {
        **_ENUMERATION,
        "CUDNN_TENSOR_NCHW filter": "O I H W",
        "CUDNN_TENSOR_NHWC filter": "O H W I",
        "CUDNN_TENSOR_NCHW_VECT_C filter": _vectors("O I H W {0}*I; pad I {0} divide"),
        "NC/4HW4": "N C H W 4*C; pad C 4 divide",
        "NC/32HW32": "N C H W 32*C; pad C 32 divide",
    },
    refused={
        "CUDNN_DEFAULT_REORDER (int8x32 filter)": (
            "an order of the filter that the library keeps private"
        )
    },
    synonyms={"CUDNN_DEFAULT_REORDER": "CUDNN_DEFAULT_REORDER (int8x32 filter)"},
)

DIALECT = Dialect(
    "cudnn",
    "cuDNN",
    _TABLE.parse,
    lambda: (*_ENUMERATION, *_TABLE.refused),
    lambda fmt, parameters: first_equal(_TABLE.parse, fmt, parameters, _TABLE.entries),
    example="CUDNN_TENSOR_NHWC",
)
