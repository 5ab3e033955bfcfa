"""ConvNeXt: large depthwise windows, and layer norms over channels (Liu et al. 2022)."""

from __future__ import annotations

from stridewise.graph import Graph
from stridewise.zoo.network import Network

__all__ = ["convnext_tiny"]

_STAGES = ((96, 3), (192, 3), (384, 9), (768, 3))
"""Channels and blocks of each stage."""
_EXPANSION = 4
_LAYER_SCALE = 0.3


def _block(net: Network, x: str) -> str:
    filters = net.channels(x)
    y = net.layer_norm(net.conv(x, filters, 7, groups=filters, bias=True))
    y = net.act(net.conv(y, _EXPANSION * filters, 1, bias=True), "gelu")
    y = net.scale(net.conv(y, filters, 1, bias=True), _LAYER_SCALE)
    return net.add(x, y)


def convnext_tiny(
    batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 224
) -> Graph:
    """Return ConvNeXt-T; its layers over channels alone are convolutions of one pixel."""
    net = Network("convnext_tiny", data_format=data_format, seed=seed)
    x = net.image(batch, (size, size))
    for stage, (filters, count) in enumerate(_STAGES):
        if stage:
            x = net.conv(net.layer_norm(x), filters, 2, 2, padding=0, bias=True)
        else:
            x = net.layer_norm(net.conv(x, filters, 4, 4, padding=0, bias=True))
        for _ in range(count):
            x = _block(net, x)
    x = net.layer_norm(net.mean(x, keep=True))
    return net.build(net.linear(net.flatten(x), 1000))
