"""Quantized tensors: arithmetic on real numbers, or on integers where ONNX defines it so.

Constant weights become real numbers at import, whose value has their grid. Activations of 8 bits
with one constant scale are rounded to their grid as real numbers (``snap_s8``, ``snap_u8``), then
become integers (``quantize``), which ``dequantize`` turns back. Other activations are rounded and
clipped by elementwise operators, then cast to integers. The pass ``skip_integers`` removes the
integers between.
"""

from __future__ import annotations

import numpy as np

from stridewise.dtypes import DType, dtype_of
from stridewise.frontends.onnx.handlers.conv import conv_attrs
from stridewise.frontends.onnx.reading.importer import Handler, Importer, scalar
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.reading.tensors import dtype_of_code
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Attr, Node
from stridewise.ops.activation import SNAPS
from stridewise.ops.element_types import FLOATS
from stridewise.ops.quantize import grid_of_constants, has_reciprocal, node_grid
from stridewise.tensor import Grid

__all__ = ["CONTRIB", "EXPORTERS", "HANDLERS", "real_of", "store_real"]

_STORED = ("int8", "uint8", "int16", "uint16")
_ACCUMULATED = "int32"
_REAL = "float32"
"""The type for arithmetic on stored values and sums; it represents all 16-bit integers."""


# --- parts ----------------------------------------------------------------------------------------


def _as(imp: Importer, node: OnnxNode, role: str, name: str, dtype: str) -> str:
    """Return a value, cast to another element type."""
    if imp.type(name).dtype.name == dtype:
        return name
    return imp.step(node, f"{role}.{dtype}", "cast", [name], {"to": dtype})


def _along(imp: Importer, node: OnnxNode, role: str, name: str, x: str, axis: int) -> str:
    """Return a scale or zero point in a shape that applies to ``x``.

    It has one number for all elements, one for each index along the axis, or with ``block_size``
    one for each block along the axis (source: ONNX, QuantizeLinear).

    Raises:
        ModelError: it has another shape.
    """
    shape, given = imp.shape(x), imp.shape(name)
    if node.integer("block_size", 0):
        return _spread(imp, node, role, name, x, axis)
    if given in ((), (1,)):
        return name if given == () else imp.step(node, role, "reshape", [name], {"shape": ()})
    axis = imp.axis(node, axis, len(shape))
    if given != shape[axis : axis + 1]:
        raise node.error(f"one {role}, or {shape[axis]} along axis {axis}", list(given))
    spread = (*given, *(1,) * (len(shape) - axis - 1))
    return name if given == spread else imp.step(node, role, "reshape", [name], {"shape": spread})


