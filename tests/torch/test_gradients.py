"""Gradients of compiled modules and functions against those of eager PyTorch."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

import stridewise.torch as st  # noqa: E402
from stridewise.torch.region import REGIONS  # noqa: E402

F, nn = torch.nn.functional, torch.nn
# PyTorch warns of its own changes to come; the tests are about warnings of the backend.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
SHAPE = (2, 6, 9, 7)


class Function(nn.Module):
    """A function of images as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Attention(nn.Module):
    """Squeeze and excitation: a mean that scales what it is of."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Conv2d(6, 6, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.scale(x.mean((2, 3), keepdim=True)))


class LastNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


MODULES = {
    "conv": lambda: nn.Conv2d(6, 5, 3, padding=1),
    "conv_1x1": lambda: nn.Conv2d(6, 7, 1, bias=False),
    "conv_strided": lambda: nn.Conv2d(6, 8, 3, stride=2, padding=(1, 0)),
    "conv_dilated": lambda: nn.Conv2d(6, 8, 3, dilation=2, padding=2),
    "conv_grouped": lambda: nn.Conv2d(6, 8, 3, groups=2),
    "conv_depthwise": lambda: nn.Conv2d(6, 6, 3, groups=6, padding=1),
    "conv_depthwise_twice": lambda: nn.Conv2d(6, 12, 5, groups=6, padding=2, stride=2),
    "conv_transposed": lambda: nn.ConvTranspose2d(6, 5, 3, stride=2, output_padding=1),
    "conv_transposed_grouped": lambda: nn.ConvTranspose2d(6, 4, 2, stride=2, groups=2),
    "batch_norm": lambda: nn.BatchNorm2d(6),
    "batch_norm_eval": lambda: nn.BatchNorm2d(6).eval(),
    "batch_norm_plain": lambda: nn.BatchNorm2d(6, affine=False, track_running_stats=False),
    "instance_norm": lambda: nn.InstanceNorm2d(6, affine=True),
    "group_norm": lambda: nn.GroupNorm(2, 6),
    "layer_norm": lambda: nn.LayerNorm((9, 7)),
    "layer_norm_last": LastNorm,
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(378, 5)),
    "linear_axis": lambda: nn.Linear(7, 4),
    "prelu": lambda: nn.PReLU(6),
    "attention": Attention,
}
MASK = (torch.arange(9) % 3 > 0) | (torch.arange(9)[:, None] > 3)


def attended(x, **options):
    """Return attention between rows of lines, with as many heads as channels."""
    return F.scaled_dot_product_attention(x.tanh(), x.sin(), x.cos(), **options) * 2


FUNCTIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": F.elu,
    "selu": F.selu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "silu_inplace": lambda x: F.silu(x * 2, inplace=True),
    "mish": F.mish,
    "softplus": F.softplus,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": lambda x: F.hardtanh(x, -0.4, 0.6),
    "exp": torch.exp,
    "log": lambda x: torch.log(x.abs() + 0.5),
    "power": lambda x: (x.abs() + 0.5) ** 1.5,
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 0.5),
    "softmax": lambda x: x.softmax(1),
    "attention_shared": lambda x: F.scaled_dot_product_attention(
        x.tanh(), x[:, :1].sin(), x[:, 2:3].cos(), enable_gqa=True
    ),
    "attention_grouped": lambda x: F.scaled_dot_product_attention(
        x.tanh(), x[:, :2].sin(), x[:, 2:4].cos(), enable_gqa=True
    ),
    "log_softmax": lambda x: x.log_softmax(-1),
    "add_channels": lambda x: x + x[:, :1],
    "mul": lambda x: x * x.mean((2, 3), keepdim=True),
    "div": lambda x: x / (x.square() + 1),
    "sum": lambda x: x.sum((1, 3)),
    "mean": lambda x: x.mean((2, 3)),
    "var": lambda x: x.var((2, 3)),
    "max_pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_pool_ceil": lambda x: F.max_pool2d(x, 2, ceil_mode=True),
    "avg_pool": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "avg_pool_inside": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive_avg_pool_even": lambda x: F.adaptive_avg_pool2d(x, (3, 7)),
    "adaptive_avg_pool_uneven": lambda x: F.adaptive_avg_pool2d(x, 4),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bilinear_corners": lambda x: F.interpolate(x, (5, 9), mode="bilinear", align_corners=True),
    "bicubic": lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "cat": lambda x: torch.cat([x, x * 2, x[:, 1:3]], 1),
    "chunk": lambda x: x.chunk(2, 1)[1] * 3,
    "split": lambda x: torch.cat([2 * y for y in x.split([1, 3, 2], 1)], 1),
    "slice": lambda x: x[:, 1:4, 2:] * 2,
    "slice_steps": lambda x: x.tanh()[:, 1::2, ::4, 2:6:3] * 2,
    "slice_step_beyond_the_end": lambda x: x.tanh()[:, 5::7] * 2,
    "select": lambda x: x[:, 2] * 2,
    "pad": lambda x: F.pad(x, (1, 2, 0, 1), value=1.5),
    "permute": lambda x: F.relu(x).permute(0, 2, 3, 1) * 2,
    "reshape": lambda x: x.tanh().reshape(2, 3, -1) * 2,
    "expand": lambda x: x.mean(1, keepdim=True).expand_as(x) * 2,
    "pixel_shuffle": lambda x: F.pixel_shuffle(F.pad(x, (0, 0, 0, 0, 0, 2)), 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x.tanh(), 3) * 2,
    "matmul": lambda x: x @ x.transpose(2, 3),
    "attention": attended,
    "attention_causal": lambda x: attended(x, is_causal=True),
    "attention_scaled": lambda x: attended(x, scale=0.3),
    "attention_masked": lambda x: attended(x, attn_mask=MASK),
    "attention_of_hidden_rows": lambda x: attended(
        x, attn_mask=MASK & (torch.arange(9)[:, None] > 1)
    ),
    "attention_biased": lambda x: attended(x, attn_mask=torch.linspace(-2, 2, 81).view(9, 9)),
}


def relative(found, wanted):
    """Return the norm of the difference over the norm of what is wanted."""
    assert found.shape == wanted.shape
    difference, size = (found - wanted).double().norm(), wanted.double().norm()
    return float(difference / (size + 1e-12))


def trained(model, x, weights=None):
    """Run forward and backward; return result, cotangent and gradients, the input's first."""
    x = x.detach().clone().requires_grad_()
    result = model(x)
    if weights is None:
        weights = torch.randn(result.shape, generator=torch.Generator().manual_seed(1))
    (result * weights).sum().backward()
    return result, weights, [x.grad, *(p.grad for p in model.parameters())]


