"""Residual networks: ResNet (He 2016), ResNeXt (Xie 2017), and R3D (Tran 2018).

As in torchvision, the stride of a bottleneck is in its 3x3 convolution.
"""

from __future__ import annotations

from stridewise.graph import Graph
from stridewise.zoo.network import BRANCH_GAIN, Network

__all__ = ["bottlenecks", "resnet3d_18", "resnet18", "resnet50", "resnext101_32x8d"]

_PLANES = (64, 128, 256, 512)
_EXPANSION = 4


def _basic(net: Network, x: str, planes: int, stride: int) -> str:
    y = net.conv_norm_relu(x, planes, 3, stride)
    y = net.conv_norm(y, planes, 3, gain=BRANCH_GAIN)
    if stride != 1 or net.channels(x) != planes:
        x = net.conv_norm(x, planes, 1, stride)
    return net.relu(net.add(y, x))


def _basics(net: Network, x: str) -> str:
    """Add the eight blocks of an 18-layer network."""
    for stage, planes in enumerate(_PLANES):
        for block in range(2):
            x = _basic(net, x, planes, 2 if stage and not block else 1)
    return x


def _bottleneck(
    net: Network, x: str, planes: int, stride: int, dilation: int, groups: int, width: int
) -> str:
    inner, outer = planes * width // 64 * groups, planes * _EXPANSION
    y = net.conv_norm_relu(x, inner, 1)
    y = net.conv_norm_relu(y, inner, 3, stride, dilation=dilation, groups=groups)
    y = net.conv_norm(y, outer, 1, gain=BRANCH_GAIN)
    if stride != 1 or net.channels(x) != outer:
        x = net.conv_norm(x, outer, 1, stride)
    return net.relu(net.add(y, x))


def _stem(net: Network, x: str) -> str:
    return net.max_pool(net.conv_norm_relu(x, 64, 7, 2), 3, 2, 1)


def bottlenecks(
    net: Network,
    image: str,
    depths: tuple[int, ...] = (3, 4, 6, 3),
    *,
    groups: int = 1,
    width: int = 64,
    dilated: tuple[bool, ...] = (False, False, False, False),
) -> list[str]:
    """Add the stem and the four stages of a ResNet with bottlenecks, and return their results.

    Args:
        net: the model.
        image: its input.
        depths: blocks a stage; those of ResNet-50 by default.
        groups: of the 3x3 convolutions.
        width: channels of a group of the first stage.
        dilated: which stages dilate where they would halve the image.
    """
    x, dilation, results = _stem(net, image), 1, list[str]()
    for stage, (planes, depth) in enumerate(zip(_PLANES, depths, strict=True)):
        stride, before = 2 if stage else 1, dilation
        if dilated[stage]:
            stride, dilation = 1, dilation * stride
        x = _bottleneck(net, x, planes, stride, before, groups, width)
        for _ in range(depth - 1):
            x = _bottleneck(net, x, planes, 1, dilation, groups, width)
        results.append(x)
    return results


def resnet18(batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 224) -> Graph:
    """Return ResNet-18."""
    net = Network("resnet18", data_format=data_format, seed=seed)
    x = _stem(net, net.image(batch, (size, size)))
    return net.classify(_basics(net, x))


def resnet50(batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 224) -> Graph:
    """Return ResNet-50, version 1.5."""
    net = Network("resnet50", data_format=data_format, seed=seed)
    return net.classify(bottlenecks(net, net.image(batch, (size, size)))[-1])


def resnext101_32x8d(
    batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 224
) -> Graph:
    """Return ResNeXt-101 with 32 groups, of 8 channels in the first stage."""
    net = Network("resnext101_32x8d", data_format=data_format, seed=seed)
    x = net.image(batch, (size, size))
    return net.classify(bottlenecks(net, x, (3, 4, 23, 3), groups=32, width=8)[-1])


def resnet3d_18(
    batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 112, frames: int = 16
) -> Graph:
    """Return R3D-18, a ResNet-18 over time, height and width, with 400 classes."""
    net = Network("resnet3d_18", data_format=data_format, seed=seed)
    x = net.image(batch, (frames, size, size))
    x = net.conv_norm_relu(x, 64, (3, 7, 7), (1, 2, 2))
    return net.classify(_basics(net, x), 400)
