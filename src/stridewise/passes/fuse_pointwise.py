"""Join elementwise operators into expressions, which need one pass over memory.

It comes after ``fuse_post_ops``: what a convolution applies to its own results is cheaper there.
A scale and shift beside another operator becomes a product and a sum, a cast of truth values to
float32 a choice between 1 and 0, and a triangle of matrices a choice between these and 0.
Operators of a smaller result than the last one stay apart, because an expression would compute them
again for each element that they are broadcast to.
"""

from __future__ import annotations

from math import isnan, prod

import numpy as np

from stridewise.graph import Graph, Node, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops import OPS, infer
from stridewise.ops.activation import UNARY, parameters
from stridewise.ops.data_format import channel_axis
from stridewise.ops.pointwise import MOST_INPUTS, MOST_STEPS, Step, weight
from stridewise.passes.ability import Ability

__all__ = ["expression", "fuse_pointwise", "inputs_of", "is_step", "why_apart"]


def _literal(rewriter: Rewriter, name: str) -> float | None:
    """Return a constant of one element as a number, None for all else."""
    known = rewriter.known(name)
    if known is None or prod(known.shape) != 1 or known.dtype.name != "float32":
        return None
    number = float(known.array.reshape(-1)[0])
    return None if isnan(number) else number


def inputs_of(rewriter: Rewriter, group: dict[str, Node]) -> tuple[str, ...]:
    """Return the values that a group of nodes reads, each once, without literals."""
    made = {node.outputs[0] for node in group.values()}
    read = dict.fromkeys(name for node in group.values() for name in node.inputs)
    return tuple(n for n in read if n not in made and _literal(rewriter, n) is None)


def is_step(rewriter: Rewriter, ability: Ability, node: Node) -> bool:
    """Return whether an expression can have a node: of values that its kernels compute with."""
    if node.op not in ability.steps or node.post_ops or not all(node.inputs):
        return False
    names = (*node.inputs, *node.outputs)
    return all(rewriter.value(name).dtype.name in (*ability.dtypes, "bool") for name in names)


def why_apart(rewriter: Rewriter, group: dict[str, Node], node: Node, last: Node) -> str:
    """Return why a node that makes an operand stays out of a group, or ""."""
    result = node.outputs[0]
    if rewriter.is_output(result):
        return "its result is an output"
    if rewriter.value(result).shape != rewriter.value(last.outputs[0]).shape:
        return f"its result is broadcast in {last.name!r}"
    if any(reader.name not in group for reader in rewriter.readers(result)):
        return "other nodes read its result"
    taken = sum(weight(item.op) for item in group.values()) + weight(node.op)
    if taken > MOST_STEPS or len(inputs_of(rewriter, {**group, node.name: node})) > MOST_INPUTS:
        return f"{last.name!r} would have more than {MOST_STEPS} steps or {MOST_INPUTS} inputs"
    return ""


def _group(
    rewriter: Rewriter, ability: Ability, last: Node, refusals: list[Refusal]
) -> dict[str, Node]:
    """Return the nodes that one expression with the result of a node can compute."""
    group = {last.name: last}
    while True:
        reasons: dict[str, str] = {}
        for name in inputs_of(rewriter, group):
            node = rewriter.producer(name)
            if node is None or not is_step(rewriter, ability, node):
                continue
            reasons[node.name] = why_apart(rewriter, group, node, last)
            if not reasons[node.name]:
                group[node.name] = node
                break
        else:
            refusals += (Refusal("fuse_pointwise", name, why) for name, why in reasons.items())
            return group


def expression(rewriter: Rewriter, group: tuple[Node, ...]) -> Node:
    """Return nodes, in the order in which they can run, as one expression."""
    last = group[-1]
    inputs = inputs_of(rewriter, {node.name: node for node in group})
    names: dict[str, str | float] = {name: f"x{index}" for index, name in enumerate(inputs)}
    texts: list[str] = []
    for index, node in enumerate(group):
        operands: list[str | float] = []
        for name in node.inputs:
            literal = None if name in names else _literal(rewriter, name)
            operands.append(names[name] if literal is None else literal)
        given = parameters(node) if node.op in UNARY else (0.0, 0.0)
        texts.append(str(Step(node.op, tuple(operands), *given)))
        names[node.outputs[0]] = f"t{index}"
    return Node(last.name, "pointwise", inputs, last.outputs, (("expression", tuple(texts)),))


def _fits(rewriter: Rewriter, node: Node, ability: Ability) -> bool:
    """Return whether the kernels take an expression: all is of one type of floats, or a mask.

    Masks of the run stand beside float32 only.
    """
    types = tuple(rewriter.value(name).type for name in node.inputs)
    result = rewriter.value(node.outputs[0]).type
    floats = {found.dtype.name for found in (*types, result)} - {"bool"}
    computed = [name for name in node.inputs if rewriter.known(name) is None]
    has_masks = any(
        rewriter.value(name).dtype.name == "bool" for name in (*computed, *node.outputs)
    )
    if len(floats) > 1 or not floats <= ability.dtypes or (has_masks and not floats <= {"float32"}):
        return False
    return infer(node, types) == (result,)