def compare(model, x, **options):
    """Compare results, gradients, their strides and buffers with those of eager PyTorch."""
    twin = copy.deepcopy(model)
    wanted, weights, theirs = trained(twin, x)
    before = set(REGIONS)
    fast = torch.compile(model, backend="stridewise", options={"fallback": "error", **options})
    found, _, ours = trained(fast, x, weights)
    assert relative(found.detach(), wanted.detach()) <= 1e-5
    for leaf, a, b in zip([x, *model.parameters()], ours, theirs, strict=True):
        assert relative(a, b) <= 1e-5
        assert a.stride() in (b.stride(), leaf.stride())
    for a, b in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)
    programs = [p for region in REGIONS - before for p in region.programs()]
    assert programs
    assert [name for graph in st.report(model).graphs for name in graph.fallback_nodes] == []
    return fast


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MODULES)
def test_modules(name, layout):
    x = torch.randn(SHAPE).contiguous(memory_format=LAYOUTS[layout])
    compare(MODULES[name]().to(memory_format=LAYOUTS[layout]), x)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, layout):
    x = torch.randn(SHAPE).contiguous(memory_format=LAYOUTS[layout])
    compare(Function(FUNCTIONS[name]), x)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 1, 9, 7), (2, 17, 1, 1), (3, 5, 1, 8)])
