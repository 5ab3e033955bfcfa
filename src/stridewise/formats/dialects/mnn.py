"""MNN's dimension formats.

Source: ``docs/contribute/op.md`` and ``source/core/TensorUtils.cpp`` of alibaba/MNN at 4d40bdb.
Despite its name, NC4HW4 stores the blocks of C outside N on CPUs. The block is 4 unless block=
gives the pack of a back end: 8 for float16, 16 for AVX-512. MindSpore Lite uses the name for
another format.
"""

from __future__ import annotations

import re

from stridewise.formats.data import FormatData
from stridewise.formats.dialects.dialect import Dialect, Parameters, Table, first_equal
from stridewise.formats.dialects.notation import walk

__all__ = ["DIALECT"]

_PACKED = re.compile(r"C(\d{1,9})NHW\1")


def _packed(block: int) -> FormatData:
    return walk(f"C N H W {block}*C")


_TABLE = Table(
    "MNN",
    {
        "NHWC": "N H W C",
        "NCHW": "N C H W",
        "NC4HW4": lambda parameters: _packed(4 if parameters.block is None else parameters.block),
    },
    prefixes=("MNN::", "Tensor::"),
    synonyms={"TENSORFLOW": "NHWC", "CAFFE": "NCHW", "CAFFE_C4": "NC4HW4"},
)


def _parse(text: str, parameters: Parameters) -> FormatData | None:
    match = _PACKED.fullmatch(text)
    return _packed(int(match[1])) if match else _TABLE.parse(text, parameters)


def _spell(fmt: FormatData, parameters: Parameters) -> str | None:
    block = fmt.multiple("C")
    return first_equal(_parse, fmt, parameters, (*_TABLE.entries, f"C{block}NHW{block}"))


DIALECT = Dialect("mnn", "MNN", _parse, _TABLE.names, _spell, example="NC4HW4")
