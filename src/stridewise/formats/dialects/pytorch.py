"""PyTorch's memory formats.

Source: ``c10/core/MemoryFormat.h`` of pytorch/pytorch at 02d92aa. Shapes are N, C, H, W for every
memory format. The rank of ``contiguous_format`` is 4 unless rank= is given.
"""

from __future__ import annotations

from stridewise.formats.dialects.dialect import Dialect, Table, by_rank

__all__ = ["DIALECT"]

_TABLE = Table(
    "PyTorch",
    {
        "contiguous_format": by_rank,
        "channels_last": "N H W C",
        "channels_last_3d": "N D H W C",
    },
    refused={"preserve_format": "a request to keep the strides of the input"},
    prefixes=("torch.", "at::MemoryFormat::", "c10::MemoryFormat::", "MemoryFormat::"),
    synonyms={
        "Contiguous": "contiguous_format",
        "ChannelsLast": "channels_last",
        "ChannelsLast3d": "channels_last_3d",
        "Preserve": "preserve_format",
    },
)

DIALECT = Dialect(
    "pytorch",
    "PyTorch",
    _TABLE.parse,
    _TABLE.names,
    aliases=("torch",),
    example="channels_last",
)
