"""PReLU; with a single slope it becomes a leaky ReLU."""

from __future__ import annotations

import numpy as np

from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Node

__all__ = ["EXPORTERS", "HANDLERS"]


def _prelu(imp: Importer, node: OnnxNode) -> None:
    x, slope = node.required(0), node.required(1)
    data = imp.const(slope)
    alike = data is not None and data.size > 0 and (data == data.reshape(-1)[0]).all()
    if data is not None and alike and data.ndim <= len(imp.shape(x)) and data.dtype == np.float32:
        imp.emit(node, "leaky_relu", [x], {"alpha": float(data.reshape(-1)[0])})
        return
    imp.emit(node, "prelu", [x, slope])


def _write_prelu(writer: Writer, node: Node) -> None:
    writer.emit(node, "PRelu", node.inputs)


HANDLERS: dict[str, Handler] = {"PRelu": _prelu}

EXPORTERS: dict[str, Exporter] = {"prelu": _write_prelu}
