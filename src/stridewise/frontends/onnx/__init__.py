"""The ONNX frontend: from an ONNX model to a :class:`~stridewise.graph.Graph`, and back.

``reading`` parses models and imports graphs, ``handlers`` has one file per family of operators,
``writing`` exports graphs and annotated plans, ``fallback`` finds the parts for ONNX Runtime. Each
file of ``handlers`` ends in two tables, from ONNX names to handlers and from operators to
exporters; ``table.py`` joins them. Only this folder imports the ``onnx`` package.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from stridewise.frontends.onnx.reading.model import ModelFile, import_model
from stridewise.frontends.onnx.reading.proto import OPSETS
from stridewise.frontends.onnx.reading.source import read_model

if TYPE_CHECKING:
    from stridewise.frontends.onnx.reading.census import count_operators
    from stridewise.frontends.onnx.writing.annotate import Notes, annotate_model
    from stridewise.frontends.onnx.writing.edit import randomize, rebatch
    from stridewise.frontends.onnx.writing.export import save_model

__all__ = [
    "OPSETS",
    "ModelFile",
    "Notes",
    "annotate_model",
    "count_operators",
    "import_model",
    "randomize",
    "read_model",
    "rebatch",
    "save_model",
]

_LATER = {
    "Notes": "writing.annotate",
    "annotate_model": "writing.annotate",
    "count_operators": "reading.census",
    "randomize": "writing.edit",
    "rebatch": "writing.edit",
    "save_model": "writing.export",
}
"""Modules that only few uses need; importing a model does not load them."""


def __getattr__(name: str) -> object:
    """Import a module of ``_LATER`` at its first use."""
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
