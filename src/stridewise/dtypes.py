"""Element types: one table from our names to NumPy's and oneDNN's.

Only names live here; what a kernel can do with a dtype is the planner's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from stridewise.errors import DTypeError, describe

__all__ = ["DTYPES", "DType", "dtype_of"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type.

    Attributes:
        name: the spelling of NumPy and of its extension ml_dtypes, also ours (``"float32"``).
        short: the spelling of the graph text and of oneDNN (``"f32"``).
        itemsize: bytes of one element.
    """

    name: str
    short: str
    itemsize: int

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype. NumPy has no bfloat16; that one is of ``ml_dtypes``, as in ``onnx``.

        >>> dtype_of("bf16").numpy
        dtype(bfloat16)
        """
        return _numpy_of(self.name)

    def __str__(self) -> str:
        return self.name


@cache
def _numpy_of(name: str) -> np.dtype[np.generic]:
    if name == "bfloat16":
        # Loading it takes time, and few models need it.
        import ml_dtypes  # noqa: PLC0415

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


@cache
def _name_of(dtype: np.dtype[np.generic]) -> str:
    """Return NumPy's name, which NumPy puts together anew each time."""
    return dtype.name


_TABLE = (
    DType("float64", "f64", 8),
    DType("float32", "f32", 4),
    DType("float16", "f16", 2),
    DType("bfloat16", "bf16", 2),
    DType("int64", "s64", 8),
    DType("int32", "s32", 4),
    DType("int16", "s16", 2),
    DType("int8", "s8", 1),
    DType("uint64", "u64", 8),
    DType("uint32", "u32", 4),
    DType("uint16", "u16", 2),
    DType("uint8", "u8", 1),
    DType("bool", "bool", 1),
)

DTYPES: dict[str, DType] = {d.name: d for d in _TABLE}
_BY_SHORT: dict[str, DType] = {d.short: d for d in _TABLE}


def dtype_of(spelling: str | np.dtype[np.generic] | type[np.generic] | DType) -> DType:
    """Return the :class:`DType` for a name, a short name, or a NumPy dtype or scalar type.

    Raises:
        DTypeError: the dtype is not one that Stridewise knows.

    >>> dtype_of("f32").name, dtype_of(np.dtype("int64")).short
    ('float32', 's64')
    """
    if isinstance(spelling, DType):
        return spelling
    name = spelling if isinstance(spelling, str) else _name_of(np.dtype(spelling))
    found = DTYPES.get(name) or _BY_SHORT.get(name)
    if found is None:
        raise DTypeError(describe("dtype", expected=f"one of {', '.join(DTYPES)}", found=name))
    return found
