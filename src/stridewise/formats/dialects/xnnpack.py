"""XNNPACK's formats.

Source: ``src/reference/packing.cc`` of google/XNNPACK at 75db3c0. The library has no names for
formats. The name of the filter format is that of its documentation.
"""

from __future__ import annotations

from stridewise.formats.dialects.dialect import Dialect, Table

__all__ = ["DIALECT"]

_TABLE = Table(
    "XNNPACK",
    {"NHWC": "N H W C", "convolution filter [O][kh][kw][I]": "O H W I"},
    refused={
        "packed gemm_goi_w (nr,kr,sr)": (
            "weights with biases and scales among them, rotated by the lane: more than an order"
        )
    },
)

DIALECT = Dialect("xnnpack", "XNNPACK", _TABLE.parse, _TABLE.names, example="NHWC")
