"""One tensor, two views: what the user means, and where the bytes are."""

from __future__ import annotations

from dataclasses import dataclass

from stridewise.dtypes import DType
from stridewise.errors import FormatError, describe
from stridewise.formats import Format, algebra

__all__ = ["TensorDesc"]


@dataclass(frozen=True, slots=True)
class TensorDesc:
    """Origin and Storage of one tensor, bound together.

    Attributes:
        shape: the logical shape in the user's axis order, which is ``origin.order``.
        dtype: the element type.
        origin: the user's axis order; a format without blocks.
        storage: how the bytes lie; over the same named axes.

    Raises:
        FormatError: origin and storage have different axes, or origin has blocks.

    >>> from stridewise.dtypes import dtype_of
    >>> from stridewise.formats import parse
    >>> d = TensorDesc((8, 224, 224, 3), dtype_of("f32"), parse("NHWC"), parse("nChw16c"))
    >>> d.canonical_shape, d.storage_shape
    ((8, 3, 224, 224), (8, 1, 224, 224, 16))
    """

    shape: tuple[int, ...]
    dtype: DType
    origin: Format
    storage: Format

    def __post_init__(self) -> None:
        if self.origin.is_blocked or set(self.origin.axes) != set(self.storage.axes):
            raise FormatError(
                describe(
                    "tensor",
                    expected=f"a plain origin over the axes {''.join(self.storage.axes)}",
                    found=f"origin {self.origin}",
                )
            )
        if len(self.shape) != self.origin.rank:
            raise FormatError(
                describe(
                    "tensor",
                    expected=f"{self.origin.rank} extents for origin {self.origin}",
                    found=f"shape {self.shape}",
                )
            )

    @property
    def canonical_shape(self) -> tuple[int, ...]:
        """The shape in the order of ``storage.axes``."""
        return tuple(self.shape[self.origin.order.index(axis)] for axis in self.storage.axes)

    @property
    def storage_shape(self) -> tuple[int, ...]:
        """The extents of the dense array that holds the bytes."""
        return algebra.storage_shape(self.storage, self.canonical_shape)

    @property
    def nbytes(self) -> int:
        """Bytes of storage, padding included."""
        return algebra.element_count(self.storage, self.canonical_shape) * self.dtype.itemsize

    def same_bytes(self, other: Format) -> bool:
        """Return whether storing this tensor in ``other`` would give the very same bytes."""
        return algebra.same_bytes(self.storage, other, self.canonical_shape)

    def __str__(self) -> str:
        shape = ",".join(map(str, self.shape))
        return f"{self.dtype.short}[{shape}]@{self.origin} in {self.storage}"
