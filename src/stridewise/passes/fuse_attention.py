"""Fuse the products and the softmax of attention into one operator.

Its kernels keep the scores of a few queries in the caches. Apart, the scores of all queries are
written and read three times, and take memory for the number of tokens squared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import inf, isfinite, isnan, prod
from operator import mul

import numpy as np

from stridewise.classes import dataclass
from stridewise.dtypes import dtype_of
from stridewise.graph import Attr, Graph, Node, Refusal, TensorType
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.matmul import turned
from stridewise.passes.ability import Ability

__all__ = ["fuse_attention"]

_MATRIX = 2
_HALF = 0.5
"""What 1 and 0 are compared with."""
_MOST_STEPS = 8
"""What kernels take."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Step:
    """What a node does to scores.

    Attributes:
        op: a step of the operator ``attention``.
        shape: of the scores at this node.
        operand: the value beside the scores; "" if that is a number.
        number: a constant operand of one element.
        fill: for ``where`` and ``where_not``.
    """

    op: str
    shape: Shape
    operand: str = ""
    number: float = 0.0
    fill: float = 0.0


def _ways(rewriter: Rewriter, node: Node) -> Iterator[tuple[str, _Step]]:
    """Yield the ways to see a node as a step: the value that would be the scores, and the step."""
    shape = rewriter.value(node.outputs[0]).shape
    if node.op in ("add", "mul"):
        for scores, operand in (node.inputs, node.inputs[::-1]):
            number = rewriter.scalar(operand)
            if number is None or not isfinite(number):
                yield scores, _Step(node.op, shape, operand)
            else:
                yield scores, _Step(node.op, shape, number=number)
    elif node.op == "div":
        number = rewriter.scalar(node.inputs[1])
        if number is not None and isfinite(number) and number != 0:
            yield node.inputs[0], _Step("mul", shape, number=1 / number)
    elif node.op == "where":
        mask, *sides = node.inputs
        for op, scores, other in (("where", *sides[::-1]), ("where_not", *sides)):
            fill = rewriter.scalar(other)
            if fill is not None and not isnan(fill):
                yield scores, _Step(op, shape, _condition(rewriter, mask), fill=fill)


def _condition(rewriter: Rewriter, name: str) -> str:
    """Return the truth values that a value is, which may have been 1 and 0 in between."""
    node = rewriter.producer(name)
    if node is None or node.op != "greater" or rewriter.scalar(node.inputs[1]) != _HALF:
        return name
    inner = rewriter.producer(node.inputs[0])
    if inner is None or inner.op not in ("cast", "where"):
        return name
    numbers = [rewriter.scalar(item) for item in inner.inputs[1:]]
    is_truth = rewriter.value(inner.inputs[0]).dtype.name == "bool"
    return inner.inputs[0] if is_truth and numbers in ([], [1, 0]) else name


def _walk(
    rewriter: Rewriter, name: str, beside: frozenset[str] = frozenset(), depth: int = 0
) -> tuple[Node, list[_Step]] | None:
    """Return the product that makes scores, and the steps between it and a value.

    Args:
        rewriter: of the graph.
        name: of the value.
        beside: nodes that may read it beside the one that it is walked from.
        depth: of nodes between both.
    """
    node = rewriter.producer(name)
    readers = {reader.name for reader in rewriter.readers(name)} - beside
    is_alone = len(readers) == 1 and not rewriter.is_output(name)
    if node is None or node.post_ops or not is_alone or depth > 2 * _MOST_STEPS:
        return None
    if node.op == "matmul":
        return node, []
    if node.op == "reshape":
        return _walk(rewriter, node.inputs[0], depth=depth + 1)
    type_ = rewriter.value(name).type
    for scores, step in _ways(rewriter, node):
        if rewriter.value(scores).type != type_:
            continue
        found = _walk(rewriter, scores, depth=depth + 1)
        if found is not None:
            return found[0], [*found[1], step]
    return None


def _perms(node: Node, rank: int) -> tuple[Shape, Shape]:
    """Return the transposes of the operands of a product, flags included."""
    found: list[Shape] = []
    for key, flag in (("perm_a", "trans_a"), ("perm_b", "trans_b")):
        perm = turned(node, key, rank)
        found.append(_swapped(perm) if node.int_attr(flag, 0) else perm)
    return found[0], found[1]


def _swapped(perm: Shape) -> Shape:
    return (*perm[:-2], perm[-1], perm[-2])


def _is_product(rewriter: Rewriter, node: Node, rank: int) -> bool:
    """Return whether a node multiplies two variables of float32 of a rank, and does no more."""
    types = [rewriter.value(name).type for name in node.inputs]
    return (
        node.op == "matmul"
        and not node.post_ops
        and len(types) == _MATRIX
        and all(item.dtype.name == "float32" and len(item.shape) == rank for item in types)
        and all(rewriter.known(name) is None for name in node.inputs)
    )


