"""MobileNet V2 and V3: inverted residuals of depthwise convolutions (Sandler 2018, Howard 2019)."""

from __future__ import annotations

from functools import partial

from stridewise.graph import Graph
from stridewise.zoo.network import Network

__all__ = ["mobilenet_v2", "mobilenet_v3_large"]

_V2 = (
    # expansion, channels, blocks, stride of the first
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)

_V3_LARGE = (
    # kernel, expanded channels, channels, gated, activation, stride
    (3, 16, 16, False, "relu", 1),
    (3, 64, 24, False, "relu", 2),
    (3, 72, 24, False, "relu", 1),
    (5, 72, 40, True, "relu", 2),
    (5, 120, 40, True, "relu", 1),
    (5, 120, 40, True, "relu", 1),
    (3, 240, 80, False, "hard_swish", 2),
    (3, 200, 80, False, "hard_swish", 1),
    (3, 184, 80, False, "hard_swish", 1),
    (3, 184, 80, False, "hard_swish", 1),
    (3, 480, 112, True, "hard_swish", 1),
    (3, 672, 112, True, "hard_swish", 1),
    (5, 672, 160, True, "hard_swish", 2),
    (5, 960, 160, True, "hard_swish", 1),
    (5, 960, 160, True, "hard_swish", 1),
)


def _divisible(channels: float) -> int:
    """Return the multiple of 8 next to a number, at least 90 % of it."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def mobilenet_v2(
    batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 224
) -> Graph:
    """Return MobileNet V2 at width 1.0."""
    net = Network("mobilenet_v2", data_format=data_format, seed=seed)
    x = net.relu6(net.conv_norm(net.image(batch, (size, size)), 32, 3, 2))
    for expansion, filters, count, first in _V2:
        for stride in (first, *(1,) * (count - 1)):
            x = net.inverted(x, expansion * net.channels(x), 3, stride, filters, net.relu6)
    return net.classify(net.relu6(net.conv_norm(x, 1280, 1)))


def mobilenet_v3_large(
    batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 224
) -> Graph:
    """Return MobileNet V3 large."""
    net = Network("mobilenet_v3_large", data_format=data_format, seed=seed)
    x = net.act(net.conv_norm(net.image(batch, (size, size)), 16, 3, 2), "hard_swish")
    for kernel, inner, filters, gated, op, stride in _V3_LARGE:
        squeezed = _divisible(inner / 4)
        gate = partial(
            net.excite, squeezed=squeezed, inner="relu", outer="hard_sigmoid", alpha=1 / 6, beta=0.5
        )
        act = partial(net.act, op=op)
        x = net.inverted(x, inner, kernel, stride, filters, act, gate if gated else None)
    x = net.act(net.conv_norm(x, 960, 1), "hard_swish")
    x = net.act(net.linear(net.mean(x), 1280), "hard_swish")
    return net.build(net.linear(x, 1000))
