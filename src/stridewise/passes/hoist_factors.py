"""Multiply weights by a factor that a value computed from their results is multiplied by.

Attention divides its scores by the root of the size of its heads. The factor passes through moves
and products up to the projection, whose weights can have it.
"""

from __future__ import annotations

import dataclasses
from math import isfinite

import numpy as np

from stridewise.graph import Graph, Node, Refusal
from stridewise.graph.constant import Array
from stridewise.graph.rewrite import Rewriter

__all__ = ["hoist_factors"]

_MOVES = ("reshape", "slice", "transpose")
_BIAS = 2


def _factor(rewriter: Rewriter, node: Node) -> tuple[str, float] | None:
    """Return the value that a node multiplies or divides by one constant number, and the factor."""
    if node.op not in ("mul", "div") or node.post_ops:
        return None
    type_ = rewriter.value(node.outputs[0]).type
    for name, other in (node.inputs, node.inputs[::-1]):
        data = rewriter.constant(other)
        same = rewriter.value(name).type == type_ and type_.dtype.name == "float32"
        if data is None or data.size != 1 or not same:
            continue
        number = float(data.reshape(-1)[0])
        if node.op == "div":
            number = 1 / number if number and name == node.inputs[0] else float("nan")
        return (name, number) if isfinite(number) else None
    return None


def _origin(rewriter: Rewriter, name: str) -> Node | str:
    """Return the product with constant weights that a factor of a value can go to, or why none."""
    while True:
        node = rewriter.producer(name)
        if node is None or (node.op not in _MOVES and node.op != "matmul"):
            return ""
        if rewriter.only_reader(name) is None:
            return f"other operands are {name!r} as well"
        if node.op == "matmul":
            constants = [rewriter.known(item) is not None for item in node.inputs if item]
            if all(constants[1:]) and not node.post_ops:
                return node
            if len(constants) > _BIAS or node.post_ops:
                return f"{node.name!r} adds to its product"
        name = node.inputs[0]


def _scaled(rewriter: Rewriter, product: Node, factor: float) -> Node:
    number: Array = np.array([factor], np.float32)
    names = [product.inputs[0]]
    for name in product.inputs[1:]:
        known = rewriter.known(name) if name else None
        names.append("" if known is None else rewriter.add_constant(name, known.scaled(number)))
    return dataclasses.replace(product, inputs=tuple(names))


def hoist_factors(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with factors of moved values and of products in weights."""
    rewriter = Rewriter(graph)
    refusals: list[Refusal] = []
    for node in rewriter.nodes():
        found = _factor(rewriter, node)
        product = _origin(rewriter, found[0]) if found else ""
        if isinstance(product, str):
            refusals += [Refusal("hoist_factors", node.name, product)] if product else []
            continue
        assert found is not None  # without a factor there is no origin
        if rewriter.is_output(node.outputs[0]):
            refusals.append(Refusal("hoist_factors", node.name, "its result is an output"))
            continue
        rewriter.replace(product, _scaled(rewriter, product, found[1]))
        rewriter.bypass(node, found[0])
    return rewriter.finish(), tuple(refusals)
