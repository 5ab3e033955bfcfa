"""TensorRT's tensor formats.

Source: ``TensorFormat`` of ``include/NvInferRuntimeBase.h`` in NVIDIA/TensorRT. The formats of the
DLA align rows to a number of bytes, so they depend on the dtype. ``kDLA_HWC4`` is defined here for
3 or 4 channels; TensorRT does not pad a single channel to 4.
"""

from __future__ import annotations

from stridewise.formats.data import FormatData
from stridewise.formats.dialects.dialect import Dialect, Parameters, Table, by_rank, need
from stridewise.formats.dialects.notation import walk

__all__ = ["DIALECT"]

_LINEAR_PITCH = 64  # bytes
_HWC4_PITCH = {"xavier": 32, "orin": 64}  # bytes


def _elements(name: str, pitch: int, parameters: Parameters) -> int:
    if parameters.bits is None:
        raise need("TensorRT", name, "a dtype, as rows have a pitch in bytes", "give dtype=")
    return pitch * 8 // parameters.bits


def _dla_linear(parameters: Parameters) -> FormatData:
    return walk(f"N C H W; pad W {_elements('kDLA_LINEAR', _LINEAR_PITCH, parameters)}")


def _dla_hwc4(parameters: Parameters) -> FormatData:
    device = (parameters.device or "").lower()
    if device not in _HWC4_PITCH:
        fix = "give device='xavier' or device='orin'"
        raise need("TensorRT", "kDLA_HWC4", "a device, which the pitch of rows depends on", fix)
    pixels = _elements("kDLA_HWC4", _HWC4_PITCH[device], parameters) // 4
    return walk(f"N H W C; pad C 4; pad W {pixels}")


_TABLE = Table(
    "TensorRT",
    {
        "kLINEAR": by_rank,
        "kHWC": "N H W C",
        "kCHW2": "N C H W 2*C",
        "kCHW4": "N C H W 4*C",
        "kCHW16": "N C H W 16*C",
        "kCHW32": "N C H W 32*C",
        "kHWC8": "N H W C; pad C 8",
        "kHWC16": "N H W C; pad C 16",
        "kCDHW32": "N C D H W 32*C",
        "kDHWC": "N D H W C",
        "kDHWC8": "N D H W C; pad C 8",
        "kDLA_LINEAR": _dla_linear,
        "kDLA_HWC4": _dla_hwc4,
    },
    prefixes=("nvinfer1::TensorFormat::", "TensorFormat::"),
)

DIALECT = Dialect("tensorrt", "TensorRT", _TABLE.parse, _TABLE.names, example="kCHW32")
