"""Expansion before export: post-ops and data formats become nodes.

ONNX has neither. A node with post-ops becomes the operator alone, then one node for each post-op.
A node with channels-last images becomes a transpose, the operator as in ONNX, and a transpose back.
The results are bitwise equal, because the NumPy reference also computes post-ops one after another.
Exporters see neither post-ops nor data formats.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from types import MappingProxyType

from stridewise.errors import ModelError, describe
from stridewise.graph import Attr, Graph, Node, PostOp, TensorType, Value

__all__ = ["Expanded", "expand"]

_CHANNELS_FIRST = ("NC", "NCW", "NCHW", "NCDHW")
_CHANNELS_LAST = ("NWC", "NHWC", "NDHWC")


@dataclass(frozen=True, slots=True)
class Expanded:
    """A graph without post-ops and data formats.

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
        self.owners: dict[str, str] = {}
        self._taken = set(graph.values) | {node.name for node in graph.nodes}

    def _fresh(self, hint: str) -> str:
        name, number = hint, 0
        while name in self._taken:
            number += 1
            name = f"{hint}.{number}"
        self._taken.add(name)
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

    # --- post-ops -------------------------------------------------------------------------------

    def node(self, node: Node) -> None:
        """Add a node and its post-ops."""
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
        self.part(node, post.op, inputs, result, alpha=post.alpha, beta=post.beta)

    # --- data formats ---------------------------------------------------------------------------

    def bare(self, node: Node) -> None:
        """Add a node without post-ops, between transposes if its images are channels-last."""
        declared = node.get("data_format")
        if declared is None:
            self.nodes.append(node)
            return
        if declared not in _CHANNELS_FIRST + _CHANNELS_LAST:
            raise ModelError(
                describe(
                    f"node {node.name!r} ({node.op})",
                    expected=f"a data_format of {', '.join(_CHANNELS_FIRST + _CHANNELS_LAST)}",
                    found=repr(declared),
                )
            )
        attrs = tuple(item for item in node.attrs if item[0] != "data_format")
        inner = dataclasses.replace(node, attrs=attrs)
        if declared in _CHANNELS_FIRST:
            self.nodes.append(inner)
        else:
            self.transposed(inner)

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
    """Return an equivalent graph without post-ops and data formats.

    Raises:
        ModelError: a node has a data format that is not known.
    """
    expansion = _Expansion(graph)
    for node in graph.nodes:
        expansion.node(node)
    expanded = dataclasses.replace(
        graph, nodes=tuple(expansion.nodes), values=MappingProxyType(expansion.values)
    )
    return Expanded(expanded, MappingProxyType(expansion.owners))
