"""Graphs of gradients that every executor must agree on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stridewise.graph import Graph

from .net import Net

__all__ = ["GRADIENT_CASES"]


def _image(b: Net, name: str, shape: tuple[int, ...]) -> str:
    """Add an input with the axes of an image, which every format can store."""
    return b.named(b.input(name, shape))


def _conv(
    x: tuple[int, ...], outputs: int, kernel: tuple[int, ...], **attrs: Any
) -> Callable[[], Graph]:
    """Return a convolution with computed weights, and the gradients of source and weights."""

    def make() -> Graph:
        b = Net(*x)
        groups = attrs.get("groups", 1)
        w = b.input("w", (outputs, x[1] // groups, *kernel))
        source = b.named(b.x)
        bias = b.input("bias", (outputs,))
        y = b.op("conv", [source, w, bias], attrs)
        dy = _image(b, "dy", b.type(y).shape)
        dw = b.op("conv_weight_gradient", [source, dy], {**attrs, "kernel": kernel})
        turned = b.op("conv_transpose", [dy, w], attrs)
        return b.build([b.named(y), dw, b.named(turned)])

    return make


def _pool(op: str, x: tuple[int, ...], **attrs: Any) -> Callable[[], Graph]:
    def make() -> Graph:
        b = Net(*x)
        source = b.named(b.x)
        y = b.op(op, [source], attrs)
        dy = _image(b, "dy", b.type(y).shape)
        if op == "max_pool":
            dx = b.op("max_pool_gradient", [source, dy], attrs)
        else:
            dx = b.op("avg_pool_gradient", [dy], {**attrs, "shape": x})
        return b.build([b.named(y), b.named(dx)])

    return make


def _places(x: tuple[int, ...], **attrs: Any) -> Callable[[], Graph]:
    def make() -> Graph:
        b = Net(*x)
        y, places = b.node("max_pool_places", [b.named(b.x)], attrs)
        dy = _image(b, "dy", b.type(y).shape)
        dx = b.op("max_pool_places_gradient", [places, dy], {**attrs, "shape": x})
        return b.build([b.named(y), b.named(places), b.named(dx)])

    return make


def _norm(*x: int) -> Callable[[], Graph]:
    def make() -> Graph:
        b = Net(*x)
        source = b.named(b.x) if len(x) > 2 else b.x
        scale, shift = (b.input(name, x[1:2]) for name in ("scale", "shift"))
        y, mean, variance = b.node("batch_norm", [source, scale, shift], {"epsilon": 1e-3})
        dy = _image(b, "dy", x) if len(x) > 2 else b.input("dy", x)
        given = [source, dy, scale, mean, variance]
        found = b.node("batch_norm_gradient", given, {"epsilon": 1e-3})
        return b.build([y, mean, variance, *found])

    return make


GRADIENT_CASES: dict[str, Callable[[], Graph]] = {
    "gradient_conv": _conv((2, 17, 9, 7), 24, (3, 3), pads=(1, 1, 1, 1)),
    "gradient_conv_16": _conv((3, 32, 8, 8), 16, (1, 1)),
    "gradient_conv_strided": _conv((2, 16, 9, 11), 32, (3, 3), pads=(1, 1, 1, 1), strides=(2, 2)),
    "gradient_conv_first": _conv((2, 3, 17, 15), 16, (7, 7), pads=(3, 3, 3, 3), strides=(2, 2)),
    "gradient_conv_dilated": _conv((1, 8, 9, 9), 5, (3, 2), dilations=(2, 3), pads=(0, 2, 1, 0)),
    "gradient_conv_grouped": _conv((2, 32, 7, 7), 64, (3, 3), groups=2, pads=(1, 1, 1, 1)),
    "gradient_conv_small_groups": _conv((2, 12, 6, 5), 24, (3, 3), groups=4),
    "gradient_depthwise": _conv((2, 19, 9, 9), 19, (3, 3), groups=19, pads=(1, 1, 1, 1)),
    "gradient_depthwise_32": _conv(
        (2, 32, 9, 9), 32, (5, 5), groups=32, pads=(2, 2, 2, 2), strides=(2, 2)
    ),
    "gradient_conv_one": _conv((1, 1, 1, 1), 1, (1, 1)),
    "gradient_conv_1d": _conv((2, 5, 9), 6, (3,), pads=(1, 1)),
    "gradient_conv_3d": _conv((1, 4, 5, 5, 5), 6, (2, 3, 3), pads=(0, 1, 1, 1, 1, 1)),
    "gradient_max_pool": _pool(
        "max_pool", (2, 19, 9, 8), kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)
    ),
    "gradient_max_pool_dilated": _pool("max_pool", (1, 4, 9, 8), kernel=(2, 3), dilations=(2, 2)),
    "gradient_places": _places((2, 19, 9, 8), kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    "gradient_places_16": _places((3, 32, 7, 8), kernel=(2, 3), strides=(2, 1), pads=(0, 1, 1, 1)),
    "gradient_places_dilated": _places((1, 5, 9, 8), kernel=(2, 3), dilations=(2, 2)),
    "gradient_places_wide": _places((1, 17, 16, 17), kernel=(15, 17), pads=(7, 0, 7, 8)),
    "gradient_places_1d": _places((2, 3, 9), kernel=(4,), strides=(2,)),
    "gradient_places_3d": _places(
        (2, 18, 5, 4, 5), kernel=(2, 3, 2), strides=(1, 2, 2), pads=(1, 1, 0, 0, 1, 1)
    ),
    "gradient_avg_pool": _pool("avg_pool", (2, 17, 8, 6), kernel=(2, 2), strides=(2, 2)),
    "gradient_avg_pool_padded": _pool(
        "avg_pool", (2, 16, 8, 7), kernel=(3, 3), strides=(2, 1), pads=(1, 1, 0, 1)
    ),
    "gradient_avg_pool_included": _pool(
        "avg_pool", (1, 5, 8, 7), kernel=(3, 3), pads=(1, 1, 1, 1), count_include_pad=1
    ),
    "gradient_norm": _norm(3, 19, 5, 4),
    "gradient_norm_32": _norm(2, 32, 7, 7),
    "gradient_norm_3d": _norm(2, 6, 3, 4, 5),
    "gradient_norm_rows": _norm(6, 10),
}
