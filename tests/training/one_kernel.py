"""A program of one kernel of the core, in a poisoned arena."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.runtime.winograd_layers import CORE, format_of, stored

from stridewise.dtypes import dtype_of
from stridewise.formats import algebra

Array = NDArray[Any]

__all__ = ["CORE", "Array", "image", "run", "tag_of"]


def tag_of(kind: str, lanes: int) -> str:
    return "acdb" if kind == "channels-last" else f"aBcd{lanes}b"


def image(array: Array, kind: str, lanes: int) -> Array:
    """Return the bytes of an image in a format."""
    return stored(array.astype(np.float32), format_of(kind, lanes), "f32")


def run(
    op: Any, given: Mapping[int, Array], shape: tuple[int, ...], kind: str, lanes: int
) -> Array:
    """Return the result of a kernel, of a shape in a format; spare lanes must be 0."""
    dst, arrays = op.arg_desc(CORE.ARG_DST), list(given.values())
    dtype = dtype_of(dst.dtype)
    result = np.full(dst.nbytes // dtype.itemsize, np.nan, dtype.numpy)
    program = CORE.Program(
        op.scratchpad_nbytes, [], [a.nbytes for a in arrays], [result.nbytes], op.threads
    )
    places = {arg: (2, index) for index, arg in enumerate(given)}
    places |= {CORE.ARG_DST: (3, 0), CORE.ARG_SCRATCHPAD: (0, 0)}
    args = [*op.args, CORE.ARG_SCRATCHPAD]
    program.add_primitive(op, [(a, op.arg_desc(a), *places[a], 0) for a in args])
    program.freeze()
    program.poison = True
    program.run(arrays, [result])
    if kind == "plain":
        return result.reshape(shape)
    at = algebra.offsets(format_of(kind, lanes), shape)
    mask = np.ones(result.size, bool)
    mask[at] = False
    assert (result[mask] == 0).all(), "spare lanes"
    return result[at].astype(np.float32)
