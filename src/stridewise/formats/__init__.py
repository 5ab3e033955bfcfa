"""Memory formats: what they are, their arithmetic, and the spellings of other systems."""

from stridewise.formats.algebra import (
    digits,
    element_count,
    is_dense,
    offset,
    padded_shape,
    same_bytes,
    storage_shape,
    strides,
)
from stridewise.formats.dialects import dialects, parse
from stridewise.formats.format import Block, Format, nd

__all__ = [
    "Block",
    "Format",
    "dialects",
    "digits",
    "element_count",
    "is_dense",
    "nd",
    "offset",
    "padded_shape",
    "parse",
    "same_bytes",
    "storage_shape",
    "strides",
]
