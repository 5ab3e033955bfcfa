"""Merge convolutions of slices of channels into one with groups, if their results are joined.

Mixed convolutions have windows of several sizes (MixNet, Tan and Le, arXiv:1907.09595), and
exporters write groups as branches. One convolution needs neither copies of the slices nor of the
results. Windows of different sizes become parts of the largest one.
"""

from __future__ import annotations

import dataclasses
from itertools import chain

import numpy as np

from stridewise.classes import dataclass
from stridewise.graph import Attr, Graph, Node, Refusal
from stridewise.graph.constant import Array
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.conv import PARTS, geometry, within_parts
from stridewise.ops.data_format import is_turned
from stridewise.ops.slice import slice_bounds

__all__ = ["merge_groups"]

_IMAGE = 4
"""The rank of images."""
_BLOCK = 16
"""Kernels of groups are fast where these are whole blocks, have one channel, or a window of 1x1."""


@dataclass(frozen=True, slots=True)
class _Branch:
    """A convolution of some channels of a value.

    Attributes:
        node: the convolution.
        source: the value.
        first: its first channel that is read.
        weights: of the convolution.
        bias: of the convolution; zeros if it has none.
    """

    node: Node
    source: str
    first: int
    weights: Array
    bias: Array

    @property
    def groups(self) -> int:
        return self.node.int_attr("groups", 1)

    @property
    def kind(self) -> tuple[object, ...]:
        """What branches that can be merged have in common."""
        strides, dilations, _, _ = geometry(self.node, 2)
        outputs, inputs = self.weights.shape[0] // self.groups, self.weights.shape[1]
        return self.source, strides, dilations, outputs, inputs

    @property
    def pads(self) -> tuple[int, ...]:
        return self.node.ints_attr("pads", (0,) * 4)

    @property
    def is_fast(self) -> bool:
        """Whether kernels of groups are as fast as those of single ones."""
        outputs, inputs = self.weights.shape[0] // self.groups, self.weights.shape[1]
        is_1x1 = self.weights.shape[2:] == (1, 1) and not any(self.pads)
        is_1x1 = is_1x1 and self.node.ints_attr("strides", (1, 1)) == (1, 1)
        return outputs == inputs == 1 or is_1x1 or outputs % _BLOCK == inputs % _BLOCK == 0


def _branch(rewriter: Rewriter, name: str) -> _Branch | str:
    """Return a piece of a concat as a branch, or why it is none."""
    node = rewriter.producer(name)
    if node is None or node.op != "conv" or node.post_ops or is_turned(node) or node.get(PARTS):
        return f"{name!r} is not the result of a convolution alone"
    if rewriter.only_reader(name) is None:
        return f"other nodes read {name!r}"
    cut = rewriter.producer(node.inputs[0])
    if cut is None or cut.op != "slice":
        return f"{node.name!r} reads no slice"
    shape = rewriter.value(cut.inputs[0]).shape
    starts, lengths, steps = slice_bounds(cut, shape)
    others = all(length == shape[axis] for axis, length in enumerate(lengths) if axis != 1)
    if len(shape) != _IMAGE or not others or set(steps) != {1}:
        return f"{cut.name!r} is no slice of the channels of images"
    weights, bias = (_parameter(rewriter, node, index) for index in (1, 2))
    if weights is None or (bias is None and any(node.inputs[2:])):
        return f"{node.name!r} has parameters that are not known, or not float32"
    zeros = np.zeros(weights.shape[0], np.float32)
    return _Branch(node, cut.inputs[0], starts[1], weights, zeros if bias is None else bias)


def _parameter(rewriter: Rewriter, node: Node, index: int) -> Array | None:
    """Return an input that is a constant of float32."""
    known = rewriter.constant(node.inputs[index]) if len(node.inputs) > index else None
    return known if known is not None and known.dtype == np.float32 else None


def _why_apart(rewriter: Rewriter, branches: list[_Branch]) -> str:
    """Return why branches are not the groups of one convolution, or ""."""
    channel = 0
    for branch in branches:
        if branch.kind != branches[0].kind:
            return f"{branch.node.name!r} has other strides, dilations or groups"
        if branch.first != channel:
            return f"{branch.node.name!r} does not read the channels behind those of the one before"
        if not branch.is_fast:
            return f"kernels of groups like {branch.node.name!r} are slower"
        channel += branch.weights.shape[1] * branch.groups
    if channel != rewriter.value(branches[0].source).shape[1]:
        return "not all channels are read"
    same = {(branch.weights.shape[2:], branch.pads) for branch in branches}
    if len(same) > 1 and branches[0].kind[-2:] != (1, 1):
        return "windows of different sizes are merged only with a filter for each channel"
    if len(same) > 1 and branches[0].kind[2] != (1, 1):
        return "windows of different sizes are merged only without dilation"
    return ""


