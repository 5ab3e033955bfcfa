"""Recurrent layers; ``tests/integration/test_recurrent.py`` compares ONNX's layers."""

from __future__ import annotations

import numpy as np
from tests.pure.onnx_case import F32, Case, Rng
from tests.runtime.net import Net

from stridewise.graph import Graph
from stridewise.ops.recurrent import CELLS, DIRECTIONS

_LAYERS = {"lstm": "LSTM", "gru": "GRU", "gru_reset_first": "GRU", "tanh": "RNN"}
"""The layers of each cell; ONNX's evaluator has no other activations."""


def _case(rng: Rng) -> Case:
    """Return steps, written as a layer whose weights of the input are the identity."""
    cell, direction = str(rng.choice(list(_LAYERS))), str(rng.choice(DIRECTIONS[:2]))
    steps, rows, units = (int(size) for size in rng.integers(1, 5, 3))
    gates = CELLS[cell]
    x = rng.normal(size=(steps, rows, gates * units)).astype(F32)
    weights = rng.normal(size=(1, gates * units, units)).astype(F32)
    attrs = {"hidden_size": units, "direction": direction}
    if cell == "gru":
        attrs["linear_before_reset"] = 1
    identity = np.eye(gates * units, dtype=F32)[None]
    nodes = [(_LAYERS[cell], ["x0", "w", "x1"], attrs), ("Squeeze", ["y0", "axis"], {})]
    constants = {"w": identity, "axis": np.array([1], np.int64)}
    return Case([x, weights], nodes, {"cell": cell, "direction": direction}, constants, 2e-5)


def _graph() -> Graph:
    """Return layers of every cell over the columns of images."""
    b = Net(2, 3, 4, 5)
    columns = b.op("transpose", [b.op("tanh", [b.named(b.x)])], {"perm": (3, 0, 1, 2)})
    flat = b.op("reshape", [columns], {"shape": (5, 2, 12)})
    results = []
    for cell, direction in (("gru", "forward"), ("tanh", "reverse"), ("relu", "bidirectional")):
        count = 2 if direction == "bidirectional" else 1
        units = 12 // CELLS[cell] // count
        weights = b.constant(np.sin(np.arange(12 * units, dtype=F32)).reshape(count, -1, units))
        attrs = {"cell": cell, "direction": direction}
        results.append(b.op("recurrent", [flat, weights], attrs))
    return b.build(results)


CASES = {"recurrent": _case}
GRAPHS = {"recurrent": _graph}
REFUSED = [
    ("recurrent", [(2, 3, 8), (1, 8, 2)], {"cell": "none"}, "a cell of lstm, gru, gru_reset_first"),
    ("recurrent", [(2, 3, 9), (1, 8, 2)], {"cell": "lstm"}, "gates [steps, rows, 4 * units]"),
    ("recurrent", [(2, 3, 8), (1, 8, 3)], {"cell": "lstm"}, "weights f32[1,8,2]"),
]
COMPOSED = ["recurrent"]
