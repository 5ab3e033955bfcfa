"""Functions that neither the library nor expressions have, in all formats."""

from __future__ import annotations

import numpy as np
from tests.runtime.net import Net

from stridewise.graph import Graph


def _graph() -> Graph:
    """Return functions of feature maps, within what they are defined for."""
    b = Net(2, 17, 3, 4)
    x = b.op("tanh", [b.named(b.x)])
    half, quarter = (b.constant(np.float32(number)) for number in (0.5, 0.25))
    half = b.op("mul", [x, half])
    y = b.op("acosh", [b.op("cosh", [b.op("abs", [x])])])
    for op in ("acos", "asin", "atan", "atanh", "tan"):
        y = b.op("add", [y, b.op(op, [half])])
    for op in ("asinh", "sinh"):
        y = b.op("mul", [b.op(op, [y]), quarter])
    return b.build([b.conv(y, 5, 3)])


GRAPHS = {"functions": _graph}
