"""Element types: one table of the names in Stridewise, NumPy and oneDNN.

The table has names and sizes only. Which dtypes a kernel supports is defined by the targets.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import cast

import numpy as np

from stridewise.classes import dataclass
from stridewise.errors import DTypeError

__all__ = ["DTYPES", "DType", "dtype_of"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type.

    Attributes:
        name: the name in Stridewise, NumPy and its extension ml_dtypes (``"float32"``).
        short: the name in the graph text and in oneDNN (``"f32"``).
        itemsize: size of one element in bytes.
    """

    name: str
    short: str
    itemsize: int

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype; for bfloat16, which NumPy lacks, that of ``ml_dtypes``, as in ``onnx``.

        >>> dtype_of("bf16").numpy
        dtype(bfloat16)
        """
        return _numpy_of(self.name)

    def __str__(self) -> str:
        return self.name


@cache
def _numpy_of(name: str) -> np.dtype[np.generic]:
    if name == "bfloat16":
        # The import takes time, and few models need it.
        import ml_dtypes  # noqa: PLC0415

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


@cache
def _name_of(dtype: np.dtype[np.generic]) -> str:
    """Return NumPy's name, cached because NumPy builds it on every access."""
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
        DTypeError: Stridewise does not support the dtype.

    >>> dtype_of("f32").name, dtype_of(np.dtype("int64")).short
    ('float32', 's64')
    """
    if isinstance(spelling, DType):
        return spelling
    if isinstance(spelling, str) and (known := DTYPES.get(spelling) or _BY_SHORT.get(spelling)):
        return known  # thousands of kernels are asked for their bytes
    name = repr(spelling)
    with suppress(TypeError):
        if cast("object", spelling) is not None:  # NumPy takes it for float64
            name = spelling if isinstance(spelling, str) else _name_of(np.dtype(spelling))
    found = DTYPES.get(name) or _BY_SHORT.get(name)
    if found is None:
        raise DTypeError.at("dtype", expected=f"one of {', '.join(DTYPES)}", found=name)
    return found
