"""Keep values as floats that are cast to integers and back.

Such a value is rounded and within the range of the integers, so the two casts change nothing:
``cast(float, cast(int8, clip(round(x) + z, -128, 127)))``. A constant zero point that is
subtracted again moves into the limits.
"""

from __future__ import annotations

import numpy as np

from stridewise.graph import Graph, Node, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.element_types import INTEGERS

__all__ = ["skip_integers"]

_EXACT = 2**24
"""Up to here float32 holds all whole numbers."""


def _number(rewriter: Rewriter, name: str) -> float | None:
    """Return the number that all elements of a constant are, None where there is no such number."""
    data = rewriter.constant(name)
    if data is None or not data.size or not (data == data.reshape(-1)[0]).all():
        return None
    return float(data.reshape(-1)[0])


def _shifted(rewriter: Rewriter, name: str) -> tuple[str, float] | None:
    """Match ``x`` or ``x + z`` where x is rounded and z is whole; return x and z."""
    node = rewriter.producer(name)
    if node is None or node.op == "round":
        return None if node is None else (name, 0.0)
    if node.op != "add":
        return None
    for x, other in (node.inputs, node.inputs[::-1]):
        shift, inner = _number(rewriter, other), rewriter.producer(x)
        if inner is not None and inner.op == "round" and shift is not None:
            same = rewriter.value(x).type == rewriter.value(name).type
            return (x, shift) if same and shift.is_integer() else None
    return None


def _limits(clip: Node) -> tuple[float, float]:
    return clip.float_attr("alpha", -np.inf), clip.float_attr("beta", np.inf)


def _is_rounded(rewriter: Rewriter, name: str) -> bool:
    """Return whether a value has only whole numbers: rounded ones, within limits, and sums."""
    data, node = rewriter.constant(name), rewriter.producer(name)
    if data is not None:
        return bool((data % 1 == 0).all())
    if node is None or node.op == "round":
        return node is not None
    if node.op == "clip" and not all(limit.is_integer() for limit in _limits(node)):
        return False
    return node.op in ("add", "clip") and all(_is_rounded(rewriter, x) for x in node.inputs)


def _is_whole(rewriter: Rewriter, name: str, dtype: str) -> bool:
    """Return whether a value has only whole numbers that an integer type holds."""
    clip = rewriter.producer(name)
    if clip is None or clip.op != "clip" or not _is_rounded(rewriter, clip.inputs[0]):
        return False
    low, high = _limits(clip)
    held = np.iinfo(dtype)
    whole = low.is_integer() and high.is_integer()
    return whole and max(held.min, -_EXACT) <= low <= high <= min(held.max, _EXACT)


def _skip_casts(rewriter: Rewriter, node: Node) -> None:
    inner = rewriter.producer(node.inputs[0]) if node.op == "cast" else None
    if inner is None or inner.op != "cast":
        return
    source, stored = rewriter.value(inner.inputs[0]), rewriter.value(node.inputs[0])
    result = rewriter.value(node.outputs[0])
    if stored.dtype.name not in INTEGERS or source.dtype != result.dtype:
        return
    if source.dtype.name == "float32" and _is_whole(rewriter, source.name, stored.dtype.name):
        rewriter.bypass(node, source.name)


def _move_shift(rewriter: Rewriter, node: Node) -> None:
    """Write ``clip(x + z, low, high) - z`` as ``clip(x, low - z, high - z)``."""
    clip = rewriter.producer(node.inputs[0]) if node.op == "sub" else None
    if clip is None or clip.op != "clip":
        return
    found, shift = _shifted(rewriter, clip.inputs[0]), _number(rewriter, node.inputs[1])
    if found is None or shift is None or shift == 0 or found[1] != shift:
        return
    if rewriter.value(node.outputs[0]).type != rewriter.value(found[0]).type:
        return
    low, high = (limit - shift for limit in _limits(clip))
    attrs = (("alpha", low), ("beta", high))
    rewriter.replace(node, Node(node.name, "clip", (found[0],), node.outputs, attrs))


def skip_integers(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph without values that are integers in between; it refuses nothing."""
    rewriter = Rewriter(graph)
    for edit in (_skip_casts, _move_shift):
        for node in rewriter.nodes():
            edit(rewriter, node)
    return rewriter.finish(), ()
