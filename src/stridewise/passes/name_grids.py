"""Name the grids of quantized tensors, as the ONNX importer does.

``quantize_linear`` and ``dequantize_linear`` have scales and zero points as operands. Where these
are constants, plans can store the tensor as integers: ``quantize_linear`` becomes a rounding to the
grid and ``quantize``, ``dequantize_linear`` becomes ``dequantize``, and constants know their grid.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from stridewise.graph import Graph, Node, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.activation import SNAPS
from stridewise.ops.quantize import grid_of_constants
from stridewise.tensor import Grid

__all__ = ["name_grids"]

_LINEAR = frozenset({"quantize_linear", "dequantize_linear"})
_SNAP = {short: op for op, short in SNAPS.items()}


def _grid(rewriter: Rewriter, node: Node) -> Grid | None:
    """Return the grid that the operands of a node name; None where it is not known."""
    x, scale, zero = node.inputs
    scales, zeros = rewriter.constant(scale), rewriter.constant(zero)
    stored = rewriter.value(zero).dtype.short
    if scales is None or zeros is None or stored not in _SNAP:
        return None
    shape = rewriter.value(x).shape
    return grid_of_constants(stored, scales, zeros, node.int_attr("axis", 1), shape)


def _name(rewriter: Rewriter, node: Node, grid: Grid) -> None:
    x, result = node.inputs[0], node.outputs[0]
    scale, zero = grid.scales[0], grid.zero_points[0]
    stored = rewriter.value(result if node.op == "quantize_linear" else x).dtype.name
    attrs = (("dtype", stored), ("scale", scale), ("zero_point", zero))
    if node.op == "dequantize_linear":
        rewriter.replace(node, Node(node.name, "dequantize", (x,), node.outputs, attrs))
        return
    snapped = rewriter.add_value(f"{result}/snapped", rewriter.value(x).type)
    rounding = (("alpha", scale), ("beta", float(zero)))
    rewriter.insert(Node(snapped, _SNAP[grid.dtype], (x,), (snapped,), rounding), node)
    rewriter.replace(node, Node(node.name, "quantize", (snapped,), node.outputs, attrs))


def name_grids(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph whose quantized tensors have known grids; the others are refused."""
    if not any(node.op in _LINEAR for node in graph.nodes):
        return graph, ()
    rewriter, refusals = Rewriter(graph), list[Refusal]()
    grids: dict[str, Grid] = {}
    for node in rewriter.nodes():
        if node.op not in _LINEAR:
            continue
        grid, is_constant = _grid(rewriter, node), rewriter.known(node.inputs[0]) is not None
        if is_constant and node.op == "dequantize_linear":
            grids |= {} if grid is None else {node.outputs[0]: grid}
        elif grid is not None and grid.axis is None:
            _name(rewriter, node, grid)
        else:
            reason = "its scale and zero point are not one constant of int8 or uint8 each"
            refusals.append(Refusal("name_grids", node.name, reason))
    found = rewriter.finish()
    named = {name: replace(v, grid=grids.get(name, v.grid)) for name, v in found.values.items()}
    return replace(found, values=MappingProxyType(named)), tuple(refusals)
