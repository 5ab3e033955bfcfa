"""Attention as exporters write it, and products between transposes of every kind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np

from stridewise.graph import Graph

from .net import Net

__all__ = ["ATTENTION_CASES"]

F32 = np.float32


def _linear(b: Net, x: str, outputs: int, *, bias: bool = True) -> str:
    inputs = [x, b.data(b.type(x).shape[-1], outputs)]
    return b.op("matmul", [*inputs, b.data(outputs)] if bias else inputs)


def _part(b: Net, x: str, axis: int, start: int, stop: int) -> str:
    shape = b.type(x).shape
    starts, stops = [0] * len(shape), list(shape)
    starts[axis], stops[axis] = start, stop
    attrs = {"starts": tuple(starts), "stops": tuple(stops), "steps": (1,) * len(shape)}
    return b.op("slice", [x], attrs)


def _heads(b: Net, x: str, heads: int) -> list[str]:
    """Return q, k and v of one projection, as Vision Transformers have them."""
    batch, tokens, width = b.type(x).shape
    size = width // 3 // heads
    y = b.op("reshape", [x], {"shape": (batch, tokens, 3, heads, size)})
    y = b.op("transpose", [y], {"perm": (2, 0, 3, 1, 4)})
    parts = [_part(b, y, 0, index, index + 1) for index in range(3)]
    return [b.op("reshape", [p], {"shape": (batch, heads, tokens, size)}) for p in parts]


def _attended(b: Net, q: str, k: str, v: str, *, bias: str = "", late: bool = False) -> str:
    factor = b.constant(np.array(0.4, F32))
    q = q if late else b.op("mul", [q, factor])
    y = b.op("matmul", [q, b.op("transpose", [k], {"perm": (0, 1, 3, 2)})])
    y = b.op("div", [y, factor]) if late else y
    y = b.op("add", [y, bias]) if bias else y
    y = b.op("matmul", [b.op("softmax", [y], {"axis": 3}), v])
    batch, heads, tokens, size = b.type(y).shape
    y = b.op("transpose", [y], {"perm": (0, 2, 1, 3)})
    return b.op("reshape", [y], {"shape": (batch, tokens, heads * size)})


def _vision(batch: int, tokens: int, heads: int, size: int, *, late: bool = False) -> Graph:
    """Return a block of a Vision Transformer; windows are its batch."""
    b = Net(batch, tokens, heads * size)
    q, k, v = _heads(b, _linear(b, b.x, 3 * heads * size), heads)
    y = _attended(b, q, k, v, bias=b.data(1, heads, tokens, tokens), late=late)
    y = b.op("add", [b.x, _linear(b, y, heads * size)])
    y = b.op("layer_norm", [y, b.data(heads * size), b.data(heads * size)], {"axes": (2,)})
    y = _linear(b, b.op("gelu", [_linear(b, y, 7)]), heads * size)
    return b.build([b.op("add", [b.x, y])])


def _levit() -> Graph:
    """Return attention whose heads have unequal parts, behind a norm of all tokens."""
    b = Net(2, 9, 12)
    y = b.op("reshape", [_linear(b, b.x, 24, bias=False)], {"shape": (18, 24)})
    y = b.op("scale_shift", [y, b.data(24), b.data(24)])
    y = b.op("reshape", [y], {"shape": (2, 9, 3, 8)})
    parts = [_part(b, y, 3, start, stop) for start, stop in ((0, 2), (2, 4), (4, 8))]
    q, k, v = (b.op("transpose", [part], {"perm": (0, 2, 1, 3)}) for part in parts)
    y = _attended(b, q, k, v, bias=b.data(3, 9, 9), late=True)
    return b.build([b.op("hard_swish", [y], {"alpha": 1 / 6, "beta": 0.5})])


def _gated() -> Graph:
    """Return a linear layer of which one half is a gate for the other one."""
    b = Net(2, 5, 6)
    y = _linear(b, b.x, 14)
    gate = b.op("sigmoid", [_part(b, y, 2, 7, 14)])
    return b.build([b.op("mul", [_part(b, y, 2, 0, 7), gate])])


def _channels() -> Graph:
    """Return attention between channels, whose result comes transposed."""
    b = Net(2, 6, 5, 4)
    y = b.op("relu", [b.op("reshape", [b.conv(b.x, 18)], {"shape": (2, 9, 2, 20)})])
    parts = [_part(b, y, 1, 3 * index, 3 * index + 3) for index in range(3)]
    q, k, v = (b.op("reshape", [part], {"shape": (2, 2, 3, 20)}) for part in parts)
    scores = b.op("matmul", [q, b.op("transpose", [k], {"perm": (0, 1, 3, 2)})])
    y = b.op("matmul", [b.op("softmax", [scores], {"axis": 3}), v])
    y = b.op("transpose", [y], {"perm": (0, 1, 3, 2)})
    return b.build([b.op("reshape", [y], {"shape": (2, 40, 3)}), scores])


def _turned(rank: int) -> Graph:
    """Return products with every transpose that keeps neighbors in memory in a matrix."""
    shape = (2, 3, 4, 5, 6)[-rank:]
    b = Net(*shape)
    results: list[str] = []
    for perm in permutations(range(rank)):
        if rank > 3 and perm[0] > perm[1]:
            continue
        y = b.op("transpose", [b.x], {"perm": perm})
        product = b.op("matmul", [y, b.op("transpose", [y], {"perm": _swap(rank)})])
        back = b.op("transpose", [product], {"perm": perm})
        results.append(b.op("relu", [b.op("add", [back, b.op("exp", [back])])]))
        results.append(b.op("tanh", [b.op("transpose", [product], {"perm": perm})]))
    return b.build(results)


def _swap(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


ATTENTION_CASES: dict[str, Callable[[], Graph]] = {
    "attention_one": lambda: _vision(1, 17, 3, 5),
    "attention_windows": lambda: _vision(4, 9, 2, 8),
    "attention_late_factor": lambda: _vision(2, 10, 1, 3, late=True),
    "attention_unequal": _levit,
    "attention_channels": _channels,
    "gated": _gated,
    **{f"turned_{rank}": lambda rank=rank: _turned(rank) for rank in (3, 4, 5)},
}
