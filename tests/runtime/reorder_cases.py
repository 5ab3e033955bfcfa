"""Descriptions and stored bytes that tests of reorders share."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from tests.formats_strategies import formats, shapes

import stridewise as sw
from stridewise.errors import FormatError
from stridewise.formats import Format

ENGINES = ("cached", "streaming", "portable")
CONVERTIBLE = ("f32", "f16", "bf16", "s8", "u8", "s32")
Array = np.ndarray[Any, np.dtype[Any]]


def bits(array: Array) -> Array:
    """Return the bytes of an array, so that NaN equals itself."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def desc(shape: tuple[int, ...], dtype: str, fmt: Format) -> sw.TensorDesc:
    return sw.TensorDesc(shape, dtype, Format(fmt.axes, fmt.axes), fmt)


def stored(d: sw.TensorDesc, seed: int = 0) -> Array:
    """Return an array of any bits in the storage shape; where padding lies, anything may be."""
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, d.nbytes, np.uint8)
    return raw.view(d.dtype.numpy).reshape(d.storage.shape)


def dirty(d: sw.TensorDesc) -> Array:
    """Return an array full of NaN, or of ones in all bits; it begins with a cache line."""
    memory = np.full(d.nbytes + 64, 0xFF, np.uint8)
    begin = -memory.ctypes.data % 64
    return memory[begin : begin + d.nbytes].view(d.dtype.numpy).reshape(d.storage.shape)


@st.composite
def pairs(draw: Any, dtype: str = "f32") -> tuple[sw.TensorDesc, sw.TensorDesc]:
    f = draw(formats())
    g = draw(formats(f.axes))
    shape = draw(shapes(f))
    try:
        return desc(shape, dtype, f), desc(shape, dtype, g)
    except FormatError:
        assume(False)
        raise
