"""The graph: typed SSA nodes over named values."""

from typing import TYPE_CHECKING

from stridewise.discovery import at_first_use

if TYPE_CHECKING:
    from stridewise.graph.constant import Constant
    from stridewise.graph.extents import Extent, InputSpec, Shapes, Signature
    from stridewise.graph.foreign import ForeignFunction, ForeignPart
    from stridewise.graph.graph import (
        Attr,
        Graph,
        Node,
        PostOp,
        Refusal,
        TensorType,
        Value,
        to_text,
    )
    from stridewise.graph.partition import (
        Capability,
        NodeSupport,
        Segment,
        Support,
        Tail,
    )
    from stridewise.graph.text import from_text

__all__ = [
    "Attr",
    "Capability",
    "Constant",
    "Extent",
    "ForeignFunction",
    "ForeignPart",
    "Graph",
    "InputSpec",
    "Node",
    "NodeSupport",
    "PostOp",
    "Refusal",
    "Segment",
    "Shapes",
    "Signature",
    "Support",
    "Tail",
    "TensorType",
    "Value",
    "from_text",
    "to_text",
]

# A stored model needs graphs without texts, open extents and partitions.
__getattr__ = at_first_use(
    __name__,
    {
        "stridewise.graph.constant": ("Constant",),
        "stridewise.graph.extents": ("Extent", "InputSpec", "Shapes", "Signature"),
        "stridewise.graph.foreign": ("ForeignFunction", "ForeignPart"),
        "stridewise.graph.graph": (
            "Attr",
            "Graph",
            "Node",
            "PostOp",
            "Refusal",
            "TensorType",
            "Value",
            "to_text",
        ),
        "stridewise.graph.partition": ("Capability", "NodeSupport", "Segment", "Support", "Tail"),
        "stridewise.graph.text": ("from_text",),
    },
)
