"""DenseNet: every layer reads what all layers before it gave (Huang et al. 2017)."""

from __future__ import annotations

from stridewise.graph import Graph
from stridewise.zoo.network import Network

__all__ = ["densenet121"]

_GROWTH, _BOTTLENECK = 32, 128


def _layer(net: Network, x: str) -> str:
    y = net.conv(net.relu(net.norm(x)), _BOTTLENECK, 1)
    y = net.conv(net.relu(net.norm(y)), _GROWTH, 3)
    return net.concat(x, y)


def densenet121(
    batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 224
) -> Graph:
    """Return DenseNet-121."""
    net = Network("densenet121", data_format=data_format, seed=seed)
    x = net.conv_norm_relu(net.image(batch, (size, size)), 64, 7, 2)
    x = net.max_pool(x, 3, 2, 1)
    for block, depth in enumerate((6, 12, 24, 16)):
        if block:
            x = net.conv(net.relu(net.norm(x)), net.channels(x) // 2, 1)
            x = net.avg_pool(x, 2, 2)
        for _ in range(depth):
            x = _layer(net, x)
    return net.classify(net.relu(net.norm(x)))
