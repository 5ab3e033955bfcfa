"""One class a pixel: FCN (Long et al. 2015) and DeepLab v3 (Chen et al. 2017) over ResNet-50.

The last two stages dilate in place of halving the image. As in torchvision, with 21 classes and
bilinear upsampling; without the auxiliary classifier, which is for training only.
"""

from __future__ import annotations

from stridewise.graph import Graph
from stridewise.zoo.network import Network
from stridewise.zoo.resnet import bottlenecks

__all__ = ["deeplabv3_resnet50", "fcn_resnet50"]

_CLASSES = 21
_DILATED = (False, False, True, True)
_RATES = (12, 24, 36)


def _scores(net: Network, x: str, image: str) -> Graph:
    """Finish with scores of the classes at the image's own size."""
    return net.build(net.resize(net.conv(x, _CLASSES, 1, bias=True), net.extents(image), "linear"))


def fcn_resnet50(
    batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 520
) -> Graph:
    """Return a fully convolutional network."""
    net = Network("fcn_resnet50", data_format=data_format, seed=seed)
    image = net.image(batch, (size, size))
    x = bottlenecks(net, image, dilated=_DILATED)[-1]
    return _scores(net, net.conv_norm_relu(x, net.channels(x) // 4, 3), image)


def _pyramid(net: Network, x: str) -> str:
    """Look at the image through windows of several sizes, one of them the whole image."""
    pieces = [net.conv_norm_relu(x, 256, 1)]
    pieces += [net.conv_norm_relu(x, 256, 3, dilation=rate) for rate in _RATES]
    whole = net.conv_norm_relu(net.mean(x, keep=True), 256, 1)
    pieces.append(net.resize(whole, net.extents(x), "linear"))
    return net.conv_norm_relu(net.concat(*pieces), 256, 1)


def deeplabv3_resnet50(
    batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 520
) -> Graph:
    """Return DeepLab v3, with atrous spatial pyramid pooling."""
    net = Network("deeplabv3_resnet50", data_format=data_format, seed=seed)
    image = net.image(batch, (size, size))
    x = _pyramid(net, bottlenecks(net, image, dilated=_DILATED)[-1])
    return _scores(net, net.conv_norm_relu(x, 256, 3), image)
