"""Compute quantized models on the real numbers that stored integers stand for.

What lies on the grid of a quantization can be stored as its integers, so plans decide which tensors
are integers in memory. A pooling, a reshape or a transpose of integers becomes one of real numbers,
between a model's QuantizeLinear and DequantizeLinear nothing is left, and functions that a later
rounding repeats are removed.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from math import inf
from types import MappingProxyType

from stridewise.dtypes import dtype_of
from stridewise.graph import Graph, Node, Refusal, TensorType, Value
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.activation import SNAPS
from stridewise.ops.quantize import MOVES, node_grid, with_grids
from stridewise.tensor import Grid

__all__ = ["compute_on_reals"]


class _Reals:
    """A graph that grows by what computes with real numbers instead of integers."""

    def __init__(self, graph: Graph) -> None:
        self._graph = with_grids(graph)
        self._values = dict(self._graph.values)
        self._names = {node.name for node in graph.nodes}
        self._nodes: list[Node] = []
        self._real: dict[str, tuple[str, Grid, Node]] = {}
        self._same: dict[str, str] = {}

    def graph(self) -> Graph:
        for node in self._graph.nodes:
            inputs = tuple(self._same.get(name, name) for name in node.inputs)
            self._add(replace(node, inputs=inputs))
        values = MappingProxyType(self._values)
        return replace(self._graph, nodes=tuple(self._nodes), values=values)

    def _add(self, node: Node) -> None:
        x, result = (node.inputs or ("",))[0], node.outputs[0]
        if node.op == "quantize" and self._values[x].grid == node_grid(node):
            self._real[result] = x, node_grid(node), node
        found = self._real.get(x)
        if node.op == "dequantize" and found is not None and found[1] == node_grid(node):
            if result not in self._graph.sinks:
                self._same[result] = found[0]
                return
            node = Node(node.name, "identity", (found[0],), node.outputs)
        elif node.op in MOVES and found is not None and self._is_one_grid(node, found[1]):
            self._move(node, found[1], found[2])
            return
        self._nodes.append(node)

    def _is_one_grid(self, node: Node, grid: Grid) -> bool:
        found = [self._real.get(name) for name in node.inputs]
        is_one = all(item is not None and item[1] == grid for item in found)
        return is_one and len(node.outputs) == 1 and not node.post_ops

    def _move(self, node: Node, grid: Grid, quantize: Node) -> None:
        """Move real numbers, and make integers of the result for what reads them."""
        result = node.outputs[0]
        real = fresh(f"{result}/real", self._values)
        name = fresh(f"{node.name}/stored", self._names)
        self._names.add(name)
        shape = self._values[result].shape
        self._values[real] = Value(real, TensorType(dtype_of("float32"), shape), grid=grid)
        reals = tuple(self._real[item][0] for item in node.inputs)
        self._nodes.append(replace(node, inputs=reals, outputs=(real,)))
        stored = replace(quantize, name=name, inputs=(real,), outputs=(result,))
        self._nodes.append(stored)
        self._real[result] = real, grid, stored


def _round_pieces(graph: Graph) -> Graph:
    """Return the graph with concats of rounded pieces instead of rounded concats.

    So every piece is stored as integers of one grid by what makes it, and pieces need no copy.
    """
    rewriter = Rewriter(graph)
    values, nodes, names = dict(graph.values), list[Node](), {node.name for node in graph.nodes}
    gone: set[str] = set()
    for node in graph.nodes:
        snap = rewriter.only_reader(node.outputs[0]) if node.op == "concat" else None
        known = any(rewriter.known(name) is not None for name in node.inputs)
        if snap is None or snap.op not in SNAPS or snap.post_ops or known:
            nodes += () if node.name in gone else (node,)
            continue
        gone.add(snap.name)
        pieces: dict[str, str] = {}
        for name in dict.fromkeys(node.inputs):
            piece = pieces[name] = fresh(f"{name}/rounded", values)
            values[piece] = replace(values[name], name=piece, grid=node_grid(snap))
            own = fresh(f"{snap.name}/piece", names)
            names.add(own)
            nodes.append(replace(snap, name=own, inputs=(name,), outputs=(piece,)))
        inputs = tuple(pieces[name] for name in node.inputs)
        nodes.append(replace(node, inputs=inputs, outputs=snap.outputs))
    return replace(graph, nodes=tuple(nodes), values=MappingProxyType(values))


def fresh(hint: str, taken: Container[str]) -> str:
    """Return a name like ``hint`` that is not taken."""
    name, number = hint, 0
    while name in taken:
        number += 1
        name = f"{hint}.{number}"
    return name


def _skip_functions(rewriter: Rewriter, snap: Node) -> None:
    """Skip a function before a rounding to a grid that lies within its range."""
    while (before := rewriter.producer(snap.inputs[0])) is not None:
        if before.post_ops or before.op not in ("relu", "clip"):
            return
        low, high, grid = 0.0, inf, node_grid(snap)
        if before.op == "clip":
            low, high = before.float_attr("alpha", -inf), before.float_attr("beta", inf)
        if low > grid.low or high < grid.high:
            break
        snap = _reading(rewriter, snap, before.inputs[0])
    if before is not None and before.op == "relu":
        _swap(rewriter, before, snap)


def _reading(rewriter: Rewriter, node: Node, name: str) -> Node:
    new = replace(node, inputs=(name,))
    rewriter.replace(node, new)
    return new


def _swap(rewriter: Rewriter, relu: Node, snap: Node) -> None:
    """Let a relu follow the rounding: 0 is on every grid, so the results are the same."""
    if rewriter.only_reader(relu.outputs[0]) != snap:
        return
    first = replace(relu, op=snap.op, attrs=snap.attrs)
    rewriter.replace(relu, first)
    rewriter.replace(snap, replace(snap, op="relu", attrs=()))


def compute_on_reals(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph without integers between roundings to a grid; it refuses nothing."""
    ops = {node.op for node in graph.nodes}
    if ops.isdisjoint(("quantize", "dequantize", *SNAPS)):
        return graph, ()
    rewriter = Rewriter(_round_pieces(Rewriter(_Reals(graph).graph()).finish()))
    for node in rewriter.nodes():
        if node.op in SNAPS:
            _skip_functions(rewriter, node)
    found = with_grids(rewriter.finish())
    rewriter = Rewriter(found)
    for node in rewriter.nodes():
        if node.op in SNAPS and rewriter.value(node.inputs[0]).grid == node_grid(node):
            rewriter.bypass(node, node.inputs[0])
    return rewriter.finish(), ()
