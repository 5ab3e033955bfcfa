"""Move transposes from merged axes to the axes themselves.

Hybrid networks turn feature maps into tokens and back: they merge the axes of an image and make the
channels the last axis. A transpose of the merged axes copies all elements. One of the feature map
is between two data formats of it, which moves nothing if the map is stored as the second one, and
``sink_transposes`` finds the inverse behind the next convolution.
"""

from __future__ import annotations

from itertools import accumulate

from stridewise.graph import Graph, Node, Refusal, TensorType
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.geometry import reshape_groups

__all__ = ["part_axes"]

_LEAST_RANK = 4  # of feature maps with more than one axis to merge

Perm = tuple[int, ...]
_Step = tuple[str, tuple[tuple[str, Perm], ...]]
"""An operator and its attributes."""


def _is_between_formats(perm: Perm) -> bool:
    """Return whether a transpose moves the channels of feature maps to the other end."""
    rank = len(perm)
    to_last = (0, *range(2, rank), 1)
    to_first = (0, rank - 1, *range(1, rank - 1))
    return rank >= _LEAST_RANK and perm in (to_last, to_first)


def _parts(whole: tuple[int, ...], merged: tuple[int, ...]) -> list[tuple[int, ...]] | None:
    """Return which neighboring axes of a shape each axis of another one merges.

    Args:
        whole: the shape with more axes.
        merged: the other one.

    Returns:
        For each merged axis the axes of ``whole``; None where a reshape does more than merge.
    """
    groups = reshape_groups(whole, merged)
    if any(after.stop - after.start != 1 for _, after in groups):
        return None
    return [tuple(range(before.start, before.stop)) for before, _ in groups]


class _Parter:
    def __init__(self, graph: Graph) -> None:
        self.rewriter = Rewriter(graph)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.rewriter.value(name).shape

    def visit(self, node: Node) -> None:
        before = self.rewriter.producer(node.inputs[0]) if node.inputs else None
        if before is None:
            return
        chain = (before.op, node.op)
        if chain == ("reshape", "transpose"):
            self.before_merge(before, node)
        elif chain == ("transpose", "reshape") and self.rewriter.only_reader(node.inputs[0]):
            self.behind_split(before, node)

    def before_merge(self, reshape: Node, transpose: Node) -> None:
        """Transpose what a reshape merges instead of its result."""
        source = reshape.inputs[0]
        if self.rewriter.producer(source) is None:
            return  # the caller stores it, so a transpose copies it here as well as further down
        parts = _parts(self.shape(source), self.shape(reshape.outputs[0]))
        if parts is None:
            return
        perm = tuple(axis for index in transpose.ints_attr("perm") for axis in parts[index])
        shape = tuple(self.shape(source)[axis] for axis in perm)
        result = self.shape(transpose.outputs[0])
        self.rewrite(transpose, source, _transpose(perm), shape, _reshape(result))

    def behind_split(self, transpose: Node, reshape: Node) -> None:
        """Transpose what a reshape splits axes into instead of its operand."""
        source = transpose.inputs[0]
        parts = _parts(self.shape(reshape.outputs[0]), self.shape(transpose.outputs[0]))
        if parts is None:
            return
        perm = transpose.ints_attr("perm")
        # The parts of each axis of the source, and where they begin among all of them.
        own = [parts[perm.index(axis)] for axis in range(len(perm))]
        begins = list(accumulate((len(part) for part in own), initial=0))
        moved = tuple(begins[axis] + i for axis in perm for i in range(len(own[axis])))
        result = self.shape(reshape.outputs[0])
        shape = tuple(result[axis] for part in own for axis in part)
        self.rewrite(reshape, source, _reshape(shape), shape, _transpose(moved))

    def rewrite(self, node: Node, source: str, first: _Step, shape: Perm, second: _Step) -> None:
        """Compute the result of a node by two others, if a feature map is transposed."""
        (perm,) = (dict(attrs)["perm"] for op, attrs in (first, second) if op == "transpose")
        if not _is_between_formats(perm):
            return
        value = self.rewriter.value(node.outputs[0])
        between = self.rewriter.add_value(
            f"{node.outputs[0]}.parted", TensorType(value.type.dtype, shape)
        )
        last = Node(node.name, second[0], (between,), node.outputs, second[1])
        self.rewriter.replace(node, last)
        self.rewriter.insert(
            Node(f"{node.name}.{first[0]}", first[0], (source,), (between,), first[1]), last
        )

    def run(self) -> Graph:
        for node in self.rewriter.nodes():
            self.visit(node)
        return self.rewriter.finish()


def _transpose(perm: Perm) -> _Step:
    return "transpose", (("perm", perm),)


def _reshape(shape: tuple[int, ...]) -> _Step:
    return "reshape", (("shape", shape),)


def part_axes(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with transposes of feature maps instead of transposes of merged axes."""
    if not any(node.op == "transpose" for node in graph.nodes):
        return graph, ()
    return _Parter(graph).run(), ()
