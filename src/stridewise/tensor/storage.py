"""How one tensor is stored: its format, the type of its stored elements, and their quantization."""

from __future__ import annotations

from typing import Protocol

from stridewise.classes import dataclass
from stridewise.dtypes import DType
from stridewise.formats import Format
from stridewise.tensor.quantization import Quantization

__all__ = ["Spell", "Storage"]


class Spell(Protocol):
    """Returns what a target calls a format."""

    def __call__(self, fmt: Format, /) -> str:
        """Return the name."""
        ...


@dataclass(frozen=True, slots=True)
class Storage:
    """One way to store a tensor.

    Attributes:
        format: where the bytes are.
        dtype: the type of the stored elements; None for the type of the tensor itself.
        quantization: what stored integers stand for; None where they stand for themselves.

    >>> from stridewise.dtypes import dtype_of
    >>> nhwc = Format.parse("NHWC")
    >>> print(Storage(nhwc), Storage(nhwc, dtype_of("bfloat16")), sep="; ")
    NHWC; NHWC bf16
    """

    format: Format
    dtype: DType | None = None
    quantization: Quantization | None = None

    def element(self, own: DType) -> DType:
        """Return the type of the stored elements of a tensor whose own type is ``own``."""
        return self.dtype or own

    def spelled(self, spell: Spell = str, *, brief: bool = False) -> str:
        """Return the storage as text; the element type appears where it is not the tensor's own.

        Args:
            spell: returns the name of a format.
            brief: shorten the quantization. Storages of different quantization may get one text.
        """
        text = spell(self.format)
        if self.dtype is not None:
            text += f" {self.dtype.short}"
        if self.quantization is None:
            return text
        return f"{text} ({self.quantization.brief if brief else self.quantization.text})"

    def __str__(self) -> str:
        return self.spelled()