def _spread(imp: Importer, node: OnnxNode, role: str, name: str, x: str, axis: int) -> str:
    """Return one number per element, given one per block."""
    shape, block = imp.shape(x), node.integer("block_size", 0)
    axis = imp.axis(node, axis, len(shape))
    blocks = tuple(-(-e // block) if i == axis else e for i, e in enumerate(shape))
    if block < 0 or imp.shape(name) != blocks:
        expected = f"a {role} of shape {list(blocks)} for blocks of {block}"
        raise node.error(expected, list(imp.shape(name)))
    numbers = imp.constant(f"{node.outputs[0]}/{role}.blocks", np.arange(shape[axis]) // block)
    return imp.step(node, role, "gather", [name, numbers], {"axis": axis})


def _zero(imp: Importer, name: str) -> str:
    """Return a zero point, ``""`` where it is absent or a constant 0."""
    data = imp.const(name) if name else None
    return "" if data is not None and not data.any() else name


def _centered(imp: Importer, node: OnnxNode, role: str, name: str, zero: str, dtype: str) -> str:
    """Return stored values minus their zero point, which broadcasts to them, as ``dtype``."""
    wide, zero = _as(imp, node, role, name, dtype), _zero(imp, zero)
    if not zero:
        return wide
    offset = _as(imp, node, f"{role}.zero", zero, dtype)
    return imp.step(node, f"{role}.centered", "sub", [wide, offset])


def _factors(
    imp: Importer, node: OnnxNode, role: str, name: str, scale: str, zero: str, axis: int
) -> list[str]:
    """Return ``stored - zero point`` and ``scale`` as float32; their product is the real value."""
    scale = _as(imp, node, f"{role}.scale", scale, _REAL)
    scale = _along(imp, node, f"{role}.scale", scale, name, axis)
    zero = _zero(imp, zero)
    zero = _along(imp, node, f"{role}.zero", zero, name, axis) if zero else ""
    # float32 cannot represent the difference of 32-bit integers.
    wide = "int64" if imp.type(name).dtype.name == _ACCUMULATED and zero else _REAL
    return [_as(imp, node, role, _centered(imp, node, role, name, zero, wide), _REAL), scale]


def _store(
    imp: Importer, node: OnnxNode, quotient: str, zero: str, dtype: DType, output: int = 0
) -> None:
    """Emit ``round(quotient) + zero point``, rounded half to even and saturated.

    Zero points are integers, so the order of rounding and shifting does not matter.
    """
    quotient = _as(imp, node, "quotient", quotient, _REAL)
    shifted = imp.step(node, "rounded", "round", [quotient])
    if zero:
        zero = _as(imp, node, "zero", zero, _REAL)
        shifted = imp.step(node, "shifted", "add", [shifted, zero])
    limits = np.iinfo(dtype.name)
    bounds = {"alpha": float(limits.min), "beta": float(limits.max)}
    clipped = imp.step(node, "clipped", "clip", [shifted], bounds)
    imp.emit(node, "cast", [clipped], {"to": dtype.name}, output)


# --- 8 bits with one scale ---------------------------------------------------------------------

_SNAPS = {"int8": "snap_s8", "uint8": "snap_u8"}


def _single(
    imp: Importer, scale: str, zero: str, shape: tuple[int, ...] = ()
) -> tuple[float, int] | None:
    """Return a scale and a zero point that are one known number each; None for others."""
    factor, offset = imp.const(scale), imp.const(zero) if zero else np.zeros(1, np.uint8)
    if factor is None or offset is None or not has_reciprocal(factor):
        return None
    if factor.size != 1 or offset.size != 1 or len(factor.shape) > len(shape) + 1:
        return None
    return float(factor.reshape(-1)[0]), int(offset.reshape(-1)[0])


def _store_snapped(
    imp: Importer, node: OnnxNode, x: str, number: tuple[float, int], dtype: DType
) -> None:
    """Emit the integers that a float32 value is stored as."""
    scale, zero = number
    parameters = {"alpha": scale, "beta": float(zero)}
    snapped = imp.step(node, "snapped", _SNAPS[dtype.name], [x], parameters)
    attrs = {"scale": scale, "zero_point": zero, "dtype": dtype.name}
    imp.emit(node, "quantize", [snapped], attrs)


def _weights_grid(imp: Importer, x: str, scale: str, zero: str, axis: int) -> Grid | None:
    """Return the grid of a constant of 8 bits; None where it has blocks or no constant scales."""
    data, factors = imp.const(x), imp.const(scale)
    offsets = imp.const(zero) if zero else np.zeros(1, np.int8)
    if data is None or factors is None or offsets is None or data.dtype.name not in _SNAPS:
        return None
    return grid_of_constants(dtype_of(data.dtype).short, factors, offsets, axis, data.shape)


def _as_real(
    imp: Importer, node: OnnxNode, role: str, x: str, scale: str, zero: str, axis: int
) -> tuple[str, list[str], dict[str, Attr], Grid | None]:
    """Return what computes the real numbers that integers stand for: operator, inputs, attributes.

    The last item is the grid of constants.
    """
    number = _single(imp, scale, zero)
    dtype = imp.type(x).dtype.name
    if imp.const(x) is None and number is not None and dtype in _SNAPS:
        attrs: dict[str, Attr] = {"scale": number[0], "zero_point": number[1], "dtype": dtype}
        return "dequantize", [x], attrs, None
    grid = _weights_grid(imp, x, scale, zero, axis)
    if grid is None:
        return "mul", _factors(imp, node, role, x, scale, zero, axis), {}, None
    # One operator: steps on large weights would each take as many bytes as their real numbers.
    scales, zeros = np.asarray(grid.scales, np.float32), np.asarray(grid.zero_points, dtype)
    if grid.axis is None:
        scales, zeros = scales.reshape(()), zeros.reshape(())
    numbers = [
        imp.constant(f"{node.outputs[0]}/{role}.scale", scales),
        imp.constant(
            f"{node.outputs[0]}/{role}.zero", np.array(np.broadcast_to(zeros, scales.shape))
        ),
    ]
    return "dequantize_linear", [x, *numbers], {"axis": axis}, grid


def real_of(
    imp: Importer, node: OnnxNode, role: str, x: str, scale: str, zero: str, axis: int
) -> str:
    """Return the real numbers that integers stand for, as float32."""
    op, inputs, attrs, grid = _as_real(imp, node, role, x, scale, zero, axis)
    found = imp.step(node, f"{role}.real", op, inputs, attrs)
    if grid is not None:
        imp.note_grid(found, grid)
    return found


# --- to stored values and back --------------------------------------------------------------------


def _stored_type(imp: Importer, node: OnnxNode) -> DType:
    """Return the result type of QuantizeLinear: the type of the zero point, or uint8."""
    code = node.integer("output_dtype", 0)
    zero = node.input(2)
    found = imp.type(zero).dtype if zero else dtype_of("uint8")
    wanted = dtype_of_code(code, f"{node.where}, attribute 'output_dtype'") if code else found
    if zero and wanted != found:
        raise node.error(f"a zero point of dtype {wanted}", found)
    if wanted.name not in _STORED:
        raise node.error(f"a result of dtype {', '.join(_STORED)}", wanted)
    return wanted


def _quantize(imp: Importer, node: OnnxNode) -> None:
    """Source: ONNX, QuantizeLinear: saturate(round(x / scale) + zero point)."""
    x, scale, dtype = node.required(0), node.required(1), _stored_type(imp, node)
    code = node.integer("precision", 0)
    real = imp.type(scale).dtype
    if code:
        real = dtype_of_code(code, f"{node.where}, attribute 'precision'")
    if real.name not in FLOATS:
        raise node.error("a scale of floats", real)
    axis = node.integer("axis", 1)
    number = None if node.integer("block_size", 0) else _single(imp, scale, node.input(2))
    if (
        number is not None
        and {imp.type(x).dtype.name, real.name} == {_REAL}
        and dtype.name in _SNAPS
    ):
        _store_snapped(imp, node, x, number, dtype)
        return
    x, scale = _as(imp, node, "x", x, real.name), _as(imp, node, "scale", scale, real.name)
    scale = _along(imp, node, "scale", scale, x, axis)
    zero = _zero(imp, node.input(2))
    zero = _along(imp, node, "zero", zero, x, axis) if zero else ""
    _store(imp, node, imp.step(node, "quotient", "div", [x, scale]), zero, dtype)


def _dequantize(imp: Importer, node: OnnxNode) -> None:
    """Source: ONNX, DequantizeLinear: (x - zero point) * scale."""
    x, scale, zero = node.required(0), node.required(1), node.input(2)
    found, result = imp.type(x).dtype, imp.type(scale).dtype
    code = node.integer("output_dtype", 0)
    if code:
        result = dtype_of_code(code, f"{node.where}, attribute 'output_dtype'")
    if found.name not in (*_STORED, _ACCUMULATED):
        raise node.error(f"an input of dtype {', '.join((*_STORED, _ACCUMULATED))}", found)
    if zero and imp.type(zero).dtype != found:
        raise node.error(f"a zero point of dtype {found}", imp.type(zero).dtype)
    if result.name not in FLOATS or imp.type(scale).dtype.name not in FLOATS:
        raise node.error("a scale and a result of floats", result)
    axis = node.integer("axis", 1)
    if result.name == _REAL and not node.integer("block_size", 0):
        op, inputs, attrs, grid = _as_real(imp, node, "x", x, scale, zero, axis)
        imp.emit(node, op, inputs, attrs)
        if grid is not None:
            imp.note_grid(node.outputs[0], grid)
        return
    factors = _factors(imp, node, "x", x, scale, zero, axis)
    if result.name == _REAL:
        imp.emit(node, "mul", factors)
    else:
        real = imp.step(node, "real", "mul", factors)
        imp.emit(node, "cast", [real], {"to": result.name})


def _dynamic(imp: Importer, node: OnnxNode) -> None:
    """Source: ONNX, DynamicQuantizeLinear: maps the range of x and 0 to 0 ... 255.

    If all elements are 0, ONNX divides by 0. The scale is then 1, as in ONNX Runtime.
    """
    x = node.required(0)
    whole = {"axes": tuple(range(len(imp.shape(x)))), "keepdims": 0}
    nothing, steps = scalar(imp, node, "nothing", 0.0, x), scalar(imp, node, "steps", 255.0, x)
    high, low = (
        imp.step(node, op, op, [imp.step(node, reduction, reduction, [x], whole), nothing])
        for op, reduction in (("maximum", "reduce_max"), ("minimum", "reduce_min"))
    )
    span = imp.step(node, "span", "sub", [high, low])
    some = imp.step(node, "some", "greater", [span, nothing])
    one = scalar(imp, node, "one", 1.0, x)
    scale = imp.step(node, "step", "div", [span, steps])
    scale = imp.step(node, "scale", "where", [some, scale, one])
    lowest = imp.step(node, "lowest", "div", [imp.step(node, "depth", "neg", [low]), scale])
    zero = imp.step(node, "zero.rounded", "round", [lowest])
    zero = imp.step(node, "zero", "clip", [zero], {"alpha": 0.0, "beta": 255.0})
    _store(imp, node, imp.step(node, "quotient", "div", [x, scale]), zero, dtype_of("uint8"))
    imp.emit(node, "identity", [scale], output=1)
    imp.emit(node, "cast", [zero], {"to": "uint8"}, 2)


# --- products -------------------------------------------------------------------------------------


def _column(imp: Importer, node: OnnxNode, name: str, rank: int) -> str:
    """Return one number per row in a shape that broadcasts to rows."""
    shape = imp.shape(name)
    if not shape or len(shape) == rank:
        return name
    return imp.step(node, f"{name}.column", "reshape", [name], {"shape": (*shape, 1)})


def _operands(imp: Importer, node: OnnxNode, a: tuple[int, int], b: tuple[int, int]) -> list[str]:
    """Return the operands of a product as int32; a and b are indices of operand and zero point."""
    operands: list[str] = []
    for role, (place, at) in (("a", a), ("b", b)):
        name, zero = node.required(place), node.input(at)
        if zero and role == "a":
            zero = _column(imp, node, zero, len(imp.shape(name)))
        operands.append(_centered(imp, node, role, name, zero, _ACCUMULATED))
    return operands


def _matmul_integer(imp: Importer, node: OnnxNode) -> None:
    imp.emit(node, "matmul", _operands(imp, node, (0, 2), (1, 3)))


def _qlinear_matmul(imp: Importer, node: OnnxNode) -> None:
    """Source: ONNX, QLinearMatMul: the scaled product, rounded half to even and saturated.

    Products with constant weights are computed on real numbers, as convolutions are.
    """
    b, b_scale, b_zero = (node.required(place) for place in range(3, 6))
    grid = _weights_grid(imp, b, b_scale, b_zero, -1)
    if grid is not None and _single(imp, node.required(1), node.required(2)) is not None:
        x, scale, zero = (node.required(place) for place in range(3))
        operands = [
            real_of(imp, node, "a", x, scale, zero, 1),
            real_of(imp, node, "b", b, b_scale, b_zero, -1),
        ]
        real = imp.step(node, "product", "matmul", operands)
        store_real(imp, node, real, node.required(6), node.required(7))
        return
    product = imp.step(node, "product", "matmul", _operands(imp, node, (0, 2), (3, 5)))
    scale = _column(imp, node, node.required(1), len(imp.shape(node.required(0))))
    factor = imp.step(node, "scales", "mul", [scale, node.required(4)])
    factor = imp.step(node, "scale", "div", [factor, node.required(6)])
    product = _as(imp, node, "product", product, imp.type(factor).dtype.name)
    scaled = imp.step(node, "scaled", "mul", [product, factor])
    zero = node.required(7)
    _store(imp, node, scaled, zero, imp.type(zero).dtype)


def _conv_integer(imp: Importer, node: OnnxNode) -> None:
    """Source: ONNX, ConvInteger: padding is real 0, so it is added after the zero point."""
    x, w, zero = node.required(0), node.required(1), node.input(3)
    attrs = conv_attrs(imp, node, x, w)
    zero = _along(imp, node, "w.zero", zero, w, 0) if zero else ""
    x = _centered(imp, node, "x", x, node.input(2), _ACCUMULATED)
    imp.emit(node, "conv", [x, _centered(imp, node, "w", w, zero, _ACCUMULATED)], attrs)


def _qlinear_conv(imp: Importer, node: OnnxNode) -> None:
    """Source: ONNX, QLinearConv; computed on real values.

    The scale of the bias is the product of the scales of x and w; its zero point is 0.
    """
    (x, x_scale, x_zero), (w, w_scale, w_zero), (scale, zero) = (
        tuple(node.required(place) for place in range(first, last))
        for first, last in ((0, 3), (3, 6), (6, 8))
    )
    attrs = conv_attrs(imp, node, x, w)
    stored = [("x", x, x_scale, x_zero, 1), ("w", w, w_scale, w_zero, 0)]
    if node.input(8):
        factor = imp.step(node, "bias.scale", "mul", [x_scale, w_scale])
        stored.append(("bias", node.input(8), factor, "", 0))
    operands = [real_of(imp, node, *item) for item in stored]
    result = imp.step(node, "conv", "conv", operands, attrs)
    store_real(imp, node, result, scale, zero)


def store_real(
    imp: Importer, node: OnnxNode, real: str, scale: str, zero: str, like: str = ""
) -> None:
    """Emit the integers that real numbers are stored as, by one scale.

    Without a zero point they have the type of ``like``.
    """
    number, dtype = _single(imp, scale, zero), imp.type(zero or like).dtype
    if number is not None and dtype.name in _SNAPS:
        _store_snapped(imp, node, real, number, dtype)
        return
    quotient = imp.step(node, "quotient", "div", [real, scale])
    _store(imp, node, quotient, _zero(imp, zero) if zero else "", dtype)


HANDLERS: dict[str, Handler] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}


def _numbers(writer: Writer, node: Node, grid: Grid) -> list[str]:
    """Return the scale and the zero point of a grid as constants."""
    dtype = dtype_of(grid.dtype).numpy
    scale = writer.constant(node, "scale", np.array(grid.scales[0], np.float32))
    return [scale, writer.constant(node, "zero", np.array(grid.zero_points[0], dtype))]


def _write_snap(writer: Writer, node: Node) -> None:
    numbers = _numbers(writer, node, node_grid(node))
    stored = writer.step(node, "stored", "QuantizeLinear", [*node.inputs, *numbers])
    writer.emit(node, "DequantizeLinear", [stored, *numbers])


def _write_grid(writer: Writer, node: Node) -> None:
    op_type = "QuantizeLinear" if node.op == "quantize" else "DequantizeLinear"
    writer.emit(node, op_type, [*node.inputs, *_numbers(writer, node, node_grid(node))])


def _write_linear(op_type: str) -> Exporter:
    def write(writer: Writer, node: Node) -> None:
        writer.emit(node, op_type, node.inputs, {"axis": node.int_attr("axis", 1)})

    return write


EXPORTERS: dict[str, Exporter] = {
    **dict.fromkeys(SNAPS, _write_snap),
    **dict.fromkeys(("dequantize", "quantize"), _write_grid),
    "dequantize_linear": _write_linear("DequantizeLinear"),
    "quantize_linear": _write_linear("QuantizeLinear"),
}

CONTRIB: dict[str, Handler] = {
    name: HANDLERS[name] for name in ("DequantizeLinear", "QuantizeLinear")
}
"""Operators of ONNX Runtime for older opsets that mean the same as ONNX's."""
