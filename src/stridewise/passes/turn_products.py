"""Let matrix products read transposed operands and write transposed results.

Attention transposes heads and tokens before its products and back after them. Kernels of products
take any strides, so no byte has to move for that. A transpose goes into a product if neighbors in
memory stay neighbors along an axis of the matrices: rows or columns of an operand, columns of the
result.
"""

from __future__ import annotations

import dataclasses

from stridewise.graph import Attr, Graph, Node, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.matmul import turned

__all__ = ["turn_products"]

_KEYS = ("perm_a", "perm_b")
_FLAGS = ("trans_a", "trans_b")

Perm = tuple[int, ...]


def _composed(first: Perm, second: Perm) -> Perm:
    return tuple(first[axis] for axis in second)


def _swapped(perm: Perm) -> Perm:
    return (*perm[:-2], perm[-1], perm[-2])


def _with(node: Node, perms: dict[str, Perm]) -> Node:
    """Return a product with transposes; those that change nothing are left out."""
    attrs: dict[str, Attr] = {key: value for key, value in node.attrs if key not in perms}
    attrs |= {key: perm for key, perm in perms.items() if perm != tuple(range(len(perm)))}
    return dataclasses.replace(node, attrs=tuple(sorted(attrs.items())))


def _is_product(rewriter: Rewriter, node: Node) -> bool:
    """Return whether a node multiplies two variable matrices of float32, or batches of them."""
    if node.op != "matmul" or node.post_ops or len(node.inputs) != 2:
        return False
    types = [rewriter.value(name).type for name in node.inputs]
    return (
        all(type_.dtype.name == "float32" and len(type_.shape) >= 2 for type_ in types)
        and len(types[0].shape) == len(types[1].shape)
        and all(rewriter.known(name) is None for name in node.inputs)
        and not any(node.int_attr(key, 0) for key in _FLAGS)
    )


def _operand(rewriter: Rewriter, node: Node, index: int) -> Node | str:
    """Return a product without the transpose of an operand, or why it stays."""
    before = rewriter.producer(node.inputs[index])
    if before is None or before.op != "transpose":
        return ""
    perm = before.ints_attr("perm")
    whole = _composed(perm, turned(node, _KEYS[index], len(perm)))
    if len(perm) - 1 not in whole[-2:]:
        return "neighbors in memory are neither in one row nor in one column"
    inputs = list(node.inputs)
    inputs[index] = before.inputs[0]
    return _with(dataclasses.replace(node, inputs=tuple(inputs)), {_KEYS[index]: whole})


def _result(rewriter: Rewriter, node: Node) -> tuple[Node, Node] | str:
    """Return a product with the transpose after it, and that transpose; or why it stays."""
    after = rewriter.only_reader(node.outputs[0])
    if after is None or after.op != "transpose":
        return ""
    rank = len(rewriter.value(node.outputs[0]).shape)
    perm = _composed(turned(node, "perm", rank), after.ints_attr("perm"))
    if perm[-1] == rank - 2:
        # The transpose of a product is the product of the transposes, in the other order.
        perms = [_swapped(turned(node, key, rank)) for key in _KEYS]
        node = dataclasses.replace(node, inputs=node.inputs[::-1])
        node = _with(node, dict(zip(_KEYS, perms[::-1], strict=True)))
        perm = tuple({rank - 1: rank - 2, rank - 2: rank - 1}.get(axis, axis) for axis in perm)
    if perm[-1] != rank - 1:
        return "neighbors in memory would not be in one row"
    return _with(dataclasses.replace(node, outputs=after.outputs), {"perm": perm}), after


def turn_products(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with transposes around matrix products as attributes of these."""
    rewriter = Rewriter(graph)
    refusals: list[Refusal] = []
    for node in rewriter.nodes():
        if not _is_product(rewriter, node):
            continue
        product, reasons = node, list[str]()
        for index in (0, 1):
            while isinstance(found := _operand(rewriter, product, index), Node):
                rewriter.replace(product, found)
                product = found
            reasons.append(found)
        moved = _result(rewriter, product)
        if isinstance(moved, str):
            reasons.append(moved)
        else:
            rewriter.remove(product)
            rewriter.replace(moved[1], moved[0])
        refusals += (Refusal("turn_products", node.name, why) for why in reasons if why)
    return rewriter.finish(), tuple(refusals)
