"""Join activations that exporters write as several nodes.

- ``x * sigmoid(x)`` is ``swish`` (SiLU).
- ``clip(x + c, 0, m) / m`` is ``hard_sigmoid``.
- ``x * hard_sigmoid(x)`` and ``x * clip(x + c, 0, m) / m`` are ``hard_swish``.
- ``x * tanh(softplus(x))`` is ``mish``.
- ``x * (1 + erf(x / sqrt(2))) * 0.5`` is ``gelu``.
"""

from __future__ import annotations

from itertools import permutations
from math import sqrt

from stridewise.graph import Graph, Node, Refusal
from stridewise.graph.rewrite import Rewriter

__all__ = ["recognize_activations"]


_FLOATS = ("float16", "float32", "float64")
"""The dtypes of the operators that are put in place."""


def _split(rewriter: Rewriter, node: Node) -> tuple[str, float] | None:
    """Return operand and scalar of a commutative node with one scalar constant."""
    for index in (0, 1):
        value = rewriter.scalar(node.inputs[index])
        if value is not None:
            return node.inputs[1 - index], value
    return None


def _same_shape(rewriter: Rewriter, a: str, b: str) -> bool:
    return rewriter.value(a).type == rewriter.value(b).type


def _relu_c(rewriter: Rewriter, name: str) -> tuple[str, float, float] | None:
    """Match ``clip(x + c, 0, m)`` and return x, c and m."""
    clip = rewriter.producer(name)
    if clip is None or clip.op != "clip" or clip.float_attr("alpha", float("-inf")) != 0:
        return None
    limit = clip.float_attr("beta", float("inf"))
    add = rewriter.producer(clip.inputs[0])
    if add is None or add.op != "add" or not 0 < limit < float("inf"):
        return None
    split = _split(rewriter, add)
    if split is None or not _same_shape(rewriter, split[0], name):
        return None
    return split[0], split[1], limit


def _divided(rewriter: Rewriter, node: Node) -> tuple[str, float] | None:
    """Match ``y / m`` or ``y * (1 / m)`` by a scalar and return y and m."""
    if node.op == "div":
        divisor = rewriter.scalar(node.inputs[1])
        return None if not divisor else (node.inputs[0], divisor)
    if node.op == "mul":
        split = _split(rewriter, node)
        return None if split is None or not split[1] else (split[0], 1 / split[1])
    return None


def _close(a: float, b: float) -> bool:
    # The two were rounded to float32 at most once each.
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def _hard_sigmoid(rewriter: Rewriter, node: Node) -> Node | None:
    divided = _divided(rewriter, node)
    matched = _relu_c(rewriter, divided[0]) if divided else None
    if divided is None or matched is None or not _close(matched[2], divided[1]):
        return None
    x, shift, limit = matched
    if not _same_shape(rewriter, x, node.outputs[0]):
        return None
    attrs = (("alpha", 1 / limit), ("beta", shift / limit))
    return Node(node.name, "hard_sigmoid", (x,), node.outputs, attrs)


def _gated(rewriter: Rewriter, node: Node) -> Node | None:
    """Match ``x * sigmoid(x)`` and ``x * hard_sigmoid(x)``."""
    if node.op != "mul":
        return None
    for x, gate_name in (node.inputs, node.inputs[::-1]):
        gate = rewriter.producer(gate_name)
        if gate is None or x not in gate.inputs[:1]:  # foreign parts may have no inputs
            continue
        if gate.op == "sigmoid":
            return Node(node.name, "swish", (x,), node.outputs, (("alpha", 1.0),))
        if gate.op == "hard_sigmoid":
            attrs = (
                ("alpha", gate.float_attr("alpha", 0.2)),
                ("beta", gate.float_attr("beta", 0.5)),
            )
            return Node(node.name, "hard_swish", (x,), node.outputs, attrs)
    return None


def _hard_swish(rewriter: Rewriter, node: Node) -> Node | None:
    """Match ``(x * clip(x + c, 0, m)) / m``."""
    divided = _divided(rewriter, node)
    product = rewriter.producer(divided[0]) if divided else None
    if divided is None or product is None or product.op != "mul":
        return None
    for x, gate in (product.inputs, product.inputs[::-1]):
        matched = _relu_c(rewriter, gate)
        same = _same_shape(rewriter, x, node.outputs[0])
        if same and matched is not None and matched[0] == x and _close(matched[2], divided[1]):
            attrs = (("alpha", 1 / matched[2]), ("beta", matched[1] / matched[2]))
            return Node(node.name, "hard_swish", (x,), node.outputs, attrs)
    return None


def _mish(rewriter: Rewriter, node: Node) -> Node | None:
    for x, gate_name in (node.inputs, node.inputs[::-1]) if node.op == "mul" else ():
        gate = rewriter.producer(gate_name)
        soft = rewriter.producer(gate.inputs[0]) if gate and gate.op == "tanh" else None
        if soft is not None and soft.op == "softplus" and soft.inputs[0] == x:
            return Node(node.name, "mish", (x,), node.outputs)
    return None


def _gate_of_gelu(rewriter: Rewriter, name: str) -> str:
    """Match ``1 + erf(x / sqrt(2))`` and return x, or ""."""
    add = rewriter.producer(name)
    split = _split(rewriter, add) if add and add.op == "add" else None
    erf = rewriter.producer(split[0]) if split and split[1] == 1 else None
    inner = rewriter.producer(erf.inputs[0]) if erf and erf.op == "erf" else None
    divided = _divided(rewriter, inner) if inner else None
    return divided[0] if divided and _close(divided[1], sqrt(2)) else ""


def _gelu(rewriter: Rewriter, node: Node) -> Node | None:
    """Match the product of x, its gate and a half, in any order."""
    for outer, name in (node.inputs, node.inputs[::-1]) if node.op == "mul" else ():
        inner = rewriter.producer(name)
        if inner is None or inner.op != "mul":
            continue
        for x, gate, half in permutations((outer, *inner.inputs)):
            halved = rewriter.scalar(half) == 1 / 2 and _same_shape(rewriter, x, node.outputs[0])
            if halved and _gate_of_gelu(rewriter, gate) == x:
                return Node(node.name, "gelu", (x,), node.outputs)
    return None


def recognize_activations(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with composite activations as single nodes; it refuses nothing."""
    rewriter = Rewriter(graph)
    for match in (_hard_sigmoid, _gated, _hard_swish, _mish, _gelu):
        for node in rewriter.nodes():
            if rewriter.value(node.outputs[0]).dtype.name not in _FLOATS:
                continue  # integers divide and multiply otherwise
            found = match(rewriter, node)
            if found is not None:
                rewriter.replace(node, found)
    return rewriter.finish(), ()
