"""The graph that a plan computes if it rounds tensors to offered grids, roundings included."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np

from stridewise.graph import Constant, Graph, Node, PostOp, TensorType, Value
from stridewise.ops.activation import SNAPS
from stridewise.ops.quantize import MOVES
from stridewise.planning import Plan
from stridewise.targets.kernels import KernelOption

__all__ = ["rounded_graph"]

_SNAP = {short: op for op, short in SNAPS.items()}


def rounded_graph(plan: Plan, graph: Graph) -> Graph:
    """Return the graph of a plan with what its kernels round to integers that are offered.

    Args:
        plan: the plan.
        graph: of the plan, with all constants.
    """
    if not graph.offers:
        return graph
    values, constants = dict(graph.values), dict(graph.constants)

    def with_bias(node: Node, numbers: tuple[float, ...]) -> Node:
        name, data = f"bias for {node.name}", np.asarray(numbers, np.float32)
        constants[name] = found = Constant(data)
        values[name] = Value(name, TensorType(found.dtype, found.shape))
        if len(node.inputs) == 2:
            return replace(node, inputs=(*node.inputs, name))
        assert 2 not in {post.operand for post in node.post_ops}  # place 2 is that of the bias
        return replace(node, inputs=(*node.inputs[:2], name, *node.inputs[3:]))

    def rounded(node: Node, option: KernelOption) -> Node:
        weights = values[node.inputs[1]] if _has_integer_weights(option) else None
        if weights is not None and weights.offer is not None:
            name = f"{weights.name} rounded for {node.name}"
            constants[name] = Constant(weights.offer.rounded(graph.constants[weights.name].array))
            values[name] = replace(weights, name=name)
            node = replace(node, inputs=(node.inputs[0], name, *node.inputs[2:]))
            if weights.bias:
                node = with_bias(node, weights.bias)
        offer, made = values[node.outputs[0]].offer, option.makes[0]
        is_moved = node.op in MOVES and not node.post_ops
        if offer is None or made.quantization is None or is_moved:
            return node
        snap = PostOp(_SNAP[offer.dtype], offer.scales[0], float(offer.zero_points[0]))
        return replace(node, post_ops=(*node.post_ops, snap))

    pairs = zip(graph.nodes, plan.decisions, strict=True)
    nodes = tuple(rounded(node, decision.chosen.option) for node, decision in pairs)
    return replace(
        graph,
        nodes=nodes,
        values=MappingProxyType(values),
        constants=MappingProxyType(constants),
    )


def _has_integer_weights(option: KernelOption) -> bool:
    return any(
        role == "weights" and memory.dtype == "s8"
        for call in option.calls
        for role, memory in call.spec.memories
    )
