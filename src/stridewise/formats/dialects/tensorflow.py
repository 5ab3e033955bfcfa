"""TensorFlow's tensor and filter formats.

Source: ``tensorflow/core/util/tensor_format.h`` of tensorflow/tensorflow at 08ad533. One value of
its enumeration covers images of two and of three dimensions: with rank=5, NCHW is NCDHW. The
vectorized formats require an extent that is a multiple of 4.
"""

from __future__ import annotations

from collections.abc import Callable

from stridewise.formats.data import FormatData
from stridewise.formats.dialects.dialect import Dialect, Parameters, Table
from stridewise.formats.dialects.notation import walk

__all__ = ["DIALECT"]


def _images(flat: str, deep: str) -> Callable[[Parameters], FormatData]:
    return lambda parameters: walk(deep if parameters.rank == 5 else flat)


_TABLE = Table(
    "TensorFlow",
    {
        "NHWC": _images("N H W C", "N D H W C"),
        "NCHW": _images("N C H W", "N C D H W"),
        "NDHWC": "N D H W C",
        "NCDHW": "N C D H W",
        "HWNC": "H W N C",
        "HWCN": "H W C N",
        "NCHW_VECT_C": "N C H W 4*C; pad C 4 divide",
        "NHWC_VECT_W": "N H W C 4*W; pad W 4 divide",
        "HWIO": "H W I O",
        "OHWI": "O H W I",
        "OIHW": "O I H W",
        "OIHW_VECT_I": "O I H W 4*I; pad I 4 divide",
    },
    prefixes=("FORMAT_",),
)

DIALECT = Dialect(
    "tensorflow",
    "TensorFlow",
    _TABLE.parse,
    _TABLE.names,
    aliases=("tf",),
    example="NCHW_VECT_C",
)
