"""The table of operators: one :class:`OpSpec` each, registered at the bottom of its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, ParamSpec, Protocol

import numpy as np
from numpy.typing import NDArray

from stridewise.classes import dataclass
from stridewise.dtypes import dtype_of
from stridewise.errors import FormatError, GraphError, StridewiseError
from stridewise.formats import Format
from stridewise.graph import Attr, Graph, Node, PostOp, TensorType
from stridewise.ops.attributes import Attributes, Kind, check_attributes
from stridewise.ops.data_format import (
    ATTRIBUTE,
    CHANNELS_LAST,
    DATA_FORMATS,
    canonical_order,
    canonical_type,
    data_format,
    inverse,
    is_turned,
    user_type,
)

__all__ = [
    "OPS",
    "Array",
    "Backward",
    "OpSpec",
    "Operands",
    "OriginRule",
    "Permuted",
    "Types",
    "VjpRule",
    "array",
    "check_data_format",
    "evaluate",
    "infer",
    "needs",
    "permute",
    "register",
    "tensor",
]

_Fields = ParamSpec("_Fields")

Array = NDArray[Any]
Operands = Sequence[Array | None]
Types = tuple[TensorType | None, ...]
"""Types of the inputs of a node, None for absent ones."""

OriginRule = Literal[
    "anchor", "sources", "elementwise", "same", "data", "permute", "keepdims", "interrupt"
]
"""How axis names flow through an operator.

- ``anchor``: input 0 and every output are N, C and spatial axes, by the operator's definition.
- ``sources``: every input is, and no output.
- ``elementwise``: all inputs and outputs of the output's rank have the same axes.
- ``same``: all inputs and outputs have the same axes, whatever their extents.
- ``data``: input 0 and the output have the same axes; other inputs are parameters.
- ``permute``: the output has the input's axes in another order (attribute ``perm``).
- ``keepdims``: like ``same`` where the attribute ``keepdims`` is set, else ``interrupt``.
- ``interrupt``: axes change their meaning; nothing flows.
"""


@dataclass(frozen=True, slots=True)
class Permuted:
    """An operator before a transpose, which does what it did behind one.

    ``op(transpose(x, perm))`` with the old attributes equals ``transpose(op(x), perm)`` with these.

    Attributes:
        attrs: the attributes of the operator before the transpose.
        perm: the transpose of its result.
    """

    attrs: Mapping[str, Attr]
    perm: tuple[int, ...]


PermuteRule = Callable[[Node, tuple[int, ...], tuple[int, ...]], Permuted | str]
"""From a node, the shape before the transpose, and its permutation; or the reason why not."""


class Backward(Protocol):
    """A graph that grows by the nodes of gradients; :class:`GraphBuilder` is one."""

    def type(self, name: str) -> TensorType:
        """Return the type of a value."""
        ...

    def op(self, op: str, inputs: Sequence[str], attrs: Mapping[str, Attr] | None = None) -> str:
        """Add a node with one output and return the output's name."""
        ...

    def node(
        self, op: str, inputs: Sequence[str], attrs: Mapping[str, Attr] | None = None
    ) -> tuple[str, ...]:
        """Add a node of any operator but an anchor and return the names of its outputs."""
        ...

    def constant(self, array: Array, name: str = "constant") -> str:
        """Add a constant and return its name."""
        ...


VjpRule = Callable[[Node, Sequence[str], Backward], tuple[str, ...]]
"""The vector-Jacobian product of an operator, as nodes of the backward graph.

It takes a node, the names of the gradients of its outputs (``""`` where an output has none), and
the graph to add nodes to, which has the inputs and outputs of the node. It returns the names of the
gradients of its inputs, ``""`` for inputs without one; those at the end may be left out. A gradient
has the type of its value. The rule of an anchor sees feature maps in canonical order. Rules add
nodes of known operators and compute nothing themselves.
"""


