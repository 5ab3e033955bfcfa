"""Let a max pooling give the positions of its maxima where its gradient finds them again.

The gradient then reads positions, which kernels store as bytes, and no longer the source of the
pooling. Without other readers the source is not kept for it.
"""

from __future__ import annotations

import dataclasses
from math import prod

from stridewise.graph import Attr, Graph, Node, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.data_format import ATTRIBUTE, is_turned
from stridewise.ops.pool import MOST_PLACES
from stridewise.passes.ability import Ability

__all__ = ["keep_places"]


def _window(node: Node) -> dict[str, Attr]:
    return {key: value for key, value in node.attrs if key != ATTRIBUTE}


def _found(rewriter: Rewriter, gradient: Node, ability: Ability) -> Node | str:
    """Return the pooling of a gradient, or why its positions are not kept."""
    x = gradient.inputs[0]
    if rewriter.value(x).dtype.name not in ability.dtypes:
        return "no kernel computes in its element type"
    if prod(gradient.ints_attr("kernel")) > MOST_PLACES:
        return f"a window of more than {MOST_PLACES} elements: positions do not fit into bytes"
    window = _window(gradient)
    for node in rewriter.readers(x):
        is_pool = node.op in ("max_pool", "max_pool_places") and node.inputs[0] == x
        if is_pool and not is_turned(node) and not node.post_ops and _window(node) == window:
            return node
    return "no max pooling of its source in the same order of axes has its window"


def _with_places(rewriter: Rewriter, pool: Node) -> str:
    """Return the positions of a pooling's maxima, which it gives beside them from now on."""
    if pool.op == "max_pool_places":
        return pool.outputs[1]
    result = pool.outputs[0]
    places = rewriter.add_value(f"{result}.places", rewriter.value(result).type)
    new = dataclasses.replace(pool, op="max_pool_places", outputs=(result, places))
    rewriter.replace(pool, new)
    return places


def keep_places(graph: Graph, ability: Ability) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with gradients of max pooling that read positions."""
    rewriter, refusals = Rewriter(graph), list[Refusal]()
    for node in rewriter.nodes():
        if node.op != "max_pool_gradient":
            continue
        pool = _found(rewriter, node, ability)
        if isinstance(pool, str):
            refusals.append(Refusal("keep_places", node.name, pool))
            continue
        x, dy = node.inputs
        attrs = {**_window(node), "shape": rewriter.value(x).shape}
        rewriter.replace(
            node,
            dataclasses.replace(
                node,
                op="max_pool_places_gradient",
                inputs=(_with_places(rewriter, pool), dy),
                attrs=tuple(sorted(attrs.items())),
            ),
        )
    return rewriter.finish(), tuple(refusals)
