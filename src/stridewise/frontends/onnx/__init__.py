"""The ONNX front end: from an ONNX model to a :class:`~stridewise.graph.Graph`, and back.

The registry of front ends knows only ``front_end.py``. ``reading`` parses models and imports
graphs, ``handlers`` has one file per family of operators, ``writing`` exports graphs and annotated
plans, ``fallback`` finds the parts for ONNX Runtime and runs them. Each file of ``handlers`` ends
in two tables, from ONNX names to handlers and from operators to exporters; ``table.py`` joins them.
Only this folder imports the ``onnx`` package, and the names below load it at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stridewise.frontends.onnx.reading.model import ModelFile, import_model
    from stridewise.frontends.onnx.reading.proto import OPSETS
    from stridewise.frontends.onnx.reading.source import read_model
    from stridewise.frontends.onnx.writing.edit import randomize, rebatch

__all__ = ["OPSETS", "ModelFile", "import_model", "randomize", "read_model", "rebatch"]

_MODULES = {
    "OPSETS": "reading.proto",
    "ModelFile": "reading.model",
    "import_model": "reading.model",
    "randomize": "writing.edit",
    "read_model": "reading.source",
    "rebatch": "writing.edit",
}


def __getattr__(name: str) -> object:
    """Import the module of a name at its first use."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
