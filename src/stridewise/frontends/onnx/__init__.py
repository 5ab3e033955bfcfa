"""The ONNX frontend: from an ONNX model to a :class:`~stridewise.graph.Graph`, and back.

One room a family of operators, each ending in two tables: from ONNX names to handlers, and from
our operators to exporters; ``table.py`` is the list of rooms. Only this folder knows the ``onnx``
package.
"""

from stridewise.frontends.onnx.annotate import Notes, annotate_model
from stridewise.frontends.onnx.census import count_operators
from stridewise.frontends.onnx.edit import randomize, rebatch
from stridewise.frontends.onnx.export import save_model
from stridewise.frontends.onnx.model import examine_model, import_model
from stridewise.frontends.onnx.proto import OPSETS
from stridewise.frontends.onnx.source import read_model

__all__ = [
    "OPSETS",
    "Notes",
    "annotate_model",
    "count_operators",
    "examine_model",
    "import_model",
    "randomize",
    "read_model",
    "rebatch",
    "save_model",
]
