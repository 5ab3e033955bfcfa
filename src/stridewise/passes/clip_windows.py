"""Shorten windows of poolings to the elements that lie inside of the image."""

from __future__ import annotations

import dataclasses
from math import prod

import numpy as np

from stridewise.classes import dataclass
from stridewise.graph import Graph, Node, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.conv import window_extent
from stridewise.ops.data_format import canonical_order
from stridewise.ops.pool import geometry

__all__ = ["clip_windows"]

_POOLINGS = frozenset({"max_pool", "avg_pool", "max_pool_gradient", "avg_pool_gradient"})


@dataclass(frozen=True, slots=True)
class _Axis:
    """The windows along one axis: extents of image and result, then the attributes."""

    size: int
    results: int
    taps: int
    stride: int
    dilation: int
    begin: int
    end: int

    def clipped(self) -> _Axis:
        """Return the axis without the taps that are outside of the image in each window."""
        last = self.begin - (self.results - 1) * self.stride  # where the last window begins
        before = min(max(0, -(-last // self.dilation)), self.begin // self.dilation)
        inside = min(self.taps, (self.size + self.begin - 1) // self.dilation + 1) - before
        if inside < 1 or inside == self.taps:
            return self
        begin = self.begin - before * self.dilation
        reach = (self.results - 1) * self.stride + (inside - 1) * self.dilation + 1
        end = max(0, reach - self.size - begin)
        found = window_extent(self.size, inside, self.stride, self.dilation, begin + end)
        if found != self.results:
            return self
        return dataclasses.replace(self, taps=inside, begin=begin, end=end)


def _axes(rewriter: Rewriter, node: Node) -> list[_Axis]:
    """Return the spatial axes of a pooling or of its gradient."""
    images = [rewriter.value(name).shape for name in (*node.inputs, *node.outputs)]
    image, result = images[0], images[-1]
    if node.op == "max_pool_gradient":
        result = images[1]
    elif node.op == "avg_pool_gradient":
        image, result = images[-1], images[0]
    order = canonical_order(node, len(image))[2:]
    sizes, results = ([shape[axis] for axis in order] for shape in (image, result))
    return [
        _Axis(*numbers) for numbers in zip(sizes, results, *geometry(node, len(order)), strict=True)
    ]


def _scaled(rewriter: Rewriter, node: Node, factor: float) -> None:
    """Multiply the result of a mean that counts fewer elements of padding than before."""
    (result,) = node.outputs
    value = rewriter.value(result)
    mean = rewriter.add_value(f"{result}/inside", value.type)
    row = np.full((1,) * len(value.shape), factor, value.type.dtype.numpy)
    rewriter.insert(dataclasses.replace(node, name=f"{node.name}/inside", outputs=(mean,)), node)
    scale = rewriter.add_constant(f"{result}/share", row)
    rewriter.replace(node, Node(node.name, "mul", (mean, scale), (result,)))


def clip_windows(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph whose poolings have no taps that meet padding only.

    Networks write global pooling as a window of a fixed size that may be much larger than the image
    (``AvgPool2d(1280, ceil_mode=True)``), and kernels visit each element of a window.
    """
    rewriter = Rewriter(graph)
    for node in rewriter.nodes():
        if node.op not in _POOLINGS:
            continue
        axes = _axes(rewriter, node)
        clipped = [axis.clipped() for axis in axes]
        if clipped == axes:
            continue
        kernel = tuple(axis.taps for axis in clipped)
        pads = (*(axis.begin for axis in clipped), *(axis.end for axis in clipped))
        attrs = {**dict(node.attrs), "kernel": kernel, "pads": pads}
        shorter = dataclasses.replace(node, attrs=tuple(sorted(attrs.items())))
        rewriter.replace(node, shorter)
        if node.op.startswith("avg_pool") and node.int_attr("count_include_pad", 0):
            before = prod(axis.taps for axis in axes)
            _scaled(rewriter, shorter, prod(kernel) / before)
    return rewriter.finish(), ()
