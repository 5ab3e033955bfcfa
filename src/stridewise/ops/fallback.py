"""A foreign part of a model as one node; see :class:`~stridewise.graph.ForeignPart`."""

from __future__ import annotations

import re

from stridewise.dtypes import dtype_of
from stridewise.errors import GraphError
from stridewise.graph import ForeignPart, Graph, Node, TensorType
from stridewise.ops.attributes import each
from stridewise.ops.registry import Array, Operands, Types, array, needs, register

__all__ = ["FALLBACK", "OP", "foreign_nbytes", "foreign_part", "parse_type"]

OP = "fallback"
"""The operator's name."""

_TYPE = re.compile(r"(\w+)\[([\d,]*)\]")


def foreign_part(node: Node) -> ForeignPart:
    """Return the part that a node ``fallback`` runs.

    Raises:
        GraphError: the node has none.
    """
    found = node.get("part")
    if not isinstance(found, ForeignPart):
        where = f"node {node.name!r} ({node.op}), attribute 'part'"
        raise GraphError.at(where, expected="a foreign part", found=repr(found))
    return found


def foreign_nbytes(graph: Graph) -> int:
    """Return the bytes of the foreign parts inside a graph; its tail is not counted."""
    return sum(foreign_part(node).nbytes for node in graph.nodes if node.op == OP)


def parse_type(text: str) -> TensorType | None:
    """Return the type that a text like ``f32[1,3]`` means, None if it is not a type.

    >>> str(parse_type("s64[2,4]")), parse_type("f32")
    ('s64[2,4]', None)
    """
    match = _TYPE.fullmatch(text)
    if match is None:
        return None
    shape = tuple(int(extent) for extent in match[2].split(",") if extent)
    return TensorType(dtype_of(match[1]), shape)


def _strings(node: Node, key: str) -> tuple[str, ...]:
    found = node.get(key)
    items = found if isinstance(found, tuple) else ()
    texts = tuple(item for item in items if isinstance(item, str))
    needs(node, bool(texts) and len(texts) == len(items), f"{key}, a list of texts", found)
    return texts


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    del types
    for key in ("nodes", "operators", "reasons"):
        _strings(node, key)
    texts = _strings(node, "types")
    found = tuple(parse_type(text) for text in texts)
    known = tuple(item for item in found if item is not None)
    needs(node, len(known) == len(texts), "types like 'f32[1,3]'", texts)
    return known


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    run = foreign_part(node).prepare(1, f"node {node.name!r} ({node.op})")
    return tuple(run([array(operands, index) for index in range(len(operands))]))


FALLBACK = register(
    name=OP,
    arity=(0, None),
    infer=_infer,
    evaluate=_evaluate,
    origin="interrupt",
    attributes={"part": "part", **each("texts", "nodes", "operators", "reasons", "types")},
)
"""Inputs and outputs are those of the foreign part. Attributes: ``part``; ``nodes`` and
``operators``, its content; ``reasons``, why its nodes are not native; ``types`` of the outputs."""
