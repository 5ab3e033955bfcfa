"""Split products with constant weights whose results are used in parts.

The projection of an attention block computes queries, keys and values in one product, then cuts
them apart. Of the parts, each has gaps between its rows, which kernels that read it would need
closed. A product for each part with a part of the columns of the weights leaves no gaps, and takes
as many operations.
"""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from math import prod

import numpy as np

from stridewise.classes import dataclass
from stridewise.graph import Graph, Node, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.geometry import reshape_groups, row_major
from stridewise.ops.slice import slice_bounds

__all__ = ["split_products"]

_MOVES = ("reshape", "slice", "transpose")
_BIAS = 2


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis whose indices are distances between columns of a matrix, or between its rows."""

    extent: int
    is_column: bool
    stride: int


_Axes = tuple[_Axis, ...]


@dataclass(frozen=True, slots=True)
class _Grid:
    """A value whose elements are those of some columns of a matrix, in any order.

    Attributes:
        axes: of the value.
        start: the first column.
    """

    axes: _Axes
    start: int = 0

    @property
    def rows(self) -> int:
        """The number of rows."""
        return prod(axis.extent for axis in self.axes if not axis.is_column)

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns, in the order of the matrix."""
        own = sorted((axis for axis in self.axes if axis.is_column), key=lambda a: -a.stride)
        found = [self.start]
        for axis in own:
            found = [first + axis.stride * index for first in found for index in range(axis.extent)]
        return tuple(found)

    def moved(self, node: Node) -> _Grid | None:
        """Return the result of a move, None where its elements are no such grid."""
        shape = tuple(axis.extent for axis in self.axes)
        if node.op == "transpose":
            axes = tuple(self.axes[position] for position in node.ints_attr("perm"))
            return _Grid(axes, self.start)
        if node.op == "slice":
            return self.cut(slice_bounds(node, shape))
        wanted = node.ints_attr("shape")
        groups = [
            _regrouped(self.axes[old], wanted[new]) for old, new in reshape_groups(shape, wanted)
        ]
        found = [group for group in groups if group is not None]
        if len(found) < len(groups):
            return None
        return _Grid(tuple(axis for group in found for axis in group), self.start)

    def cut(self, bounds: tuple[tuple[int, ...], ...]) -> _Grid | None:
        """Return a slice that has all rows."""
        axes: list[_Axis] = []
        first = self.start
        for axis, start, length, step in zip(self.axes, *bounds, strict=True):
            is_whole = (length, step) == (axis.extent, 1)
            if not is_whole and not (axis.is_column and step > 0):
                return None
            first += start * axis.stride
            axes.append(_Axis(length, axis.is_column, axis.stride * step))
        return _Grid(tuple(axes), first)


def _regrouped(axes: _Axes, extents: tuple[int, ...]) -> _Axes | None:
    """Return neighboring axes as axes of other extents, None where they cannot be."""
    long = [axis for axis in axes if axis.extent > 1]
    if not long:
        return tuple(_Axis(extent, False, 0) for extent in extents)
    last = long[-1]
    for outer, inner in pairwise(long):
        if (outer.is_column, outer.stride) != (inner.is_column, inner.extent * inner.stride):
            return None
    strides = [stride * last.stride for stride in row_major(extents)]
    return tuple(
        _Axis(extent, last.is_column, stride)
        for extent, stride in zip(extents, strides, strict=True)
    )


