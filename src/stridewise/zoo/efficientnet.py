"""EfficientNet: inverted residuals with gates, scaled in all directions (Tan and Le 2019)."""

from __future__ import annotations

from functools import partial

from stridewise.graph import Graph
from stridewise.zoo.network import Network

__all__ = ["efficientnet_b0"]

_STAGES = (
    # expansion, kernel, stride of the first block, channels, blocks
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


def efficientnet_b0(
    batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 224
) -> Graph:
    """Return EfficientNet-B0."""
    net = Network("efficientnet_b0", data_format=data_format, seed=seed)
    swish = partial(net.act, op="swish")
    x = swish(net.conv_norm(net.image(batch, (size, size)), 32, 3, 2))
    for expansion, kernel, first, filters, count in _STAGES:
        for stride in (first, *(1,) * (count - 1)):
            inputs = net.channels(x)
            gate = partial(net.excite, squeezed=max(1, inputs // 4), inner="swish", outer="sigmoid")
            x = net.inverted(x, expansion * inputs, kernel, stride, filters, swish, gate)
    return net.classify(swish(net.conv_norm(x, 1280, 1)))
