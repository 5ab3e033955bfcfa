"""What gradient rules are written with: values of the backward graph as terms of formulas.

A rule (:data:`~stridewise.ops.registry.VjpRule`) stands beside its operator. It writes the gradient
as nodes of known operators. :class:`Term` has the arithmetic for it, so that a rule reads like the
formula in a textbook.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from stridewise.classes import dataclass
from stridewise.errors import GraphError
from stridewise.graph import Attr, Node, TensorType
from stridewise.ops.data_format import ATTRIBUTE, canonical_order, inverse, is_turned
from stridewise.ops.registry import OPS, Array, Backward, VjpRule

__all__ = [
    "Gradient",
    "Term",
    "elementwise_rule",
    "input_gradients",
    "normalization_gradient",
    "of_steps",
    "rule_of_term",
]


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A value of the backward graph; arithmetic adds nodes, with NumPy's broadcasting."""

    b: Backward
    name: str

    @property
    def type(self) -> TensorType:
        """Element type and shape."""
        return self.b.type(self.name)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self.type.shape

    def of(self, op: str, *others: Term | float, **attrs: Attr) -> Term:
        """Return the result of an operator of this value, of others and of attributes."""
        names = [self.name, *(self.like(other).name for other in others)]
        return Term(self.b, self.b.op(op, names, attrs))

    def like(self, value: Term | float) -> Term:
        """Return a term, or a constant of this element type."""
        if isinstance(value, Term):
            return value
        return self.constant(np.asarray(value))

    def constant(self, array: Array) -> Term:
        """Return a constant of this element type."""
        return Term(self.b, self.b.constant(array.astype(self.type.dtype.numpy), "number"))

    def __add__(self, other: Term | float) -> Term:
        return self.of("add", other)

    def __radd__(self, other: float) -> Term:
        return self.of("add", other)

    def __sub__(self, other: Term | float) -> Term:
        return self.of("sub", other)

    def __rsub__(self, other: float) -> Term:
        return self.like(other).of("sub", self)

    def __mul__(self, other: Term | float) -> Term:
        return self if other == 1.0 else self.of("mul", other)

    def __rmul__(self, other: float) -> Term:
        return self * other

    def __truediv__(self, other: Term | float) -> Term:
        return self.of("div", other)

    def __rtruediv__(self, other: float) -> Term:
        return self.like(other).of("div", self)

    def __neg__(self) -> Term:
        return self.of("neg")

    def power(self, exponent: float) -> Term:
        """Return a power with a known exponent."""
        return self.of("power", alpha=float(exponent))

    def where(self, comparison: str, other: Term | float) -> Term:
        """Return 1 where a comparison (``"greater"``, ``"equal"``, ...) holds, and 0 elsewhere."""
        ones = (self.of(comparison, other).name, self.like(1.0).name, self.like(0.0).name)
        return Term(self.b, self.b.op("where", ones))

    def kept(self, condition: Term) -> Term:
        """Return the value where a condition holds, and 0 elsewhere, also of infinities and NaN."""
        return condition.of("where", self, self.like(0.0))

    def sum(self, axes: Sequence[int], *, keepdims: bool = True) -> Term:
        """Return the sum over some axes."""
        return self.of("reduce_sum", axes=tuple(axes), keepdims=int(keepdims)) if axes else self

    def mean(self, axes: Sequence[int]) -> Term:
        """Return the mean over some axes, which stay with extent 1."""
        return self.of("reduce_mean", axes=tuple(axes), keepdims=1)

    def reshape(self, shape: Sequence[int]) -> Term:
        """Return the same elements in another shape."""
        return self if self.shape == tuple(shape) else self.of("reshape", shape=tuple(shape))

    def expand(self, shape: Sequence[int]) -> Term:
        """Return the value broadcast to a shape."""
        return self if self.shape == tuple(shape) else self.of("expand", shape=tuple(shape))

    def transpose(self, perm: Sequence[int]) -> Term:
        """Return the value with its axes in another order."""
        return self if list(perm) == sorted(perm) else self.of("transpose", perm=tuple(perm))

    def swapped(self) -> Term:
        """Return the value with its last two axes exchanged."""
        rank = len(self.shape)
        return self.transpose((*range(rank - 2), rank - 1, rank - 2))

    def sum_to(self, shape: Sequence[int]) -> Term:
        """Return the gradient of a value of this shape that was broadcast."""
        ahead = len(self.shape) - len(shape)
        aligned = (1,) * ahead + tuple(shape)
        axes = [i for i, n in enumerate(aligned) if n == 1 and self.shape[i] != 1]
        return self.sum(axes).reshape(shape)


