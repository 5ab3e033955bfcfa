"""Reduce a few stacked tensors without stacking them.

Selective kernels and split attention stack the results of branches along a new axis, weigh them,
and add them up. The sum over an axis of two elements is one addition: the parts need no axis of
their own, so they keep the formats of feature maps, and nothing is copied.
"""

from __future__ import annotations

import dataclasses
from math import prod

import numpy as np

from stridewise.graph import Attr, Graph, Node, Refusal, TensorType
from stridewise.graph.rewrite import Rewriter
from stridewise.ops import OPS, infer
from stridewise.ops.activation import UNARY
from stridewise.ops.geometry import reshape_groups

__all__ = ["unstack"]

_COMBINED = {
    "reduce_sum": "add",
    "reduce_mean": "add",
    "reduce_max": "maximum",
    "reduce_min": "minimum",
    "reduce_prod": "mul",
}
_MOST_PARTS = 4
_SMALL = 16
"""A tensor that is smaller than the result by this factor may be cut with copies."""

Shape = tuple[int, ...]


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


class _Unstacker:
    def __init__(self, graph: Graph) -> None:
        self.rewriter = Rewriter(graph)
        self.refusals: list[Refusal] = []
        self.known: dict[tuple[str, int, int], str | None] = {}
        self.node = graph.nodes[0]  # the reduction that is replaced
        self.small = 0  # elements that may be copied

    def emit(self, op: str, inputs: tuple[str, ...], **attrs: Attr) -> str:
        """Add a node before the reduction and return its result."""
        node = Node(f"{self.node.name}.{op}", op, inputs, ("",), tuple(sorted(attrs.items())))
        types = tuple(self.rewriter.value(name).type for name in inputs)
        (type_,) = infer(node, types)
        result = self.rewriter.add_value(node.name, type_)
        self.rewriter.insert(dataclasses.replace(node, outputs=(result,)), self.node)
        return result

    def shaped(self, name: str, shape: Shape) -> str:
        if self.rewriter.value(name).shape == shape:
            return name
        data, before = self.rewriter.constant(name), self.rewriter.producer(name)
        if data is not None:  # constants are folded before this pass
            return self.rewriter.add_constant(name, data.reshape(shape))
        if before is not None and before.op == "reshape":
            return self.shaped(before.inputs[0], shape)
        return self.emit("reshape", (name,), shape=shape)

    # --- parts ------------------------------------------------------------------------------------

    def part(self, name: str, axis: int, index: int) -> str | None:
        """Return an element of an axis as a tensor without it; None where it would be copied."""
        key = name, axis, index
        if key not in self.known:
            self.known[key] = self.found(name, axis, index)
        return self.known[key]

    def found(self, name: str, axis: int, index: int) -> str | None:
        shape = self.rewriter.value(name).shape
        data, node = self.rewriter.constant(name), self.rewriter.producer(name)
        if data is not None:
            return self.rewriter.add_constant(name, np.take(data, index, axis))
        if node is not None and not node.post_ops:
            if node.op == "concat" and node.int_attr("axis") == axis:
                extents = {self.rewriter.value(piece).shape[axis] for piece in node.inputs}
                if extents == {1}:
                    return self.shaped(node.inputs[index], _without(shape, axis))
            if node.op == "reshape" and (cut := self.cut(node, axis, index)) is not None:
                return self.shaped(cut, _without(shape, axis))
            if node.op in UNARY or OPS[node.op].post_op == "binary":
                return self.computed(node, axis, index)
        if prod(shape) > self.small:
            return None
        return self.shaped(self.sliced(name, axis, index, index + 1), _without(shape, axis))

    def sliced(self, name: str, axis: int, start: int, stop: int) -> str:
        shape = self.rewriter.value(name).shape
        starts = tuple(start if at == axis else 0 for at in range(len(shape)))
        stops = tuple(stop if at == axis else extent for at, extent in enumerate(shape))
        return self.emit("slice", (name,), starts=starts, stops=stops, steps=(1,) * len(shape))

    def cut(self, node: Node, axis: int, index: int) -> str | None:
        """Return the part of what a reshape splits an axis of, None where it does not do that."""
        before, after = (
            self.rewriter.value(name).shape for name in (node.inputs[0], node.outputs[0])
        )
        for old, new in reshape_groups(before, after):
            if new.start <= axis < new.stop:
                if old.stop - old.start != 1 or prod(after[new.start : axis]) != 1:
                    return None
                extent = prod(after[axis + 1 : new.stop])
                begin = index * extent
                return self.sliced(node.inputs[0], old.start, begin, begin + extent)
        return None

    def computed(self, node: Node, axis: int, index: int) -> str | None:
        """Return what an elementwise operator makes of the parts of its operands."""
        rank = len(self.rewriter.value(node.outputs[0]).shape)
        operands: list[str] = []
        for name in node.inputs:
            shape = self.rewriter.value(name).shape
            own = axis - (rank - len(shape))
            found: str | None = name
            if own >= 0 and shape[own] == 1:
                found = self.shaped(name, _without(shape, own))
            elif own >= 0:
                found = self.part(name, own, index)
            if found is None:
                return None
            operands.append(found)
        return self.emit(node.op, tuple(operands), **dict(node.attrs))

    # --- reductions -------------------------------------------------------------------------------

    def visit(self, node: Node) -> None:
        if node.op not in _COMBINED or node.post_ops:
            return
        type_ = self.rewriter.value(node.inputs[0]).type
        axes = node.ints_attr("axes")
        if len(axes) != 1 or type_.dtype.name != "float32":
            return
        count = type_.shape[axes[0]]
        if not 1 < count <= _MOST_PARTS:
            return
        self.node, self.small = node, prod(type_.shape) // _SMALL
        parts = [self.part(node.inputs[0], axes[0], index) for index in range(count)]
        known = [part for part in parts if part is not None]
        if len(known) < count:
            reason = f"the elements of axis {axes[0]} are no tensors of their own"
            self.refusals.append(Refusal("unstack", node.name, reason))
            return
        self.combine(node, known, type_)

    def combine(self, node: Node, parts: list[str], type_: TensorType) -> None:
        result = parts[0]
        for part in parts[1:]:
            result = self.emit(_COMBINED[node.op], (result, part))
        if node.op == "reduce_mean":
            share = np.array(1 / len(parts), type_.dtype.numpy)
            result = self.emit("mul", (result, self.rewriter.add_constant("share", share)))
        shape = self.rewriter.value(node.outputs[0]).shape
        last = Node(node.name, "reshape", (result,), node.outputs, (("shape", shape),))
        self.rewriter.replace(node, last)
        if self.rewriter.value(result).shape == shape:
            self.rewriter.bypass(last, result)

    def run(self) -> tuple[Graph, tuple[Refusal, ...]]:
        for node in self.rewriter.nodes():
            self.visit(node)
        return self.rewriter.finish(), tuple(self.refusals)


def unstack(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with reductions over a few stacked tensors as sums of these."""
    if not any(node.op in _COMBINED for node in graph.nodes):
        return graph, ()
    return _Unstacker(graph).run()
