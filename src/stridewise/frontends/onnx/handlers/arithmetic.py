"""Powers, remainders and shifts of bits."""

from __future__ import annotations

from functools import partial

from stridewise.frontends.onnx.handlers.plain import Plain, write
from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Node
from stridewise.ops.element_types import FLOATS

__all__ = ["EXPORTERS", "HANDLERS"]

_FLOOR_MOD = 28
"""The first opset in which Mod without ``fmod`` takes floats."""

_POWERS = {0.5: "sqrt", -1.0: "reciprocal"}


def _power(imp: Importer, node: OnnxNode) -> None:
    x, exponent = node.required(0), node.required(1)
    data = imp.const(exponent)
    value = None
    if data is not None and data.size == 1 and data.ndim <= len(imp.shape(x)):
        value = float(data.reshape(()))
    floats = imp.type(x).dtype.name in FLOATS
    if value == 1:
        imp.alias(node.outputs[0], x)
    elif value == 2:
        imp.emit(node, "mul", [x, x])
    elif value is None or not floats:
        imp.emit(node, "pow", [x, exponent])
    elif value in _POWERS:
        imp.emit(node, _POWERS[value], [x])
    else:
        imp.emit(node, "power", [x], {"alpha": value})


def _mod(imp: Importer, node: OnnxNode) -> None:
    attrs = {"fmod": int(bool(node.integer("fmod", 0)))}
    imp.emit(node, "mod", [node.required(0), node.required(1)], attrs)


def _bit_shift(imp: Importer, node: OnnxNode) -> None:
    attrs = {"direction": node.text("direction").lower()}
    imp.emit(node, "bit_shift", [node.required(0), node.required(1)], attrs)


def _write_power(writer: Writer, node: Node) -> None:
    exponent = writer.scalar(node, "exponent", node.float_attr("alpha", 1.0))
    writer.emit(node, "Pow", [*node.inputs, exponent])


def _write_mod(writer: Writer, node: Node) -> None:
    fmod = node.int_attr("fmod", 0)
    if not fmod and writer.type(node.inputs[0]).dtype.name in FLOATS:
        writer.needs(_FLOOR_MOD)
    writer.emit(node, "Mod", node.inputs, {"fmod": fmod})


def _write_bit_shift(writer: Writer, node: Node) -> None:
    if not writer.type(node.inputs[0]).dtype.name.startswith("uint"):
        writer.needs(_FLOOR_MOD)
    writer.emit(node, "BitShift", node.inputs, {"direction": node.str_attr("direction").upper()})


HANDLERS: dict[str, Handler] = {
    "BitShift": _bit_shift,
    "Mod": _mod,
    "Pow": _power,
}

EXPORTERS: dict[str, Exporter] = {
    "bit_shift": _write_bit_shift,
    "mod": _write_mod,
    "pow": partial(write, op_type="Pow", form=Plain("pow", 2)),
    "power": _write_power,
}
