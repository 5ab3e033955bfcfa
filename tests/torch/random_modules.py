"""Modules of random layers, for comparing gradients with those of eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

__all__ = ["RandomNet", "random_net"]

F = torch.nn.functional
Pick = Callable[[int], int]
"""Returns a number below another one."""


class Apply(nn.Module):
    """A function as a module, with the numbers that it was drawn with in its name."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        super().__init__()
        self.name, self.function = name, function

    def extra_repr(self) -> str:
        return self.name

    def forward(self, *xs: Any) -> Any:
        return self.function(*xs)


class Attention(nn.Module):
    """Products, softmax and sums over positions; pixels are the positions of images."""

    def __init__(self, channels: int, fused: bool) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.norm, self.fused = nn.LayerNorm(channels), fused

    def forward(self, x: Any) -> Any:
        rows = x.flatten(2).transpose(1, 2)
        q, k, v = self.qkv(self.norm(rows)).chunk(3, -1)
        if self.fused:
            y = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        else:
            y = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1) @ v
        return (rows + self.out(y)).transpose(1, 2).reshape(x.shape)


class Excite(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 3, 1), nn.Conv2d(3, channels, 1)

    def forward(self, x: Any) -> Any:
        y = F.silu(self.down(x.mean((2, 3), keepdim=True)))
        return x * torch.sigmoid(self.up(y))