def _beside_step(rewriter: Rewriter, ability: Ability, node: Node) -> bool:
    """Return whether an expression could compute a node with what makes its operand or reads it."""
    behind, before = rewriter.only_reader(node.outputs[0]), rewriter.producer(node.inputs[0])
    alone = before is not None and rewriter.only_reader(node.inputs[0]) is None
    beside = (behind, None if alone else before)
    return any(item is not None and is_step(rewriter, ability, item) for item in beside)


def _as_choice(rewriter: Rewriter, ability: Ability, node: Node) -> None:
    """Replace a cast of truth values beside a possible step by a choice between two numbers."""
    types = [rewriter.value(name).dtype.name for name in (node.inputs[0], node.outputs[0])]
    if types != ["bool", "float32"] or not _beside_step(rewriter, ability, node):
        return
    one, zero = (
        rewriter.add_constant(f"{node.outputs[0]}.{name}", np.full((), number, np.float32))
        for name, number in (("one", 1), ("zero", 0))
    )
    rewriter.replace(node, Node(node.name, "where", (node.inputs[0], one, zero), node.outputs))


def _as_masked(rewriter: Rewriter, node: Node) -> None:
    """Replace a triangle of matrices by a choice between these and zeros."""
    x = rewriter.value(node.inputs[0])
    if prod(x.shape[-2:]) > _MOST_MASKED or not prod(x.shape):
        return
    (kept,) = OPS[node.op].evaluate(node, (np.ones(x.shape[-2:], np.bool_),))
    mask = rewriter.add_constant(f"{node.outputs[0]}.mask", kept)
    zero = rewriter.add_constant(f"{node.outputs[0]}.zero", np.zeros((), x.dtype.numpy))
    rewriter.replace(node, Node(node.name, "where", (mask, node.inputs[0], zero), node.outputs))


_MOST_MASKED = 1 << 24
"""Elements of the mask of a triangle."""


def _written_out(graph: Graph, ability: Ability) -> Graph:
    """Return the graph with triangles, and scales, shifts and casts beside steps, as such steps."""
    rewriter = Rewriter(graph)
    for node in rewriter.nodes():
        if node.op == "cast" and "where" in ability.steps:
            _as_choice(rewriter, ability, node)
        if node.op == "trilu" and "where" in ability.steps:
            _as_masked(rewriter, node)
        if node.op != "scale_shift" or node.post_ops:
            continue
        data = [rewriter.constant(name) for name in node.inputs[1:]]
        type_ = rewriter.value(node.outputs[0]).type
        if not _beside_step(rewriter, ability, node):
            continue
        rank = len(type_.shape)
        row = (-1, *(1,) * (rank - 1 - channel_axis(node, rank)))
        names = [
            rewriter.add_constant(name, item.reshape(row))
            for name, item in zip(node.inputs[1:], data, strict=True)
            if item is not None
        ]
        if len(names) < len(data) or type_.dtype.name not in ability.dtypes:
            continue
        product = rewriter.add_value(f"{node.outputs[0]}.scaled", type_)
        total = Node(node.name, "add", (product, names[1]), node.outputs)
        rewriter.replace(node, total)
        scale = Node(f"{node.name}.scale", "mul", (node.inputs[0], names[0]), (product,))
        rewriter.insert(scale, total)
    return rewriter.finish()


def fuse_pointwise(graph: Graph, ability: Ability) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with chains and trees of elementwise operators as expressions."""
    graph = _written_out(graph, ability)
    rewriter = Rewriter(graph)
    order = {node.name: position for position, node in enumerate(graph.nodes)}
    refusals: list[Refusal] = []
    left = dict.fromkeys(node.name for node in reversed(graph.nodes))
    nodes = {node.name: node for node in graph.nodes}
    for name in tuple(left):
        if name not in left or not is_step(rewriter, ability, nodes[name]):
            continue
        against: list[Refusal] = []
        found = _group(rewriter, ability, nodes[name], against)
        group = tuple(sorted(found.values(), key=lambda node: order[node.name]))
        refusals += against
        if len(group) == 1:
            continue
        joined = expression(rewriter, group)
        if not _fits(rewriter, joined, ability):
            reason = "its expression reads or gives values that its kernels do not compute with"
            refusals.append(Refusal("fuse_pointwise", name, reason))
            continue
        for node in group:
            del left[node.name]
            if node.name != name:
                rewriter.remove(node)
        rewriter.replace(nodes[name], joined)
    return rewriter.finish(), tuple(refusals)
