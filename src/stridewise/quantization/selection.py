"""Which nodes compute with integers, and which tensors are stored as integers for them.

The demand for integers goes from readers to producers. A convolution or matrix product demands its
first operand. Operators that keep the range of their operand, and additions and means, demand
theirs where a reader demands their result; so does a scale and shift behind a concat. Activations
between a product and the next demand thus stay in float, and one step of rounding follows them.

OpenVINO 2026.4 limits what a concat may be stored as. It crashes when it compiles a concat with a
zero point before functions of single elements that lead to another rounding. And it computes wrong
products where a convolution reads a concat of int8. So a concat before such functions has int8 and
zero point 0. If a product reads it, too, or another concat of the same scale, it has not, and no
scale and shift demands it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from stridewise.graph import Graph, Node

__all__ = ["PRODUCTS", "Selection", "refusals", "select", "without_zero_point"]

PRODUCTS = ("conv", "conv_transpose", "matmul")
"""Operators with weights. Operand 0 is the activation, 1 the weights, 2 the bias."""

_KEEPS_RANGE = (
    "channel_shuffle", "concat", "depth_to_space", "expand", "identity", "max_pool", "reshape",
    "slice", "space_to_depth", "tile", "transpose",
)  # fmt: skip
"""Operators whose results are elements of their operands; both have one scale."""

_LINEAR = ("add", "avg_pool", "reduce_mean", "resize")
"""Operators whose results are sums of elements of their operands."""

_AFFINE = ("scale_shift",)
"""Operators on each channel that no weights take up. They demand their operand if it is a concat:
in a chain of concats each is read several times, with four bytes an element in float."""

_ARITHMETIC = ("add", "div", "mul", "sub")
"""With one operand that is no constant, functions of single elements."""

_ACTIVATIONS = ("clip", "relu")
"""Operators between a sum and its rounding; their operands need no rounding of their own."""

_MATRIX = 2


@dataclass(frozen=True, slots=True)
class Selection:
    """What is quantized.

    Attributes:
        layers: names of the nodes that read integers, in order.
        tensors: names of the activations that are stored as integers, each with the name of the
            tensor whose scale it has.
    """

    layers: tuple[str, ...]
    tensors: Mapping[str, str]


def refusals(graph: Graph) -> dict[str, str]:
    """Return the products that stay in float whatever the budget, and why."""
    found: dict[str, str] = {}
    for node in graph.nodes:
        if node.op in PRODUCTS:
            reason = _reason(graph, node)
            if reason:
                found[node.name] = reason
    return found


def _reason(graph: Graph, node: Node) -> str:
    x, w = (graph.values[name] for name in node.inputs[:2])
    if x.dtype.name != "float32":
        return f"its operands are of dtype {x.dtype}"
    if w.name not in graph.constants:
        return "its second operand is no constant"
    if x.name in graph.constants:
        return "its first operand is a constant"
    if node.op == "matmul" and len(w.shape) != _MATRIX:
        return f"its weights have rank {len(w.shape)}"
    if node.op == "matmul" and node.int_attr("trans_a", 0):
        return "its first operand is transposed"
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    if bias and bias not in graph.constants:
        return "its bias is no constant"
    return ""


def select(graph: Graph, left: Collection[str]) -> Selection:
    """Return what is quantized if some nodes are left in float.

    Args:
        graph: without post-ops.
        left: names of nodes.
    """
    fixed, concats = {*refusals(graph)}, _concats(graph)
    affine = {
        node.name: node.inputs[0]
        for node in graph.nodes
        if node.op in _AFFINE and node.inputs[0] in concats
    }
    whole = _demands(graph, fixed, affine)
    mixed = _roots_of_products(graph, whole)
    allowed = {name for name, operand in affine.items() if whole.tensors.get(operand) not in mixed}
    return _demands(graph, {*fixed, *left}, allowed)


def without_zero_point(graph: Graph, chosen: Selection) -> frozenset[str]:
    """Return the tensors, among those whose scales others have, that need a zero point of 0.

    Args:
        graph: without post-ops.
        chosen: what is quantized with nothing left in float.
    """
    concats, found = _concats(graph) & chosen.tensors.keys(), set[str]()
    for node in graph.nodes:
        others = sum(name not in graph.constants for name in node.inputs)
        if node.op in (*_AFFINE, *_ACTIVATIONS) or (node.op in _ARITHMETIC and others == 1):
            found |= {chosen.tensors[name] for name in node.inputs if name in concats}
    return frozenset(found) - _roots_of_products(graph, chosen)


def _concats(graph: Graph) -> frozenset[str]:
    return frozenset(node.outputs[0] for node in graph.nodes if node.op == "concat")


def _roots_of_products(graph: Graph, chosen: Selection) -> frozenset[str]:
    """Return the tensors that concats have the scale of which products read."""
    operands = {node.inputs[0] for node in graph.nodes if node.op in PRODUCTS}
    return frozenset(
        chosen.tensors[name] for name in operands & _concats(graph) if name in chosen.tensors
    )


def _demands(graph: Graph, fixed: Collection[str], affine: Collection[str]) -> Selection:
    """Follow the demands from readers to producers.

    Args:
        graph: the graph.
        fixed: names of nodes that stay in float.
        affine: names of the nodes with a scale and a shift that demand their operand.
    """
    wanted: dict[str, None] = {}
    reached: set[str] = set()
    layers: list[str] = []
    root: dict[str, str] = {}

    def group(name: str) -> str:
        while root.setdefault(name, name) != name:
            name = root[name]
        return name

    for node in reversed(graph.nodes):
        if node.op in _ACTIVATIONS and node.outputs[0] in wanted:
            reached.add(node.inputs[0])
        operands = _demanded(graph, node, wanted, reached, affine)
        if node.name in fixed or not operands:
            continue
        layers.append(node.name)
        for name in operands:
            wanted[name] = None
            if node.op in _KEEPS_RANGE:
                root[group(name)] = group(node.outputs[0])
    known = {*graph.inputs, *(name for node in graph.nodes for name in node.outputs)}
    tensors = {name: group(name) for name in wanted if name in known}
    return Selection(tuple(reversed(layers)), tensors)


def _demanded(
    graph: Graph,
    node: Node,
    wanted: Collection[str],
    reached: Collection[str],
    affine: Collection[str],
) -> tuple[str, ...]:
    """Return the operands that a node reads as integers.

    Args:
        graph: the graph.
        node: the node.
        wanted: tensors that are stored as integers.
        reached: operands of activations whose results are stored as integers.
        affine: names of the nodes with a scale and a shift that demand their operand.
    """
    if node.op in PRODUCTS:
        return node.inputs[:1]
    result = node.outputs[0]
    if node.name in affine and (result in wanted or result in reached):
        return node.inputs[:1]
    is_sum = node.op in _LINEAR and (result in wanted or result in reached)
    # ONNX Runtime refuses a file with a mean of integers that has dilations.
    is_sum &= all(dilation == 1 for dilation in node.ints_attr("dilations", ()))
    if not is_sum and not (node.op in _KEEPS_RANGE and result in wanted):
        return ()
    is_float = all(graph.values[name].dtype.name == "float32" for name in node.inputs if name)
    if not is_float or any(name in graph.constants for name in node.inputs):
        return ()
    return tuple(dict.fromkeys(node.inputs))
