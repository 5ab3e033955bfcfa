"""Merge moves that only feed each other into one operator.

Moves are reshapes, transposes, slices, concats, and gathers by known indices. Windows are shifted
by slices and concats along two axes, and cut by a reshape and a transpose; windows that overlap are
gathered along two axes (``F.unfold`` of PyTorch). Each of these copies may copy all elements. All
together copy each element once.
"""

from __future__ import annotations

from math import prod

import numpy as np

from stridewise.errors import ExecutionError
from stridewise.graph import Graph, Node, Refusal
from stridewise.graph.constant import Array
from stridewise.graph.rewrite import Rewriter
from stridewise.ops import OPS, evaluate
from stridewise.ops.rearrange import Box
from stridewise.ops.slice import slice_bounds

__all__ = ["merge_moves"]

_MOVES = frozenset({"concat", "gather", "reshape", "slice", "transpose"})
_RENAMES = frozenset({"gather", "reshape"})
"""Moves whose results have axes of other meanings."""

_TURNS = frozenset({(0, 2, 1), (0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 3, 4, 1), (0, 4, 1, 2, 3)})
"""Transposes between data formats, which move nothing if their axes have names."""
_FEWEST_COPIES = 2
_MOST_BOXES = 32
_MOST_ELEMENTS = 1 << 24
_APART = 1 << 40
"""The distance between the elements of different operands, more than any stride."""


def _is_affine(index: Array, strides: list[int]) -> Array:
    """Return which elements of an index are what strides from the first one give."""
    found: Array = index[(slice(1),) * index.ndim]
    for axis, stride in enumerate(strides):
        steps: Array = stride * np.array(range(index.shape[axis]))
        found = found + steps.reshape([-1 if at == axis else 1 for at in range(index.ndim)])
    return np.equal(found, index)


def _cut(index: Array) -> tuple[int, int] | list[int]:
    """Return the axis and the position where an index needs to be cut; strides if nowhere."""
    strides: list[int] = []
    for axis in range(index.ndim):
        line = index[tuple(slice(None) if at == axis else 0 for at in range(index.ndim))]
        steps = np.diff(line)
        strides.append(int(steps[0]) if len(steps) else 0)
        if not 0 <= strides[-1] < _APART // 2:
            return axis, 1  # kernels walk forward, and in one operand
        bent = np.flatnonzero(steps != strides[-1])
        if len(bent):
            return axis, int(bent[0]) + 1
    is_affine = _is_affine(index, strides)
    if is_affine.all():
        return strides
    wrong = np.unravel_index(np.argmin(is_affine), index.shape)
    axis = int(np.flatnonzero(wrong)[-1])
    return axis, int(wrong[axis])


def _boxes(index: Array) -> list[Box] | None:
    """Return the copies that an index of elements stands for, None if they are too many."""
    pending = [((0,) * index.ndim, index)]
    found: list[Box] = []
    while pending:
        starts, part = pending.pop()
        cut = _cut(part)
        if isinstance(cut, list):
            source, offset = divmod(int(part[(0,) * part.ndim]), _APART)
            found.append(Box(source, offset, starts, part.shape, tuple(cut)))
        else:
            axis, position = cut
            behind = (*starts[:axis], starts[axis] + position, *starts[axis + 1 :])
            first, second = np.split(part, [position], axis)
            pending += [(behind, second), (starts, first)]
        if len(found) + len(pending) > _MOST_BOXES:
            return None
    return found


def _moved(node: Node) -> tuple[str, ...]:
    """Return the operands that a move copies elements of; a gather has indices, too."""
    return node.inputs[:1] if node.op == "gather" else node.inputs


