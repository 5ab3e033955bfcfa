"""Training with ``torch.compile``: what users do between forward and the step of the optimizer."""

from __future__ import annotations

import copy
import threading
import warnings
from functools import partial

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

from torch.utils.checkpoint import checkpoint  # noqa: E402

import stridewise.torch as st  # noqa: E402

from .test_gradients import relative  # noqa: E402

F, nn = torch.nn.functional, torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

TOLERANCE = 1e-4
"""Winograd convolutions; bfloat16 has a tolerance of its own."""


class Net(nn.Module):
    """Convolutions with batch norms; the second block may be computed again in the backward."""

    def __init__(self, *, again=False, share=0.0):
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)
        )
        self.second = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.Hardswish(),
            nn.Dropout(share),
        )  # fmt: skip
        self.last = nn.Linear(16, 5)
        self.again = again

    def features(self, x):
        y = self.first(x)
        return checkpoint(self.second, y, use_reentrant=False) if self.again else self.second(y)

    def forward(self, x):
        return self.last(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class TwoResults(Net):
    def forward(self, x):
        y = self.features(x)
        return self.last(y.mean((2, 3))), y


def images(batch=4):
    return torch.randn(batch, 3, 12, 12), torch.arange(batch) % 5


def loss_of(net, x, labels):
    torch.manual_seed(3)  # compiled and eager draw the same numbers
    return F.cross_entropy(net(x), labels)


def both(model, train, fallback="error"):
    """Train a compiled model and a copy; return the largest error of gradients and buffers."""
    twin = copy.deepcopy(model)
    fast = torch.compile(model, backend="stridewise", options={"fallback": fallback})
    train(fast, model)
    train(twin, twin)
    errors = [0.0]
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            assert a.grad.stride() == b.grad.stride()
            errors.append(relative(a.grad, b.grad))
    for a, b in zip(model.buffers(), twin.buffers(), strict=True):
        errors.append(relative(a.float(), b.float()))
    return max(errors)


def test_gradients_accumulate():
    batches = [images() for _ in range(3)]

    def train(net, _own):
        for x, labels in batches:
            loss_of(net, x, labels).backward()

    assert both(Net(), train) <= TOLERANCE


def test_frozen_layers():
    x, labels = images()

    def train(net, own):
        own.first.requires_grad_(False)
        loss_of(net, x, labels).backward()
        own.first.requires_grad_(True)
        loss_of(net, x, labels).backward()

    assert both(Net(), train) <= TOLERANCE


def test_backward_twice():
    x, labels = images()

    def train(net, _own):
        loss = loss_of(net, x, labels)
        loss.backward(retain_graph=True)
        loss.backward()

    assert both(Net(), train) <= TOLERANCE


def test_several_losses():
    x, labels = images()

    def train(net, _own):
        torch.manual_seed(3)
        y = net(x)
        (F.cross_entropy(y, labels) + y.square().mean()).backward(retain_graph=True)
        y.abs().sum().backward()

    assert both(Net(), train) <= TOLERANCE


def test_results_without_and_with_gradients():
    x, labels = images()

    def train(net, _own):
        F.cross_entropy(net(x)[0], labels).backward()
        scores, features = net(x)
        features.square().sum().backward(retain_graph=True)
        F.cross_entropy(scores, labels).backward()

    assert both(TwoResults(), train) <= TOLERANCE


def test_the_loss_may_be_compiled():
    x, labels = images()
    model = Net()
    twin = copy.deepcopy(model)
    loss = torch.compile(partial(loss_of, model), backend="stridewise")
    loss(x, labels).backward()
    loss_of(twin, x, labels).backward()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert relative(a.grad, b.grad) <= TOLERANCE


def test_evaluation_between_steps():
    x, labels = images()
    results = []

    def train(net, own):
        loss_of(net, x, labels).backward()
        own.eval()
        with torch.no_grad():
            results.append(net(x))
        results.append(net(x).detach())
        loss_of(net, x, labels).backward()
        own.train()
        loss_of(net, x, labels).backward()

    assert both(Net(), train) <= TOLERANCE
    ours, theirs = results[:2], results[2:]
    for a, b in zip(ours, theirs, strict=True):
        assert relative(a, b) <= 1e-5


def test_batches_of_other_sizes():
    sizes = [images(batch) for batch in (4, 3, 6, 2)]

    def train(net, _own):
        for x, labels in sizes:
            loss_of(net, x, labels).backward()

    assert both(Net(), train) <= TOLERANCE


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_dropout_draws_what_eager_pytorch_draws(layout):
    x, labels = images()

    def train(net, _own):
        loss_of(net, x.contiguous(memory_format=layout), labels).backward()

    model = Net(share=0.4).to(memory_format=layout)
    with pytest.warns(st.FallbackWarning, match="bernoulli"):
        assert both(model, train, "eager") <= TOLERANCE


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_checkpoints(share):
    x, labels = images()

    def train(net, _own):
        loss_of(net, x, labels).backward()

    model = Net(again=True, share=share)
    twin = copy.deepcopy(model)
    twin.again = False  # eager checkpoints move running statistics twice
    fast = torch.compile(model, backend="stridewise")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", st.FallbackWarning)
        train(fast, model)
    train(twin, twin)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert relative(a.grad, b.grad) <= TOLERANCE
    for a, b in zip(model.buffers(), twin.buffers(), strict=True):
        assert relative(a.float(), b.float()) <= 1e-5


class Attention(nn.Module):
    """Attention that the backward computes again: an operator with a state beside its results."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def attend(self, x):
        q, k, v = self.qkv(x)[:, None].chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v)[:, 0] + x

    def forward(self, x):
        return checkpoint(self.attend, x, use_reentrant=False)


def test_checkpoints_of_attention():
    x = torch.randn(2, 5, 8)

    def train(net, _own):
        net(x).square().sum().backward()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", st.FallbackWarning)
        assert both(Attention(), train, "eager") <= 1e-5


@pytest.mark.parametrize("is_inside", [True, False], ids=["inside", "around"])
def test_autocast(is_inside):
    x, labels = images()
    model = Net()
    twin = copy.deepcopy(model)

    def loss(net, x):
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(net(x), labels)

    fast = partial(loss, torch.compile(model, backend="stridewise"))
    if is_inside:
        fast = torch.compile(partial(loss, model), backend="stridewise")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", st.FallbackWarning)
        fast(x).backward()
    wide = copy.deepcopy(twin)
    loss(twin, x).backward()
    F.cross_entropy(wide(x), labels).backward()
    nets = (net.parameters() for net in (model, twin, wide))
    for ours, theirs, wanted in zip(*nets, strict=True):
        # Both round to bfloat16, at different places.
        allowed = max(2e-2, 1.25 * relative(theirs.grad, wanted.grad))
        assert relative(ours.grad, wanted.grad) <= allowed
        assert ours.grad.dtype == torch.float32


class Normalized(nn.Module):
    """A norm between two convolutions; its parameters stay float32 under autocast."""

    def __init__(self, norm):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3), norm
        self.last = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x):
        return self.last(F.silu(self.norm(self.first(x))))


NORMS = {
    "batch": lambda affine: nn.BatchNorm2d(8, affine=affine),
    "group": lambda affine: nn.GroupNorm(2, 8, affine=affine),
    "instance": lambda affine: nn.InstanceNorm2d(8, affine=affine),
    "layer": lambda affine: nn.LayerNorm((10, 10), elementwise_affine=affine),
}


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo reads it
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("norm", NORMS)
def test_norms_of_narrow_images_and_wide_parameters(norm, affine, layout):
    model = Normalized(NORMS[norm](affine))
    twin, wide = copy.deepcopy(model), copy.deepcopy(model)
    x = images()[0].to(memory_format=layout)
    inputs = [x.clone().requires_grad_() for _ in range(3)]
    fast = torch.compile(model, backend="stridewise", options={"fallback": "error"})
    for net, source, narrow in zip((fast, twin, wide), inputs, (True, True, False), strict=True):
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            found = net(source)
        found.float().square().mean().backward()
    nets = [(x, *net.parameters()) for x, net in zip(inputs, (model, twin, wide), strict=True)]
    scale = max(float(item.grad.norm()) for item in nets[2])  # gradients may be zero but for errors
    for ours, theirs, wanted in zip(*nets, strict=True):
        allowed = max(2e-2 * scale, 1.25 * float((theirs.grad - wanted.grad).norm()))
        assert float((ours.grad - wanted.grad).norm()) <= allowed
        assert ours.grad.dtype == torch.float32


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo reads it
def test_gradients_of_inputs_and_hooks():
    x, labels = images()
    gradients = []

    def train(net, own):
        own.last.weight.register_hook(lambda gradient: gradient * 2)
        leaf = x.clone().requires_grad_()
        loss_of(net, leaf * 2, labels).backward()
        gradients.append(leaf.grad)

    assert both(Net(), train) <= TOLERANCE
    assert relative(*gradients) <= TOLERANCE


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_models_of_other_element_types(dtype):
    x, labels = images()

    def train(net, _own):
        loss_of(lambda x: net(x.to(dtype)).float(), x, labels).backward()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", st.FallbackWarning)
        error = both(Net().to(dtype), train, "eager")
    assert error <= {torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]


VIEWS = {
    "repeated": lambda x: x[:4, :1, :1, :1].expand(4, 3, 12, 12),
    "windows": lambda x: x.as_strided((4, 3, 12, 12), (40, 10, 2, 1)),
    "gaps": lambda x: x[::2, :, ::2, ::2],
    "turned": lambda x: x[:4, :, :12, 3:15].transpose(1, 3).contiguous().transpose(1, 3),
}


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo reads it
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_inputs_of_any_strides(view):
    """The gradient of an input has memory for each element, also where the input has not."""
    _, labels = images()
    x, gradients = torch.randn(8, 3, 24, 24), []

    def train(net, _own):
        leaf = view(x).detach().requires_grad_()
        loss_of(net, leaf, labels).backward()
        gradients.append(leaf.grad)

    assert both(Net(), train) <= TOLERANCE
    assert relative(*gradients) <= TOLERANCE
    assert gradients[0].stride() == gradients[1].stride()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # PyTorch reads it
@pytest.mark.parametrize("function", [lambda x: x.softmax(1), lambda x: x.permute(0, 2, 3, 1)])
def test_views_of_one_shape_with_other_strides_in_each_call(function):
    """PyTorch makes the strides symbols, which the backward graph has in results alone."""
    linear = nn.Linear(2, 5)
    fast = torch.compile(lambda x: linear(function(x).reshape(-1, 2)), backend="stridewise")
    for step in (1, 2, 3):
        base = torch.randn(2, 2 * step, 6, 8, requires_grad=True)
        wanted = linear(function(base[:, ::step]).reshape(-1, 2))
        found = fast(base[:, ::step])
        cotangent = torch.randn_like(wanted)
        (right,) = torch.autograd.grad(wanted, base, cotangent)
        (gradient,) = torch.autograd.grad(found, base, cotangent)
        assert relative(found.detach(), wanted.detach()) <= TOLERANCE
        assert relative(gradient, right) <= TOLERANCE


class _Permuted(nn.Module):
    def __init__(self, order):
        super().__init__()
        self.order = order

    def forward(self, x):
        return x.permute(self.order)


@pytest.mark.parametrize("order", [(0, 1, 3, 2), (0, 3, 2, 1), (0, 2, 1, 3), (2, 1, 0, 3)])
@pytest.mark.parametrize("layer", ["batch norm", "convolution", "pool"])
def test_images_whose_axes_change_places(order, layer):
    x = torch.randn(4, 3, 6, 8)
    channels = (4, 6, 6, 8)[order[1]]
    last = {
        "batch norm": nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU()),
        "convolution": nn.Conv2d(channels, 4, (3, 1), padding=(1, 0)),
        "pool": nn.MaxPool2d((2, 1)),
    }[layer]
    first = nn.Conv2d(3, 6, 3, padding=1)
    model = nn.Sequential(first, nn.ReLU(), _Permuted(order), last)

    def train(net, _own):
        torch.manual_seed(1)
        result = net(x)
        (result * torch.randn(result.shape)).sum().backward()

    assert both(model, train) <= TOLERANCE


def test_threads_train_at_the_same_time():
    x, labels = images()
    model = Net().eval()
    fast = torch.compile(model, backend="stridewise", options={"fallback": "error"})
    found = []

    def run():
        found.append(torch.autograd.grad(loss_of(fast, x, labels), list(model.parameters())))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = torch.autograd.grad(loss_of(model, x, labels), list(model.parameters()))
    assert len(found) == 3
    for gradients in found:
        for a, b in zip(gradients, wanted, strict=True):
            assert relative(a, b) <= TOLERANCE


def test_gradients_of_gradients_are_refused():
    x, labels = images()
    fast = torch.compile(Net(), backend="stridewise")
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss_of(fast, leaf, labels), leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        gradient.square().sum().backward()


def test_parameters_are_read_where_they_are():
    """A step compiles nothing: neither optimizers nor writes to parameters pack anything."""
    x, labels = images()
    model = Net()
    fast = torch.compile(model, backend="stridewise", options={"fallback": "error"})
    optimizer = torch.optim.SGD(model.parameters(), 0.1, fused=True)
    found = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = loss_of(fast, x, labels)
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    assert found == sorted(found, reverse=True)
    assert [graph.calls for graph in st.report(model).graphs] == [4, 4]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
def test_resizes_of_batches_that_change(mode, layout):
    class Resized(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, padding=1)

        def forward(self, x):
            return F.interpolate(self.conv(x), scale_factor=2, mode=mode)

    model = Resized().to(memory_format=layout)
    given = [images(batch)[0].contiguous(memory_format=layout) for batch in (4, 3, 2)]

    def train(net, _):
        for x in given:
            net(x).square().mean().backward()

    # PyTorch computes the gradient of bicubic resizes.
    assert both(model, train, fallback="eager" if mode == "bicubic" else "error") < TOLERANCE


def test_buffers_that_are_updated_after_their_use():
    class Centered(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("center", torch.zeros(1, 8, 1, 1))

        def forward(self, x):
            y = x - self.center
            with torch.no_grad():
                self.center.lerp_(x.mean((0, 2, 3), keepdim=True), 0.3)
            return y

    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), Centered(), nn.ReLU(), nn.Conv2d(8, 8, 3), Centered(), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip
    batches = [images()[0] for _ in range(3)]

    def train(net, _):
        for x in batches:
            net(x).square().mean().backward()

    # PyTorch computes what has no operator here.
    assert both(model, train, fallback="eager") < TOLERANCE