def _window(branches: list[_Branch]) -> tuple[tuple[int, ...], tuple[int, ...], list[int]]:
    """Return the smallest window with those of all branches, its pads, and where they lie in it.

    The last are numbers for each branch: outputs, first tap and number of taps down and across.
    """
    extents: list[int] = []
    begins: list[int] = []
    ends: list[int] = []
    places: list[tuple[list[int], list[int]]] = []
    for axis in range(2):
        begin = max(branch.pads[axis] for branch in branches)
        firsts = [begin - branch.pads[axis] for branch in branches]
        taps = [branch.weights.shape[2 + axis] for branch in branches]
        extent = max(first + count for first, count in zip(firsts, taps, strict=True))
        behind = (extent - first - count for first, count in zip(firsts, taps, strict=True))
        after = (branch.pads[2 + axis] for branch in branches)
        # Strides may leave pixels at the end that no window reads.
        ends.append(max(rest + pad for rest, pad in zip(behind, after, strict=True)))
        extents.append(extent)
        begins.append(begin)
        places.append((firsts, taps))
    (tops, rows), (lefts, columns) = places
    outputs = [branch.weights.shape[0] for branch in branches]
    parts = chain(*zip(outputs, tops, lefts, rows, columns, strict=True))
    return tuple(extents), (*begins, *ends), list(parts)


def _merged(rewriter: Rewriter, concat: Node, branches: list[_Branch]) -> Node:
    """Return the convolution of all branches."""
    window, pads, parts = _window(branches)
    pieces: list[Array] = []
    for index, branch in enumerate(branches):
        _, top, left, rows, columns = parts[5 * index : 5 * index + 5]
        piece = np.zeros((*branch.weights.shape[:2], *window), np.float32)
        piece[..., top : top + rows, left : left + columns] = branch.weights
        pieces.append(piece)
    first = branches[0]
    attrs: dict[str, Attr] = dict(first.node.attrs)
    attrs |= {"groups": sum(branch.groups for branch in branches), "pads": pads}
    if any(branch.weights.shape[2:] != window for branch in branches):
        attrs[PARTS] = tuple(parts)
    data = np.concatenate(pieces), np.concatenate([branch.bias for branch in branches])
    names = [rewriter.add_constant(first.node.inputs[1], data[0])]
    if any(any(branch.node.inputs[2:]) for branch in branches):
        names.append(rewriter.add_constant(f"{first.node.inputs[1]}.bias", data[1]))
    inputs = (first.source, *names)
    return Node(first.node.name, "conv", inputs, concat.outputs, tuple(sorted(attrs.items())))


def _store_zeros(rewriter: Rewriter, node: Node) -> None:
    """Store zeros where weights count as zero, because kernels may read them."""
    data = rewriter.constant(node.inputs[1])
    if data is None:
        return
    kept = within_parts(node, data)
    if not np.array_equal(kept, data):
        name = rewriter.add_constant(node.inputs[1], kept)
        inputs = (node.inputs[0], name, *node.inputs[2:])
        rewriter.replace(node, dataclasses.replace(node, inputs=inputs))


def merge_groups(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with convolutions of all slices of a value as one with groups."""
    rewriter = Rewriter(graph)
    refusals: list[Refusal] = []
    for node in rewriter.nodes():
        if node.op == "conv" and node.get(PARTS):
            _store_zeros(rewriter, node)
        if node.op != "concat" or node.int_attr("axis") != 1:
            continue
        found = [_branch(rewriter, name) for name in node.inputs]
        branches = [item for item in found if isinstance(item, _Branch)]
        reasons = [item for item in found if isinstance(item, str)]
        reason = reasons[0] if reasons else _why_apart(rewriter, branches)
        if branches and reason:
            refusals.append(Refusal("merge_groups", node.name, reason))
        if reason:
            continue
        merged = _merged(rewriter, node, branches)
        for branch in branches:
            rewriter.remove(branch.node)
        rewriter.replace(node, merged)
    return rewriter.finish(), tuple(refusals)
