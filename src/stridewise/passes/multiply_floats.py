"""Multiply floats where products of integers become floats.

Dynamically quantized models multiply integers of 8 bits, sum the products in 32 bits, and convert
the sums to float32. Kernels of float32 multiply the same numbers. Their sums are the same up to
2**24, and are rounded above, as the conversion rounds them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stridewise.dtypes import dtype_of
from stridewise.graph import Graph, Node, Refusal, TensorType
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.conv import EXACT

__all__ = ["multiply_floats"]

_PRODUCTS = frozenset({"conv", "matmul"})
_REAL = "float32"
_SHORT = frozenset({"int8", "uint8"})
_LARGEST = 255
"""Constants are at most so large: differences of integers of 8 bits."""


def _is_short(rewriter: Rewriter, name: str) -> bool:
    """Return whether an operand has integers of 8 bits, or differences of two of them."""
    made = rewriter.producer(name)
    if made is not None and made.op == "sub":
        return all(_is_stored(rewriter, part) for part in made.inputs)
    return _is_stored(rewriter, name)


def _is_stored(rewriter: Rewriter, name: str) -> bool:
    """Return whether a value has integers of 8 bits."""
    data, made = rewriter.constant(name), rewriter.producer(name)
    if data is not None:
        return bool(((data >= -_LARGEST) & (data <= _LARGEST)).all())
    if made is None or made.op != "cast":
        return False
    return rewriter.value(made.inputs[0]).dtype.name in _SHORT


def _in_float(rewriter: Rewriter, name: str, before: Node) -> str:
    """Return the name of the same numbers in float32."""
    data, made = rewriter.constant(name), rewriter.producer(name)
    if data is not None:
        return rewriter.add_constant(f"{name}/float", data.astype(np.float32))
    assert made is not None  # all others have a node
    real = rewriter.add_value(f"{name}/float", _real_type(rewriter, name))
    if made.op == "cast":
        new = replace(made, outputs=(real,), attrs=(("to", _REAL),))
    else:
        parts = tuple(_in_float(rewriter, part, before) for part in made.inputs)
        new = replace(made, inputs=parts, outputs=(real,))
    rewriter.insert(new, before)
    return real


def _real_type(rewriter: Rewriter, name: str) -> TensorType:
    """Return the type of float32 numbers in the shape of a value."""
    return TensorType(dtype_of(_REAL), rewriter.value(name).shape)


def multiply_floats(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with float32 products; it refuses nothing."""
    rewriter = Rewriter(graph)
    for node in rewriter.nodes():
        cast = rewriter.only_reader(node.outputs[0]) if node.op in _PRODUCTS else None
        if cast is None or cast.op != "cast" or cast.get("to") != _REAL:
            continue
        if rewriter.value(node.outputs[0]).dtype.name != "int32":
            continue
        if not all(_is_short(rewriter, name) for name in node.inputs):
            continue
        inputs = tuple(_in_float(rewriter, name, cast) for name in node.inputs)
        rewriter.remove(node)
        attrs = (*node.attrs, (EXACT, 1)) if node.op == "conv" else node.attrs
        rewriter.replace(cast, replace(node, inputs=inputs, outputs=cast.outputs, attrs=attrs))
    return rewriter.finish(), ()
