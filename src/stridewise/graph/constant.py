"""Constant tensors: read-only arrays with a content digest."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.dtypes import DType, dtype_of

__all__ = ["Constant"]

Array = NDArray[Any]


class Constant:
    """A tensor known before the model runs: a weight, a shape, a table.

    The array is never copied and never written. Equality is equality of dtype, shape and content,
    by a digest that is computed once, when first asked for.

    Attributes:
        array: the elements, in the user's axis order; not necessarily contiguous.
    """

    __slots__ = ("_digest", "array")

    def __init__(self, array: Array) -> None:
        """Wrap an array; the caller must not write to it any more."""
        view = np.asarray(array).view()
        view.flags.writeable = False
        self.array: Array = view
        self._digest: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape."""
        return self.array.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return dtype_of(self.array.dtype)

    @property
    def digest(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of dtype, shape and bytes."""
        if self._digest is None:
            header = f"{self.array.dtype.str}{self.shape}".encode()
            content = np.ascontiguousarray(self.array).reshape(-1).view(np.uint8)
            self._digest = hashlib.sha256(header + content.tobytes()).hexdigest()[:16]
        return self._digest

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return NotImplemented
        if self.array is other.array:
            return True
        same_type = self.array.dtype == other.array.dtype and self.shape == other.shape
        return same_type and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Constant({self.dtype.short}{list(self.shape)})"
