"""Constant tensors: read-only arrays with a content digest, in memory or not yet."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.dtypes import DType, dtype_of
from stridewise.errors import GraphError
from stridewise.graph.mapped import Place, is_mapped, place_of

__all__ = ["Constant"]

Array = NDArray[Any]

_SMALL = 1 << 16
"""Bytes below which a tensor is not worth computing later."""
_TINY = 256
"""Bytes below which a tensor is not worth dropping: scalars, shapes, what texts show."""


def _rows(factor: Array, shape: tuple[int, ...], begin: int, end: int) -> Array:
    """Return what of a factor concerns some rows of a tensor that it broadcasts to."""
    has_rows = factor.ndim == len(shape) and factor.shape[0] > 1
    return factor[begin:end] if has_rows else factor


class Constant:
    """A tensor known before the model runs: a weight, a shape, a table.

    Its elements are never written. Those of a mapped file are read each time they are asked for,
    and products with a factor are computed then, so that a model takes no memory for weights before
    they are packed. Equality is equality of dtype, shape and content, by a digest that is computed
    once, when first asked for.
    """

    __slots__ = ("_digest", "_dtype", "_elements", "_factors", "_shape")

    def __init__(self, array: Array) -> None:
        """Wrap an array; the caller must not write to it any more."""
        view = np.asarray(array).view()
        place = place_of(view)
        if place is None and is_mapped(view):
            view = view.copy()
        view.flags.writeable = False
        self._elements: Array | Place | None = view if place is None else place
        self._factors: tuple[Array, ...] = ()
        self._dtype, self._shape = view.dtype, view.shape
        self._digest: str | None = None

    @property
    def array(self) -> Array:
        """The elements, in the user's axis order; not necessarily contiguous.

        Raises:
            GraphError: the constant has been dropped.
            ModelError: the file that holds them was modified.
        """
        elements = self._held()
        return self._product(elements, self._factors)

    @property
    def has_rows(self) -> bool:
        """Whether :meth:`rows` takes no more than its part of the work for all elements."""
        elements = self._held()
        return bool(self._shape) and (not isinstance(elements, Place) or elements.is_row_major)

    def rows(self, begin: int, end: int) -> Array:
        """Return a part of the elements, along the first axis.

        Raises:
            GraphError: the constant has been dropped.
            ModelError: the file that holds them was modified.
        """
        elements = self._held()
        if not self.has_rows:
            return self.array[begin:end]
        part = elements.rows(begin, end) if isinstance(elements, Place) else elements[begin:end]
        return self._product(part, [_rows(item, self._shape, begin, end) for item in self._factors])

    def _held(self) -> Array | Place:
        if self._elements is None:
            raise GraphError.at(
                f"constant {self!r}",
                expected="its elements",
                found="none, as packed weights have taken their place",
                fix="compile with keep_originals=True, or load the model again",
            )
        return self._elements

    @staticmethod
    def _product(elements: Array | Place, factors: Sequence[Array]) -> Array:
        is_own = isinstance(elements, Place)
        found: Array = elements.read() if isinstance(elements, Place) else elements
        for factor in factors:
            # Memory without another user can hold the product.
            found = np.multiply(found, factor, out=found if is_own else None)
            is_own = True
        found.flags.writeable = False
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape."""
        return self._shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return dtype_of(self._dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self._dtype.itemsize * int(np.prod(self._shape, dtype=np.int64))

    @property
    def held_nbytes(self) -> int:
        """Bytes of memory that the elements take now: none in a file, or after :meth:`drop`."""
        return self._elements.nbytes if isinstance(self._elements, np.ndarray) else 0

    @property
    def is_deferred(self) -> bool:
        """Whether the elements are read or computed each time they are asked for."""
        return isinstance(self._elements, Place) or bool(self._factors)

    @property
    def is_dropped(self) -> bool:
        """Whether the elements are gone."""
        return self._elements is None

    @property
    def key(self) -> Hashable:
        """What is equal for constants that show the same memory or file in the same way.

        It is meaningless once this memory or file is released.
        """
        elements = self._elements
        where: Hashable
        if isinstance(elements, Place):
            where = id(elements.file), elements.start, elements.first
            strides = elements.strides
        elif elements is None:
            return id(self)
        else:
            where, strides = elements.__array_interface__["data"][0], elements.strides
        factors = tuple((factor.shape, factor.tobytes()) for factor in self._factors)
        return where, self._shape, strides, self._dtype.str, factors

    @property
    def digest(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of dtype, shape and bytes."""
        if self._digest is None:
            header = f"{self._dtype.str}{self.shape}".encode()
            content = np.ascontiguousarray(self.array).reshape(-1).view(np.uint8)
            digest = hashlib.sha256(header)
            digest.update(content.data)
            self._digest = digest.hexdigest()[:16]
        return self._digest

    def scaled(self, factor: Array) -> Constant:
        """Return the product with an array that broadcasts to this shape.

        Large products are computed each time that their elements are asked for.
        """
        if self.nbytes < _SMALL or factor.dtype != self._dtype:
            return Constant(self.array * factor)
        found = self.shared()
        found._factors = (*self._factors, factor)
        found._digest = None
        return found

    def shared(self) -> Constant:
        """Return a constant over the same elements, which can be dropped by itself."""
        found = Constant.__new__(Constant)
        for name in Constant.__slots__:
            setattr(found, name, getattr(self, name))
        return found

    def drop(self) -> None:
        """Let go of the elements, because something else has taken their place.

        Type and digest stay, and so do the elements of tiny tensors.
        """
        if self.nbytes > _TINY:
            self._elements, self._factors = None, ()

    def __reduce__(self) -> tuple[Callable[..., Constant], tuple[Any, ...]]:
        if self.is_dropped:
            return Constant._without, (self._dtype, self._shape, self._digest)
        return Constant, (self.array,)

    @classmethod
    def _without(cls, dtype: np.dtype[Any], shape: tuple[int, ...], digest: str | None) -> Constant:
        """Return a constant without elements; ``digest`` is None if it was never asked for."""
        found = cls(np.empty(0, dtype))
        found._elements, found._shape, found._digest = None, shape, digest
        return found

    def __copy__(self) -> Constant:
        return self if self.is_dropped else self.shared()

    def __deepcopy__(self, _: dict[int, Any]) -> Constant:
        return copy.copy(self)  # nothing writes to the elements

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return NotImplemented
        same_type = self._dtype == other._dtype and self.shape == other.shape
        return same_type and (self.key == other.key or self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Constant({self.dtype.short}{list(self.shape)})"