def _refined(shapes: Sequence[Shape]) -> Shape | None:
    """Return the shape whose axes merge to those of all shapes, or None if there is none.

    >>> _refined([(12, 5, 5), (4, 3, 5, 5)])
    (4, 3, 5, 5)
    """
    strides = {stride for shape in shapes for stride in accumulate((1, *shape[::-1]), mul)}
    inner = sorted(strides)
    if any(low == 0 or high % low for low, high in pairwise(inner)):
        return None
    return tuple(high // low for low, high in pairwise(inner))[::-1]


def _split(shape: Shape, whole: Shape, refined: Shape) -> Shape:
    """Return the shape of an operand that broadcasts to ``whole``, along the refined axes."""
    found: list[int] = []
    axes = iter(refined)
    for extent, full in zip((1,) * (len(whole) - len(shape)) + shape, whole, strict=True):
        left = full
        while left > 1:
            axis = next(axes)
            found.append(axis if extent == full else 1)
            left //= axis
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Weights:
    """The weights of attention.

    Attributes:
        name: of their value.
        zeroed: which undefined ones are 0, as the operator ``attention`` has it.
        beside: nodes that read the scores for that, beside the softmax.
    """

    name: str
    zeroed: str = ""
    beside: frozenset[str] = frozenset()


def _weights(rewriter: Rewriter, softmax: Node) -> _Weights:
    """Return the weights that a softmax makes, behind the choice of 0 for undefined ones."""
    result, scores = softmax.outputs[0], softmax.inputs[0]
    last = len(rewriter.value(result).shape) - 1
    for choice in rewriter.readers(result):
        if choice.op != "where" or choice.inputs[2] != result:
            continue
        test = rewriter.producer(_condition(rewriter, choice.inputs[0]))
        if test is None or rewriter.scalar(choice.inputs[1]) != 0:
            continue
        readers = {reader.name for reader in rewriter.readers(result)} - {choice.name}
        if test.op == "is_nan" and test.inputs[0] == result and readers == {test.name}:
            return _Weights(choice.outputs[0], "nan")
        most = rewriter.producer(test.inputs[0])
        if (
            test.op == "equal"
            and rewriter.scalar(test.inputs[1]) == -inf
            and most is not None
            and most.op == "reduce_max"
            and most.inputs[0] == scores
            and most.ints_attr("axes") == (last,)
            and rewriter.only_reader(most.outputs[0]) is not None
            and most.int_attr("keepdims", 0)
            and not readers
        ):
            return _Weights(choice.outputs[0], "empty", frozenset({most.name}))
    return _Weights(result)


@dataclass(frozen=True, slots=True)
class _Products:
    """Both products of attention, as the operator ``attention`` takes them.

    Attributes:
        inputs: queries, keys and values.
        perms: transposes of the operands and of the result, by attribute.
        extents: numbers of queries and of keys, their depth, and the width of values.
    """

    inputs: tuple[str, str, str]
    perms: dict[str, Shape]
    extents: tuple[int, int, int, int]


def _reader(rewriter: Rewriter, weights: str) -> tuple[str, Node | None]:
    """Return weights behind reshapes that keep their rows, and the only node that reads them."""
    while True:
        node = rewriter.only_reader(weights)
        if node is None or node.op != "reshape":
            return weights, node
        weights = node.outputs[0]


def _products(rewriter: Rewriter, first: Node, weights: str, last: Node) -> _Products | str:
    shape = rewriter.value(first.outputs[0]).shape
    rank = len(shape)
    if rewriter.value(weights).shape != shape:
        return "its scores and its weights have different shapes"
    if not _is_product(rewriter, first, rank) or not _is_product(rewriter, last, rank):
        return "its products have constants, biases, or other types or ranks than its scores"
    identity = tuple(range(rank))
    perm_q, to_columns = _perms(first, rank)
    perms, perm = _perms(last, rank), turned(last, "perm", rank)
    place = last.inputs.index(weights)
    if turned(first, "perm", rank) != identity:
        return "its scores are transposed"
    if perms[place] != (identity if place == 0 else _swapped(identity)):
        return "its weights are transposed before they are multiplied by values"
    perm_v = perms[1 - place]
    if place == 1:  # the transpose of a product is the product of transposes in the other order
        perm_v, perm = _swapped(perm_v), tuple(_swapped(identity)[axis] for axis in perm)
    values = last.inputs[1 - place]
    width = rewriter.value(values).shape[perm_v[-1]]
    result = rewriter.value(last.outputs[0]).shape
    if sorted(result) != sorted((*shape[:-1], width)):
        return "its values have more matrices than its scores"
    depth = rewriter.value(first.inputs[0]).shape[perm_q[-1]]
    given = {"perm_q": perm_q, "perm_k": _swapped(to_columns), "perm_v": perm_v, "perm": perm}
    return _Products(
        (first.inputs[0], first.inputs[1], values),
        {key: value for key, value in given.items() if value != identity},
        (shape[-2], shape[-1], depth, width),
    )


def _axes(refined: Shape, count: int) -> int:
    """Return how many of the last axes have so many elements together."""
    return next(i for i in range(len(refined) + 1) if prod(refined[len(refined) - i :]) == count)


class _Operands:
    """The operands of steps, as the operator takes them: of one type, along the same axes."""

    def __init__(self, rewriter: Rewriter, before: Node, refined: Shape) -> None:
        self.rewriter, self.before, self.refined = rewriter, before, refined

    def of(self, step: _Step) -> str:
        """Return the operand of a step, which may be a new value."""
        if not step.operand:
            number = np.full((1,) * len(self.refined), step.number, np.float32)
            return self.rewriter.add_constant(f"{self.before.name}/factor", number)
        type_ = self.rewriter.value(step.operand).type
        shape = _split(type_.shape, step.shape, self.refined)
        data = self.rewriter.constant(step.operand)
        if data is not None:
            if data.dtype == np.float32 and data.shape == shape:
                return step.operand
            hint = f"{step.operand}/of scores"
            single = data.astype(np.float32, copy=False)
            return self.rewriter.add_constant(hint, single.reshape(shape))
        name = step.operand
        if type_.dtype.name != "float32":
            type_ = TensorType(dtype_of("float32"), type_.shape)
            name = self._made("cast", name, type_, {"to": "float32"})
        if shape != type_.shape:
            name = self._made("reshape", name, TensorType(type_.dtype, shape), {"shape": shape})
        return name

    def _made(self, op: str, source: str, type_: TensorType, attrs: dict[str, Attr]) -> str:
        result = self.rewriter.add_value(f"{source}/{op}", type_)
        node = Node(f"{self.before.name}/{op}", op, (source,), (result,), tuple(attrs.items()))
        self.rewriter.insert(node, self.before)
        return result


def _fused(rewriter: Rewriter, softmax: Node, ability: Ability) -> str:
    """Fuse the attention around a softmax; return why not, or ""."""
    weights = _weights(rewriter, softmax)
    name, last = _reader(rewriter, weights.name)
    rows = rewriter.value(softmax.outputs[0]).shape
    if softmax.int_attr("axis") != len(rows) - 1 or softmax.post_ops:
        return "its softmax is not over rows"
    found = _walk(rewriter, softmax.inputs[0], weights.beside)
    if found is None or last is None or last.op != "matmul":
        return "it stands between no products"
    first, steps = found
    products = _products(rewriter, first, name, last)
    if isinstance(products, str):
        return products
    shape = rewriter.value(first.outputs[0]).shape
    if rows[-1] != shape[-1]:
        return "its softmax is not over the rows of its scores"
    if not ability.attends(*products.extents):
        return "products and softmax are faster apart"
    scale = 1.0
    while steps and steps[0].op == "mul" and not steps[0].operand:
        scale *= steps.pop(0).number
    refined = _refined([shape, *(step.shape for step in steps)])
    if refined is None or len(steps) > _MOST_STEPS:
        return "its scores are reshaped in ways that have no axes in common, or in many steps"
    operands = _Operands(rewriter, last, refined)
    attrs: dict[str, Attr] = {**products.perms}
    if scale != 1:
        attrs["scale"] = scale
    if weights.zeroed:
        attrs["zeroed"] = weights.zeroed
    if steps:
        key_axes = _axes(refined, shape[-1])
        attrs |= {
            "fills": tuple(step.fill for step in steps),
            "key_axes": key_axes,
            "query_axes": _axes(refined[: len(refined) - key_axes], shape[-2]),
            "shape": refined,
            "steps": tuple(step.op for step in steps),
        }
    inputs = (*products.inputs, *map(operands.of, steps))
    node = Node(last.name, "attention", inputs, last.outputs, tuple(sorted(attrs.items())))
    rewriter.replace(last, node)
    return ""


def fuse_attention(graph: Graph, ability: Ability) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with attention as one operator, where kernels are faster that way."""
    rewriter, refusals = Rewriter(graph), list[Refusal]()
    for node in rewriter.nodes():
        if node.op == "softmax":
            reason = _fused(rewriter, node, ability)
            if reason:
                refusals.append(Refusal("fuse_attention", node.name, reason))
    return rewriter.finish(), tuple(refusals)
