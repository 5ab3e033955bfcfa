"""The tables of handlers and exporters: all rooms of this folder put together."""

from __future__ import annotations

from stridewise.frontends.onnx import (
    activation,
    along_axis,
    arithmetic,
    cast,
    concat,
    constant,
    conv,
    conv_transpose,
    einsum,
    elementwise,
    functions,
    group_norm,
    image,
    indices,
    layer_norm,
    logic,
    matmul,
    norm,
    pool,
    prelu,
    quantize,
    reduce,
    resize,
    shape,
    slice,
    softmax,
)
from stridewise.frontends.onnx.importer import Handler
from stridewise.frontends.onnx.writer import Exporter

__all__ = ["EXPORTERS", "HANDLERS"]

_ROOMS = (
    activation, along_axis, arithmetic, cast, concat, constant, conv, conv_transpose, einsum,
    elementwise, functions, group_norm, image, indices, layer_norm, logic, matmul, norm, pool,
    prelu, quantize, reduce, resize, shape, slice, softmax,
)  # fmt: skip

HANDLERS: dict[str, dict[str, Handler]] = {
    "": {name: handler for room in _ROOMS for name, handler in room.HANDLERS.items()},
    "com.microsoft": quantize.CONTRIB,
}
"""What each operator becomes, by domain; ONNX's own one has no name."""

EXPORTERS: dict[str, Exporter] = {
    op: exporter for room in _ROOMS for op, exporter in room.EXPORTERS.items()
}
"""What each of our operators becomes in ONNX."""
