"""MIOpen's tensor layouts.

Source: ``miopenTensorLayout_t`` of ``include/miopen/miopen.h`` in ROCm/MIOpen at 2d1fd99, and
``src/tensor.cpp``. The vectorized layouts require an extent that is a multiple of the vector
length.
"""

from __future__ import annotations

from stridewise.formats.dialects.dialect import Dialect, Table

__all__ = ["DIALECT"]

_TABLE = Table(
    "MIOpen",
    {
        "miopenTensorNCHW": "N C H W",
        "miopenTensorNHWC": "N H W C",
        "miopenTensorCHWN": "C H W N",
        "miopenTensorNCHWc4": "N C H W 4*C; pad C 4 divide",
        "miopenTensorNCHWc8": "N C H W 8*C; pad C 8 divide",
        "miopenTensorCHWNc4": "C H W N 4*C; pad C 4 divide",
        "miopenTensorCHWNc8": "C H W N 8*C; pad C 8 divide",
        "miopenTensorNCDHW": "N C D H W",
        "miopenTensorNDHWC": "N D H W C",
    },
)

DIALECT = Dialect("miopen", "MIOpen", _TABLE.parse, _TABLE.names, example="miopenTensorNHWC")
