"""Layers of training steps, for calibration: results by weights that change, and gradients.

Each layer has an input for the gradient of its result. Its outputs are the result and the gradients
of its source and of its weights, so the target offers the kernels of all three passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from stridewise.graph import Graph
from stridewise.ops import GraphBuilder
from stridewise.runtime.tuning.layer_sizes import MOST_FLOPS, MOST_PIXELS, Size
from stridewise.training import grad

__all__ = ["TRAINED", "WEIGHTS"]

_MOST_IMAGES = 16
"""Steps of training have batches; those of small layers are this large."""
WEIGHTS = "w"
"""The input with the weights of a convolution; the others of rank 4 are images."""
_ELEMENTS = 8 * MOST_PIXELS
"""Elements of a batch, so that large ones do not stay in the caches."""

_Trained = Callable[[GraphBuilder, Size], Graph]


def _batch(elements: int, flops: float = 0.0) -> int:
    """Return how many images of so many elements and operations a layer has."""
    most = min(_ELEMENTS // elements, int(MOST_FLOPS / flops) if flops else _MOST_IMAGES)
    return max(1, min(_MOST_IMAGES, most))


def _with_gradients(b: GraphBuilder, y: str, *wrt: str) -> Graph:
    """Return the graph of a result, and of gradients for a gradient of it that is an input."""
    shape = b.type(y).shape
    product = b.mul(y, b.input("dy", shape))
    axes = tuple(range(len(shape)))
    loss = b.op("reduce_sum", [product], {"axes": axes, "keepdims": 0})
    found = grad(b.build([loss]), loss, wrt)
    return replace(found, outputs=(y, *found.outputs[1:]))


def _conv(window: int, stride: int = 1, *, width: int | None = None) -> _Trained:
    """Return a convolution; with ``width`` it has groups of so many channels."""

    def layer(b: GraphBuilder, size: Size) -> Graph:
        groups = 1 if width is None else max(2, size.inputs // width)
        inputs = size.inputs if width is None else groups * width
        outputs = size.outputs if width is None else inputs
        pixels = size.side * size.side
        flops = 2.0 * (pixels * window**2 // stride**2) * (inputs // groups) * outputs
        batch = _batch(pixels * max(inputs, outputs), flops)
        x = b.input("x", (batch, inputs, size.side, size.side))
        w = b.input(WEIGHTS, (outputs, inputs // groups, window, window))
        pads = ((window - 1) // 2,) * 4
        attrs = {"groups": groups, "pads": pads, "strides": (stride, stride)}
        return _with_gradients(b, b.op("conv", [x, w], attrs), x, w)

    return layer


def _image(b: GraphBuilder, size: Size, name: str = "x") -> str:
    batch = _batch(size.side * size.side * size.inputs)
    return b.input(name, (batch, size.inputs, size.side, size.side))


def _norm(*, has_sum: bool = False, has_relu: bool = True) -> _Trained:
    """Return a batch norm, and what may follow it: a sum and ReLU, as in residual blocks."""

    def layer(b: GraphBuilder, size: Size) -> Graph:
        x, rows = _image(b, size), [b.input(name, (size.inputs,)) for name in ("scale", "shift")]
        y, others = b.node("batch_norm", [x, *rows], {})[0], list[str]()
        if has_sum:
            others = [_image(b, size, "other")]
            y = b.add(y, others[0])
        return _with_gradients(b, b.relu(y) if has_relu else y, x, *rows, *others)

    return layer


def _pool(b: GraphBuilder, size: Size) -> Graph:
    x = _image(b, size)
    if size.side % 2:
        return _with_gradients(b, b.max_pool2d(x, 3, strides=2, padding=1), x)
    return _with_gradients(b, b.avg_pool2d(x, 2, strides=2), x)


TRAINED: Mapping[str, _Trained] = {
    "trained 1x1": _conv(1),
    "trained 3x3": _conv(3),
    "trained batch norm": _norm(),
    "trained 3x3 by 2": _conv(3, 2),
    "trained depthwise 3x3": _conv(3, width=1),
    "trained residual": _norm(has_sum=True),
    "trained 1x1 by 2": _conv(1, 2),
    "trained groups of 8": _conv(3, width=8),
    "trained pool": _pool,
    "trained batch norm alone": _norm(has_relu=False),
}
