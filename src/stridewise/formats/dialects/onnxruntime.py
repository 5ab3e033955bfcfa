"""ONNX Runtime's blocked formats, defined by its library MLAS.

Source: ``onnxruntime/core/mlas/lib/reorder.cpp`` of microsoft/onnxruntime. The block size is chosen
at run time: 8 for SSE and AVX2, 16 for AVX-512. ``MlasNchwcGetBlockSize()`` returns it.
"""

from __future__ import annotations

from collections.abc import Callable

from stridewise.formats.data import FormatData
from stridewise.formats.dialects.dialect import Dialect, Parameters, Table, need
from stridewise.formats.dialects.notation import walk

__all__ = ["DIALECT"]


def _blocked(name: str, digits: str) -> Callable[[Parameters], FormatData]:
    def made(parameters: Parameters) -> FormatData:
        if parameters.block is None:
            raise need("ONNX Runtime", name, "the block", "give block=8 or block=16")
        return walk(digits.format(parameters.block))

    return made


_BLOCKED = {
    "NCHWc": "N C H W {0}*C",
    "OIHWBiBo": "O I H W {0}*I {0}*O",
    "OIHWBo": "O I H W {0}*O",
}
_TABLE = Table("ONNX Runtime", {name: _blocked(name, digits) for name, digits in _BLOCKED.items()})

DIALECT = Dialect(
    "onnxruntime",
    "ONNX Runtime",
    _TABLE.parse,
    _TABLE.names,
    aliases=("ort", "mlas"),
    example="NCHWc",
)
