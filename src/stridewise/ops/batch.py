"""Whether a graph computes every item of its batch by itself.

Where it does, inputs may be padded to a larger batch and outputs cut, and what the spare items hold
changes nothing. The batch is the first axis of inputs; operators that are not listed here, or that
do anything else to that axis, are refused with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest

from stridewise.graph import Graph, Node, Refusal
from stridewise.ops.reduce import REDUCTIONS
from stridewise.ops.registry import OPS

__all__ = ["batch_outputs"]

Shapes = tuple[tuple[int, ...], ...]
Carried = tuple[bool, ...]
Rule = Callable[[Node, Shapes, Carried], bool]
"""From a node, the shapes of its inputs, and which of them carry the batch: whether its output has
the batch in front, each item computed from the same item of those inputs."""


def _first_only(_node: Node, _shapes: Shapes, carried: Carried) -> bool:
    return carried[0] and not any(carried[1:])


def _elementwise(_node: Node, shapes: Shapes, carried: Carried) -> bool:
    rank = max(map(len, shapes))
    return all(
        len(shape) == rank if own else len(shape) < rank or shape[0] == 1
        for shape, own in zip(shapes, carried, strict=True)
    )


def _other_axis(node: Node, shapes: Shapes, carried: Carried) -> bool:
    return _first_only(node, shapes, carried) and node.int_attr("axis", 0) % len(shapes[0]) != 0


def _concat(node: Node, shapes: Shapes, carried: Carried) -> bool:
    return all(carried) and node.int_attr("axis") % len(shapes[0]) != 0


def _reduce(node: Node, shapes: Shapes, _carried: Carried) -> bool:
    axes = node.get("axes")
    rank = len(shapes[0])
    return isinstance(axes, tuple) and all(int(axis) % rank != 0 for axis in axes) and bool(axes)


def _normalized(node: Node, shapes: Shapes, carried: Carried) -> bool:
    return _first_only(node, shapes, carried) and _reduce(node, shapes, carried)


def _pad(node: Node, shapes: Shapes, _carried: Carried) -> bool:
    pads = node.ints_attr("pads")
    return pads[0] == pads[len(shapes[0])] == 0


def _slice(node: Node, shapes: Shapes, _carried: Carried) -> bool:
    bounds = [node.ints_attr(key)[0] for key in ("starts", "stops", "steps")]
    return bounds == [0, shapes[0][0], 1]


def _resize(node: Node, shapes: Shapes, _carried: Carried) -> bool:
    return node.ints_attr("shape")[0] == shapes[0][0]


def _reshape(node: Node, shapes: Shapes, _carried: Carried) -> bool:
    # Row-major, so what keeps the first extent keeps every item where it is.
    return node.ints_attr("shape")[:1] == shapes[0][:1]


def _expand(node: Node, shapes: Shapes, _carried: Carried) -> bool:
    return len(node.ints_attr("shape")) <= len(shapes[0])


def _transpose(node: Node, _shapes: Shapes, _carried: Carried) -> bool:
    return node.ints_attr("perm")[:1] == (0,)


def _matmul(node: Node, shapes: Shapes, carried: Carried) -> bool:
    left, right = shapes[0], shapes[1]
    if any(carried[2:]) or not carried[0]:
        return False
    if carried[1]:
        return len(left) == len(right) > 2
    rows = len(left) > 2 or (len(left) == 2 and not node.int_attr("trans_a", 0))
    return rows and (len(right) <= 2 or len(right) < len(left) or right[0] == 1)


_RULES: Mapping[str, Rule] = {
    "arg_max": _other_axis,
    "arg_min": _other_axis,
    "avg_pool": _first_only,
    "channel_shuffle": _first_only,
    "concat": _concat,
    "conv": _first_only,
    "conv_transpose": _first_only,
    "cumsum": _other_axis,
    "depth_to_space": _first_only,
    "expand": _expand,
    "gather": _other_axis,
    "group_norm": _first_only,
    "hardmax": _other_axis,
    "interpolate": _other_axis,
    "layer_norm": _normalized,
    "log_softmax": _other_axis,
    "lrn": _first_only,
    "matmul": _matmul,
    "max_pool": _first_only,
    "pad": _pad,
    **dict.fromkeys(REDUCTIONS, _reduce),
    "reshape": _reshape,
    "resize": _resize,
    "scale_shift": _first_only,
    "slice": _slice,
    "softmax": _other_axis,
    "space_to_depth": _first_only,
    "top_k": _other_axis,
    "transpose": _transpose,
}


def _rule(op: str) -> Rule | None:
    if op in _RULES:
        return _RULES[op]
    return _elementwise if op in OPS and OPS[op].origin == "elementwise" else None


def batch_outputs(graph: Graph, inputs: frozenset[str], larger: Graph) -> frozenset[str] | Refusal:
    """Return the outputs that have the batch as their first axis, item by item, or why not.

    Args:
        graph: the model as it was imported.
        inputs: those whose first axis is the batch.
        larger: the same model, imported for a batch of one more.

    Returns:
        The outputs to cut when the inputs are padded; others do not depend on the batch.
    """
    differing = _difference(graph, larger)
    if differing is not None:
        return differing
    carrying = set(inputs)
    batches = [{each.values[name].shape[:1] for name in inputs} for each in (graph, larger)]
    for node, twin in zip(graph.nodes, larger.nodes, strict=True):
        names = [name for name in node.inputs if name]
        if not carrying.intersection(names):
            continue
        shapes = tuple(graph.values[name].shape for name in names)
        carried = tuple(name in carrying for name in names)
        rule = _rule(node.op)
        if rule is None:
            return Refusal("batch", node.name, f"{node.op} is not known to keep items apart")
        if not rule(node, shapes, carried):
            return Refusal("batch", node.name, f"{node.op} mixes items of the batch, or moves them")
        for each, own, batch in zip((graph, larger), (node, twin), batches, strict=True):
            # Extents that a model states, as those of an expansion, may be those of another batch.
            if not {each.values[name].shape[:1] for name in own.outputs if name} <= batch:
                return Refusal("batch", node.name, f"{node.op} makes another number of items")
        carrying.update(node.outputs)
    return frozenset(carrying.intersection(graph.outputs))


def _difference(graph: Graph, larger: Graph) -> Refusal | None:
    """Return where two imports differ in more than sizes: something depends on the batch."""
    for ours, theirs in zip_longest(graph.nodes, larger.nodes):
        if ours is None or theirs is None or (ours.op, ours.inputs) != (theirs.op, theirs.inputs):
            name = (ours or theirs or graph.nodes[0]).name
            return Refusal("batch", name, "the graph itself depends on the batch")
        if any(
            a != b and not (isinstance(a, tuple) and isinstance(b, tuple) and a[1:] == b[1:])
            for (_, a), (_, b) in zip(ours.attrs, theirs.attrs, strict=True)
        ):
            return Refusal("batch", ours.name, "an attribute depends on the batch")
    for name, constant in graph.constants.items():
        if larger.constants.get(name) != constant:
            return Refusal("batch", name, "a constant depends on the batch")
    return None
