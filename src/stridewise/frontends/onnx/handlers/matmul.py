"""Matrix products."""

from __future__ import annotations

import numpy as np

from stridewise.frontends.onnx.reading.importer import Handler, Importer, scalar
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Node
from stridewise.ops.element_types import INTEGERS

__all__ = ["EXPORTERS", "HANDLERS"]

_MATRIX = 2
_GEMM = ("float16", "float32", "float64")
"""Element types for which runtimes have Gemm; for integers they have MatMul only."""


def _matmul(imp: Importer, node: OnnxNode) -> None:
    imp.emit(node, "matmul", [node.required(0), node.required(1)])


def _scaled(imp: Importer, node: OnnxNode, name: str, factor: float, role: str) -> str:
    """Return ``factor`` times a value: another constant, or the result of a node."""
    if factor == 1:
        return name
    if imp.type(name).dtype.name in INTEGERS and not factor.is_integer():
        raise node.error(f"a whole {role} for integers", factor)
    return imp.step(node, role, "mul", [name, scalar(imp, node, f"{role}.factor", factor, name)])


def _bias(imp: Importer, node: OnnxNode, name: str, columns: int) -> str:
    """Return a constant addend as a row with one element per column, or ``""`` if it is none."""
    data = imp.const(name)
    if data is None or data.shape not in {(), (1,), (1, 1), (columns,), (1, columns)}:
        return ""
    row = np.broadcast_to(data.reshape(-1), (columns,))
    return name if data.shape == row.shape else imp.constant(f"{node.outputs[0]}/bias", row)


def _gemm(imp: Importer, node: OnnxNode) -> None:
    """Source: ONNX, Gemm: y = alpha * a' * b' + beta * c, where ' may transpose."""
    a, b, c = node.required(0), node.required(1), node.input(2)
    for name in (a, b):
        if len(imp.shape(name)) != _MATRIX:
            raise node.error("matrices", f"{name!r} of shape {list(imp.shape(name))}")
    trans_b = int(bool(node.integer("transB", 0)))
    attrs = {"trans_a": int(bool(node.integer("transA", 0))), "trans_b": trans_b}
    b = _scaled(imp, node, b, node.number("alpha", 1.0), "alpha")
    beta = node.number("beta", 1.0)
    if not c or beta == 0:
        imp.emit(node, "matmul", [a, b], attrs)
        return
    c = _scaled(imp, node, c, beta, "beta")
    bias = _bias(imp, node, c, imp.shape(b)[0 if trans_b else 1])
    if bias:
        imp.emit(node, "matmul", [a, b, bias], attrs)
        return
    imp.emit(node, "add", [imp.step(node, "matmul", "matmul", [a, b], attrs), c])


def _write_matmul(writer: Writer, node: Node) -> None:
    """Write a product of float matrices with a transpose or bias as Gemm, any other as MatMul.

    Transposes before and an Add after the MatMul replace the attributes of Gemm. The Add takes
    rounded products, unlike the reference of this operator.
    """
    a, b, *rest = node.inputs
    bias = rest[0] if rest else ""
    flags = node.int_attr("trans_a", 0), node.int_attr("trans_b", 0)
    matrices = len(writer.shape(a)) == len(writer.shape(b)) == _MATRIX
    if matrices and (bias or any(flags)) and writer.type(a).dtype.name in _GEMM:
        attrs = {"transA": int(bool(flags[0])), "transB": int(bool(flags[1]))}
        writer.emit(node, "Gemm", [a, b, bias], attrs)
        return
    a, b = (
        _write_transposed(writer, node, name, role) if flag else name
        for name, flag, role in zip((a, b), flags, ("a", "b"), strict=True)
    )
    if not bias:
        writer.emit(node, "MatMul", [a, b])
        return
    writer.emit(node, "Add", [writer.step(node, "product", "MatMul", [a, b]), bias])


def _write_transposed(writer: Writer, node: Node, name: str, role: str) -> str:
    rank = len(writer.shape(name))
    perm = (*range(rank - 2), rank - 1, rank - 2)
    return writer.step(node, f"{role}.transposed", "Transpose", [name], {"perm": perm})


HANDLERS: dict[str, Handler] = {"Gemm": _gemm, "MatMul": _matmul}

EXPORTERS: dict[str, Exporter] = {"matmul": _write_matmul}
