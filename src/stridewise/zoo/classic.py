"""Chains of convolutions: AlexNet (Krizhevsky et al. 2012) and VGG (Simonyan, Zisserman 2015).

The first fully connected layer is as wide as the image makes it.
"""

from __future__ import annotations

from stridewise.graph import Graph
from stridewise.zoo.network import Network

__all__ = ["alexnet", "vgg16"]

_VGG16 = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and convolutions between two poolings."""


def _head(net: Network, x: str) -> Graph:
    x = net.flatten(x)
    for _ in range(2):
        x = net.relu(net.linear(x, 4096))
    return net.build(net.linear(x, 1000))


def alexnet(batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 227) -> Graph:
    """Return AlexNet of 2012, with local response normalization and convolutions in two groups."""
    net = Network("alexnet", data_format=data_format, seed=seed)
    x = net.relu(net.conv(net.image(batch, (size, size)), 96, 11, 4, padding=0, bias=True))
    x = net.max_pool(net.local_norm(x), 3, 2)
    x = net.relu(net.conv(x, 256, 5, groups=2, bias=True))
    x = net.max_pool(net.local_norm(x), 3, 2)
    for filters, groups in ((384, 1), (384, 2), (256, 2)):
        x = net.relu(net.conv(x, filters, 3, groups=groups, bias=True))
    return _head(net, net.max_pool(x, 3, 2))


def vgg16(batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 224) -> Graph:
    """Return VGG with 16 layers, without batch norms."""
    net = Network("vgg16", data_format=data_format, seed=seed)
    x = net.image(batch, (size, size))
    for filters, count in _VGG16:
        for _ in range(count):
            x = net.relu(net.conv(x, filters, 3, bias=True))
        x = net.max_pool(x, 2, 2)
    return _head(net, x)
