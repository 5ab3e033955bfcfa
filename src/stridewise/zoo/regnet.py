"""RegNet: widths and depths on a quantized line (Radosavovic et al. 2020); Y stands for gates."""

from __future__ import annotations

from stridewise.graph import Graph
from stridewise.zoo.network import BRANCH_GAIN, Network

__all__ = ["regnet_y_400mf"]

_STAGES = ((48, 1), (104, 3), (208, 6), (440, 6))
"""Channels and blocks of each stage."""
_GROUP_WIDTH = 8


def _block(net: Network, x: str, filters: int, stride: int) -> str:
    inputs = net.channels(x)
    y = net.conv_norm_relu(x, filters, 1)
    y = net.conv_norm_relu(y, filters, 3, stride, groups=filters // _GROUP_WIDTH)
    y = net.excite(y, round(inputs / 4), "relu", "sigmoid")
    y = net.conv_norm(y, filters, 1, gain=BRANCH_GAIN)
    if stride != 1 or inputs != filters:
        x = net.conv_norm(x, filters, 1, stride)
    return net.relu(net.add(x, y))


def regnet_y_400mf(
    batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 224
) -> Graph:
    """Return RegNetY of 400 million multiplications."""
    net = Network("regnet_y_400mf", data_format=data_format, seed=seed)
    x = net.conv_norm_relu(net.image(batch, (size, size)), 32, 3, 2)
    for filters, count in _STAGES:
        for block in range(count):
            x = _block(net, x, filters, 1 if block else 2)
    return net.classify(x)