class _Merger:
    def __init__(self, graph: Graph) -> None:
        self.rewriter = Rewriter(graph)
        self.refusals: list[Refusal] = []

    def is_move(self, node: Node | None) -> bool:
        """Return whether a node is a move that may be merged with others."""
        if node is None or node.op not in _MOVES or node.post_ops:
            return False
        if node.op == "transpose" and node.ints_attr("perm") in _TURNS:
            return False
        shapes = [self.rewriter.value(name).shape for name in (*node.inputs, *node.outputs)]
        variable = all(self.rewriter.known(name) is None for name in _moved(node))
        others = node.inputs[len(_moved(node)) :]
        fixed = all(self.rewriter.known(name) is not None for name in others)
        return variable and fixed and all(0 < prod(shape) <= _MOST_ELEMENTS for shape in shapes)

    def tree(self, root: Node) -> dict[str, Node]:
        """Return the moves that end in one, by their results, and that alone read each other."""
        found = {root.outputs[0]: root}
        pending = [root]
        while pending:
            for name in _moved(pending.pop()):
                node = self.rewriter.producer(name)
                inside = all(reader.outputs[0] in found for reader in self.rewriter.readers(name))
                if node is None or name in found or not inside or self.rewriter.is_output(name):
                    continue
                if self.is_move(node):
                    found[name] = node
                    pending.append(node)
        return found

    def copies(self, node: Node) -> bool:
        """Return whether a move takes a copy if tensors are row-major."""
        shape = self.rewriter.value(node.inputs[0]).shape
        if node.op == "reshape":
            return False
        if node.op == "transpose":
            moved = [axis for axis in node.ints_attr("perm") if shape[axis] > 1]
            return moved != sorted(moved)
        if node.op == "gather":
            return True
        if node.op == "concat":
            return any(extent > 1 for extent in shape[: node.int_attr("axis")])
        _, lengths, steps = slice_bounds(node, shape)
        cut = [at for at in range(len(shape)) if lengths[at] < shape[at]]
        return any(lengths[at] > 1 for at in range(max(cut, default=0))) or max(steps) > 1

    def is_feature_map(self, name: str) -> bool:
        """Return whether an anchor, or what is done to its elements, makes or reads a value."""
        if any(OPS[reader.op].origin == "anchor" for reader in self.rewriter.readers(name)):
            return True
        node = self.rewriter.producer(name)
        while node is not None and OPS[node.op].origin == "elementwise":
            node = self.rewriter.producer(node.inputs[0])
        return node is not None and OPS[node.op].origin == "anchor"

    def index(self, tree: dict[str, Node], root: Node, leaves: list[str]) -> Array:
        """Return which element of which leaf each element of a result is."""
        known: dict[str, Array] = {}
        for number, name in enumerate(leaves):
            shape = self.rewriter.value(name).shape
            known[name] = number * _APART + np.arange(prod(shape)).reshape(shape)
        order = [node for node in self.rewriter.nodes() if node.outputs[0] in tree]
        for node in order:
            indices = [self.rewriter.constant(name) for name in node.inputs[len(_moved(node)) :]]
            operands = [*(known[name] for name in _moved(node)), *indices]
            known[node.outputs[0]] = evaluate(node, operands)[0]
        return known[root.outputs[0]]

    def visit(self, node: Node) -> None:
        """Merge the moves that end in a node which no move of its kind reads alone."""
        reader = self.rewriter.only_reader(node.outputs[0])
        if not self.is_move(node) or node.op == "reshape":
            return
        while reader is not None and reader.op == "reshape":
            reader = self.rewriter.only_reader(reader.outputs[0])
        if self.is_move(reader):
            return
        tree = self.tree(node)
        if sum(map(self.copies, tree.values())) < _FEWEST_COPIES:
            return
        leaves = list(
            dict.fromkeys(n for item in tree.values() for n in _moved(item) if n not in tree)
        )
        named = any(map(self.is_feature_map, (*leaves, node.outputs[0])))
        if named and not any(item.op in _RENAMES for item in tree.values()):
            reason = "its axes have names, so other formats than the row-major one may be cheaper"
            self.refusals.append(Refusal("merge_moves", node.name, reason))
            return
        try:
            boxes = _boxes(self.index(tree, node, leaves))
        except ExecutionError as error:  # indices beyond an axis: an error of the run
            self.refusals.append(Refusal("merge_moves", node.name, str(error)))
            return
        if boxes is None:
            reason = f"its {len(tree)} moves are more than {_MOST_BOXES} strided copies"
            self.refusals.append(Refusal("merge_moves", node.name, reason))
            return
        shape = self.rewriter.value(node.outputs[0]).shape
        numbers = tuple(number for box in boxes for number in box.numbers)
        attrs = (("boxes", numbers), ("shape", shape))
        merged = Node(node.name, "rearrange", tuple(leaves), node.outputs, attrs)
        self.rewriter.replace(node, merged)

    def run(self) -> tuple[Graph, tuple[Refusal, ...]]:
        for node in self.rewriter.nodes():
            self.visit(node)
        return self.rewriter.finish(), tuple(self.refusals)


def merge_moves(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with several copies of the same elements as one."""
    if sum(node.op in _MOVES for node in graph.nodes) < _FEWEST_COPIES:
        return graph, ()
    return _Merger(graph).run()
