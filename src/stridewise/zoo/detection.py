"""The backbone of a detector: ResNet-50 with a feature pyramid (Lin et al. 2017)."""

from __future__ import annotations

from stridewise.graph import Graph
from stridewise.zoo.network import Network
from stridewise.zoo.resnet import bottlenecks

__all__ = ["resnet50_fpn"]

_CHANNELS = 256


def resnet50_fpn(
    batch: int = 1, data_format: str = "NCHW", seed: int = 0, *, size: int = 512
) -> Graph:
    """Return the pyramid of a Faster R-CNN: five maps of 256 channels, the finest first."""
    net = Network("resnet50_fpn", data_format=data_format, seed=seed)
    stages = bottlenecks(net, net.image(batch, (size, size)))
    x, maps = "", list[str]()
    for stage in reversed(stages):
        inner = net.conv(stage, _CHANNELS, 1, bias=True)
        x = net.add(inner, net.resize(x, net.extents(inner), "nearest")) if x else inner
        maps.insert(0, net.conv(x, _CHANNELS, 3, bias=True))
    return net.build(*maps, net.max_pool(maps[-1], 1, 2))
