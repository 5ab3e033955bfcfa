"""Recurrent layers (LSTM, GRU, RNN), given what their inputs add to the gates.

Products with the inputs of all steps are one matrix product before it. What is left is a loop:
each step adds products with the state of the step before, and computes the next state.

Gates are in ONNX's order: input, output, forget, cell (LSTM); update, reset, new state (GRU).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.registry import Array, Operands, Types, array, needs, register, tensor

__all__ = ["CELLS", "DIRECTIONS", "FEWEST_INPUTS", "MOST_INPUTS", "direction_count"]

CELLS = {"lstm": 4, "gru": 3, "gru_reset_first": 3, "tanh": 1, "relu": 1}
"""The number of gates. ``gru`` resets the product with the state, ``gru_reset_first`` the state."""
DIRECTIONS = ("forward", "reverse", "bidirectional")
FEWEST_INPUTS, MOST_INPUTS = 2, 5
"""Gates [step, row, direction * gate * unit], weights [direction, gate * unit, unit]; optional: the
bias of a GRU's new state [direction, unit], the first state and cell [direction, row, unit]."""


def direction_count(node: Node) -> int:
    """Return how many directions a layer runs in."""
    return 2 if node.str_attr("direction", "forward") == "bidirectional" else 1


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    gates, weights = tensor(node, types, 0), tensor(node, types, 1)
    cell, direction = node.str_attr("cell"), node.str_attr("direction", "forward")
    needs(node, cell in CELLS, f"a cell of {', '.join(CELLS)}", cell)
    needs(node, direction in DIRECTIONS, f"a direction of {', '.join(DIRECTIONS)}", direction)
    needs(node, "float" in gates.dtype.name, "a float tensor", gates.dtype)
    count = direction_count(node)
    fits = len(gates.shape) == 3 and gates.shape[2] % (count * CELLS[cell]) == 0
    needs(node, fits, f"gates [steps, rows, {count * CELLS[cell]} * units]", gates)
    steps, rows, width = gates.shape
    units = width // (count * CELLS[cell])
    wanted = TensorType(gates.dtype, (count, CELLS[cell] * units, units))
    needs(node, weights == wanted, f"weights {wanted}", weights)
    states = TensorType(gates.dtype, (count, rows, units))
    optional = (TensorType(gates.dtype, (count, units)), states, states)
    for index, type_ in enumerate(optional, start=FEWEST_INPUTS):
        found = types[index] if index < len(types) else None
        needs(node, found is None or found == type_, f"input {index} to be {type_}", str(found))
    has_cell = len(types) > 4 and types[4] is not None
    needs(node, cell == "lstm" or not has_cell, "a first cell for lstm only", cell)
    result = TensorType(gates.dtype, (steps, rows, count * units))
    return (result, states) if cell == "lstm" else (result,)


def _logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _gru(x: list[Array], w: list[Array], bias: Array, h: Array, *, first: bool) -> Array:
    update, reset = (_logistic(x[at] + h @ w[at].T) for at in (0, 1))
    product = (reset * h) @ w[2].T + bias if first else reset * (h @ w[2].T + bias)
    return (1 - update) * np.tanh(x[2] + product) + update * h


def _plain(function: Callable[[Array], Array]) -> Callable[[Array, Array, Array], Array]:
    return lambda x, w, h: function(x + h @ w.T)


_PLAIN = {"tanh": _plain(np.tanh), "relu": _plain(lambda x: np.maximum(x, 0))}


def _lstm(x: list[Array], w: list[Array], h: Array, c: Array) -> tuple[Array, Array]:
    gates = [given + h @ weights.T for given, weights in zip(x, w, strict=True)]
    taken, shown, kept = map(_logistic, gates[:3])
    c = kept * c + taken * np.tanh(gates[3])
    return shown * np.tanh(c), c


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Source: ONNX, LSTM, GRU and RNN."""
    given, weights = array(operands, 0), array(operands, 1).astype(np.float64)
    kind, count = node.str_attr("cell"), direction_count(node)
    steps, rows, _ = given.shape
    units, gates = weights.shape[2], CELLS[kind]
    bias, state, cell = (
        np.zeros(shape) if found is None else found.astype(np.float64)
        for found, shape in zip(
            (*operands[2:], None, None, None),
            ((count, units), (count, rows, units), (count, rows, units)),
            strict=False,
        )
    )
    x = given.astype(np.float64).reshape(steps, rows, count, gates, units)
    result = np.zeros((steps, rows, count, units))
    cell = cell.copy()
    for direction in range(count):
        h, w = state[direction], list(np.split(weights[direction], gates))
        back = direction == 1 or node.str_attr("direction", "forward") == "reverse"
        for step in reversed(range(steps)) if back else range(steps):
            parts = [x[step, :, direction, gate] for gate in range(gates)]
            if kind == "lstm":
                h, cell[direction] = _lstm(parts, w, h, cell[direction])
            elif kind.startswith("gru"):
                first = kind == "gru_reset_first"
                h = _gru(parts, w, bias[direction], h, first=first)
            else:
                h = _PLAIN[kind](parts[0], w[0], h)
            result[step, :, direction] = h
    y = result.reshape(steps, rows, count * units).astype(given.dtype)
    return (y, cell.astype(given.dtype)) if kind == "lstm" else (y,)


register(
    "recurrent",
    (FEWEST_INPUTS, MOST_INPUTS),
    _infer,
    _evaluate,
    "interrupt",
    attributes={"cell": "text", "direction": "text"},
)