@dataclass(frozen=True, slots=True)
class OpSpec:
    """The meaning of one operator. Its kernels belong to targets.

    Attributes:
        name: the key in graphs.
        arity: least and greatest number of inputs, post-op operands not counted; None: no limit.
        infer: types of the outputs from the node and the types of its inputs.
        evaluate: NumPy reference: the outputs from the node and its inputs, in the user's order.
        origin: how axis names flow.
        attributes: its attributes; anchors have ``data_format`` as well. Any other one is an error.
        post_op: whether a kernel may apply it to its own results, element by element: to them alone
            (``"eltwise"``) or with a second operand (``"binary"``).
        permuted: how a transpose of its operands moves past it; None where none can. See
            :func:`permute`, which knows what anchors and elementwise operators do.
        vjp: how gradients flow from its outputs to its inputs; None where no rule is known.
    """

    name: str
    arity: tuple[int, int | None]
    infer: Callable[[Node, Types], tuple[TensorType, ...]]
    evaluate: Callable[[Node, Operands], tuple[Array, ...]]
    origin: OriginRule
    attributes: Attributes = field(default_factory=dict[str, Kind])
    post_op: Literal["none", "eltwise", "binary"] = "none"
    permuted: PermuteRule | None = None
    vjp: VjpRule | None = None

    @property
    def known_attributes(self) -> Attributes:
        """The attributes that nodes may have."""
        is_anchor = self.origin == "anchor"
        return {**self.attributes, ATTRIBUTE: "text"} if is_anchor else self.attributes


OPS: dict[str, OpSpec] = {}


def _adding(make: Callable[_Fields, OpSpec]) -> Callable[_Fields, None]:
    def register(*args: _Fields.args, **kwargs: _Fields.kwargs) -> None:
        """Add an operator to the table.

        A second one of the same name is a programming error.

        Args:
            *args: the fields of :class:`OpSpec`, in order.
            **kwargs: likewise, by name.
        """
        spec = make(*args, **kwargs)
        if spec.name in OPS:
            raise GraphError.at("operator table", expected="a new name", found=spec.name)
        OPS[spec.name] = spec

    return register


register = _adding(OpSpec)


def _spec_of(node: Node) -> OpSpec:
    spec = OPS.get(node.op)
    if spec is None:
        raise GraphError.at(f"node {node.name!r}", expected="a known operator", found=repr(node.op))
    return spec


def _turns(spec: OpSpec, node: Node) -> bool:
    return spec.origin == "anchor" and is_turned(node)


def infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    """Return the types of a node's outputs.

    Raises:
        GraphError: the operator is unknown, or the inputs or attributes do not fit it; the
            message names the node.
    """
    spec = _spec_of(node)
    own = len(types) - sum(post.operand is not None for post in node.post_ops)
    low, high = spec.arity
    if own < low or (high is not None and own > high):
        wanted = f"{low}" if low == high else f"{low} to {high if high is not None else 'any'}"
        raise GraphError.at(
            f"node {node.name!r} ({node.op})", expected=f"{wanted} inputs", found=str(own)
        )
    check_attributes(node, spec.known_attributes)
    if _turns(spec, node):
        seen = (canonical_type(node, tensor(node, types, 0)), *types[1:])
        results = tuple(user_type(node, found) for found in spec.infer(node, seen))
    else:
        results = spec.infer(node, types)
    for post in node.post_ops:
        _check_post_op(node, post, types, results[0])
    return results


def _post_step(node: Node, post: PostOp) -> Node:
    """Return a post-op as a node; parameters that its operator does not have must be 0."""
    known, numbers = OPS[post.op].attributes, (("alpha", post.alpha), ("beta", post.beta))
    attrs = tuple((key, number) for key, number in numbers if number or key in known)
    return Node(f"{node.name}+{post.op}", post.op, ("x",), ("y",), attrs)


def _check_post_op(node: Node, post: PostOp, types: Types, result: TensorType) -> None:
    """Raise a GraphError unless a post-op gives a result of the type that it takes."""
    known = OPS[post.op].post_op if post.op in OPS else "none"
    is_known = known == ("eltwise" if post.operand is None else "binary")
    needs(node, is_known, "post-ops with the operands of their operator", post)
    step = _post_step(node, post)
    operands = () if post.operand is None else (tensor(node, types, post.operand),)
    found = infer(step, (result, *operands))
    needs(
        node, found == (result,), f"post-ops that keep the type {result}", f"{post.op}: {found[0]}"
    )


def evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Compute a node with NumPy, post-ops included.

    Raises:
        GraphError: the operator is unknown.
    """
    spec = _spec_of(node)
    if any(operand is not None and not operand.size for operand in operands):
        # Nothing is cheap to compute, but not with loops over extents beside the one that is 0.
        types = [None if x is None else TensorType(dtype_of(x.dtype), x.shape) for x in operands]
        found = infer(node, tuple(types))
        if all(0 in item.shape for item in found):
            return tuple(np.empty(item.shape, item.dtype.numpy) for item in found)
    if _turns(spec, node):
        order = canonical_order(node, array(operands, 0).ndim)
        seen = (array(operands, 0).transpose(order), *operands[1:])
        results = [
            found.transpose(inverse(canonical_order(node, found.ndim)))
            for found in spec.evaluate(node, seen)
        ]
    else:
        results = list(spec.evaluate(node, operands))
    for post in node.post_ops:
        step = _post_step(node, post)
        inputs: list[Array | None] = [results[0]]
        if post.operand is not None:
            inputs.append(operands[post.operand])
        results[0] = _spec_of(step).evaluate(step, inputs)[0]
    return tuple(np.asarray(result) for result in results)


def permute(node: Node, shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    """Return what a node does before a transpose instead of after it, or why it cannot.

    Args:
        node: reads ``transpose(x, perm)``; where operands have the same axes, of all of them.
        shape: of x.
        perm: of the transpose.
    """
    spec = _spec_of(node)
    if spec.permuted is not None:
        return spec.permuted(node, shape, perm)
    if spec.origin == "elementwise":
        return Permuted(dict(node.attrs), perm)
    if spec.origin != "anchor":
        return "its axes have an order of their own"
    users = data_format(node, len(perm))
    order = "" if users is None else "".join(users.order[axis] for axis in inverse(perm))
    if order not in DATA_FORMATS:
        return f"there is no data format {order or 'of that rank'}"
    attrs = {key: value for key, value in node.attrs if key != ATTRIBUTE}
    if DATA_FORMATS[order] is CHANNELS_LAST:
        attrs[ATTRIBUTE] = order
    return Permuted(attrs, perm)


def check_data_format(graph: Graph) -> None:
    """Check that all anchors of a model are channels-first, or all are channels-last.

    Matrices [N, C] are both.

    Raises:
        FormatError: two anchors differ; the message names both, and their data formats.
        GraphError: an anchor has a data format that does not fit its input.
    """
    first: tuple[Node, Format] | None = None
    for node in graph.nodes:
        if node.op not in OPS or OPS[node.op].origin != "anchor":
            continue
        found = data_format(node, len(graph.value(node.inputs[0]).shape))
        if found is None or str(found) not in DATA_FORMATS:
            continue
        if first is None:
            first = (node, found)
        elif DATA_FORMATS[str(first[1])] is not DATA_FORMATS[str(found)]:
            raise FormatError.at(
                f"graph {graph.name!r}",
                expected="one data format in a model",
                found=f"{first[1]} at node {first[0].name!r} ({first[0].op}) "
                f"and {found} at node {node.name!r} ({node.op})",
                fix="build one of them in the other's format, with transposed inputs",
            )


def needs(node: Node, condition: bool, expected: str, found: object) -> None:
    """Raise a GraphError that names the node unless ``condition`` holds."""
    if not condition:
        raise GraphError.at(f"node {node.name!r} ({node.op})", expected=expected, found=str(found))


def tensor(node: Node, types: Types, index: int) -> TensorType:
    """Return the type of an input that must be there.

    Raises:
        GraphError: the input is absent.
    """
    found = types[index] if index < len(types) else None
    if found is None:
        raise GraphError.at(
            f"node {node.name!r} ({node.op})", expected=f"input {index}", found="none"
        )
    return found


def array(operands: Operands, index: int) -> Array:
    """Return an operand that inference has already checked to be there.

    Raises:
        StridewiseError: it is not.
    """
    found = operands[index] if index < len(operands) else None
    if found is None:
        raise StridewiseError(f"operand {index} is absent; run shape inference first")
    return found
