"""Replace transposed convolutions of stride 1 by convolutions."""

from __future__ import annotations

import dataclasses

import numpy as np

from stridewise.graph import Graph, Node, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.conv_transpose import geometry
from stridewise.ops.data_format import canonical_order
from stridewise.ops.registry import Array

__all__ = ["flip_windows"]

_MOST = 2
"""How many times as many results as inputs a convolution may have along an axis. It multiplies all
taps of each result, a transposed convolution those of each input."""


def _flipped(weights: Array, groups: int) -> Array:
    """Return the weights of the convolution: outputs, inputs of one group, window from its end."""
    inputs, each, *window = weights.shape
    apart = weights.reshape(groups, inputs // groups, each, *window).swapaxes(1, 2)
    joined = apart.reshape(groups * each, inputs // groups, *window)
    return np.flip(joined, axis=tuple(range(2, joined.ndim))).copy()


def _pads(rewriter: Rewriter, node: Node, window: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the padding of the convolution; None where it would not do as well."""
    strides, dilations, begins, ends = geometry(node, len(window))
    reach = [step * (taps - 1) for step, taps in zip(dilations, window, strict=True)]
    pads = [n - cut for n, cut in zip([*reach, *reach], [*begins, *ends], strict=True)]
    shapes = [rewriter.value(name).shape for name in (node.inputs[0], node.outputs[0])]
    extents = [[s[axis] for axis in canonical_order(node, len(s))[2:]] for s in shapes]
    is_near = all(y <= _MOST * x for x, y in zip(*extents, strict=True))
    return tuple(pads) if max(strides) == 1 and min(pads) >= 0 and is_near else None


def flip_windows(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph whose transposed convolutions have strides, or weights that change.

    With a stride of 1, each result of a transposed convolution is the sum over the window around
    it, taken from its end: a convolution, for which there are more and faster kernels.
    """
    rewriter = Rewriter(graph)
    for node in rewriter.nodes():
        weights = rewriter.constant(node.inputs[1]) if node.op == "conv_transpose" else None
        pads = None if weights is None else _pads(rewriter, node, weights.shape[2:])
        if weights is None or pads is None:
            continue
        flipped = _flipped(weights, node.int_attr("groups", 1))
        name = rewriter.add_constant(f"{node.inputs[1]}/flipped", flipped)
        inputs = (node.inputs[0], name, *node.inputs[2:])
        attrs = tuple(sorted({**dict(node.attrs), "pads": pads}.items()))
        rewriter.replace(node, dataclasses.replace(node, op="conv", inputs=inputs, attrs=attrs))
    return rewriter.finish(), ()