def test_odd_channels_and_extents_of_one(shape, layout):
    layout = LAYOUTS[layout]
    model = nn.Sequential(
        nn.Conv2d(shape[1], 13, 3, padding=1), nn.ReLU(), nn.Conv2d(13, 3, 1), nn.Hardswish()
    )
    x = torch.randn(shape).contiguous(memory_format=layout)
    compare(model.to(memory_format=layout), x)


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.AvgPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(2)])
def test_images_without_a_batch(pool):
    model = nn.Sequential(nn.Conv2d(6, 5, 3), pool, nn.Hardswish())
    with pytest.warns(st.FallbackWarning, match="found 1"):
        compare(model, torch.randn(SHAPE[1:]), fallback="eager")


def test_volumes():
    model = nn.Sequential(
        nn.Conv3d(3, 5, 3, padding=1, bias=False), nn.BatchNorm3d(5), nn.ReLU(), nn.MaxPool3d(2)
    )
    compare(model, torch.randn(2, 3, 6, 5, 4))


def test_lines():
    model = nn.Sequential(
        nn.Conv1d(3, 5, 3, bias=False), nn.BatchNorm1d(5), nn.ReLU(), nn.AvgPool1d(2)
    )
    compare(model, torch.randn(2, 3, 12))


def test_what_has_no_counterpart_runs_in_pytorch():
    model = Function(lambda x: F.relu(torch.logcumsumexp(x, 1)) * 2)
    with pytest.warns(st.FallbackWarning, match="logcumsumexp"):
        compare(model, torch.randn(SHAPE), fallback="eager")


class Masked(nn.Module):
    """Batch norms with the activations whose masks their gradients take, and with others."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(c, 20, 3, bias=False) for c in (3, 20, 20, 20))
        self.norms = nn.ModuleList(nn.BatchNorm2d(20) for _ in range(4))

    def forward(self, x):
        for conv, norm, act in zip(
            self.convs, self.norms, (F.relu, F.relu6, F.silu, F.relu), strict=True
        ):
            y = norm(conv(x))
            x = act(y)
        return x.mean((2, 3)) + y.mean((2, 3))  # the last result has another reader


def test_masks_of_activations_are_fused_into_batch_norms():
    torch.manual_seed(0)
    net, x = Masked(), torch.randn(3, 3, 12, 12)
    with torch.no_grad():
        for norm in net.norms:
            norm.weight.uniform_(0.5, 4)  # beyond 6
            norm.bias.uniform_(-1, 1)
    twin, before = copy.deepcopy(net), set(REGIONS)
    fast = torch.compile(net, backend="stridewise", options={"accuracy": "exact"})
    for model in (fast, twin):
        (model(x) ** 2).sum().backward()
    for own, other in zip(net.parameters(), twin.parameters(), strict=True):
        assert relative(own.grad, other.grad) <= 1e-5
    programs = [p for region in REGIONS - before for p in region.programs()]
    models = [s.model for p in programs for s in p.steps if getattr(s, "model", None) is not None]
    nodes = [node for model in models for node in model.plan.graph.nodes]
    masked = [len(node.inputs) == 6 for node in nodes if node.op == "batch_norm_gradient"]
    assert sorted(masked) == [False, False, True, True]
    after = [[p.op for p in n.post_ops] for n in nodes if n.op == "batch_norm"]
    assert sorted(after) == [[], [], ["clip"], ["relu"]]


class Tokens(nn.Module):
    """A frozen norm whose result becomes tokens."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(6).eval()

    def forward(self, x):
        return self.norm(x).flatten(2).transpose(1, 2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_frozen_norms_take_transposed_gradients(layout):
    # Eager PyTorch 2.13 reads such a gradient in the wrong order, so the formula is the reference.
    x = torch.randn(SHAPE).to(memory_format=LAYOUTS[layout]).requires_grad_()
    module, dy = Tokens(), torch.randn(2, 63, 6)
    torch.nn.init.uniform_(module.norm.weight)
    torch.compile(module, backend="stridewise")(x).backward(dy)
    images = dy.transpose(1, 2).reshape(SHAPE)
    scale = module.norm.weight.detach() / (1 + module.norm.eps) ** 0.5
    assert relative(x.grad, images * scale.view(1, 6, 1, 1)) < 1e-6
    assert relative(module.norm.bias.grad, images.sum((0, 2, 3))) < 1e-6
    expected = (images * x.detach()).sum((0, 2, 3)) / (1 + module.norm.eps) ** 0.5
    assert relative(module.norm.weight.grad, expected) < 1e-6
