"""Two views of one tensor: the user's view (Origin) and the stored view (Storage)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index as as_int

import numpy as np

from stridewise.classes import dataclass
from stridewise.dtypes import DType, dtype_of
from stridewise.errors import FormatError
from stridewise.formats import Format, algebra

__all__ = ["TensorDesc", "View"]

_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class View:
    """A shape, and the format of its axes."""

    shape: tuple[int, ...]
    format: Format

    def __str__(self) -> str:
        return f"{list(self.shape)}@{self.format}"


@dataclass(frozen=True, slots=True, init=False)
class TensorDesc:
    """The Origin and the Storage of one tensor.

    A storage shape alone does not define the tensor. Storage ``[8, 1, 224, 224, 16]`` can hold
    images in either axis order, with any number of channels from 1 to 16:

    >>> for origin, shape in [
    ...     ("NCHW", (8, 3, 224, 224)),
    ...     ("NHWC", (8, 224, 224, 3)),
    ...     ("NCHW", (8, 1, 224, 224)),
    ...     ("NCHW", (8, 16, 224, 224)),
    ... ]:
    ...     TensorDesc(shape, "float16", origin, "nChw16c").storage.shape
    (8, 1, 224, 224, 16)
    (8, 1, 224, 224, 16)
    (8, 1, 224, 224, 16)
    (8, 1, 224, 224, 16)

    Therefore the shape of the Storage is always computed from the Origin. Shapes, indices and
    strides are in the order of the Origin, except :attr:`canonical_shape`.

    Args:
        shape: the logical shape in the user's axis order.
        dtype: the element type.
        origin: the user's axis order: a format without blocks, or its name.
        storage: the stored format over the same named axes: a format or its name. Names that depend
            on the element type (``"NC1HWC0"``) use ``dtype``. For names that need a dialect or
            other parameters, pass the result of :meth:`Format.parse
            <stridewise.formats.Format.parse>`.

    Attributes:
        dtype: the element type.
        origin: the user's view: ``origin.shape`` and ``origin.format``.
        storage: the stored view: ``storage.shape`` and ``storage.format``.

    Raises:
        FormatError: a name is unknown, origin and storage have different axes, origin has blocks,
            the shape has another rank or a negative extent, storage cannot hold it, or the size is
            2**63 bytes or more.
        DTypeError: the element type is unknown.

    >>> d = TensorDesc((8, 224, 224, 3), "float16", origin="NHWC", storage="NC1HWC0")
    >>> d.canonical_shape, d.nbytes
    ((8, 3, 224, 224), 12845056)
    >>> print(d)
    one tensor  seen from Origin  seen from Storage
    format      NHWC              nChw16c
    shape       [8, 224, 224, 3]  [8, 1, 224, 224, 16]
    axes        N H W C           N C H W 16*C
    elements    1204224           6422528
    bytes       2408448           12845056
    padding     0.0 %             81.2 %
    dtype       float16           float16
    """

    dtype: DType
    origin: View
    storage: View

    def __init__(
        self,
        shape: Sequence[int],
        dtype: str | np.dtype[np.generic] | DType,
        origin: str | Format,
        storage: str | Format,
    ) -> None:
        extents = _extents(shape)
        element = dtype_of(dtype)
        meant = _format(origin, element, len(extents))
        stored = _format(storage, element, len(extents))
        _check(extents, meant, stored)
        canonical = tuple(extents[meant.order.index(axis)] for axis in stored.axes)
        object.__setattr__(self, "dtype", element)
        object.__setattr__(self, "origin", View(extents, meant))
        shape_in_memory = algebra.storage_shape(stored, canonical)
        object.__setattr__(self, "storage", View(shape_in_memory, stored))
        if prod(shape_in_memory) * element.itemsize > _LARGEST:
            raise FormatError.at(
                f"tensor {self.summary}",
                expected="fewer than 2**63 bytes",
                found=f"{prod(shape_in_memory)} elements of {element.itemsize} bytes",
            )

    # --- shapes ---

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape in the user's axis order; same as ``origin.shape``."""
        return self.origin.shape

    @property
    def canonical_shape(self) -> tuple[int, ...]:
        """The shape in the order of ``storage.format.axes``, as used by functions of formats."""
        order = self.origin.format.order
        return tuple(self.shape[order.index(axis)] for axis in self.storage.format.axes)

    @property
    def storage_shape(self) -> tuple[int, ...]:
        """The extents of the dense array that stores the tensor; same as ``storage.shape``."""
        return self.storage.shape

    @property
    def padded_shape(self) -> tuple[int, ...]:
        """The logical shape with every axis rounded up by the padding of the Storage.

        >>> TensorDesc((8, 224, 224, 3), "float16", "NHWC", "nChw16c").padded_shape
        (8, 224, 224, 16)
        """
        return self._as_meant(algebra.padded_shape(self.storage.format, self.canonical_shape))

    # --- memory ---

    @property
    def nbytes(self) -> int:
        """Size of the storage in bytes, padding included."""
        return prod(self.storage.shape) * self.dtype.itemsize

    @property
    def padding(self) -> float:
        """The share of the stored elements that are padding, from 0 to 1."""
        stored = prod(self.storage.shape)
        return (stored - prod(self.shape)) / stored if stored else 0.0

    @property
    def strides(self) -> tuple[int, ...]:
        """The stride of every axis in the user's order, in elements; FormatError if one is blocked.

        >>> TensorDesc((2, 3, 4, 5), "f32", origin="NCHW", storage="NHWC").strides
        (60, 1, 15, 3)
        """
        return self._as_meant(algebra.strides(self.storage.format, self.canonical_shape))

    def offset(self, index: Sequence[int]) -> int:
        """Return the offset of the element at an index in the user's axis order, in elements.

        Raises:
            FormatError: the index is outside the shape.

        >>> TensorDesc((2, 3, 4, 5), "f32", "NCHW", "nChw16c").offset((0, 2, 1, 0))
        82
        """
        if len(index) != len(self.shape):
            raise FormatError.at(
                f"tensor {self.summary}",
                expected=f"an index into {self.shape}",
                found=f"{tuple(index)}",
            )
        order = self.origin.format.order
        position = tuple(index[order.index(axis)] for axis in self.storage.format.axes)
        return algebra.offset(self.storage.format, position, self.canonical_shape)

    def same_bytes(self, other: str | Format) -> bool:
        """Return whether storing this tensor in ``other`` gives identical bytes.

        >>> TensorDesc((8, 3, 1, 1), "f32", "NCHW", "NCHW").same_bytes("NHWC")
        True
        """
        stored = _format(other, self.dtype, len(self.shape))
        return algebra.same_bytes(self.storage.format, stored, self.canonical_shape)

    # --- other views ---

    def seen_as(self, origin: str | Format) -> TensorDesc:
        """Return the same Storage with another axis order of the user.

        Raises:
            FormatError: origin has other axes or blocks.

        >>> TensorDesc((2, 4, 5, 3), "f32", "NHWC", "NHWC").seen_as("NCHW").origin.shape
        (2, 3, 4, 5)
        """
        meant = _format(origin, self.dtype, len(self.shape))
        _check(self.shape, meant, self.storage.format)
        order = self.origin.format.order
        shape = tuple(self.shape[order.index(axis)] for axis in meant.order)
        return TensorDesc(shape, self.dtype, meant, self.storage.format)

    def stored_as(self, storage: str | Format) -> TensorDesc:
        """Return the same tensor with another Storage.

        Raises:
            FormatError: storage has other axes or cannot hold the shape.

        >>> TensorDesc((2, 3, 4, 5), "f32", "NCHW", "NHWC").stored_as("nChw8c").storage.shape
        (2, 1, 4, 5, 8)
        """
        return TensorDesc(self.shape, self.dtype, self.origin.format, storage)

    def _as_meant(self, canonical: tuple[int, ...]) -> tuple[int, ...]:
        """Permute values per axis from canonical order to the user's order."""
        axes = self.storage.format.axes
        return tuple(canonical[axes.index(axis)] for axis in self.origin.format.order)

    # --- text ---

    @property
    def summary(self) -> str:
        """The tensor in one line.

        >>> TensorDesc((8, 3, 224, 224), "float16", "NCHW", "nChw16c").summary
        'f16[8,3,224,224]@NCHW in nChw16c'
        """
        shape = ",".join(map(str, self.shape))
        return f"{self.dtype.short}[{shape}]@{self.origin.format} in {self.storage.format}"

    def __str__(self) -> str:
        sides = (self.origin, self.storage)
        elements = [prod(side.shape) for side in sides]
        rows = [
            ("one tensor", "seen from Origin", "seen from Storage"),
            ("format", *(side.format.name for side in sides)),
            ("shape", *(str(list(side.shape)) for side in sides)),
            ("axes", *(_walk(side.format) for side in sides)),
            ("elements", *map(str, elements)),
            ("bytes", *(str(count * self.dtype.itemsize) for count in elements)),
            ("padding", f"{0:.1f} %", f"{100 * self.padding:.1f} %"),
            ("dtype", self.dtype.name, self.dtype.name),
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

    def __repr__(self) -> str:
        origin, storage = self.origin.format.name, self.storage.format.name
        return f"TensorDesc({self.shape}, {self.dtype.name!r}, {origin!r}, {storage!r})"


def _extents(shape: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(as_int(extent) for extent in shape)
    except TypeError:
        raise FormatError.at(
            "tensor", expected="a shape of whole numbers", found=f"{shape!r}"
        ) from None


def _format(given: str | Format, dtype: DType, rank: int) -> Format:
    return given if isinstance(given, Format) else Format.parse(given, dtype=dtype, rank=rank)


def _walk(fmt: Format) -> str:
    """Return the text of a format's steps and walk, outermost first."""
    return "; ".join([*map(str, fmt.steps), " ".join(map(str, fmt.digits))])


def _check(shape: tuple[int, ...], origin: Format, storage: Format) -> None:
    if not origin.is_plain:
        raise FormatError.at(
            "tensor",
            expected="an origin that is an order of axes, such as NHWC",
            found=f"origin {origin}",
            fix="blocks and padding belong to the storage",
        )
    if set(origin.axes) != set(storage.axes):
        raise FormatError.at(
            "tensor",
            expected=f"an origin over the axes of the storage, {', '.join(storage.axes)}",
            found=f"origin {origin} over {', '.join(origin.axes)}",
            fix="Format.renamed gives axes other names",
        )
    if len(shape) != origin.rank or any(extent < 0 for extent in shape):
        raise FormatError.at(
            "tensor",
            expected=f"{origin.rank} non-negative extents for origin {origin}",
            found=f"shape {shape}",
        )
