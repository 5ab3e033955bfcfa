"""MindSpore Lite's formats.

Source: ``capi-format-h`` (``OH_AI_Format``) of the OpenHarmony documentation. In the names of
weights, K denotes output channels and C input channels.
"""

from __future__ import annotations

from stridewise.formats.dialects.dialect import Dialect, Table

__all__ = ["DIALECT"]

_TABLE = Table(
    "MindSpore Lite",
    {
        "NHWC4": "N H W C; pad C 4",
        "NC4HW4": "N C H W 4*C",
        "KCHW": "O I H W",
        "KHWC": "O H W I",
        "HWCK": "H W I O",
        "HWKC": "H W O I",
        "CKHW": "I O H W",
        "CHWK": "I H W O",
    },
    prefixes=("OH_AI_FORMAT_",),
)

DIALECT = Dialect("mindspore_lite", "MindSpore Lite", _TABLE.parse, _TABLE.names, example="NHWC4")
