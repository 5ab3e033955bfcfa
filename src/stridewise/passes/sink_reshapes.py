"""Move reshapes down past elementwise operators, so that the kernels before them compute these.

A linear layer on a batch of tokens is often exported as a matrix product, a reshape to matrices, a
batch norm, and a reshape back. A kernel takes what directly follows it only.
"""

from __future__ import annotations

import dataclasses
from math import prod

from stridewise.graph import Graph, Node, Refusal, TensorType
from stridewise.graph.constant import Array
from stridewise.graph.rewrite import Rewriter
from stridewise.ops import OPS
from stridewise.ops.activation import UNARY
from stridewise.ops.data_format import canonical_order
from stridewise.ops.geometry import reshape_groups

__all__ = ["sink_reshapes"]

_TAKES_POST_OPS = frozenset({"conv", "conv_transpose", "matmul"})
"""The operators whose kernels take what follows them."""

Shape = tuple[int, ...]


def _reshaped(data: Array, before: Shape, after: Shape) -> Array | None:
    """Return a constant beside a tensor that is reshaped, as one beside the original.

    Args:
        data: what broadcasts to ``after``.
        before: the shape before the reshape.
        after: the shape after it.

    Returns:
        An array that broadcasts to ``before``; None where that would take more elements.
    """
    shape = (1,) * (len(after) - data.ndim) + data.shape
    result: list[int] = []
    for old, new in reshape_groups(before, after):
        own, whole = shape[new], after[new]
        if own == whole:
            result += before[old]
        elif prod(own) == 1:
            result += (1,) * len(before[old])
        else:
            return None
    return data.reshape(result)


class _Sinker:
    def __init__(self, graph: Graph) -> None:
        self.rewriter = Rewriter(graph)
        self.refusals: list[Refusal] = []

    def original(self, name: str) -> str:
        """Return what a value is a reshape of, if no other node reads anything in between."""
        node = self.rewriter.producer(name)
        while node is not None and node.op == "reshape" and self.rewriter.only_reader(name):
            name = node.inputs[0]
            node = self.rewriter.producer(name)
        return name

    def is_computed(self, name: str) -> bool:
        """Return whether a kernel that takes followers, or one of these, makes a value.

        A product may write its result transposed; see ``turn_products.py``.
        """
        node = self.rewriter.producer(name)
        if node is None or not self.rewriter.only_reader(name):
            return False
        if node.op == "transpose":
            before = self.rewriter.producer(node.inputs[0])
            return before is not None and before.op == "matmul"
        return node.op in _TAKES_POST_OPS or OPS[node.op].origin == "elementwise"

    def visit(self, node: Node) -> None:
        if node.post_ops or not node.inputs:
            return
        is_scale = node.op == "scale_shift"
        if node.op not in UNARY and not is_scale and OPS[node.op].post_op != "binary":
            return
        inputs = node.inputs[:1] if is_scale or node.op in UNARY else node.inputs
        for position, name in enumerate(inputs):
            source = self.original(name)
            if source == name or not self.is_computed(source) or node.inputs.count(name) > 1:
                continue
            if self.rewriter.value(name).shape != self.rewriter.value(node.outputs[0]).shape:
                continue
            if is_scale:
                self.scale(node, source)
            else:
                self.sink(node, position, source)
            return

    def sink(self, node: Node, position: int, source: str) -> None:
        """Compute a node before the reshape of one of its operands."""
        inputs = list(node.inputs)
        inputs[position] = source
        if len(inputs) > 1:
            other = self.other(node, 1 - position, source)
            if other is None:
                reason = "its other operand does not have the shape before the reshape"
                self.refusals.append(Refusal("sink_reshapes", node.name, reason))
                return
            inputs[1 - position] = other
        type_ = self.rewriter.value(node.outputs[0]).type
        before = TensorType(type_.dtype, self.rewriter.value(source).shape)
        between = self.rewriter.add_value(f"{node.outputs[0]}.before", before)
        moved = dataclasses.replace(node, inputs=tuple(inputs), outputs=(between,))
        self.behind(node, moved, between)

    def behind(self, node: Node, moved: Node, between: str) -> None:
        """Put nodes in front of a reshape that gives what a node gave."""
        shape = self.rewriter.value(node.outputs[0]).shape
        reshape = Node(f"{node.name}.reshape", "reshape", (between,), node.outputs)
        reshape = dataclasses.replace(reshape, attrs=(("shape", shape),))
        self.rewriter.replace(node, reshape)
        self.rewriter.insert(moved, reshape)
        if self.rewriter.value(between).shape == shape:
            self.rewriter.bypass(reshape, between)

    def other(self, node: Node, position: int, source: str) -> str | None:
        """Return the second operand in the shape before a reshape."""
        name = node.inputs[position]
        before = self.rewriter.value(source).shape
        after = self.rewriter.value(node.outputs[0]).shape
        data = self.rewriter.constant(name)
        if data is None:
            producer = self.rewriter.producer(name)
            options = [name, self.original(name)]
            options += producer.inputs if producer and producer.op == "reshape" else ()
            same = [item for item in options if self.rewriter.value(item).shape == before]
            is_whole = self.rewriter.value(name).shape == after
            return same[0] if same and is_whole else None
        found = _reshaped(data, before, after)
        return None if found is None else self.rewriter.add_constant(name, found)

    def scale(self, node: Node, source: str) -> None:
        """Write a scale and shift as a product and a sum before the reshape of its operand."""
        rewriter = self.rewriter
        after, before = (rewriter.value(name).shape for name in (node.outputs[0], source))
        axis = canonical_order(node, len(after))[1]
        row = tuple(extent if index == axis else 1 for index, extent in enumerate(after))
        known = [rewriter.constant(name) for name in node.inputs[1:]]
        rows = [
            None if item is None else _reshaped(item.reshape(row), before, after) for item in known
        ]
        type_ = rewriter.value(source).type
        names = [
            rewriter.add_constant(hint, item)
            for hint, item in zip(node.inputs[1:], rows, strict=True)
            if item is not None
        ]
        if len(names) < len(rows):
            reason = "its channels are no axis before the reshape, or are not constant"
            self.refusals.append(Refusal("sink_reshapes", node.name, reason))
            return
        scaled = rewriter.add_value(f"{node.outputs[0]}.scaled", type_)
        shifted = rewriter.add_value(f"{node.outputs[0]}.before", type_)
        self.behind(node, Node(node.name, "add", (scaled, names[1]), (shifted,)), shifted)
        last = rewriter.producer(shifted) or rewriter.producer(node.outputs[0])
        assert last is not None  # `behind` inserted it
        rewriter.insert(Node(f"{node.name}.scale", "mul", (source, names[0]), (scaled,)), last)

    def run(self) -> tuple[Graph, tuple[Refusal, ...]]:
        for node in self.rewriter.nodes():
            self.visit(node)
        return self.rewriter.finish(), tuple(self.refusals)


def sink_reshapes(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with elementwise operators before the reshapes of their operands."""
    if not any(node.op == "reshape" for node in graph.nodes):
        return graph, ()
    return _Sinker(graph).run()
