"""The table of handlers: all rooms of this folder put together."""

from __future__ import annotations

from stridewise.frontends.onnx import (
    activation,
    concat,
    constant,
    conv,
    conv_transpose,
    elementwise,
    matmul,
    norm,
    pool,
    reduce,
    resize,
    shape,
    slice,
    softmax,
)
from stridewise.frontends.onnx.importer import Handler

__all__ = ["HANDLERS"]

_ROOMS = (
    activation, concat, constant, conv, conv_transpose, elementwise, matmul, norm, pool, reduce,
    resize, shape, slice, softmax,
)  # fmt: skip

HANDLERS: dict[str, Handler] = {
    name: handler for room in _ROOMS for name, handler in room.HANDLERS.items()
}
"""What each operator of ONNX's default domain becomes."""
