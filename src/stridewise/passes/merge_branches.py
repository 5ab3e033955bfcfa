"""Merge branches of one value whose results are added.

Convolutions, per-channel scales and the value itself are linear functions of their input, so their
sum is a convolution with other weights. Networks that are trained with such branches
(re-parameterized ones) need no more than one kernel for each sum.
"""

from __future__ import annotations

import dataclasses
from math import gcd, prod

import numpy as np

from stridewise.classes import dataclass
from stridewise.graph import Attr, Graph, Node, Refusal
from stridewise.graph.constant import Array
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.conv import PARTS, window_extent
from stridewise.ops.data_format import ATTRIBUTE, canonical_order

__all__ = ["merge_branches"]


@dataclass(frozen=True, slots=True)
class _Term:
    """One branch: a convolution, a ``scale_shift``, or (None) the source, times a factor."""

    node: Node | None
    factor: Array

    @property
    def is_conv(self) -> bool:
        return self.node is not None and self.node.op == "conv"


@dataclass(frozen=True, slots=True)
class _Sum:
    """A value as a sum of branches of a source.

    Attributes:
        source: what all branches read.
        terms: the branches.
        bias: one number for each channel, or one for all.
        inner: the nodes between the branches and the value, the value's own one included.
    """

    source: str
    terms: tuple[_Term, ...]
    bias: Array
    inner: tuple[str, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the branches."""
        return tuple(term.node for term in self.terms if term.node is not None)

    def scaled(self, factor: Array) -> _Sum:
        terms = tuple(_Term(term.node, term.factor * factor) for term in self.terms)
        return dataclasses.replace(self, terms=terms, bias=self.bias * factor)

    def plus(self, other: _Sum) -> _Sum:
        return _Sum(
            self.source,
            (*self.terms, *other.terms),
            self.bias + other.bias,
            (*self.inner, *other.inner),
        )


@dataclass(frozen=True, slots=True)
class _Window:
    """The taps of a convolution along one axis, as distances from where the result lies.

    Attributes:
        first: the first tap; the padding begins that many elements before the source.
        taps: their number.
        dilation: the distance between two of them.
    """

    first: int
    taps: int
    dilation: int

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(self.first + tap * self.dilation for tap in range(self.taps))

    def within(self, whole: _Window) -> slice:
        """Return where the taps are among those of a window that has all of them."""
        positions = [(offset - whole.first) // whole.dilation for offset in self.offsets]
        step = positions[1] - positions[0] if self.taps > 1 else 1
        return slice(positions[0], positions[-1] + 1, step)


def _union(windows: list[_Window]) -> _Window:
    """Return the smallest window that has all taps; it starts at the result or before it."""
    offsets = [offset for window in windows for offset in window.offsets]
    first = min(0, *offsets)
    step = gcd(*(offset - first for offset in offsets)) or 1
    return _Window(first, (max(offsets) - first) // step + 1, step)


class _Merger:
    """The sums of branches in a graph."""

    def __init__(self, graph: Graph) -> None:
        self.rewriter = Rewriter(graph)
        self.sums: dict[str, _Sum] = {}

    # --- recognition ------------------------------------------------------------------------------

    def visit(self, node: Node) -> None:
        """Note the result of a node where it is a sum of branches."""
        name = node.outputs[0] if node.outputs else ""
        if node.post_ops or not name or self.rewriter.value(name).dtype.name != "float32":
            return
        found = None
        if node.op in ("add", "sub", "mul"):
            found = self.combined(node)
        elif node.op == "scale_shift":
            found = self.scaled(node)
        elif node.op == "conv" and not node.get(PARTS) and self.are_known(node.inputs[1:]):
            found = _Sum(node.inputs[0], (_Term(node, np.ones(1)),), np.zeros(1), ())
        if found is not None:
            self.sums[name] = found

    def are_known(self, names: tuple[str, ...]) -> bool:
        return all(self.rewriter.known(name) is not None for name in names if name)

    def scaled(self, node: Node) -> _Sum | None:
        if not self.are_known(node.inputs[1:]):
            return None
        before = self.inside(node.inputs[0])
        if before is None or not before.inner:
            return _Sum(node.inputs[0], (_Term(node, np.ones(1)),), np.zeros(1), ())
        scale, shift = (self.numbers(name) for name in node.inputs[1:])
        after = before.scaled(scale)
        return dataclasses.replace(after, bias=after.bias + shift, inner=(*after.inner, node.name))

    def numbers(self, name: str) -> Array:
        found = self.rewriter.constant(name)
        assert found is not None  # callers ask `are_known` first
        return found.astype(np.float64)

    def inside(self, name: str) -> _Sum | None:
        """Return a value as a sum if one node alone reads it, once."""
        if self.rewriter.only_reader(name) is None:
            return None
        return self.sums.get(name)

    def combined(self, node: Node) -> _Sum | None:
        """Return the sum or difference of two sums, or one times or plus a row of constants."""
        shape = self.rewriter.value(node.outputs[0]).shape
        variable = [name for name in node.inputs if self.rewriter.known(name) is None]
        if any(self.rewriter.value(name).shape != shape for name in variable):
            return None
        if len(variable) == 1:
            found = self.with_constant(node, variable[0])
        elif len(variable) == 2 and node.op != "mul":
            found = self.of_two(node)
        else:
            found = None
        return found and dataclasses.replace(found, inner=(*found.inner, node.name))

    def with_constant(self, node: Node, name: str) -> _Sum | None:
        found = self.inside(name)
        position = 1 - node.inputs.index(name)
        if found is None or (node.op == "sub" and position == 0):
            return None
        row = self.row(node.inputs[position], found, len(self.rewriter.value(name).shape))
        if row is None:
            return None
        if node.op == "mul":
            return found.scaled(row)
        bias = found.bias - row if node.op == "sub" else found.bias + row
        return dataclasses.replace(found, bias=bias)

    def row(self, name: str, found: _Sum, rank: int) -> Array | None:
        """Return a constant as one number for each channel of a sum, None where it is not."""
        data = self.numbers(name)
        axis = canonical_order(_template(found), rank)[1]
        shape = (1,) * (rank - data.ndim) + data.shape
        others = any(extent != 1 for index, extent in enumerate(shape) if index != axis)
        return None if data.ndim > rank or others else data.reshape(-1)

    def of_two(self, node: Node) -> _Sum | None:
        left, right = (self.inside(name) for name in node.inputs)
        for name, other in zip(node.inputs, (right, left), strict=True):
            if other is not None and other.source == name:
                whole = _Sum(name, (_Term(None, np.ones(1)),), np.zeros(1), ())
                left, right = (whole, right) if other is right else (left, whole)
                break
        if left is None or right is None or left.source != right.source:
            return None
        return left.plus(right.scaled(-np.ones(1)) if node.op == "sub" else right)

    # --- the merged node --------------------------------------------------------------------------

    def merged(self, node: Node, found: _Sum) -> Node | str:
        """Return the one node that computes a sum, or why there is none."""
        nodes = found.nodes
        if len({node.get(ATTRIBUTE) for node in nodes}) > 1:
            return "the branches have different data formats"
        if not any(term.is_conv for term in found.terms):
            return self.one_scale(node, found)
        return _Convolution(self, node, found).node()

    def one_scale(self, node: Node, found: _Sum) -> Node:
        channels = self.channels(found, node.outputs[0])
        scale, shift = np.zeros(channels), np.zeros(channels) + found.bias
        for term in found.terms:
            own = (1.0, 0.0) if term.node is None else map(self.numbers, term.node.inputs[1:])
            first, second = own
            scale, shift = scale + first * term.factor, shift + second * term.factor
        return self.emit(_template(found), node, found.source, scale, shift)

    def channels(self, found: _Sum, name: str) -> int:
        shape = self.rewriter.value(name).shape
        return shape[canonical_order(_template(found), len(shape))[1]]

    def emit(self, template: Node, node: Node, source: str, *constants: Array) -> Node:
        """Return a template as the node that computes a result, with other constants."""
        hints = [
            *(name or f"{template.name}.bias" for name in template.inputs[1:]),
            f"{template.name}.bias",
        ]
        names = [
            self.rewriter.add_constant(hint, array.astype(np.float32))
            for hint, array in zip(hints, constants, strict=False)
        ]
        return dataclasses.replace(template, inputs=(source, *names), outputs=node.outputs)

    def run(self) -> tuple[Graph, tuple[Refusal, ...]]:
        for node in self.rewriter.nodes():
            self.visit(node)
        refusals: list[Refusal] = []
        done: set[str] = set()
        for node in reversed(list(self.rewriter.nodes())):
            found = self.sums.get(node.outputs[0]) if node.outputs else None
            if found is None or node.name in done or len(found.nodes) < 2:
                continue  # one kernel adds the value itself to its results
            merged = self.merged(node, found)
            if isinstance(merged, str):
                refusals.append(Refusal("merge_branches", node.name, merged))
                continue
            done.update((*found.inner, merged.name))
            self.rewriter.remove(_template(found))
            self.rewriter.replace(node, merged)
        return self.rewriter.finish(), tuple(refusals)


class _Convolution:
    """The convolution that computes a sum of branches."""

    def __init__(self, merger: _Merger, node: Node, found: _Sum) -> None:
        self.merger, self.result, self.found = merger, node, found
        self.template = _template(found)
        shape, result = (
            merger.rewriter.value(name).shape for name in (found.source, node.outputs[0])
        )
        order = canonical_order(self.template, len(shape))
        self.extents = tuple(shape[axis] for axis in order[2:])
        self.results = tuple(result[axis] for axis in order[2:])
        self.inputs, self.outputs = shape[order[1]], result[order[1]]
        self.ones = (1,) * (len(shape) - 2)
        convs = [node for node in found.nodes if node.op == "conv"]
        self.strides = {node.ints_attr("strides", self.ones) for node in convs}
        self.groups = min(node.int_attr("groups", 1) for node in convs)
        by_term = [self.windows(term) for term in found.terms]
        self.windows_of = list(zip(found.terms, by_term, strict=True))
        self.whole = tuple(_union(list(axis)) for axis in zip(*by_term, strict=True))

    def windows(self, term: _Term) -> tuple[_Window, ...]:
        """Return the taps of a branch along each axis."""
        if not term.is_conv or term.node is None:
            return (_Window(0, 1, 1),) * len(self.ones)
        node, kernel = term.node, self.merger.rewriter.value(term.node.inputs[1]).shape[2:]
        begins = node.ints_attr("pads", (0,) * (2 * len(self.ones)))
        steps = node.ints_attr("dilations", self.ones)
        return tuple(
            _Window(-begin, taps, step)
            for begin, taps, step in zip(begins, kernel, steps, strict=False)
        )

    def node(self) -> Node | str:
        """Return the node, or why the branches stay apart."""
        if len(self.strides) > 1:
            return "the branches have different strides"
        groups = [self.groups_of(term) for term in self.found.terms]
        if any(count % self.groups for count in groups):
            return "the groups of a branch are no parts of those of another one"
        kernel = tuple(window.taps for window in self.whole)
        wanted = self.outputs * (self.inputs // self.groups) * prod(kernel)
        if wanted > self.products():
            return f"{wanted} weights would take the place of {self.products()}"
        pads = self.pads()
        if pads is None:
            return "one padding does not give the extents of all branches"
        attrs: dict[str, Attr] = dict(self.template.attrs) | {
            "dilations": tuple(window.dilation for window in self.whole),
            "groups": self.groups,
            "pads": pads,
            "strides": next(iter(self.strides)),
        }
        weights = np.zeros((self.outputs, self.inputs // self.groups, *kernel))
        bias = np.zeros(self.outputs) + self.found.bias
        for term, windows in self.windows_of:
            bias += self.add(weights, term, windows)
        merged = self.merger.emit(self.template, self.result, self.found.source, weights, bias)
        return dataclasses.replace(merged, attrs=tuple(sorted(attrs.items())))

    def groups_of(self, term: _Term) -> int:
        return term.node.int_attr("groups", 1) if term.is_conv and term.node else self.inputs

    def products(self) -> int:
        """Return the number of weights of the branches, which are products for each result."""
        convs = [node for node in self.found.nodes if node.op == "conv"]
        return sum(prod(self.merger.rewriter.value(node.inputs[1]).shape) for node in convs)

    def pads(self) -> tuple[int, ...] | None:
        """Return begins and ends of the padding, None where no padding gives the same extents."""
        begins = [-window.first for window in self.whole]
        (strides,) = self.strides
        ends: list[int] = []
        for window, begin, size, result, stride in zip(
            self.whole, begins, self.extents, self.results, strides, strict=True
        ):
            reach = (result - 1) * stride + window.dilation * (window.taps - 1) + 1
            ends.append(max(reach - size - begin, 0))
            pad = begin + ends[-1]
            if window_extent(size, window.taps, stride, window.dilation, pad) != result:
                return None
        return (*begins, *ends)

    def add(self, weights: Array, term: _Term, windows: tuple[_Window, ...]) -> Array:
        """Add a branch to the weights and return its bias."""
        bias = np.zeros(self.outputs)
        if term.is_conv and term.node is not None:
            own = self.merger.numbers(term.node.inputs[1])
            if len(term.node.inputs) > 2 and term.node.inputs[2]:
                bias = self.merger.numbers(term.node.inputs[2])
        else:
            row = np.ones(self.outputs)
            if term.node is not None:
                row, bias = (self.merger.numbers(name) for name in term.node.inputs[1:])
            own = row.reshape(-1, 1, *self.ones)
        factor = np.broadcast_to(term.factor, (self.outputs,))
        # Where the input channels of an output start, in its group of the merged convolution.
        outputs: Array = np.arange(self.outputs)
        starts: Array = outputs * self.groups_of(term) // self.outputs * own.shape[1]
        starts = starts % (self.inputs // self.groups)
        taps = tuple(
            window.within(whole) for window, whole in zip(windows, self.whole, strict=True)
        )
        columns: Array = starts[:, None] + np.array(range(own.shape[1]))
        weights[(outputs[:, None], columns, *taps)] += own * factor.reshape(-1, 1, *self.ones)
        return bias * factor


def _template(found: _Sum) -> Node:
    """Return the branch whose name and attributes a merged node has."""
    return next((node for node in found.nodes if node.op == "conv"), found.nodes[0])


def merge_branches(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with sums of linear branches of one value as single nodes."""
    return _Merger(graph).run()
