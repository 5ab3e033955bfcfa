"""PaddlePaddle's data layouts.

Source: ``paddle/phi/common/layout.h`` of PaddlePaddle/Paddle at 14eb07d, and the ``data_format``
strings of its operators. The shape of a Paddle tensor is in the order of its layout, while shapes
in Stridewise are in the order of the Origin.
"""

from __future__ import annotations

from stridewise.formats.dialects.dialect import Dialect, Table

__all__ = ["DIALECT"]

_LAYOUTS = {
    "NCHW": "N C H W",
    "NHWC": "N H W C",
    "NCDHW": "N C D H W",
    "NDHWC": "N D H W C",
}
_STRINGS = {**_LAYOUTS, "NCL": "N C W", "NLC": "N W C"}
_SPARSE = "a sparse tensor: values and their indices"

_TABLE = Table(
    "Paddle",
    {
        **{f"k{name}": digits for name, digits in _LAYOUTS.items()},
        **{f"data_format={name}": digits for name, digits in _STRINGS.items()},
    },
    refused={
        "kAnyLayout": "no layout, or any",
        "kMKLDNN": "a mark that oneDNN describes the tensor, by a format tag of its own",
        "SPARSE_COO": _SPARSE,
        "SPARSE_CSR": _SPARSE,
        "STRIDED": "any strides",
        "STRING": "a tensor of strings",
    },
    prefixes=("DataLayout::",),
    synonyms={
        **{name: f"data_format={name}" for name in _STRINGS},
        **dict.fromkeys(("ANY", "UNDEFINED", "ALL_LAYOUT"), "kAnyLayout"),
        **dict.fromkeys(("ONEDNN", "MKLDNNLAYOUT"), "kMKLDNN"),
        "PSTRING_UNION": "STRING",
    },
)

DIALECT = Dialect("paddle", "Paddle", _TABLE.parse, _TABLE.names, example="kNHWC")
