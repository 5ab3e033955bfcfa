"""Layers of networks for calibration: families in turn, each with sizes of its own sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count, cycle, islice

import numpy as np

from stridewise.graph import Graph
from stridewise.ops import GraphBuilder
from stridewise.runtime.tuning.layer_sizes import Size, size_at
from stridewise.runtime.tuning.trained_layers import TRAINED

__all__ = ["LAYERS", "layers", "sizes_of"]

_APART = 1000
"""Distance of the sequences of sizes of two families."""
_TRAINED_EVERY = 3
"""Behind so many families of layers stands one of a training step."""

_Layer = Callable[[GraphBuilder, Size], str]


def _image(b: GraphBuilder, size: Size, channels: int | None = None) -> str:
    return b.input("x", (size.batch, channels or size.inputs, size.side, size.side))


def _active(b: GraphBuilder, x: str, size: Size) -> str:
    """Add an activation: in every third size one of exponential functions, which take longer."""
    return _swish(b, x) if size.has_function else b.relu(x)


def _swish(b: GraphBuilder, x: str) -> str:
    return b.op("mul", [x, b.sigmoid(x)])


def _conv(
    window: int | tuple[int, int], stride: int = 1, channels: int | None = None, dilation: int = 1
) -> _Layer:
    def layer(b: GraphBuilder, size: Size) -> str:
        x = _image(b, size, channels)
        found = b.conv2d(x, size.outputs, window, strides=stride, padding="same", dilation=dilation)
        return _active(b, found, size)

    return layer


def _residual(b: GraphBuilder, size: Size) -> str:
    x, y = _image(b, size), b.input("y", (size.batch, size.outputs, size.side, size.side))
    return b.relu(b.op("add", [b.conv2d(x, size.outputs, 1), y]))


def _depthwise(window: int, stride: int = 1) -> _Layer:
    def layer(b: GraphBuilder, size: Size) -> str:
        x, count = _image(b, size), size.inputs
        found = b.conv2d(x, count, window, strides=stride, padding="same", groups=count)
        return _active(b, found, size)

    return layer


def _expanded(b: GraphBuilder, size: Size) -> str:
    inner = _active(b, b.conv2d(_image(b, size), size.outputs, 1), size)
    found = b.conv2d(inner, size.outputs, 3, padding="same", groups=size.outputs)
    return _active(b, found, size)


def _swish_expanded(b: GraphBuilder, size: Size) -> str:
    inner = _swish(b, b.conv2d(_image(b, size), size.outputs, 1))
    return _swish(b, b.conv2d(inner, size.outputs, 3, padding="same", groups=size.outputs))


def _chain(b: GraphBuilder, size: Size) -> str:
    return b.conv2d(b.conv2d(_image(b, size), size.outputs, 1), size.inputs, 1)


def _shuffled(b: GraphBuilder, size: Size) -> str:
    x = b.relu(_image(b, size, 2 * size.inputs))
    return b.relu(b.op("channel_shuffle", [x], {"groups": 2}))


def _grouped(b: GraphBuilder, size: Size) -> str:
    each = 4 << size.outputs % 5
    count = each * max(2, size.inputs // each)
    x = _image(b, size, count)
    return b.relu(b.conv2d(x, count, 3, padding="same", groups=count // each))


def _squeezed(b: GraphBuilder, size: Size) -> str:
    x = _image(b, size)
    mean = b.op("reduce_mean", [x], {"axes": (2, 3), "keepdims": 1})
    return b.op("mul", [x, b.op("sigmoid", [b.conv2d(mean, size.inputs, 1)])])


def _excited(b: GraphBuilder, size: Size) -> str:
    x = _image(b, size)
    mean = b.op("reduce_mean", [x], {"axes": (2, 3), "keepdims": 1})
    inner = _active(b, b.conv2d(mean, -(-size.inputs // 4), 1), size)
    return b.op("mul", [x, b.op("sigmoid", [b.conv2d(inner, size.inputs, 1)])])


def _squeezed_1x1(b: GraphBuilder, size: Size) -> str:
    return b.conv2d(_squeezed(b, size), size.outputs, 1)


def _pool(op: str, window: int, stride: int) -> _Layer:
    def layer(b: GraphBuilder, size: Size) -> str:
        pool = b.max_pool2d if op == "max" else b.avg_pool2d
        return pool(_image(b, size), window, strides=stride, padding="same")

    return layer


def _concat(b: GraphBuilder, size: Size) -> str:
    shape = (size.batch, size.outputs, size.side, size.side)
    return b.op("concat", [b.relu(_image(b, size)), b.input("y", shape)], {"axis": 1})


def _sum(b: GraphBuilder, size: Size) -> str:
    x, y = _image(b, size), b.input("y", (size.batch, size.inputs, size.side, size.side))
    return _active(b, b.op("add", [x, y]), size)


def _normed(b: GraphBuilder, size: Size) -> str:
    """A batch norm that no convolution computes, alone or between activations."""
    x, rows = _image(b, size), np.ones(size.inputs, np.float32)
    x = x if size.has_function else b.op("sigmoid", [x])
    y = b.op("scale_shift", [x, *(b.constant(rows) for _ in range(2))])
    return b.relu(y)


def _resized(mode: str) -> _Layer:
    def layer(b: GraphBuilder, size: Size) -> str:
        shape = (size.batch, size.inputs, 2 * size.side, 2 * size.side)
        return b.op("resize", [_image(b, size)], {"shape": shape, "mode": mode})

    return layer


def _interpolated(b: GraphBuilder, size: Size) -> str:
    """A resize that is a product with a matrix for each axis."""
    side = 2 * size.side + 1
    shape = (size.batch, size.inputs, side, side)
    attrs = {"shape": shape, "mode": "linear", "coordinates": "align_corners"}
    return b.op("resize", [_image(b, size)], attrs)


def _transposed(b: GraphBuilder, size: Size) -> str:
    weights = b.constant(np.zeros((size.inputs, size.outputs, 2, 2), np.float32))
    return b.op("conv_transpose", [_image(b, size), weights], {"strides": (2, 2)})


def _dense(b: GraphBuilder, size: Size) -> str:
    return b.dense(b.input("x", (size.batch, 4 * size.inputs)), 4 * size.outputs)


def _tokens(b: GraphBuilder, size: Size) -> str:
    x = b.input("x", (size.batch, size.side * size.side, size.inputs))
    weights = b.constant(np.zeros((size.inputs, 2 * size.outputs), np.float32))
    bias = b.constant(np.zeros(2 * size.outputs, np.float32))
    y = b.op("add", [b.op("matmul", [b.layer_norm(x), weights]), bias])
    return b.op("gelu", [y]) if size.has_function else b.op("softmax", [y], {"axis": 2})


def _heads(size: Size) -> tuple[int, int, int]:
    """Return matrices, tokens and their depth: of all tokens, or of windows of 7 x 7."""
    side, depth = (size.side, 64) if size.side <= 14 else (7, 32)
    windows, tokens = (-(-size.side // side)) ** 2, side * side
    return size.batch * windows * max(1, size.inputs // depth), tokens, depth


def _attention(b: GraphBuilder, size: Size) -> str:
    count, tokens, depth = _heads(size)
    query, value = (b.input(name, (count, tokens, depth)) for name in ("query", "value"))
    weights = b.op("matmul", [query, b.input("key", (count, depth, tokens))])
    if size.has_function:
        bias = b.constant(np.zeros((1, tokens, tokens), np.float32))
        weights = b.op("add", [weights, bias])
    return b.op("matmul", [b.op("softmax", [weights], {"axis": 2}), value])


def _products(b: GraphBuilder, size: Size) -> str:
    """Products of many small matrices."""
    count, tokens, depth = _heads(size)
    left, right = (tokens, depth) if size.has_function else (depth, tokens)
    x, y = (count, tokens, left), (count, left, right)
    return b.op("matmul", [b.input("x", x), b.input("y", y)])


LAYERS: Mapping[str, _Layer] = {
    "1x1": _conv(1),
    "3x3": _conv(3),
    "depthwise 3x3": _depthwise(3),
    "residual": _residual,
    "3x3 by 2": _conv(3, 2),
    "expanded": _expanded,
    "squeezed": _squeezed,
    "first": _conv(3, 2, 3),
    "1x1 by 2": _conv(1, 2),
    "grouped": _grouped,
    "max pool": _pool("max", 3, 2),
    "5x5": _conv(5),
    "concat": _concat,
    "depthwise 5x5": _depthwise(5),
    "sum": _sum,
    "dense": _dense,
    "depthwise 3x3 by 2": _depthwise(3, 2),
    "first 7x7": _conv(7, 2, 3),
    "average pool": _pool("average", 3, 1),
    "1x7": _conv((1, 7)),
    "max pool 2x2": _pool("max", 2, 2),
    "tokens": _tokens,
    "depthwise 5x5 by 2": _depthwise(5, 2),
    "7x1": _conv((7, 1)),
    "dilated": _conv(3, 1, None, 2),
    "depthwise 7x7": _depthwise(7),
    "expanded swish": _swish_expanded,
    "chain": _chain,
    "shuffled": _shuffled,
    "squeezed 1x1": _squeezed_1x1,
    "batch norm": _normed,
    "nearest resize": _resized("nearest"),
    "transposed 2x2": _transposed,
    "linear resize": _resized("linear"),
    "attention": _attention,
    "products": _products,
    "interpolated": _interpolated,
    "squeezed and excited": _excited,
}
_TWICE = ("1x1", "3x3", "depthwise 3x3", "1x1", "tokens")
"""Layers that networks have most of are repeated between the others."""


def sizes_of(family: int) -> Iterator[Size]:
    """Yield sizes of the layers of a family without an end.

    Args:
        family: its position among all.
    """
    return map(size_at, count(family * _APART + 1))


def _order() -> list[str]:
    """Return families in the order in which they come in turn.

    The number of positions is odd, so that every family has cold and warm weights in turn.
    """
    found: list[str] = []
    trained = iter(TRAINED)
    for position, name in enumerate(LAYERS):
        found += [name, *((_TWICE[position // 2 % len(_TWICE)],) if position % 2 else ())]
        if position % _TRAINED_EVERY == _TRAINED_EVERY - 1:
            found += islice(trained, 1)
    return found


def layers() -> Iterator[Graph]:
    """Yield layers without an end, each family with sizes of its own sequence."""
    sizes = {name: sizes_of(family) for family, name in enumerate((*LAYERS, *TRAINED))}
    for name in cycle(_order()):
        b, size = GraphBuilder(name), next(sizes[name])
        yield TRAINED[name](b, size) if name in TRAINED else b.build([LAYERS[name](b, size)])
