"""Graphs of expressions: all kinds of operands, and chains that become expressions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stridewise.graph import Graph

from .net import Net

__all__ = ["POINTWISE_CASES"]

_SINGLE = ("ceil", "cos", "erf", "floor", "shrink", "sign", "sin", "thresholded_relu")


def _expressions(channels: int) -> Graph:
    """Return expressions of whole tensors and of rows, columns, masks and scalars."""
    b = Net(2, channels, 4, 5)
    x, gate = b.named(b.x), b.op("reduce_mean", [b.x], {"axes": (2, 3)})
    y = b.op("max_pool", [x], {"kernel": (1, 1)})
    mask = b.constant(b.rng.random((4, 5)) < 0.5, "mask")
    shapes = ((channels, 1, 1), (1, 5), (2, channels, 4, 5), (2, 1, 4, 1), ())
    results = [
        b.op("pointwise", [x, y, b.data(*shape)], {"expression": expression})
        for shape in shapes
        for expression in (("mul(x0, x2)", "tanh(t0)", "add(t1, x1)"),)
    ]
    # Zeros of the padding would become ones.
    results += [
        b.op("pointwise", [x, b.named(gate)], {"expression": ("mul(x0, x1)", "exp(t0)")}),
        b.op("pointwise", [x, mask], {"expression": ("where(x1, x0, -1.0)", "sigmoid(t0)")}),
        b.op("pointwise", [b.data(5), x], {"expression": ("sub(x0, x1)", "less(t0, 0.5)",
                                                          "where(t1, x1, t0)")}),
    ]  # fmt: skip
    return b.build([*(b.named(z) for z in results), results[0]])


def _chains(channels: int) -> Graph:
    """Return operators that become expressions, and some that the library has not."""
    b = Net(2, channels, 4, 5)
    x = b.named(b.x)
    pooled = b.op("avg_pool", [x], {"kernel": (4, 5)})
    gate = b.op("hard_sigmoid", [b.conv(pooled, channels)])
    y = b.op("max_pool", [b.op("add", [b.op("mul", [x, gate]), x])], {"kernel": (1, 1)})
    half, scale = b.constant(np.array(0.5, np.float32)), b.data(channels, 1, 1)
    z = b.op("mul", [b.op("add", [b.op("mul", [y, scale]), b.data(channels, 1, 1)]), half])
    positive = b.op("add", [b.op("abs", [z]), half])
    results = [
        b.op("pow", [positive, b.data(5)]),
        z,
        b.op("where", [b.op("greater", [z, half]), b.op("log", [positive]), b.op("neg", [z])]),
    ]
    results += [b.op(op, [y]) for op in _SINGLE]
    return b.build([b.op("sub", [b.named(z), b.data(1)]) for z in results])


def _without_names() -> Graph:
    """Return expressions of values whose axes have no names, of several ranks."""
    b = Net(3, 4, 7)
    y = b.op("reshape", [b.x], {"shape": (2, 6, 7)})
    z = b.input("z", (6, 1))
    first = b.op("pointwise", [y, z], {"expression": ("maximum(x0, x1)", "div(t0, 3.0)")})
    return b.build([first, b.op("pow", [b.op("abs", [first]), b.data(2, 1, 1)])])


POINTWISE_CASES: dict[str, Callable[[], Graph]] = {
    "expressions_17": lambda: _expressions(17),
    "expressions_32": lambda: _expressions(32),
    "chains_3": lambda: _chains(3),
    "chains_24": lambda: _chains(24),
    "expressions_nd": _without_names,
}
