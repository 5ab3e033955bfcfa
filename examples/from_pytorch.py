"""From PyTorch: compile modules, see what runs where, verify them, and check their memory formats.

    python -m examples.from_pytorch

The modules are ResNet-18 and MobileNetV2 as in torchvision, with random weights. Needs PyTorch.
"""

from __future__ import annotations

import torch  # noqa: TID251 (the example is about it)
from torch import Tensor, nn  # noqa: TID251

import stridewise as sw
import stridewise.torch as swt


class BasicBlock(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        """Make the block; a shortcut that changes the shape has a convolution."""
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.shortcut = nn.Sequential()
        if stride > 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the images after the block."""
        return torch.relu(self.body(x) + self.shortcut(x))


class InvertedResidual(nn.Module):
    """A block of MobileNetV2: wide in the middle, where it is depthwise."""

    def __init__(self, inside: int, outside: int, stride: int, factor: int) -> None:
        """Make the block."""
        super().__init__()
        wide = inside * factor
        self.adds = stride == 1 and inside == outside
        expand = [] if factor == 1 else [*_normed(nn.Conv2d(inside, wide, 1, bias=False))]
        depthwise = nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False)
        self.body = nn.Sequential(
            *expand,
            *_normed(depthwise),
            nn.Conv2d(wide, outside, 1, bias=False),
            nn.BatchNorm2d(outside),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the images after the block."""
        return x + self.body(x) if self.adds else self.body(x)


def _normed(conv: nn.Conv2d) -> list[nn.Module]:
    return [conv, nn.BatchNorm2d(conv.out_channels), nn.ReLU6()]


def _classifier(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]


def resnet18() -> nn.Module:
    """Return ResNet-18."""
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    blocks: list[nn.Module] = [*stem, nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for outside, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [BasicBlock(inside, outside, stride), BasicBlock(outside, outside, 1)]
        inside = outside
    return nn.Sequential(*blocks, *_classifier(512))


def mobilenet_v2() -> nn.Module:
    """Return MobileNetV2."""
    blocks = _normed(nn.Conv2d(3, 32, 3, 2, 1, bias=False))
    inside = 32
    for factor, outside, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
        (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for index in range(count):
            blocks.append(InvertedResidual(inside, outside, 1 if index else stride, factor))
            inside = outside
    return nn.Sequential(*blocks, *_normed(nn.Conv2d(320, 1280, 1, bias=False)), *_classifier(1280))


def show(module: nn.Module, x: Tensor) -> None:
    """Compile a module in both ways, and compare the results with PyTorch."""
    fast = torch.compile(module, backend="stridewise")
    with torch.inference_mode():
        wanted = module(x)
        found = fast(x)
    print(f"torch.compile: greatest difference {float((found - wanted).abs().max()):.1e}")
    print(swt.report(fast))

    model = sw.compile(module, x, shapes={"input": ("N", *x.shape[1:])}, tune="model")
    for batch in (1, 4):
        images = torch.randn(batch, *x.shape[1:])
        with torch.inference_mode():
            difference = float((model(images) - module(images)).abs().max())
        print(f"sw.compile, batch {batch}: greatest difference {difference:.1e}")
    print(sw.verify(module, x, against="pytorch", tune="model"))
    print(swt.check(module, x))


def main(side: int = 224) -> None:
    """Show both modules, for images of some side."""
    torch.manual_seed(0)
    for make in (resnet18, mobilenet_v2):
        print(f"\n== {make.__name__}")
        show(make().eval(), torch.randn(1, 3, side, side))


if __name__ == "__main__":
    main()
