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


def _own_inputs(host: Node) -> tuple[str, ...]:
    """Return the inputs, absent optional ones included: operands of post-ops come after them."""
    most = OPS[host.op].arity[1] or 0
    return host.inputs + ("",) * (most - len(host.inputs))


def _binary(
    rewriter: Rewriter, ability: Ability, order: dict[str, int], host: Node, follower: Node
) -> PostOp | str:
    if follower.op not in _COMMUTATIVE:
        return f"{follower.op} is not commutative"
    if follower.inputs[0] == follower.inputs[1]:
        return "both operands are the same value"
    own = follower.inputs.index(host.outputs[0])
    other = follower.inputs[1 - own]
    if rewriter.value(other).type != rewriter.value(host.outputs[0]).type:
        return "the other operand has another shape"
    if rewriter.known(other) is not None:
        return "the other operand is a constant"
    rival = rewriter.producer(other)
    if rival is not None and len(host.outputs) > 1 and order[rival.name] > order[host.name]:
        return f"{rival.name!r} runs later"
    if rival is not None:
        if rival.op == "transpose":
            return "the other operand's axes come in another order"
        later = order.get(rival.name, -1) > order.get(host.name, -1)
        if follower.op in ability.post_ops(rival) and rewriter.only_reader(other) and later:
            return f"{rival.name!r}, which runs later, takes it"
    return PostOp(follower.op, operand=len(_own_inputs(host)))


def _post_op(
    rewriter: Rewriter, ability: Ability, order: dict[str, int], host: Node, follower: Node
) -> PostOp | str:
    if len(host.post_ops) >= LIMIT:
        return f"{host.name!r} has {LIMIT} post-ops already"
    if follower.op not in ability.post_ops(host):
        return f"a {host.op} kernel does not take {follower.op}"
    if OPS[follower.op].post_op == "eltwise":
        return _eltwise(follower)
    return _binary(rewriter, ability, order, host, follower)


def _fused(host: Node, follower: Node, post: PostOp) -> Node:
    inputs = host.inputs
    if post.operand is not None:
        own = follower.inputs.index(host.outputs[0])
        inputs = (*_own_inputs(host), follower.inputs[1 - own])
    return dataclasses.replace(
        host,
        inputs=inputs,
        outputs=(*follower.outputs, *host.outputs[1:]),
        post_ops=(*host.post_ops, post),
    )


def fuse_post_ops(graph: Graph, ability: Ability) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with elementwise followers fused into their hosts.

    The fused node stands where the follower stood, so that the other operand exists by then. One
    with several results stays in its place, before the readers of the others.
    """
    rewriter = Rewriter(graph)
    refusals: list[Refusal] = []
    order = {node.name: position for position, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        host = rewriter.producer(node.outputs[0])
        if host is None or host.name != node.name or not ability.post_ops(host):
            continue
        if rewriter.value(host.outputs[0]).dtype.name not in ability.dtypes:
            continue  # no kernel computes in this dtype
        while True:
            follower = rewriter.only_reader(host.outputs[0])
            if follower is None or OPS[follower.op].post_op == "none" or follower.post_ops:
                break
            post = _post_op(rewriter, ability, order, host, follower)
            if isinstance(post, str):
                refusals.append(Refusal("fuse_post_ops", follower.name, post))
                break
            fused = _fused(host, follower, post)
            if len(host.outputs) > 1:
                rewriter.remove(follower)
                rewriter.replace(host, fused)
            else:
                order[host.name] = order[follower.name]
                rewriter.remove(host)
                rewriter.replace(follower, fused)
            host = fused
    return rewriter.finish(), tuple(refusals)
