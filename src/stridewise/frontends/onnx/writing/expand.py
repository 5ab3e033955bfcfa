"""Expansion before export: post-ops, expressions, data formats and turned products become nodes.

ONNX has none of them. A node with post-ops becomes the operator alone, then one node for each
post-op. An expression becomes one node for each step. A node with channels-last images becomes a
transpose, the operator as in ONNX, and a transpose back. A product of transposed operands gets
transposes around it. The results are bitwise equal, because the NumPy reference also computes
post-ops one after another. Attention becomes its products, the steps between them and a softmax,
each of which rounds its results. Exporters see none of them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

import numpy as np

from stridewise.dtypes import DType
from stridewise.errors import ModelError
from stridewise.graph import Attr, Constant, Graph, Node, PostOp, TensorType, Value
from stridewise.graph.names import Names
from stridewise.ops import infer
from stridewise.ops.activation import parameter_attrs
from stridewise.ops.attention import attention_shape, steps_of
from stridewise.ops.data_format import inverse
from stridewise.ops.matmul import turned
from stridewise.ops.pointwise import step_nodes

__all__ = ["Expanded", "expand"]

_CHANNELS_FIRST = ("NC", "NCW", "NCHW", "NCDHW")
_CHANNELS_LAST = ("NWC", "NHWC", "NDHWC")


@dataclass(frozen=True, slots=True)
class Expanded:
    """A graph without post-ops, expressions, data formats and turned products.

    Attributes:
        graph: the expanded graph; existing nodes and values keep their names.
        owners: for each added node, the node that it was expanded from.
    """

    graph: Graph
    owners: MappingProxyType[str, str]


class _Expansion:
    """The expanded nodes and values so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.values = dict(graph.values)
        self.constants = dict(graph.constants)
        self.owners: dict[str, str] = {}
        self._fresh = Names(graph).fresh

    # --- expressions ----------------------------------------------------------------------------

    def expression(self, node: Node) -> None:
        """Add the steps of an expression as nodes, and its literals as constants."""
        names = {f"x{index}": name for index, name in enumerate(node.inputs)}
        types = [self.values[name].type for name in node.inputs]
        dtype = next(type_.dtype for type_ in types if type_.dtype.name != "bool")
        *inner, last = step_nodes(node)
        for step in inner:
            inputs = self.operands(node, step, names, dtype)
            found = tuple(self.values[name].type for name in inputs)
            (type_,) = infer(step, found)
            output = self.value(f"{node.outputs[0]}/{step.outputs[0]}", type_)
            names[step.outputs[0]] = output
            self.part(node, step.op, inputs, output, **dict(step.attrs))
        inputs = self.operands(node, last, names, dtype)
        self.nodes.append(Node(node.name, last.op, inputs, node.outputs, last.attrs))

    def operands(
        self, node: Node, step: Node, names: dict[str, str], dtype: DType
    ) -> tuple[str, ...]:
        """Return the values that a step reads, and define literals that are new."""
        for text in step.inputs:
            if text not in names:
                names[text] = self.literal(f"{node.name}/{text}", float(text), dtype)
        return tuple(names[text] for text in step.inputs)

    def literal(self, hint: str, number: float, dtype: DType) -> str:
        """Define a scalar constant and return its name."""
        name = self.value(hint, TensorType(dtype, ()))
        self.constants[name] = Constant(np.array(number, dtype.numpy))
        return name

    def value(self, hint: str, type_: TensorType) -> str:
        """Define a value and return its name."""
        name = self._fresh(hint)
        self.values[name] = Value(name, type_)
        return name

    def part(
        self, owner: Node, op: str, inputs: tuple[str, ...], output: str, **attrs: Attr
    ) -> None:
        """Add a node that is expanded from another one."""
        name = self._fresh(f"{owner.name}/{op}")
        self.owners[name] = owner.name
        self.nodes.append(Node(name, op, inputs, (output,), tuple(sorted(attrs.items()))))

    # --- attention ------------------------------------------------------------------------------

    def attention(self, node: Node) -> None:
        """Add the products of attention, the steps between them and the softmax."""
        q, k, v, *operands = node.inputs
        dtype = self.values[q].dtype
        shape = attention_shape(node, *(self.values[name].type for name in (q, k, v)))
        rank = len(shape.result)
        swap = (*range(rank - 2), rank - 1, rank - 2)
        q = self.made(node, "transpose", q, perm=turned(node, "perm_q", rank))
        to_rows = turned(node, "perm_k", rank)
        k = self.made(node, "transpose", k, perm=tuple(to_rows[axis] for axis in swap))
        v = self.made(node, "transpose", v, perm=turned(node, "perm_v", rank))
        scores = self.made(node, "matmul", q, k)
        if (scale := node.float_attr("scale", 1.0)) != 1:
            scores = self.made(
                node, "mul", scores, self.literal(f"{node.name}/scale", scale, dtype)
            )
        whole = (*shape.batch, shape.queries, shape.keys)
        scores = self.made(node, "expand", scores, shape=whole)
        if operands:
            scores = self.made(node, "reshape", scores, shape=shape.scores)
        for (step, fill), operand in zip(steps_of(node), operands, strict=True):
            if step in ("add", "mul"):
                scores = self.made(node, step, scores, operand)
                continue
            mask = self.made(node, "cast", operand, to="bool")
            number = self.literal(f"{node.name}/fill", fill, dtype)
            sides = (number, scores) if step == "where" else (scores, number)
            scores = self.made(node, "where", mask, *sides)
        if operands:
            scores = self.made(node, "reshape", scores, shape=whole)
        weights = self.made(node, "softmax", scores, axis=rank - 1)
        if zeroed := node.str_attr("zeroed", ""):
            zero, least = (
                self.literal(f"{node.name}/{name}", number, dtype)
                for name, number in (("zero", 0.0), ("least", -inf))
            )
            if zeroed == "nan":
                is_zero = self.made(node, "is_nan", weights)
            else:
                most = self.made(node, "reduce_max", scores, axes=(rank - 1,), keepdims=1)
                is_zero = self.made(node, "equal", most, least)
            weights = self.made(node, "where", is_zero, zero, weights)
        result = self.made(node, "matmul", weights, v)
        perm = (("perm", turned(node, "perm", rank)),)
        self.nodes.append(Node(node.name, "transpose", (result,), node.outputs, perm))

    def made(self, owner: Node, op: str, *inputs: str, **attrs: Attr) -> str:
        """Add a node that is expanded from another one, and return the name of its result."""
        types = tuple(self.values[name].type for name in inputs)
        (type_,) = infer(Node(op, op, inputs, ("y",), tuple(sorted(attrs.items()))), types)
        output = self.value(f"{owner.outputs[0]}/{op}", type_)
        self.part(owner, op, inputs, output, **attrs)
        return output

    # --- post-ops -------------------------------------------------------------------------------

    def node(self, node: Node) -> None:
        """Add a node, and its post-ops or the steps of its expression."""
        if node.op == "pointwise":
            self.expression(node)
            return
        if node.op == "attention":
            self.attention(node)
            return
        if not node.post_ops:
            self.bare(node)
            return
        operands = {post.operand for post in node.post_ops}
        own = tuple(name for index, name in enumerate(node.inputs) if index not in operands)
        result, *others = node.outputs
        type_ = self.values[result].type
        between = self.value(f"{result}/{node.op}", type_)
        self.bare(dataclasses.replace(node, inputs=own, outputs=(between, *others), post_ops=()))
        for post in node.post_ops[:-1]:
            after = self.value(f"{result}/{post.op}", type_)
            self.post_op(node, post, between, after)
            between = after
        self.post_op(node, node.post_ops[-1], between, result)

    def post_op(self, node: Node, post: PostOp, source: str, result: str) -> None:
        """Add one post-op as a node."""
        inputs = (source,) if post.operand is None else (source, node.inputs[post.operand])
        self.part(
            node, post.op, inputs, result, **dict(parameter_attrs(post.op, post.alpha, post.beta))
        )

    # --- data formats ---------------------------------------------------------------------------

    def bare(self, node: Node) -> None:
        """Add a node without post-ops, between transposes if it has them."""
        if node.op == "matmul":
            self.product(node)
            return
        declared = node.get("data_format")
        if declared is None:
            self.nodes.append(node)
            return
        if declared not in _CHANNELS_FIRST + _CHANNELS_LAST:
            raise ModelError.at(
                f"node {node.name!r} ({node.op})",
                expected=f"a data_format of {', '.join(_CHANNELS_FIRST + _CHANNELS_LAST)}",
                found=repr(declared),
            )
        attrs = tuple(item for item in node.attrs if item[0] != "data_format")
        inner = dataclasses.replace(node, attrs=attrs)
        if declared in _CHANNELS_FIRST:
            self.nodes.append(inner)
        else:
            self.transposed(inner)

    def product(self, node: Node) -> None:
        """Add a matrix product, between the transposes that its attributes say."""
        perms = {key: node.ints_attr(key) for key in ("perm_a", "perm_b", "perm") if node.get(key)}
        inputs, result = list(node.inputs), node.outputs[0]
        for index, key in enumerate(("perm_a", "perm_b")):
            if key in perms:
                source, perm = inputs[index], perms[key]
                inputs[index] = self.value(f"{source}/{key}", self._permuted(source, perm))
                self.part(node, "transpose", (source,), inputs[index], perm=perm)
        inner = result
        if "perm" in perms:
            inner = self.value(f"{result}/matmul", self._permuted(result, inverse(perms["perm"])))
        attrs = tuple(item for item in node.attrs if item[0] not in perms)
        product = dataclasses.replace(node, inputs=tuple(inputs), outputs=(inner,), attrs=attrs)
        self.nodes.append(product)
        if "perm" in perms:
            self.part(node, "transpose", (inner,), result, perm=perms["perm"])

    def transposed(self, node: Node) -> None:
        """Add a node between transposes: of its first input, and of all its outputs."""
        source = node.inputs[0]
        rank = len(self.values[source].shape)
        to_first = (0, rank - 1, *range(1, rank - 1))
        to_last = (0, *range(2, rank), 1)
        inside = self.value(f"{source}/channels_first", self._permuted(source, to_first))
        self.part(node, "transpose", (source,), inside, perm=to_first)
        results = tuple(
            self.value(f"{name}/channels_first", self._permuted(name, to_first))
            for name in node.outputs
        )
        inputs = (inside, *node.inputs[1:])
        self.nodes.append(dataclasses.replace(node, inputs=inputs, outputs=results))
        for result, name in zip(results, node.outputs, strict=True):
            self.part(node, "transpose", (result,), name, perm=to_last)

    def _permuted(self, name: str, perm: tuple[int, ...]) -> TensorType:
        found = self.values[name].type
        return TensorType(found.dtype, tuple(found.shape[axis] for axis in perm))


def expand(graph: Graph) -> Expanded:
    """Return an equivalent graph without post-ops, expressions, data formats, turned products.

    Raises:
        ModelError: a node has a data format that is not known.
    """
    expansion = _Expansion(graph)
    for node in graph.nodes:
        expansion.node(node)
    expanded = dataclasses.replace(
        graph,
        nodes=tuple(expansion.nodes),
        values=MappingProxyType(expansion.values),
        constants=MappingProxyType(expansion.constants),
    )
    return Expanded(expanded, MappingProxyType(expansion.owners))
