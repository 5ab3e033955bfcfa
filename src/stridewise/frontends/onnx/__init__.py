"""The ONNX frontend: from an ONNX model to a :class:`~stridewise.graph.Graph`, and back.

One room a family of operators, each ending in two tables: from ONNX names to handlers, and from
our operators to exporters; ``table.py`` is the list of rooms. Only this folder knows the ``onnx``
package.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from stridewise.frontends.onnx.model import ModelFile, import_model
from stridewise.frontends.onnx.proto import OPSETS
from stridewise.frontends.onnx.source import read_model

if TYPE_CHECKING:
    from stridewise.frontends.onnx.annotate import Notes, annotate_model
    from stridewise.frontends.onnx.census import count_operators
    from stridewise.frontends.onnx.edit import randomize, rebatch
    from stridewise.frontends.onnx.export import save_model

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
    "Notes": "annotate",
    "annotate_model": "annotate",
    "count_operators": "census",
    "randomize": "edit",
    "rebatch": "edit",
    "save_model": "export",
}
"""Rooms for what only few models are needed for; importing a model does not wait for them."""


def __getattr__(name: str) -> object:
    """Import a room when something of it is first wanted."""
    room = _LATER.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{room}"), name)
