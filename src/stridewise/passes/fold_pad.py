"""Let convolutions and poolings pad for themselves instead of copying into a padded tensor."""

from __future__ import annotations

import dataclasses

from stridewise.graph import Attr, Graph, Node, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.activation import parameters
from stridewise.ops.data_format import canonical_order
from stridewise.ops.pad import pad_amounts, pad_mode

__all__ = ["fold_pad"]

_WINDOWS = ("conv", "max_pool", "avg_pool")
_NON_NEGATIVE = frozenset({"relu", "sigmoid", "hard_sigmoid", "exp", "abs", "softplus", "softmax"})


def _is_non_negative(rewriter: Rewriter, name: str) -> bool:
    node = rewriter.producer(name)
    if node is None or node.post_ops:
        return False
    if node.op == "clip":
        return min(parameters(node)) >= 0
    return node.op in _NON_NEGATIVE


def _neutral(rewriter: Rewriter, pad: Node, window: Node) -> str:
    """Return why padding of this value is not what the window does by itself; "" if it is."""
    if pad_mode(pad) != "constant" or pad.inputs[1:]:
        return "its border is not of one known value"
    value = pad.float_attr("value", 0.0)
    if window.op == "max_pool":
        if value == float("-inf"):
            return ""
        if value == 0 and _is_non_negative(rewriter, pad.inputs[0]):
            return ""
        return f"max pooling pads with -inf, not with {value}, and the input may be negative"
    if value != 0:
        return f"{window.op} pads with 0, not with {value}"
    excludes = window.op == "avg_pool" and not window.int_attr("count_include_pad", 0)
    if excludes and any(window.ints_attr("pads", (0,))):
        return "the pooling leaves its own padding out of the mean"
    return ""


def _spatial(window: Node, per_axis: tuple[int, ...]) -> tuple[int, ...]:
    """Return what belongs to the spatial axes, of numbers in the window's data format."""
    return tuple(per_axis[axis] for axis in canonical_order(window, len(per_axis))[2:])


def _sees_nothing(rewriter: Rewriter, pad: Node, window: Node, pads: tuple[int, ...]) -> bool:
    """Return whether some window would meet no element of the input."""
    extents = _spatial(window, rewriter.value(pad.inputs[0]).shape)
    results = _spatial(window, rewriter.value(window.outputs[0]).shape)
    ones = (1,) * len(extents)
    kernel = window.ints_attr("kernel")
    strides, dilations = window.ints_attr("strides", ones), window.ints_attr("dilations", ones)
    return any(
        not any(0 <= o * stride - begin + tap * dilation < extent for tap in range(taps))
        for extent, count, taps, stride, dilation, begin in zip(
            extents, results, kernel, strides, dilations, pads[: len(extents)], strict=True
        )
        for o in range(count)
    )


def _merged(rewriter: Rewriter, pad: Node, window: Node) -> Node | str:
    rank = len(rewriter.value(pad.inputs[0]).shape)
    begins, ends = pad_amounts(pad, rank)
    batch, channel = canonical_order(window, rank)[:2]
    if any(amounts[axis] for amounts in (begins, ends) for axis in (batch, channel)):
        return "it pads batch or channels"
    reason = _neutral(rewriter, pad, window)
    if reason:
        return reason
    own = window.ints_attr("pads", (0,) * (2 * (rank - 2)))
    added = (*_spatial(window, begins), *_spatial(window, ends))
    total = tuple(a + b for a, b in zip(own, added, strict=True))
    attrs: dict[str, Attr] = dict(window.attrs)
    if window.op != "conv" and _sees_nothing(rewriter, pad, window, total):
        return "a pooling window would lie in the padding alone"
    attrs["pads"] = total
    if window.op == "avg_pool":
        attrs["count_include_pad"] = 1
    inputs = (pad.inputs[0], *window.inputs[1:])
    return dataclasses.replace(window, inputs=inputs, attrs=tuple(sorted(attrs.items())))


def fold_pad(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with pads folded into the windows that read them."""
    rewriter = Rewriter(graph)
    refusals: list[Refusal] = []
    for window in rewriter.nodes():
        pad = rewriter.producer(window.inputs[0]) if window.op in _WINDOWS else None
        if pad is None or pad.op != "pad":
            continue
        merged = _merged(rewriter, pad, window)
        if isinstance(merged, str):
            refusals.append(Refusal("fold_pad", pad.name, merged))
        else:
            rewriter.replace(window, merged)
    return rewriter.finish(), tuple(refusals)
