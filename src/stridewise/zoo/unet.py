"""U-Net: an encoder, a decoder, and what they share at every resolution (Ronneberger et al. 2015).

With padded convolutions and batch norms, as is usual today.
"""

from __future__ import annotations

from stridewise.errors import InputError
from stridewise.graph import Graph
from stridewise.zoo.network import Network

__all__ = ["unet"]

_WIDTHS = (64, 128, 256, 512, 1024)


def _double(net: Network, x: str, filters: int) -> str:
    return net.conv_norm_relu(net.conv_norm_relu(x, filters, 3), filters, 3)


def unet(batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 256) -> Graph:
    """Return U-Net with two classes a pixel; it doubles images by transposed convolutions.

    Raises:
        InputError: the size is no multiple of 16.
    """
    if size % 16:
        raise InputError.at("size", expected="a multiple of 16", found=str(size))
    net = Network("unet", data_format=data_format, seed=seed)
    x, levels = _double(net, net.image(batch, (size, size)), _WIDTHS[0]), list[str]()
    for filters in _WIDTHS[1:]:
        levels.append(x)
        x = _double(net, net.max_pool(x, 2, 2), filters)
    for level in reversed(levels):
        filters = net.channels(level)
        x = net.concat(level, net.conv_transpose(x, filters, 2))
        x = _double(net, x, filters)
    return net.build(net.conv(x, 2, 1, bias=True))
