"""Tensors that really lie in their storage format, one flat buffer each, with NumPy.

Only elements are ever read. Padding holds zeros where that is promised, and otherwise something
that shows in every result that it gets into.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.dtypes import DType
from stridewise.errors import ExecutionError
from stridewise.formats import Format, algebra
from stridewise.targets.kernels import Packed
from stridewise.targets.tables.rules import Padding
from stridewise.tensor import TensorDesc

__all__ = ["StoredTensor", "pack", "poison", "store", "unpack"]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """Bytes in a storage format.

    Attributes:
        value: the name of the tensor in the graph.
        desc: its Origin and Storage.
        buffer: one dimension, as many elements as the storage has, padding included.
    """

    value: str
    desc: TensorDesc
    buffer: Array

    @property
    def array(self) -> Array:
        """The logical tensor, a copy of its elements in the user's order."""
        fmt, shape = self.desc.storage.format, self.desc.canonical_shape
        found = self.buffer[algebra.offsets(fmt, shape)]
        return found.transpose([fmt.axes.index(axis) for axis in self.desc.origin.format.order])

    def reordered(self, desc: TensorDesc, padding: Padding) -> StoredTensor:
        """Return the same tensor in another storage, moved and converted element by element."""
        fmt, source = desc.storage.format, self.desc.storage.format
        shape = self.desc.canonical_shape
        buffer = _blank(fmt, desc.canonical_shape, desc.dtype, padding)
        turned = [source.axes.index(axis) for axis in fmt.axes]
        places = algebra.offsets(fmt, desc.canonical_shape)
        buffer[places] = self.buffer[algebra.offsets(source, shape).transpose(turned)]
        return StoredTensor(self.value, desc, buffer)

    def seen_as(self, value: str, desc: TensorDesc, offset: int) -> StoredTensor:
        """Return another tensor that lies inside of this one's bytes.

        Raises:
            ExecutionError: it does not.
        """
        count = algebra.element_count(desc.storage.format, desc.canonical_shape)
        if not 0 <= offset <= self.buffer.size - count:
            raise ExecutionError.at(
                f"tensor {value!r}",
                expected=f"{count} elements from {offset} on in {self.value!r}",
                found=f"{self.buffer.size} in all",
            )
        return StoredTensor(value, desc, self.buffer[offset : offset + count])


def poison(dtype: DType) -> Any:
    """Return what unspecified padding holds: NaN, or the least integer.

    >>> from stridewise.dtypes import dtype_of
    >>> poison(dtype_of("float16")), poison(dtype_of("int8"))
    (nan, -128)
    """
    if dtype.name == "bool":
        return True
    return int(np.iinfo(dtype.name).min) if "int" in dtype.name else float("nan")


def _blank(fmt: Format, shape: tuple[int, ...], dtype: DType, padding: Padding) -> Array:
    """Return storage without elements, its padding filled by the format's and the target's rule.

    Gaps behind pitches are padding as well. The content of unfilled places is undefined.
    """
    axes = (*fmt.axes, *fmt.order)
    promised = padding == "zero" and all(fmt.policy(axis) == "zero" for axis in axes)
    count = algebra.element_count(fmt, shape)
    return np.full(count, 0 if promised else poison(dtype), dtype.numpy)


def store(value: str, desc: TensorDesc, array: Array, padding: Padding) -> StoredTensor:
    """Return an array in the user's order stored as ``desc`` says."""
    fmt, order = desc.storage.format, desc.origin.format.order
    buffer = _blank(fmt, desc.canonical_shape, desc.dtype, padding)
    canonical = np.asarray(array).transpose([order.index(axis) for axis in fmt.axes])
    buffer[algebra.offsets(fmt, desc.canonical_shape)] = canonical
    return StoredTensor(value, desc, buffer)


def pack(packed: Packed, array: Array, dtype: DType, padding: Padding) -> Array:
    """Return a constant as its node reads it: the flat bytes of its format."""
    canonical = np.asarray(array).reshape(packed.reshape).transpose(packed.permute)
    buffer = _blank(packed.format, packed.shape, dtype, padding)
    buffer[algebra.offsets(packed.format, packed.shape)] = canonical
    return buffer


def unpack(packed: Packed, buffer: Array, shape: tuple[int, ...]) -> Array:
    """Return a packed constant in the user's order and shape."""
    canonical = buffer[algebra.offsets(packed.format, packed.shape)]
    return canonical.transpose(np.argsort(packed.permute)).reshape(shape)
