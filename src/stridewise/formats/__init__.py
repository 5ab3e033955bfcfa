"""Memory formats: the format type, its arithmetic, and the format names of other systems."""

from stridewise.formats.algebra import (
    Loop,
    element_count,
    index,
    is_dense,
    loops,
    offset,
    offsets,
    padded_shape,
    same_bytes,
    storage_shape,
    strides,
    sub_tensor,
)
from stridewise.formats.data import Block, Fuse, Pad, Pitch, Split
from stridewise.formats.dialects import Parameters, dialects, names, spell
from stridewise.formats.format import Format, nd, parse

__all__ = [
    "Block",
    "Format",
    "Fuse",
    "Loop",
    "Pad",
    "Parameters",
    "Pitch",
    "Split",
    "dialects",
    "element_count",
    "index",
    "is_dense",
    "loops",
    "names",
    "nd",
    "offset",
    "offsets",
    "padded_shape",
    "parse",
    "same_bytes",
    "spell",
    "storage_shape",
    "strides",
    "sub_tensor",
]
