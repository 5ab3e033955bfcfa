"""What a compiled forward keeps for its backward is stored as its plan wants it."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from functools import partial

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch._dynamo import compiled_autograd  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from stridewise.frontends.torch import table  # noqa: E402
from stridewise.frontends.torch.keeping import is_kept, mark_kept  # noqa: E402
from stridewise.tensor.desc import TensorDesc  # noqa: E402
from stridewise.torch import contiguous  # noqa: E402
from stridewise.torch.kept import Kept, border_of  # noqa: E402

from .test_gradients import relative  # noqa: E402

nn = torch.nn
hooks = torch.autograd.graph
pytestmark = pytest.mark.filterwarnings(
    "ignore::stridewise.torch.FallbackWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)


class Net(nn.Module):
    """Its images are kept in blocks, some as they are and some behind a norm."""

    def __init__(self, channels=32):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, 64, 3, padding=1, stride=2), nn.GELU(),
            nn.Conv2d(64, 64, 1), nn.Sigmoid(), nn.AvgPool2d(2),
        )  # fmt: skip
        self.last = nn.Linear(64, 5)

    def forward(self, x):
        return self.last(self.layers(x).mean((2, 3)))


def twins(**options):
    net = Net(**options)
    return net, copy.deepcopy(net)


def step(net, x, around=nullcontext):
    with around():
        net(x).square().sum().backward()


def gradients_agree(net, eager):
    for found, wanted in zip(net.parameters(), eager.parameters(), strict=True):
        assert found.grad.stride() == wanted.grad.stride()
        assert relative(found.grad, wanted.grad) < 1e-3


def kept_by(fast, x):
    """Return the images that a forward hands to its backward."""
    found = []
    with hooks.saved_tensors_hooks(lambda t: found.append(t) or t, lambda t: t):
        fast(x)
    return [t for t in found if t.dim() > 3 and 4 in t.shape[:1]]


def test_images_are_kept_in_the_formats_of_the_plan():
    net, eager = twins()
    x = torch.randn(4, 3, 16, 16)
    fast = torch.compile(net, backend="stridewise")
    images = [t for t in kept_by(fast, x) if t.shape[1] != 3]
    assert any(t.dim() == 5 or t.is_contiguous(memory_format=torch.channels_last) for t in images)
    step(fast, x)
    step(eager, x)
    gradients_agree(net, eager)


def in_order(t):
    return t.contiguous(memory_format=torch.contiguous_format).clone()


def turned(t):
    """Return what a hook may make of a tensor: other strides."""
    return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.dim() > 1 else t


AROUND = {
    "copies": partial(hooks.saved_tensors_hooks, in_order, in_order),
    "strides": partial(hooks.saved_tensors_hooks, turned, lambda t: t),
    "memory of the CPU": hooks.save_on_cpu,
    "compiled autograd": partial(compiled_autograd._enable, torch.compile(backend="eager")),
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@pytest.mark.parametrize("channels", [32, 24])
def test_hooks_may_store_them_otherwise(around, channels):
    net, eager = twins(channels=channels)
    x = torch.randn(4, 3, 16, 16)
    fast = torch.compile(net, backend="stridewise")
    step(fast, x)
    net.zero_grad()
    step(fast, x, around)
    step(eager, x)
    gradients_agree(net, eager)


def test_checkpoints_and_graphs_that_are_kept():
    net, eager = twins()
    x = torch.randn(4, 3, 16, 16)
    fast = torch.compile(net, backend="stridewise")
    step(partial(checkpoint, fast, use_reentrant=False), x)
    loss = fast(x).square().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    for _ in range(3):
        step(eager, x)
    gradients_agree(net, eager)


@pytest.mark.parametrize("operator", ["gelu_backward", "convolution_backward", "mul"])
def test_operators_of_pytorch_read_them_as_promised(monkeypatch, operator):
    found = {k: v for k, v in table.HANDLERS.items() if not k.startswith(f"aten.{operator}.")}
    monkeypatch.setattr("stridewise.frontends.torch.partition.HANDLERS", found)
    net, eager = twins()
    x = torch.randn(4, 3, 16, 16)
    step(torch.compile(net, backend="stridewise"), x)
    step(eager, x)
    gradients_agree(net, eager)


def test_volumes_and_channels_last():
    net = nn.Sequential(nn.Conv3d(3, 32, 3), nn.SiLU(), nn.Conv3d(32, 16, 3), nn.Tanh())
    eager, x = copy.deepcopy(net), torch.randn(2, 3, 7, 8, 9)
    step(torch.compile(net, backend="stridewise"), x)
    step(eager, x)
    gradients_agree(net, eager)
    net, eager = (item.to(memory_format=torch.channels_last) for item in twins())
    x = torch.randn(4, 3, 16, 16).to(memory_format=torch.channels_last)
    step(torch.compile(net, backend="stridewise"), x)
    step(eager, x)
    gradients_agree(net, eager)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_formats_are_not_chosen_beside_precisions(layout):
    net, eager = (item.to(memory_format=layout) for item in twins())
    x = torch.randn(4, 3, 16, 16).contiguous(memory_format=layout)
    options = {"dtype": "auto", "max_error": 1e-4}
    step(torch.compile(net, backend="stridewise", options=options), x)
    step(eager, x)
    gradients_agree(net, eager)


def test_images_of_which_views_are_kept_too():
    """PyTorch takes the views after the run, of tensors as it promises them."""

    def forward(x):
        y = x.sin()
        return y.sum(), *y.split(2, 1), y.cos(), y

    graph = make_fx(forward)(torch.randn(2, 4, 3, 3)).graph
    mark_kept(graph, 1)
    assert [node.name for node in graph.nodes if is_kept(node)] == ["cos"]


@given(
    st.sampled_from(["NCHW", "NHWC", "CHWN", "nChw16c", "nChw8c"]),
    st.sampled_from([(2, 16, 3, 5), (1, 32, 1, 1), (3, 16, 4, 1)]),
    st.booleans(),
)
def test_tensors_and_their_formats(name, shape, is_last):
    x = torch.arange(2.0 * 32 * 15)[: torch.Size(shape).numel()].view(shape)
    x = x.contiguous(memory_format=torch.channels_last) if is_last else x
    desc = TensorDesc(shape, "float32", "NCHW", name)
    border, kept = border_of(desc), Kept()
    kept.descs["x"] = desc
    held = torch.empty_strided(border.shape, border.strides).copy_(contiguous(x, name))
    again = kept.logical("x", held, x.stride())
    assert again.equal(x)
    assert again.stride() == x.stride()
    assert kept.stored("x", x).equal(held)
    assert kept.stored("x", held) is held
