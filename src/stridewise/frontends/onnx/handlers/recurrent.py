"""Recurrent layers: LSTM, GRU and RNN."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, OnnxValue, Writer
from stridewise.graph import Attr, Node
from stridewise.ops.recurrent import CELLS, DIRECTIONS, direction_count
from stridewise.ops.registry import Array

__all__ = ["EXPORTERS", "HANDLERS"]

_ACTIVATIONS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
_PEEPHOLES = 7
"""The input of an LSTM with the weights of peepholes."""
_RANK = 3
_NEW_STATE = 2
"""The gate of a GRU whose second bias is added to the product with the state."""


def _activations(node: OnnxNode, layer: str, count: int) -> tuple[str, ...]:
    """Return the activations of one direction, in small letters."""
    default = _ACTIVATIONS[layer]
    found = node.attrs.get("activations")
    if found is None:
        return default
    names = [
        item.decode() if isinstance(item, bytes) else str(item)
        for item in (found if isinstance(found, list | tuple) else [found])
    ]
    names = [name.lower() for name in names]
    own = tuple(names[: len(default)])
    if names != list(own) * count:
        raise node.error("the same activations in both directions", names)
    if own != default and (layer, own) != ("RNN", ("relu",)):
        raise node.error(f"the activations {', '.join(default)}", names)
    return own


def _check(node: OnnxNode, layer: str) -> None:
    """Refuse what the operator ``recurrent`` cannot do."""
    if "clip" in node.attrs:
        raise node.error("no clip", node.number("clip"))
    if layer == "LSTM" and node.integer("input_forget", 0):
        raise node.error("input_forget 0", node.integer("input_forget"))
    if layer == "LSTM" and node.input(_PEEPHOLES):
        raise node.error("no peepholes", node.input(_PEEPHOLES))


def _check_lengths(imp: Importer, node: OnnxNode, steps: int) -> None:
    """Refuse sequences of different lengths."""
    if node.input(4):
        lengths = imp.const(node.input(4))
        if lengths is None or (lengths != steps).any():
            found = "a tensor" if lengths is None else lengths.tolist()
            raise node.error(f"sequences of all {steps} steps", found)


def _biases(
    imp: Importer, node: OnnxNode, shape: tuple[int, int, int], *, apart: bool
) -> tuple[Array | None, Array | None]:
    """Return what is added to gates, and, for a GRU, to the product for the new state.

    Args:
        imp: has the constants.
        node: the layer.
        shape: directions, gates, units.
        apart: whether the second bias of the new state is no addend of a gate.
    """
    if not node.input(3):
        return None, None
    count, gates, units = shape
    both = imp.require_const(node, 3, "the biases").reshape(count, 2, gates, units)
    second = both[:, 1].copy()
    if not apart:
        return (both[:, 0] + second).reshape(-1), None
    product = second[:, _NEW_STATE].copy()
    second[:, _NEW_STATE] = 0
    return (both[:, 0] + second).reshape(-1), product


def _first(imp: Importer, node: OnnxNode, index: int, *, batch_first: bool) -> str:
    """Return a first state as [direction, row, unit], ``""`` if there is none or it is zero."""
    name = node.input(index)
    known = imp.const(name) if name else None
    if not name or (known is not None and not known.any()):
        return ""
    if not batch_first:
        return name
    return imp.step(node, f"first{index}", "transpose", [name], {"perm": (1, 0, 2)})


def _cell(node: OnnxNode, layer: str, count: int) -> str:
    """Return the cell of the operator ``recurrent``."""
    own = _activations(node, layer, count)
    if layer == "GRU":
        return "gru" if node.integer("linear_before_reset", 0) else "gru_reset_first"
    return "lstm" if layer == "LSTM" else own[0]


def _weights(imp: Importer, node: OnnxNode, count: int, gates: int) -> tuple[Array, Array]:
    """Return the weights of the input and of the state."""
    own = imp.require_const(node, 1, "the weights of the input")
    states = imp.require_const(node, 2, "the weights of the state")
    shape = imp.shape(node.required(0))
    if len(shape) != _RANK or own.ndim != _RANK or states.ndim != _RANK:
        raise node.error("an input and weights of three axes", list(shape))
    units = states.shape[2]
    wanted = (count, gates * units, shape[2]), (count, gates * units, units)
    if (own.shape, states.shape) != wanted:
        raise node.error(f"weights of {wanted[0]} and {wanted[1]}", [own.shape, states.shape])
    return own, states


def _gates(imp: Importer, node: OnnxNode, x: str, weights: Array, bias: Array | None) -> str:
    """Return what inputs add to the gates: one product for all steps."""
    steps, rows, width = imp.shape(x)
    flat = imp.step(node, "rows", "reshape", [x], {"shape": (steps * rows, width)})
    matrix = np.ascontiguousarray(weights.reshape(-1, width).T)
    operands = [flat, imp.constant(f"{flat}/weights", matrix)]
    if bias is not None:
        operands.append(imp.constant(f"{flat}/bias", bias))
    added = imp.step(node, "inputs", "matmul", operands)
    return imp.step(node, "gates", "reshape", [added], {"shape": (steps, rows, matrix.shape[1])})


def _layer(imp: Importer, node: OnnxNode, layer: str) -> None:
    """Import a layer as a product with the input of all steps, and the steps."""
    x, batch_first = node.required(0), bool(node.integer("layout", 0))
    direction = node.text("direction", "forward")
    if direction not in DIRECTIONS:
        raise node.error(f"a direction of {', '.join(DIRECTIONS)}", repr(direction))
    count = 2 if direction == "bidirectional" else 1
    cell = _cell(node, layer, count)
    _check(node, layer)
    units = node.integer("hidden_size", 0)
    weights, states = _weights(imp, node, count, CELLS[cell])
    if units not in (0, states.shape[2]):
        raise node.error(f"hidden_size {states.shape[2]}, as the weights have", units)
    if batch_first:
        x = imp.step(node, "steps_first", "transpose", [x], {"perm": (1, 0, 2)})
    _check_lengths(imp, node, imp.shape(x)[0])
    shape = (count, CELLS[cell], states.shape[2])
    bias, product = _biases(imp, node, shape, apart=cell == "gru")
    inputs = [_gates(imp, node, x, weights, bias)]
    inputs.append(imp.constant(f"{inputs[0]}/weights", states))
    inputs.append("" if product is None else imp.constant(f"{inputs[0]}/bias", product))
    first = (5, 6) if layer == "LSTM" else (5,)
    inputs += [_first(imp, node, index, batch_first=batch_first) for index in first]
    while not inputs[-1]:
        inputs.pop()
    attrs: dict[str, Attr] = {"cell": cell, "direction": direction}
    y, last = _steps(imp, node, inputs, attrs)
    _results(imp, node, y, last, count, batch_first=batch_first)


def _steps(
    imp: Importer, node: OnnxNode, inputs: list[str], attrs: dict[str, Attr]
) -> tuple[str, str]:
    """Add the steps and return the states of all, and the last cell, ``""`` if there is none."""
    made = 2 if attrs["cell"] == "lstm" else 1
    names = tuple(imp.reserve(f"{inputs[0]}/{role}") for role in ("states", "cell")[:made])
    inner = replace(node, name=names[0], outputs=names)
    found = imp.emit_all(inner, "recurrent", inputs, attrs, made)
    return found[0], found[1] if made > 1 else ""


def _results(
    imp: Importer, node: OnnxNode, y: str, last: str, count: int, *, batch_first: bool
) -> None:
    """Emit the results as ONNX has them: Y [step, direction, row, unit], Y_h and Y_c."""
    steps, rows, width = imp.shape(y)
    units = width // count
    wide = imp.step(node, "wide", "reshape", [y], {"shape": (steps, rows, count, units)})
    imp.emit(node, "transpose", [wide], {"perm": (1, 0, 2, 3) if batch_first else (0, 2, 1, 3)})
    order = (1, 0, 2) if batch_first else (0, 1, 2)
    if len(node.outputs) > 1 and node.outputs[1]:
        ends: list[str] = []
        for direction in range(count):
            is_back = direction == 1 or node.text("direction", "forward") == "reverse"
            step = 0 if is_back else steps - 1
            bounds: dict[str, Attr] = {
                "starts": (step, 0, direction * units),
                "stops": (step + 1, rows, (direction + 1) * units),
                "steps": (1, 1, 1),
            }
            ends.append(imp.step(node, f"end{direction}", "slice", [y], bounds))
        joined = imp.step(node, "ends", "concat", ends, {"axis": 0})
        imp.emit(node, "transpose", [joined], {"perm": order}, 1)
    if last and len(node.outputs) > 2:
        imp.emit(node, "transpose", [last], {"perm": order}, 2)


# --- export ---------------------------------------------------------------------------------------


def _write_recurrent(writer: Writer, node: Node) -> None:
    """Write the layer of ONNX whose weights of the input select the gates of a direction."""
    gates, states, extra, *first = (*node.inputs, "", "", "")[:5]
    cell, count = node.str_attr("cell"), direction_count(node)
    units, width = writer.shape(states)[2], CELLS[node.str_attr("cell")]
    dtype = writer.type(gates).dtype.numpy
    select = np.eye(count * width * units, dtype=dtype).reshape(count, width * units, -1)
    inputs = [gates, writer.constant(node, "select", select), states]
    inputs += [_written_bias(writer, node, extra), "", *first]
    attrs: dict[str, OnnxValue] = {
        "hidden_size": units,
        "direction": node.str_attr("direction", "forward"),
    }
    if cell == "gru":
        attrs["linear_before_reset"] = 1
    layer = {"lstm": "LSTM", "tanh": "RNN", "relu": "RNN"}.get(cell, "GRU")
    if cell == "relu":
        attrs["activations"] = ("Relu",) * count
    others = ("", node.outputs[1]) if cell == "lstm" else ()
    y = writer.step(node, "layer", layer, inputs, attrs, others)
    turned = writer.step(node, "turned", "Transpose", [y], {"perm": (0, 2, 1, 3)})
    shape = writer.integers(node, "shape", writer.shape(node.outputs[0]))
    writer.emit(replace(node, outputs=node.outputs[:1]), "Reshape", [turned, shape])


def _written_bias(writer: Writer, node: Node, extra: str) -> str:
    """Return the bias of a GRU's new state as biases of all gates: [direction, 2 gates units]."""
    if not extra:
        return ""
    count, units = writer.shape(extra)
    zeros = np.zeros((count, 5 * units), writer.type(extra).dtype.numpy)
    return writer.step(
        node, "biases", "Concat", [writer.constant(node, "zeros", zeros), extra], {"axis": 1}
    )


HANDLERS: dict[str, Handler] = {
    layer: partial(_layer, layer=layer) for layer in ("GRU", "LSTM", "RNN")
}

EXPORTERS: dict[str, Exporter] = {"recurrent": _write_recurrent}
