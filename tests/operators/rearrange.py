"""Several strided copies in one step."""

from __future__ import annotations

from tests.runtime.net import Net

from stridewise.graph import Graph
from stridewise.ops.rearrange import Box


def _graph() -> Graph:
    """Two images with swapped axes, one beside the other."""
    b = Net(2, 3, 4, 5)
    other = b.op("relu", [b.x])
    boxes = [
        Box(place, 0, (0, 0, 0, 3 * place), (2, 4, 5, 3), (60, 5, 1, 20)).numbers
        for place in (0, 1)
    ]
    attrs = {"boxes": sum(boxes, ()), "shape": (2, 4, 5, 6)}
    return b.build([b.op("rearrange", [b.x, other], attrs)])


GRAPHS = {"rearrange": _graph}
