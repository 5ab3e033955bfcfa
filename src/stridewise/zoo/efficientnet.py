"""EfficientNet: inverted residuals with gates, scaled in all directions (Tan and Le 2019)."""

from __future__ import annotations

from stridewise.graph import Graph
from stridewise.zoo.network import Network

__all__ = ["efficientnet_b0"]

_BRANCH_GAIN = 0.5

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


def _block(net: Network, x: str, expansion: int, kernel: int, stride: int, filters: int) -> str:
    y, inner = x, expansion * net.channels(x)
    if expansion > 1:
        y = net.act(net.conv_norm(y, inner, 1), "swish")
    y = net.act(net.conv_norm(y, inner, kernel, stride, groups=inner), "swish")
    y = net.excite(y, max(1, net.channels(x) // 4), "swish", "sigmoid")
    passes = stride == 1 and net.channels(x) == filters
    y = net.conv_norm(y, filters, 1, gain=_BRANCH_GAIN if passes else 1.0)
    return net.add(x, y) if passes else y


def efficientnet_b0(
    batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 224
) -> Graph:
    """Return EfficientNet-B0."""
    net = Network("efficientnet_b0", data_format=data_format, seed=seed)
    x = net.act(net.conv_norm(net.image(batch, (size, size)), 32, 3, 2), "swish")
    for expansion, kernel, stride, filters, count in _STAGES:
        for block in range(count):
            x = _block(net, x, expansion, kernel, 1 if block else stride, filters)
    return net.classify(net.act(net.conv_norm(x, 1280, 1), "swish"))
