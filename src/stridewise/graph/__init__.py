"""The graph: typed SSA nodes over named values."""

from stridewise.graph.constant import Constant
from stridewise.graph.graph import Attr, Graph, Node, PostOp, Refusal, TensorType, Value
from stridewise.graph.partition import (
    Capability,
    NodeSupport,
    ResultType,
    Segment,
    Support,
    Tail,
)
from stridewise.graph.text import from_text, to_text

__all__ = [
    "Attr",
    "Capability",
    "Constant",
    "Graph",
    "Node",
    "NodeSupport",
    "PostOp",
    "Refusal",
    "ResultType",
    "Segment",
    "Support",
    "Tail",
    "TensorType",
    "Value",
    "from_text",
    "to_text",
]
