"""The tables of handlers and exporters: the families of ``handlers`` put together."""

from __future__ import annotations

from stridewise.frontends.onnx.handlers import (
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
    group_norm,
    image,
    indices,
    layer_norm,
    logic,
    matmul,
    norm,
    plain,
    pool,
    prelu,
    qlinear,
    quantize,
    reduce,
    resize,
    shape,
    slice,
    softmax,
)
from stridewise.frontends.onnx.reading.importer import Handler
from stridewise.frontends.onnx.writing.writer import Exporter

__all__ = ["EXPORTERS", "HANDLERS"]

_FAMILIES = (
    activation, along_axis, arithmetic, cast, concat, constant, conv, conv_transpose, einsum,
    elementwise, group_norm, image, indices, layer_norm, logic, matmul, norm, plain, pool, prelu,
    quantize, reduce, resize, shape, slice, softmax,
)  # fmt: skip

HANDLERS: dict[str, dict[str, Handler]] = {
    "": {name: handler for family in _FAMILIES for name, handler in family.HANDLERS.items()},
    "com.microsoft": {**quantize.CONTRIB, **qlinear.CONTRIB},
}
"""The handler of each operator, by domain; ONNX's own domain is ''."""

EXPORTERS: dict[str, Exporter] = {
    op: exporter for family in _FAMILIES for op, exporter in family.EXPORTERS.items()
}
"""The exporter of each operator."""
