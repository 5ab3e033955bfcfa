"""ShuffleNet V2: half of the channels pass by, then all are shuffled (Ma et al. 2018)."""

from __future__ import annotations

from stridewise.graph import Graph
from stridewise.zoo.network import Network

__all__ = ["shufflenet_v2"]

_STAGES = ((116, 4), (232, 8), (464, 4))
"""Channels and units of each stage, at width 1.0."""


def _separable(net: Network, x: str, filters: int, stride: int) -> str:
    """Add a depthwise and a pointwise convolution."""
    y = net.conv_norm(x, net.channels(x), 3, stride, groups=net.channels(x))
    return net.conv_norm_relu(y, filters, 1)


def _unit(net: Network, x: str, filters: int, stride: int) -> str:
    half = filters // 2
    if stride == 1:
        beside = net.slice_channels(x, 0, half)
        x = net.slice_channels(x, half, filters)
    else:
        beside = _separable(net, x, half, stride)
    y = _separable(net, net.conv_norm_relu(x, half, 1), half, stride)
    return net.shuffle(net.concat(beside, y), 2)


def shufflenet_v2(
    batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 224
) -> Graph:
    """Return ShuffleNet V2 at width 1.0."""
    net = Network("shufflenet_v2", data_format=data_format, seed=seed)
    x = net.conv_norm_relu(net.image(batch, (size, size)), 24, 3, 2)
    x = net.max_pool(x, 3, 2, 1)
    for filters, count in _STAGES:
        for unit in range(count):
            x = _unit(net, x, filters, 1 if unit else 2)
    return net.classify(net.conv_norm_relu(x, 1024, 1))