class Again(nn.Module):
    """A module that the backward computes again."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Any) -> Any:
        return checkpoint(self.module, x, use_reentrant=False)


def _conv(pick: Pick, x: Any) -> nn.Module:
    channels, filters = x.shape[1], (1, 3, 5, 8, 16, 17)[pick(6)]
    kernel = [1 + pick(4) for _ in range(2)]
    dilation = 1 + pick(2)
    padding = [pick(3) for _ in range(2)]
    for axis in range(2):  # no window may be larger than what is padded
        while (kernel[axis] - 1) * dilation + 1 > x.shape[2 + axis] + 2 * padding[axis]:
            kernel[axis] -= 1
    groups = (1, gcd(channels, filters))[pick(2)]
    stride = [1 + pick(2) for _ in range(2)]
    return nn.Conv2d(
        channels, filters, kernel, stride, padding, dilation, groups, bias=bool(pick(2))
    )


def _winograd(pick: Pick, x: Any) -> nn.Module:
    return nn.Conv2d(x.shape[1], (16, 32)[pick(2)], 3, padding=1, bias=bool(pick(2)))


def _depthwise(pick: Pick, x: Any) -> nn.Module:
    channels, kernel, times = x.shape[1], (3, 5, 7)[pick(3)], 1 + pick(2)
    stride, dilation = 1 + pick(2), 1 + pick(2)
    padding = (kernel // 2) * dilation
    return nn.Conv2d(
        channels, channels * times, kernel, stride, padding, dilation, channels, bias=bool(pick(2))
    )


def _transposed(pick: Pick, x: Any) -> nn.Module:
    channels, filters = x.shape[1], (1, 4, 7, 16)[pick(4)]
    groups = (1, gcd(channels, filters))[pick(2)]
    kernel, stride, dilation = 1 + pick(3), 1 + pick(2), 1 + pick(2)
    more = pick(2) if max(stride, dilation) > 1 else 0
    padding = pick(2) if min(x.shape[2:]) > 1 and kernel > 1 else 0
    return nn.ConvTranspose2d(
        channels, filters, kernel, stride, padding, more, groups, bool(pick(2)), dilation
    )


def _norm(pick: Pick, x: Any) -> nn.Module:
    channels = x.shape[1]
    pixels = x.shape[2] * x.shape[3]
    if x.shape[0] * pixels == 1:
        return nn.GroupNorm(1, channels)
    kinds = [
        lambda: nn.BatchNorm2d(channels),
        lambda: nn.BatchNorm2d(channels, momentum=0.3, eps=1e-3),
        lambda: nn.BatchNorm2d(channels, affine=False),
        lambda: nn.BatchNorm2d(channels).eval(),
        lambda: nn.GroupNorm((1, channels)[pick(2) if pixels > 1 else 0], channels),
        lambda: nn.LayerNorm(tuple(x.shape[2:])) if pixels > 1 else nn.GroupNorm(1, channels),
    ]
    return kinds[pick(len(kinds))]()


_ACTIVATIONS = (
    nn.ReLU, nn.ReLU6, nn.SiLU, nn.GELU, nn.Sigmoid, nn.Tanh, nn.Hardswish, nn.Hardsigmoid, nn.ELU,
    nn.LeakyReLU, nn.Mish, nn.Softplus, nn.SELU, nn.PReLU, nn.Softmax2d, nn.LogSigmoid, nn.CELU,
    nn.Hardtanh, nn.Softsign, nn.Tanhshrink, nn.Softshrink, nn.Hardshrink, nn.Threshold,
)  # fmt: skip


def _activation(pick: Pick, _x: Any) -> nn.Module:
    kind = _ACTIVATIONS[pick(len(_ACTIVATIONS))]
    return kind(0.1, 0.2) if kind is nn.Threshold else kind()


def _pool(pick: Pick, x: Any) -> nn.Module:
    kernel, stride, ceil = 2 + pick(2), 1 + pick(3), bool(pick(2))
    padding = pick(2)
    if min(x.shape[2:]) + 2 * padding < kernel:
        return nn.AdaptiveAvgPool2d(1 + pick(3))
    kinds = [
        lambda: nn.MaxPool2d(kernel, stride, padding, ceil_mode=ceil),
        lambda: nn.AvgPool2d(kernel, stride, padding, ceil, bool(pick(2))),
        lambda: nn.AdaptiveAvgPool2d((1 + pick(3), 1 + pick(3))),
        lambda: nn.AdaptiveMaxPool2d(1 + pick(2)),
        lambda: nn.LPPool2d(2, kernel, stride) if min(x.shape[2:]) >= kernel else nn.Identity(),
    ]
    return kinds[pick(len(kinds))]()


def _resize(pick: Pick, _x: Any) -> nn.Module:
    size = tuple(1 + pick(9) for _ in range(2))
    kinds = [
        lambda: nn.Upsample(scale_factor=2),
        lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
        lambda: nn.Upsample(size, mode="bilinear", align_corners=bool(pick(2))),
        lambda: nn.Upsample(size),
        lambda: nn.Upsample(size, mode="bicubic"),
    ]
    return kinds[pick(len(kinds))]()


def _shape(pick: Pick, x: Any) -> nn.Module:
    n, c, h, w = x.shape
    a, b = pick(3), pick(3)
    low, value = pick(c), pick(3) - 1.0
    kinds = [
        ("pad", lambda y: F.pad(y, (a, b, b, a), value=value)),
        ("permute", lambda y: y.transpose(2, 3) * 2),
        ("merge", lambda y: y.permute(0, 2, 3, 1).reshape(n, h * w, c, 1).transpose(1, 2) * 1.5),
        ("slice", lambda y: y[:, low:] * 2),
        ("strided", lambda y: y[:, :, ::2, 1 if w > 1 else 0 :]),
        (
            "chunks",
            lambda y: torch.cat([t * (1 + i) for i, t in enumerate(y.chunk(2, 1))][::-1], 1),
        ),
        ("flip", lambda y: y.flip(3) + 1),
        ("roll", lambda y: y.roll(1, 2) * 2),
        ("sums", lambda y: y - y.mean(1, keepdim=True) + y.amax((2, 3), keepdim=True)),
        ("scaled", lambda y: y / (y.square().sum(1, keepdim=True) + 1).sqrt()),
        ("stack", lambda y: torch.stack([y, y.sin()], 2).flatten(1, 2)),
        ("where", lambda y: torch.where(y > 0.1, y, y * 0.5)),
        ("clamp", lambda y: y.clamp(-0.7, 0.9) + y.abs()),
        ("expand", lambda y: y.mean((2, 3), keepdim=True).expand_as(y) * y),
        ("repeat", lambda y: y.repeat(1, 2, 1, 1)),
        ("reflect", lambda y: F.pad(y, (int(w > 1), 0, 0, int(h > 1)), mode="reflect")),
        ("replicate", lambda y: F.pad(y, (1, 0, 2, 1), mode="replicate")),
        ("std", lambda y: y / (y.std((1, 2, 3), keepdim=True, correction=0) + 0.5)),
        ("unfold", lambda y: F.unfold(y, 1).reshape(y.shape) * 2),
        ("detach", lambda y: y * y.detach().mean()),
        ("norm", lambda y: F.normalize(y, dim=1)),
        ("logsumexp", lambda y: y + y.logsumexp(1, keepdim=True)),
        ("cumsum", lambda y: y.cumsum(1) * 0.3),
    ]
    return Apply(*kinds[pick(len(kinds))])


def _block(pick: Pick, x: Any) -> nn.Module:
    kinds = [
        lambda: Attention(x.shape[1], bool(pick(2))),
        lambda: Excite(x.shape[1]),
        lambda: nn.Dropout((0.1, 0.5)[pick(2)]),
        lambda: nn.Dropout2d(0.3),
        lambda: nn.Linear(x.shape[3], 1 + pick(6)),
        lambda: nn.PixelShuffle(2) if x.shape[1] % 4 == 0 else nn.PixelUnshuffle(1),
        lambda: nn.ChannelShuffle(gcd(x.shape[1], 4)),
    ]
    return kinds[pick(len(kinds))]()


_LAYERS = (
    _conv, _winograd, _conv, _depthwise, _transposed, _norm, _norm, _activation, _activation,
    _pool, _resize, _shape, _shape, _block,
)  # fmt: skip
_JOINS = {"add": torch.add, "mul": torch.mul, "max": torch.maximum, "cat": None, "div": None}


def _joined(kind: str, x: Any, y: Any) -> Any:
    if kind == "cat":
        return torch.cat([x, y, x], 1)
    if kind == "div":
        return x / (y.abs() + 0.7)
    return _JOINS[kind](x, y)


class RandomNet(nn.Module):
    """Layers, each of which reads one or two of the values before it.

    Attributes:
        steps: for each layer, its name, and the positions of what it reads; the input is 0.
        results: the positions of the values that it returns.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict()
        self.steps: list[tuple[str, tuple[int, ...]]] = []
        self.results: tuple[int, ...] = ()

    def forward(self, x: Any) -> Any:
        values = [x]
        for name, reads in self.steps:
            values.append(self.layers[name](*(values[index] for index in reads)))
        return tuple(values[index] for index in self.results)


