"""New arrays for results."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LARGE", "empty"]

LARGE = 1 << 20
"""Bytes from which an array begins at a cache line, which streaming stores need."""
_ALIGNMENT = 64


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a new array without values; one of :data:`LARGE` bytes begins at a cache line."""
    nbytes = prod(shape) * dtype.itemsize
    if nbytes < LARGE:
        return np.empty(shape, dtype)
    memory = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + nbytes].view(dtype).reshape(shape)