class _Splitter:
    def __init__(self, graph: Graph) -> None:
        self.rewriter = Rewriter(graph)
        self.refusals: list[Refusal] = []

    def is_linear(self, node: Node) -> bool:
        """Return whether a node multiplies by one constant matrix."""
        weights = self.rewriter.known(node.inputs[1]) if node.op == "matmul" else None
        if weights is None or len(weights.shape) != 2 or node.post_ops or node.get("trans_a"):
            return False
        shape = self.rewriter.value(node.inputs[0]).shape
        biases = [name for name in node.inputs[_BIAS:] if name]
        return (
            weights.dtype.name == "float32"
            and len(shape) >= 2
            and all(self.rewriter.known(name) is not None for name in biases)
        )

    def parts(self, name: str, grid: _Grid) -> list[tuple[str, _Grid]]:
        """Return the values that a matrix ends up in by moves alone."""
        readers = self.rewriter.readers(name)
        if self.rewriter.is_output(name) or any(node.op not in _MOVES for node in readers):
            return [(name, grid)]
        moved = {node.outputs[0]: grid.moved(node) for node in readers}
        known = {result: found for result, found in moved.items() if found is not None}
        if len(known) < len(moved):
            return [(name, grid)]
        return [part for result, found in known.items() for part in self.parts(result, found)]

    def visit(self, node: Node) -> None:
        result = self.rewriter.value(node.outputs[0])
        rows, columns = result.shape[:-1], result.shape[-1]
        if prod(rows) <= 1:  # parts of one row have no gaps
            return
        axes = [_Axis(e, False, s) for e, s in zip(rows, row_major(rows), strict=True)]
        parts = self.parts(result.name, _Grid((*axes, _Axis(columns, True, 1))))
        kinds = list(dict.fromkeys(grid.columns for _, grid in parts))
        if len(kinds) < 2:
            return
        reason = self.against(columns, kinds, parts)
        if reason:
            self.refusals.append(Refusal("split_products", node.name, reason))
            return
        products = {kind: self.product(node, kind) for kind in kinds}
        for name, grid in parts:
            self.place(products[grid.columns], name, grid.axes)

    def against(
        self, columns: int, kinds: list[tuple[int, ...]], parts: list[tuple[str, _Grid]]
    ) -> str:
        """Return why a product stays whole, or ""."""
        if sum(map(len, kinds)) > columns:
            return "its parts have columns in common"
        turned = [
            name for name, grid in parts if _order(grid.axes)[1] != tuple(range(len(grid.axes)))
        ]
        copied = [name for name in turned if not self.is_multiplied(name)]
        if len(copied) > 1:
            return (
                f"{copied[0]!r} and other parts have to be transposed, which takes a step for each"
            )
        return ""

    def is_multiplied(self, name: str) -> bool:
        """Return whether only products, which take transposed operands, read a value."""
        for node in self.rewriter.readers(name):
            constants = [self.rewriter.known(item) is not None for item in node.inputs if item]
            passes = node.op == "transpose" or (node.op in ("mul", "div") and any(constants))
            if passes and not self.is_multiplied(node.outputs[0]):
                return False
            if not passes and (node.op != "matmul" or any(constants)):
                return False
        return not self.rewriter.is_output(name)

    def product(self, node: Node, columns: tuple[int, ...]) -> str:
        """Add the product that gives some columns, and return its result."""
        rewriter = self.rewriter
        inputs = [node.inputs[0]]
        for index, name in enumerate(node.inputs[1:], 1):
            data = rewriter.constant(name) if name else None
            axis = 0 if index == _BIAS or node.get("trans_b") else 1
            part = "" if data is None else rewriter.add_constant(name, np.take(data, columns, axis))
            inputs.append(part)
        type_ = rewriter.value(node.outputs[0]).type
        type_ = dataclasses.replace(type_, shape=(*type_.shape[:-1], len(columns)))
        result = rewriter.add_value(f"{node.outputs[0]}.part", type_)
        rewriter.insert(dataclasses.replace(node, inputs=tuple(inputs), outputs=(result,)), node)
        return result

    def place(self, product: str, name: str, axes: _Axes) -> None:
        """Let a part be the result of its product, in other axes."""
        rewriter = self.rewriter
        last = rewriter.producer(name)
        assert last is not None  # a move, as the parts are more than one
        order, perm = _order(axes)
        shape = tuple(axes[index].extent for index in order)
        type_ = dataclasses.replace(rewriter.value(name).type, shape=shape)
        if perm == tuple(range(len(perm))):
            new = Node(last.name, "reshape", (product,), (name,), (("shape", shape),))
            rewriter.replace(last, new)
            return
        between = rewriter.add_value(f"{name}.split", type_)
        new = Node(last.name, "transpose", (between,), (name,), (("perm", perm),))
        rewriter.replace(last, new)
        reshape = Node(f"{last.name}.split", "reshape", (product,), (between,), (("shape", shape),))
        rewriter.insert(reshape, new)

    def run(self) -> tuple[Graph, tuple[Refusal, ...]]:
        for node in self.rewriter.nodes():
            if self.is_linear(node):
                self.visit(node)
        return self.rewriter.finish(), tuple(self.refusals)


def _order(axes: _Axes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes in the order of the matrix, and the transpose from there."""
    order = sorted(
        range(len(axes)),
        key=lambda index: (axes[index].is_column, -axes[index].stride, index),
    )
    long = [index for index in range(len(axes)) if axes[index].extent > 1]
    if [index for index in order if index in long] == long:
        order = list(range(len(axes)))  # axes of extent 1 may be anywhere
    return tuple(order), tuple(order.index(index) for index in range(len(axes)))


def split_products(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with a product for each part of a result that is used in parts."""
    return _Splitter(graph).run()