def _one(net: RandomNet, pick: Pick, values: list[Any]) -> None:
    """Add a layer."""
    at = len(values) - 1 - min(pick(4), pick(4), len(values) - 1)
    x = values[at]
    same = [i for i, v in enumerate(values) if v.shape == x.shape and i != at]
    beside = [i for i, v in enumerate(values) if i != at and v[:, :1].shape == x[:, :1].shape]
    name, reads = f"l{len(net.steps)}", (at,)
    if same and pick(4) == 0:
        kind = ("add", "mul", "max", "div")[pick(4)]
        layer, reads = Apply(kind, lambda a, b: _joined(kind, a, b)), (at, same[pick(len(same))])
    elif beside and pick(6) == 0:
        layer, reads = (
            Apply("cat", lambda a, b: _joined("cat", a, b)),
            (at, beside[pick(len(beside))]),
        )
    else:
        known = [
            key for key, layer in net.layers.items()
            if isinstance(layer, nn.Conv2d) and layer.in_channels == x.shape[1]
            and layer.kernel_size == (3, 3) and layer.padding == (1, 1) and layer.dilation == (1, 1)
        ]  # fmt: skip
        if known and pick(4) == 0:
            name = known[pick(len(known))]
            layer = net.layers[name]
        else:
            layer = _LAYERS[pick(len(_LAYERS))](pick, x)
            if not isinstance(layer, (nn.BatchNorm2d, nn.Dropout, nn.Dropout2d)) and pick(8) == 0:
                layer = Again(layer)
        if pick(6) == 0:
            layer.requires_grad_(False)
    with torch.no_grad():
        y = layer(*(values[i] for i in reads))
    if y.numel() == 0 or y.numel() > 60_000 or not bool(torch.isfinite(y).all()):
        return
    net.layers[name] = layer
    net.steps.append((name, reads))
    values.append(y)


def random_net(pick: Pick, count: int) -> tuple[RandomNet, Any]:
    """Return a module and images for it.

    Args:
        pick: draws numbers.
        count: layers at most.
    """
    shape = (1 + pick(3), (1, 3, 5, 16)[pick(4)], 1 + pick(12), 1 + pick(12))
    torch.manual_seed(pick(1000))
    x = torch.randn(shape)
    net, values = RandomNet(), [x]
    for _ in range(count):
        _one(net, pick, values)
    last = len(values) - 1
    net.results = tuple(dict.fromkeys([last, last - pick(min(3, last + 1))]))
    return net, x
