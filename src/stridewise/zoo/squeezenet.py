"""SqueezeNet: few channels between pairs of 1x1 and 3x3 convolutions (Iandola et al. 2016)."""

from __future__ import annotations

from stridewise.graph import Graph
from stridewise.zoo.network import Network

__all__ = ["squeezenet1_1"]

_STAGES = (
    ((16, 64), (16, 64)),
    ((32, 128), (32, 128)),
    ((48, 192), (48, 192), (64, 256), (64, 256)),
)
"""Squeezed channels, and those of each of the two expansions."""


def _fire(net: Network, x: str, squeezed: int, expanded: int) -> str:
    x = net.relu(net.conv(x, squeezed, 1, bias=True))
    narrow = net.relu(net.conv(x, expanded, 1, bias=True))
    return net.concat(narrow, net.relu(net.conv(x, expanded, 3, bias=True)))


def squeezenet1_1(
    batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 224
) -> Graph:
    """Return SqueezeNet 1.1."""
    net = Network("squeezenet1_1", data_format=data_format, seed=seed)
    x = net.relu(net.conv(net.image(batch, (size, size)), 64, 3, 2, padding=0, bias=True))
    for stage in _STAGES:
        x = net.max_pool(x, 3, 2, ceil=True)
        for squeezed, expanded in stage:
            x = _fire(net, x, squeezed, expanded)
    return net.build(net.mean(net.relu(net.conv(x, 1000, 1, bias=True))))
