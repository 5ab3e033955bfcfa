"""Small modules, and how tests compile and compare them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")


F = torch.nn.functional


class Net(torch.nn.Module):
    """Convolutions with a residual, pooling and a classifier; all sizes are odd."""

    def __init__(self, channels: int = 7):
        super().__init__()
        self.first = torch.nn.Conv2d(3, channels, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(channels)
        self.second = torch.nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.last = torch.nn.Linear(channels, 5)
        with torch.no_grad():
            self.norm.running_mean.normal_()
            self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        y = F.relu(self.norm(self.first(x)))
        y = F.hardswish(self.second(y)) + y
        return self.last(F.adaptive_avg_pool2d(F.max_pool2d(y, 2), 1).flatten(1))


class Features(Net):
    def forward(self, x):
        return F.relu(self.norm(self.first(x)))


def compiled(model, **options):
    options.setdefault("fallback", "error")
    return torch.compile(model, backend="stridewise", options=options)


def image(batch=2, side=11, layout=torch.contiguous_format):
    return torch.randn(batch, 3, side, side).contiguous(memory_format=layout)


def close(found, wanted):
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    assert torch.allclose(found, wanted, rtol=2e-5, atol=2e-5)


def same(fast, model, *inputs):
    with torch.no_grad():
        wanted, found = model(*inputs), fast(*inputs)
    close(found, wanted)
    return found
