"""Fuse activations and residual additions into the kernel that produces their operand.

The target decides what kernels take; see :class:`Ability`.
"""

from __future__ import annotations

import dataclasses

from stridewise.graph import Graph, Node, PostOp, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops import OPS
from stridewise.ops.activation import parameters
from stridewise.passes.ability import Ability

__all__ = ["fuse_post_ops"]

LIMIT = 8
"""Post-ops per kernel; long chains cost registers."""

_COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum"})


def _eltwise(follower: Node) -> PostOp:
    return PostOp(follower.op, *parameters(follower))


def _own_inputs(producer: Node) -> tuple[str, ...]:
    """Return the inputs, absent optional ones included: operands of post-ops come after them."""
    most = OPS[producer.op].arity[1] or 0
    return producer.inputs + ("",) * (most - len(producer.inputs))


def _binary(
    rewriter: Rewriter, ability: Ability, order: dict[str, int], producer: Node, follower: Node
) -> PostOp | str:
    if follower.op not in _COMMUTATIVE:
        return f"{follower.op} is not commutative"
    if follower.inputs[0] == follower.inputs[1]:
        return "both operands are the same value"
    own = follower.inputs.index(producer.outputs[0])
    other = follower.inputs[1 - own]
    if rewriter.value(other).type != rewriter.value(producer.outputs[0]).type:
        return "the other operand has another shape"
    if rewriter.known(other) is not None:
        return "the other operand is a constant"
    rival = rewriter.producer(other)
    if rival is not None:
        if rival.op == "transpose":
            return "the other operand's axes come in another order"
        later = order.get(rival.name, -1) > order.get(producer.name, -1)
        if follower.op in ability.post_ops(rival) and rewriter.only_reader(other) and later:
            return f"{rival.name!r}, which runs later, takes it"
    return PostOp(follower.op, operand=len(_own_inputs(producer)))


def _post_op(
    rewriter: Rewriter, ability: Ability, order: dict[str, int], producer: Node, follower: Node
) -> PostOp | str:
    if len(producer.post_ops) >= LIMIT:
        return f"{producer.name!r} has {LIMIT} post-ops already"
    if follower.op not in ability.post_ops(producer):
        return f"a {producer.op} kernel does not take {follower.op}"
    if OPS[follower.op].post_op == "eltwise":
        return _eltwise(follower)
    return _binary(rewriter, ability, order, producer, follower)


def _fused(producer: Node, follower: Node, post: PostOp) -> Node:
    inputs = producer.inputs
    if post.operand is not None:
        own = follower.inputs.index(producer.outputs[0])
        inputs = (*_own_inputs(producer), follower.inputs[1 - own])
    return dataclasses.replace(
        producer, inputs=inputs, outputs=follower.outputs, post_ops=(*producer.post_ops, post)
    )


def fuse_post_ops(graph: Graph, ability: Ability) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with elementwise followers fused into their producers.

    The fused node stands where the follower stood, so that the other operand exists by then.
    """
    rewriter = Rewriter(graph)
    refusals: list[Refusal] = []
    order = {node.name: position for position, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        producer = rewriter.producer(node.outputs[0])
        if producer is None or producer.name != node.name or not ability.post_ops(producer):
            continue
        if rewriter.value(producer.outputs[0]).dtype.name not in ability.dtypes:
            continue  # no kernel computes in this dtype
        while True:
            follower = rewriter.only_reader(producer.outputs[0])
            if follower is None or OPS[follower.op].post_op == "none" or follower.post_ops:
                break
            post = _post_op(rewriter, ability, order, producer, follower)
            if isinstance(post, str):
                refusals.append(Refusal("fuse_post_ops", follower.name, post))
                break
            fused = _fused(producer, follower, post)
            order[producer.name] = order[follower.name]
            rewriter.remove(producer)
            rewriter.replace(follower, fused)
            producer = fused
    return rewriter.finish(), tuple(refusals)