Gradient = Callable[[Term, Term, Term, float, float], Term]
"""From dy, x, y = f(x), alpha and beta to dy f'(x).

Where f'(x) is 0 on an interval, dy is not multiplied: it may be infinite there.
"""


def elementwise_rule(
    gradient: Gradient, parameters: Callable[[Node], tuple[float, float]]
) -> VjpRule:
    """Return the rule of an operator of one operand with a known gradient."""
    return rule_of_term(lambda node, x, y, dy: gradient(dy, x, y, *parameters(node)))


def rule_of_term(function: Callable[[Node, Term, Term, Term], Term]) -> VjpRule:
    """Return the rule of an operator of one operand and one result.

    Args:
        function: from the node, x, y and the gradient of y to the gradient of x.
    """

    def rule(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
        x, y = Term(b, node.inputs[0]), Term(b, node.outputs[0])
        return (function(node, x, y, Term(b, gradients[0])).name,)

    return rule


def of_steps(_dy: Term, x: Term, _y: Term, _alpha: float, _beta: float) -> Term:
    """Return the gradient of a function of steps, which is 0."""
    return x.like(0.0).expand(x.shape)


class _Canonical:
    """A backward graph as a rule sees it whose node has channels last: in canonical order.

    Feature maps that rules read and write are transposed; the anchors that they add have channels
    last again, so that a graph has one data format.
    """

    def __init__(self, b: Backward, node: Node) -> None:
        self.b, self.anchor = b, node

    def type(self, name: str) -> TensorType:
        return self.b.type(name)

    def constant(self, array: Array, name: str = "constant") -> str:
        return self.b.constant(array, name)

    def node(
        self, op: str, inputs: Sequence[str], attrs: Mapping[str, Attr] | None = None
    ) -> tuple[str, ...]:
        return self.b.node(op, inputs, attrs)

    def op(self, op: str, inputs: Sequence[str], attrs: Mapping[str, Attr] | None = None) -> str:
        given = dict(attrs or {})
        if OPS[op].origin != "anchor":
            return self.b.op(op, inputs, given)
        given[ATTRIBUTE] = self.anchor.str_attr(ATTRIBUTE)
        found = self.b.op(op, [self.users(inputs[0]), *inputs[1:]], given)
        return self.canonical(found)

    def canonical(self, name: str) -> str:
        order = canonical_order(self.anchor, len(self.type(name).shape))
        return Term(self.b, name).transpose(order).name

    def users(self, name: str) -> str:
        order = canonical_order(self.anchor, len(self.type(name).shape))
        return Term(self.b, name).transpose(inverse(order)).name


def input_gradients(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    """Add the nodes of the gradients of a node's inputs, and return their names.

    Args:
        node: the node, without post-ops.
        gradients: names of the gradients of its outputs, ``""`` where an output has none; at least
            one output has one.
        b: the graph that has the node, and gets the nodes.

    Raises:
        GraphError: the operator has no gradient rule.
    """
    rule = OPS[node.op].vjp
    if rule is None or node.post_ops:
        found = "post-ops" if node.post_ops else f"{node.op}, which has none"
        raise GraphError.at(
            f"node {node.name!r} ({node.op})",
            expected="an operator with a gradient rule",
            found=found,
            fix="take the gradient of the graph before it is simplified"
            if node.post_ops
            else "write it with other operators",
        )
    if OPS[node.op].origin != "anchor" or not is_turned(node):
        return rule(node, gradients, b)
    turned = _Canonical(b, node)
    seen = replace(
        node,
        inputs=(turned.canonical(node.inputs[0]), *node.inputs[1:]),
        outputs=tuple(map(turned.canonical, node.outputs)),
        attrs=tuple(item for item in node.attrs if item[0] != ATTRIBUTE),
    )
    found = rule(seen, [name and turned.canonical(name) for name in gradients], turned)
    return (found[0] and turned.users(found[0]), *found[1:])


def normalization_gradient(dy: Term, normal: Term, inverse: Term, axes: Sequence[int]) -> Term:
    """Return the gradient of x, where ``normal`` is x less its mean, over its deviation.

    Args:
        dy: the gradient of ``normal``.
        normal: the normalized values.
        inverse: one over the deviation.
        axes: over which mean and variance were taken.
    """
    return (dy - dy.mean(axes) - normal * (dy * normal).mean(axes)) * inverse
