"""The tables of handlers and exporters: those of all files in ``handlers``."""

from __future__ import annotations

from stridewise.discovery import modules_in
from stridewise.frontends.onnx.handlers import qlinear, quantize
from stridewise.frontends.onnx.reading.importer import Handler
from stridewise.frontends.onnx.writing.writer import Exporter

__all__ = ["EXPORTERS", "HANDLERS"]

_FAMILIES = tuple(
    module
    for module in modules_in("stridewise.frontends.onnx.handlers")
    if hasattr(module, "HANDLERS")
)

HANDLERS: dict[str, dict[str, Handler]] = {
    "": {name: handler for family in _FAMILIES for name, handler in family.HANDLERS.items()},
    "com.microsoft": {**quantize.CONTRIB, **qlinear.CONTRIB},
}
"""The handler of each operator, by domain; ONNX's own domain is ''."""

EXPORTERS: dict[str, Exporter] = {
    op: exporter for family in _FAMILIES for op, exporter in family.EXPORTERS.items()
}
"""The exporter of each operator."""
