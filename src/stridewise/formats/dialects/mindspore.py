"""MindSpore's formats of any rank.

Source: ``mindspore/ccsrc/runtime/device/ms_device_shape_transfer.cc`` of hdu-cloud/mindspore at
f545a01. Its other names are Ascend's. The rank is 4 unless rank= is given.
"""

from __future__ import annotations

from stridewise.formats.dialects.dialect import Dialect, Table, by_rank

__all__ = ["DIALECT"]

_TABLE = Table(
    "MindSpore",
    {
        "ChannelFirst": by_rank,
        "ChannelLast": lambda parameters: by_rank(parameters, channels_last=True),
        "DefaultFormat": by_rank,
    },
)

DIALECT = Dialect("mindspore", "MindSpore", _TABLE.parse, _TABLE.names, example="ChannelLast")
