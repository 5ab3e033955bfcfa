"""Inception v3: branches of different windows side by side (Szegedy et al. 2016).

Without the auxiliary classifier, which is for training only.
"""

from __future__ import annotations

from stridewise.graph import Graph
from stridewise.zoo.network import Network

__all__ = ["inception_v3"]


def _chain(net: Network, x: str, *layers: tuple[int, int | tuple[int, int]]) -> str:
    """Add convolutions, each of so many filters and such a kernel."""
    for filters, kernel in layers:
        x = net.conv_norm_relu(x, filters, kernel)
    return x


def _halve(net: Network, x: str, filters: int) -> str:
    return net.conv_norm_relu(x, filters, 3, 2, padding=0)


def _pooled(net: Network, x: str, filters: int) -> str:
    return net.conv_norm_relu(net.avg_pool(x, 3, 1, 1), filters, 1)


def _square(net: Network, x: str, pooled: int) -> str:
    """Add a block with windows of 5x5 and twice 3x3."""
    return net.concat(
        _chain(net, x, (64, 1)),
        _chain(net, x, (48, 1), (64, 5)),
        _chain(net, x, (64, 1), (96, 3), (96, 3)),
        _pooled(net, x, pooled),
    )


def _long(net: Network, x: str, width: int) -> str:
    """Add a block with windows of 1x7 and 7x1."""
    row, column = (1, 7), (7, 1)
    return net.concat(
        _chain(net, x, (192, 1)),
        _chain(net, x, (width, 1), (width, row), (192, column)),
        _chain(net, x, (width, 1), (width, column), (width, row), (width, column), (192, row)),
        _pooled(net, x, 192),
    )


def _wide(net: Network, x: str) -> str:
    """Add a block whose windows of 1x3 and 3x1 lie side by side."""
    near = _chain(net, x, (384, 1))
    far = _chain(net, x, (448, 1), (384, 3))
    return net.concat(
        _chain(net, x, (320, 1)),
        net.concat(_chain(net, near, (384, (1, 3))), _chain(net, near, (384, (3, 1)))),
        net.concat(_chain(net, far, (384, (1, 3))), _chain(net, far, (384, (3, 1)))),
        _pooled(net, x, 192),
    )


def inception_v3(
    batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 299
) -> Graph:
    """Return Inception v3; images have 75 pixels a side or more."""
    net = Network("inception_v3", data_format=data_format, seed=seed)
    x = _halve(net, net.image(batch, (size, size)), 32)
    x = net.conv_norm_relu(x, 32, 3, padding=0)
    x = net.max_pool(net.conv_norm_relu(x, 64, 3), 3, 2)
    x = net.conv_norm_relu(net.conv_norm_relu(x, 80, 1), 192, 3, padding=0)
    x = net.max_pool(x, 3, 2)
    for pooled in (32, 64, 64):
        x = _square(net, x, pooled)
    far = _halve(net, _chain(net, x, (64, 1), (96, 3)), 96)
    x = net.concat(_halve(net, x, 384), far, net.max_pool(x, 3, 2))
    for width in (128, 160, 160, 192):
        x = _long(net, x, width)
    near = _halve(net, _chain(net, x, (192, 1)), 320)
    far = _halve(net, _chain(net, x, (192, 1), (192, (1, 7)), (192, (7, 1))), 192)
    x = net.concat(near, far, net.max_pool(x, 3, 2))
    return net.classify(_wide(net, _wide(net, x)))
