"""Fuse activations and residual additions into the kernel that produces their operand.

A product, quotient, sum or difference with one constant number is a linear function, which is fused
after another post-op. Alone, it is left to ``fold_scale`` and to the expressions of its readers.

The target decides what kernels take; see :class:`Ability`.
"""

from __future__ import annotations

import dataclasses
from math import isfinite, prod

import numpy as np

from stridewise.graph import Graph, Node, PostOp, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops import OPS
from stridewise.ops.activation import parameters
from stridewise.passes.ability import Ability

__all__ = ["fuse_post_ops"]

LIMIT = 8
"""Post-ops per kernel; long chains cost registers."""

_LINEAR = "linear"
_COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum"})


def _eltwise(follower: Node) -> PostOp:
    return PostOp(follower.op, *parameters(follower))


def _linear(rewriter: Rewriter, producer: Node, follower: Node) -> PostOp | None:
    """Return what a follower computes with one constant number, None for all other followers."""
    if follower.op not in ("add", "sub", "mul", "div"):
        return None
    result = rewriter.value(producer.outputs[0])
    position = 1 - follower.inputs.index(result.name)
    known = rewriter.known(follower.inputs[position])
    if known is None or prod(known.shape) != 1 or not producer.post_ops:
        return None
    # A tensor on a grid may be stored as integers, which another function would prevent.
    if rewriter.value(follower.outputs[0]).type != result.type or result.grid is not None:
        return None
    number = float(known.array.reshape(-1)[0])
    if not isfinite(number) or (follower.op == "div" and (position == 0 or not number)):
        return None
    alpha, beta = {
        "add": (1.0, number),
        "sub": (1.0, -number) if position else (-1.0, number),
        "mul": (number, 0.0),
        "div": (1 / (number or 1.0), 0.0),
    }[follower.op]
    return PostOp(_LINEAR, alpha, beta)


def _joined(posts: tuple[PostOp, ...], post: PostOp) -> tuple[PostOp, ...]:
    """Return post-ops with one more; two linear ones in a row are one."""
    if not posts or {posts[-1].op, post.op} != {_LINEAR}:
        return (*posts, post)
    first = posts[-1]
    alpha, beta = first.alpha * post.alpha, first.beta * post.alpha + post.beta
    fits = np.isfinite(np.array([alpha, beta]).astype(np.float32)).all()
    return (*posts[:-1], PostOp(_LINEAR, alpha, beta)) if fits else (*posts, post)


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
    if rival is not None and len(producer.outputs) > 1 and order[rival.name] > order[producer.name]:
        return f"{rival.name!r} runs later"
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
    linear = _linear(rewriter, producer, follower)
    if linear is not None and _LINEAR in ability.post_ops(producer):
        return linear
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
        producer,
        inputs=inputs,
        outputs=(*follower.outputs, *producer.outputs[1:]),
        post_ops=_joined(producer.post_ops, post),
    )


def fuse_post_ops(graph: Graph, ability: Ability) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with elementwise followers fused into their producers.

    The fused node stands where the follower stood, so that the other operand exists by then. One
    with several results stays in its place, before the readers of the others.
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
            follower = rewriter.only_reader(producer.outputs[0], once=False)
            if follower is None or OPS[follower.op].post_op == "none" or follower.post_ops:
                break
            post = _post_op(rewriter, ability, order, producer, follower)
            if isinstance(post, str):
                refusals.append(Refusal("fuse_post_ops", follower.name, post))
                break
            fused = _fused(producer, follower, post)
            if len(producer.outputs) > 1:
                rewriter.remove(follower)
                rewriter.replace(producer, fused)
            else:
                order[producer.name] = order[follower.name]
                rewriter.remove(producer)
                rewriter.replace(follower, fused)
            producer = fused
    return rewriter.finish(), tuple(refusals)
