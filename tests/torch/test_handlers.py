"""Every handler against PyTorch itself, for contiguous and channels-last images."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

from tests.torch.aten_graphs import check, region_of  # noqa: E402

import stridewise.torch  # noqa: E402, F401
from stridewise.errors import UnsupportedError  # noqa: E402
from stridewise.frontends.torch.table import HANDLERS  # noqa: E402
from stridewise.torch.options import FallbackWarning  # noqa: E402

F = torch.nn.functional
aten = torch.ops.aten


def rand(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


IMAGE = (2, 6, 9, 7)
CHANNELS = rand(6, 1, 1)

UNARY = {
    "abs": torch.abs,
    "ceil": torch.ceil,
    "celu": lambda x: F.celu(x, 0.7),
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "clamp_max": lambda x: torch.clamp_max(x, 0.3),
    "clamp_min": lambda x: torch.clamp_min(x, 0.3),
    "cos": torch.cos,
    "elu": lambda x: F.elu(x, 0.7),
    "erf": torch.erf,
    "exp": torch.exp,
    "floor": torch.floor,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "hardshrink": lambda x: F.hardshrink(x, 0.3),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": lambda x: F.hardtanh(x, -0.4, 0.6),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "log10": lambda x: torch.log10(x.abs() + 0.1),
    "log2": lambda x: torch.log2(x.abs() + 0.1),
    "log": lambda x: torch.log(x.abs() + 0.1),
    "log_sigmoid": F.logsigmoid,
    "mish": F.mish,
    "neg": torch.neg,
    "pow": lambda x: (x.abs() + 0.1) ** x,
    "pow_of_a_number": lambda x: 1.5**x,
    "power": lambda x: (x.abs() + 0.1) ** 1.5,
    "power_2": lambda x: x**2,
    "power_half": lambda x: x.abs() ** 0.5,
    "reciprocal": lambda x: 1 / (x.abs() + 0.1),
    "relu": F.relu,
    "relu6": F.relu6,
    "round": torch.round,
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 0.1),
    "selu": F.selu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "sign": torch.sign,
    "sin": torch.sin,
    "softplus": F.softplus,
    "softshrink": lambda x: F.softshrink(x, 0.3),
    "sqrt": lambda x: x.abs().sqrt(),
    "square": torch.square,
    "tanh": torch.tanh,
    "threshold": lambda x: F.threshold(x, 0.2, 0),
    "glu": lambda x: F.glu(x, 1),
    "prelu": lambda x: F.prelu(x, torch.linspace(-0.5, 0.5, x.shape[1])),
    "softplus_beta": lambda x: F.softplus(x, beta=2.0),
    "threshold_value": lambda x: F.threshold(x, 0.2, 1),
    # two operands
    "add_alpha": lambda x: torch.add(x, x, alpha=0.5),
    "add_channel": lambda x: x + CHANNELS,
    "add_scalar": lambda x: x + 2.5,
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.3),
    "addcdiv": lambda x: torch.addcdiv(x, x, x.abs() + 1, value=0.3),
    "div": lambda x: x / (x.abs() + 1),
    "div_scalar": lambda x: x / 3,
    "lerp": lambda x: torch.lerp(x, x * 2, 0.3),
    "maximum": lambda x: torch.maximum(x, -x),
    "minimum": lambda x: torch.minimum(x, x * x),
    "mul_pixel": lambda x: x * x[:, :1],
    "clamp_tensors": lambda x: torch.clamp(x, -CHANNELS.abs(), CHANNELS.abs()),
    "rsub": lambda x: 1 - x,
    "sub": lambda x: x - x.mean((2, 3), keepdim=True),
    # comparisons, truth values, choices
    "where": lambda x: torch.where(x > 0.1, x * 2, x - 1),
    "where_numbers": lambda x: torch.where(x >= x.mean(), 1.0, -2.0),
    "where_row": lambda x: torch.where(x.mean((1, 2), keepdim=True) > 0, x, -x),
    "where_constant": lambda x: torch.where(CHANNELS < 0, x, 3.0),
    "comparisons": lambda x: (x < 0).float() + (x <= 0.5) * 2.0 + (x == x.round()) * x + (x != 1.0),
    "logic": lambda x: torch.where(((x > 0) & (x < 1)) | ~(x > -1), x, 0.0),
    "logic_of_numbers": lambda x: torch.logical_xor(x.round(), x > 0.2).float() * x,
    "any_all": lambda x: (x > 1.5).any(1, keepdim=True) * x + (x > -1.5).all(1, keepdim=True),
    "masked_fill": lambda x: F.relu(x).masked_fill(x > 0.5, -1.0),
    "isnan": lambda x: torch.where(torch.isnan(x.log()), 0.0, x.log()),
    "isfinite": lambda x: torch.where(torch.isfinite(x.log()), x, 0.0),
    "products_of_masks": lambda x: [(x > 0) * (x < 1), torch.maximum(x > 1, x < 0)],
    "isinf": lambda x: torch.where(torch.isinf(1 / F.relu(x)), 7.0, x),
    "tril": lambda x: F.relu(x).tril(1),
    "triu": lambda x: F.relu(x).triu(),
    "masks": lambda x: [(x > 0) | (x < -1), ~(x > 1), (x > 0)[:, 1:]],
    "parts_of_masks": lambda x: torch.cat([x > 0, x[:, :2] > 1], 1)[:, ::2].float(),
    # reductions
    "amax": lambda x: x.amax((2, 3)),
    "amin": lambda x: x.amin(1, keepdim=True),
    "mean": lambda x: x.mean((2, 3)),
    "mean_all": lambda x: x.mean(),
    "mean_channel": lambda x: x.mean(1, keepdim=True),
    "max_dim": lambda x: x.max(1).values,
    "norm": lambda x: F.normalize(x, dim=1),
    "norm_of_all": lambda x: x.norm() + x.norm(dim=(1, 2), keepdim=True),
    "norm_1": lambda x: torch.linalg.vector_norm(x, 1, dim=(2, 3)),
    "norm_inf": lambda x: torch.linalg.vector_norm(x, float("inf"), dim=1),
    "std": lambda x: x.std((2, 3)),
    "std_mean": lambda x: torch.std_mean(x, 1),
    "sum": lambda x: x.sum(-1),
    "var": lambda x: x.var((2, 3), correction=0, keepdim=True),
    "var_mean": lambda x: torch.var_mean(x, 1),
    "logsumexp": lambda x: x.logsumexp(1),
    "prod": lambda x: x.prod(2),
    "safe_softmax": lambda x: aten._safe_softmax(x.masked_fill(x[:, :, :, :1] > 0, -torch.inf), 3),
    "safe_softmax_of_products": lambda x: aten._safe_softmax(x @ x.transpose(2, 3) * 0.5, -1),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(-1),
    # shapes
    "cat": lambda x: torch.cat([x, x * 2, x[:, :1]], 1),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 3),
    "chunk": lambda x: [y + 1 for y in x.chunk(4, 2)],
    "clone": lambda x: (x + 1).clone(memory_format=torch.contiguous_format),
    "copy": lambda x: aten.copy(x, x[:, :1] * 2),
    "index": lambda x: F.relu(x)[:, torch.tensor([[0, 1, 2], [5, -2, 0]])],
    "index_select": lambda x: F.relu(x).index_select(2, torch.tensor([3, 4, 5, 1])),
    "select_scatter": lambda x: torch.select_scatter(x, x[:, 0] * 2, 1, -1),
    "fill": lambda x: aten.fill(x, 2.5) + aten.fill(x, x.mean()),
    "fill_mask": lambda x: aten.fill(x > 0, True),
    "slice_scatter": lambda x: torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 3),
    "expand": lambda x: x.mean(1, keepdim=True).expand_as(x) * 2,
    "flatten": lambda x: F.relu(x).flatten(1),
    "flip": lambda x: F.relu(x).flip((2, 3)),
    "pad": lambda x: F.pad(x, (1, 2, 0, 3), value=1.5),
    "pad_negative": lambda x: F.pad(x, (-1, 2)),
    "pad_reflect": lambda x: F.pad(x, (1, 2, 3, 1), mode="reflect"),
    "pad_replicate": lambda x: F.pad(x, (1, 2, 3, 1), mode="replicate"),
    "permute": lambda x: F.relu(x).permute(0, 2, 3, 1),
    "repeat": lambda x: F.relu(x).repeat(1, 2, 1, 3),
    "roll": lambda x: F.relu(x).roll((2, -3), (2, 3)),
    "select": lambda x: (x + 1)[:, 2],
    "slice": lambda x: (x + 1)[:, 1:5:2, ::3],
    "split": lambda x: [y * 2 for y in x.split([1, 2, 3], 1)],
    "unsafe_split": lambda x: [y + 1 for y in aten.unsafe_split(x, 2, 1)],
    "squeeze": lambda x: x.mean(1, keepdim=True).squeeze(1) + 1,
    "stack": lambda x: torch.stack([x, x + 1], 1),
    "unbind": lambda x: [y + 1 for y in x.unbind(2)],
    "unsqueeze": lambda x: F.relu(x).unsqueeze(-1),
    "view": lambda x: F.relu(x).contiguous().view(2, -1, 3, 7),
    # pooling
    "adaptive_avg_1": lambda x: aten._adaptive_avg_pool2d(x, [1, 1]),
    "adaptive_avg_even": lambda x: F.adaptive_avg_pool2d(x, (3, 7)),
    "adaptive_avg_uneven": lambda x: F.adaptive_avg_pool2d(x, (4, 3)),
    "adaptive_max_uneven": lambda x: F.adaptive_max_pool2d(x, (4, 3)),
    "adaptive_max": lambda x: F.adaptive_max_pool2d(x, (3, 1)),
    "avg_pool": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "avg_pool_ceil": lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True),
    "avg_pool_ceil_uncounted": lambda x: F.avg_pool2d(
        x, 3, 2, 1, ceil_mode=True, count_include_pad=False
    ),
    "avg_pool_ceil_counted": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "avg_pool_divisor": lambda x: F.avg_pool2d(x, (3, 2), 2, 1, True, divisor_override=4),
    "avg_pool_uncounted": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "max_pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_pool_ceil": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    "max_pool_dilated": lambda x: F.max_pool2d(x, 2, 1, dilation=2),
    # images
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "bilinear_smooth": lambda x: F.interpolate(x, (4, 3), mode="bilinear", antialias=True),
    "bicubic_smooth": lambda x: F.interpolate(x, (5, 9), mode="bicubic", antialias=True),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bilinear_corners": lambda x: F.interpolate(x, (5, 12), mode="bilinear", align_corners=True),
    "bilinear_scale": lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest_exact": lambda x: F.interpolate(x, (5, 12), mode="nearest-exact"),
    "nearest_size": lambda x: F.interpolate(x, (18, 21)),
    "unfold": lambda x: F.unfold(x, (3, 2), dilation=(1, 2), padding=1, stride=2),
    "fold": lambda x: F.fold(F.unfold(x, 3, padding=1, stride=2), (9, 7), 3, padding=1, stride=2),
    "fold_dilated": lambda x: F.fold(F.unfold(x, 2, 3, 2), (9, 7), 2, 3, 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x[:, :, :8, :6] * 2, 2),
    "group_norm": lambda x: F.group_norm(x, 3, torch.linspace(0.5, 1.5, 6), torch.ones(6)),
    "group_norm_plain": lambda x: F.group_norm(x, 2),
    "instance_norm": lambda x: F.instance_norm(x, weight=CHANNELS[:, 0, 0]),
    "groups_of_one": lambda x: aten.native_group_norm(x, None, None, 2, 6, 63, 6, 1e-5)[0],
    "batch_norm": lambda x: F.batch_norm(
        x, torch.linspace(-1, 1, 6), torch.linspace(0.5, 2, 6), torch.ones(6), torch.zeros(6)
    ),
}  # fmt: skip

CONVS = {
    "plain": {"out": 5, "kernel": 3},
    "strided": {"out": 8, "kernel": 3, "stride": 2, "padding": 1},
    "grouped": {"out": 6, "kernel": 3, "groups": 3, "padding": 1},
    "depthwise": {"out": 6, "kernel": 5, "groups": 6, "padding": 2},
    "dilated": {"out": 4, "kernel": 3, "dilation": 2, "padding": 2},
    "uneven": {"out": 4, "kernel": (1, 3), "stride": (2, 1), "padding": (0, 1)},
}


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("name", UNARY)
def test_images(name, layout):
    x = rand(*IMAGE)
    if layout == "channels_last":
        x = x.contiguous(memory_format=torch.channels_last)
    check(UNARY[name], x)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("name", CONVS)
def test_convolutions(name, layout):
    options = dict(CONVS[name])
    out, kernel = options.pop("out"), options.pop("kernel")
    conv = torch.nn.Conv2d(6, out, kernel, **options)
    conv.requires_grad_(False)
    x = rand(*IMAGE).contiguous(
        memory_format=torch.channels_last if layout == "channels_last" else torch.contiguous_format
    )
    check(lambda y: F.relu(conv(y)), x)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions_of_every_rank(dims):
    kinds = {
        1: (torch.nn.Conv1d, torch.nn.ConvTranspose1d, F.avg_pool1d, F.max_pool1d),
        2: (torch.nn.Conv2d, torch.nn.ConvTranspose2d, F.avg_pool2d, F.max_pool2d),
        3: (torch.nn.Conv3d, torch.nn.ConvTranspose3d, F.avg_pool3d, F.max_pool3d),
    }
    conv, transposed, average, greatest = kinds[dims]
    first = conv(3, 8, 3, padding=1, stride=2).requires_grad_(False)
    second = transposed(8, 4, 3, stride=2, padding=1, output_padding=1).requires_grad_(False)
    x = rand(2, 3, *(9, 8, 7)[:dims])
    check(lambda y: second(first(y)), x)
    check(lambda y: [average(y, 2), greatest(y, 3, 2, 1)], x)


def test_transposed_convolution_with_groups():
    conv = torch.nn.ConvTranspose2d(6, 9, 3, stride=2, groups=3, bias=False).requires_grad_(False)
    check(conv, rand(*IMAGE))


def test_weights_that_are_inputs():
    check(lambda x, w, b: F.conv2d(x, w, b, padding=1), rand(*IMAGE), rand(5, 6, 3, 3), rand(5))


def test_matrices():
    a, b, c, d, e = rand(5, 7), rand(7, 3), rand(3), rand(5, 3), rand(2, 7, 3)
    check(lambda x, y: x @ y, a, b)
    check(lambda x: F.linear(x, b.t(), c), a)
    check(lambda x: torch.addmm(d, x, b, beta=0.5, alpha=2), a)
    check(lambda x: torch.baddbmm(d[:1], x, e), rand(2, 5, 7))
    check(lambda x: F.linear(x, b.t(), c), rand(2, 4, 7))
    check(lambda x: torch.einsum("bij,bkj->bik", x, x), rand(2, 5, 7))


def test_attention():
    q = rand(2, 3, 5, 8)
    mask = rand(5, 5)
    check(lambda x: F.scaled_dot_product_attention(x, x + 1, x * 2), q)
    check(lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=mask, scale=0.3), q)


@pytest.mark.parametrize("is_bool", [False, True])
@pytest.mark.parametrize("is_constant", [False, True])
def test_attention_whose_mask_hides_rows(is_bool, is_constant):
    q, shown = rand(2, 3, 5, 8), torch.rand(5, 5) > 0.4
    shown[2], shown[:2, 0] = False, True
    mask = shown if is_bool else torch.zeros(5, 5).masked_fill(~shown, float("-inf"))
    if is_constant:
        check(lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=mask), q)
    else:
        check(lambda x, m: F.scaled_dot_product_attention(x, x, x, attn_mask=m), q, mask)


def test_attention_with_a_causal_mask():
    q, k = rand(2, 3, 5, 8), rand(2, 3, 7, 8)
    check(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), q)
    check(lambda x, y: F.scaled_dot_product_attention(x, y, y, is_causal=True), q, k)


@pytest.mark.parametrize("heads", [1, 2, 6])
def test_heads_of_queries_share_those_of_keys(heads):
    q, k = torch.randn(2, 6, 9, 4), torch.randn(2, heads, 11, 4)
    mask = torch.randn(2, 1, 9, 11)

    def grouped(x, y, m):
        return F.scaled_dot_product_attention(x, y, y * 2, attn_mask=m, enable_gqa=True)

    check(grouped, q, k, mask)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("mask", ["none", "keys", "causal", "both"])
def test_fused_encoder_layers(norm_first, activation, mask):
    layer = torch.nn.TransformerEncoderLayer(
        16, 2, 24, activation=activation, norm_first=norm_first, batch_first=True
    )
    layer.eval().requires_grad_(False)
    keys = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [True] * 5])
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
    masks = {"keys": {"src_key_padding_mask": keys}, "causal": {"src_mask": causal}, "none": {}}
    options = masks.get(mask, {**masks["keys"], **masks["causal"]})
    inputs = (rand(3, 5, 16), *options.values())

    def function(x, *masks):
        return layer(x, **dict(zip(options, masks, strict=True)))

    with torch.no_grad():
        wanted = function(*inputs)
        found = region_of(function, *inputs)(inputs)[0]
    close = torch.isclose(found, wanted, rtol=1e-4, atol=1e-4)
    # The fused layer gives NaN where all keys are left out, the operators that are traced do not.
    assert (close | wanted.isnan()).all()
    assert not wanted[:2].isnan().any()


IMAGES_ALONE = {
    "max_pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "avg_pool": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool2d(x, (4, 3)),
    "adaptive_max_pool": lambda x: F.adaptive_max_pool2d(x, (4, 3)),
    "pixel_shuffle": lambda x: F.pixel_shuffle(torch.cat([x, x[:2]]), 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x[:, :8, :6] * 2, 2),
    "pixel_shuffle_of_videos": lambda x: F.pixel_shuffle(torch.cat([x, x[:2]])[None, None], 2),
    "conv": lambda x: F.conv2d(x, x[:, :3, :3].expand(4, 6, 3, 3)),
}


@pytest.mark.parametrize("name", IMAGES_ALONE)
def test_images_without_a_batch_axis(name):
    check(IMAGES_ALONE[name], rand(*IMAGE[1:]))


@given(st.data())
def test_slices_with_steps_are_replaced(data):
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    axis = data.draw(st.integers(0, len(shape) - 1))
    start, stop = (data.draw(st.integers(-7, 7)) for _ in range(2))
    step = data.draw(st.integers(1, 4))
    x = rand(*shape)
    part = x[(*(slice(None),) * axis, slice(start, stop, step))]
    check(lambda x, y: aten.slice_scatter(x, y, axis, start, stop, step), x, part.neg())


@given(st.data())
def test_strides_that_a_program_sets(data):
    shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    strides = [data.draw(st.integers(0, 4)) for _ in shape]
    offset = data.draw(st.sampled_from([None, 0, 1]))
    view = data.draw(
        st.sampled_from([lambda y: y, lambda y: y.t(), lambda y: y[1:], lambda y: y[:, ::2]])
    )

    def function(x):
        return aten.as_strided(view(x * 2), shape, strides, offset) + 1

    x = rand(6, 6)
    region = region_of(function, x, fallback="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        found = region([x])[0]
    if not region.left:  # as a function, the graph has no memory to read
        assert torch.allclose(found, function(x))


def test_layer_norms():
    w, b = torch.linspace(0.5, 1.5, 6), torch.linspace(-1, 1, 6)
    check(lambda x: F.layer_norm(x, (6,), w, b), rand(2, 5, 6))
    check(lambda x: F.layer_norm(x, (6,)), rand(2, 5, 6))
    check(lambda x: F.layer_norm(x, (6,), None, b), rand(2, 5, 6))
    grid = rand(5, 6)
    check(lambda x: F.layer_norm(x, (5, 6), grid, grid), rand(2, 5, 6))


def test_scalars_and_odd_ranks():
    check(lambda x: x * 2 + 1, rand(1).reshape(()))
    check(lambda x: x.relu().transpose(0, 1), rand(1, 1))
    check(lambda x: (x + 1).permute(0, 2, 4, 1, 3, 5) * 2, rand(2, 3, 2, 3, 2, 3))


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("border", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_images_at_places_of_grids(mode, border, align_corners):
    options = {"mode": mode, "padding_mode": border, "align_corners": align_corners}
    images = rand(*IMAGE), 2 * torch.tanh(rand(2, 5, 4, 2))
    for memory_format in (torch.contiguous_format, torch.channels_last):
        x = images[0].contiguous(memory_format=memory_format)
        check(lambda x, grid: F.grid_sample(x, grid, **options), x, images[1])
    if mode != "bicubic":
        volumes = rand(2, 3, 4, 5, 6), 2 * torch.tanh(rand(2, 3, 5, 4, 3))
        check(lambda x, grid: F.grid_sample(x, grid, **options), *volumes)


def test_outputs_that_repeat_or_skip_elements_have_their_strides():
    check(lambda x: F.relu(x).expand(4, 3, 5), rand(3, 1))
    check(lambda x: (x + 1)[:, ::2], rand(4, 8))
    check(lambda x: [x + 1, (x + 1).t()], rand(4, 8))


@pytest.mark.parametrize(
    ("reason", "function"),
    [
        ("softplus that is linear", lambda x: F.softplus(x, threshold=2.0)),
        ("elements of float64", lambda x: x.double() + 1),
        ("there is no operator", lambda x: torch.cumprod(x, 1)),
        ("elements of int64", lambda x: F.max_pool2d(x, 2, return_indices=True)),
        ("random", F.dropout),
    ],
)
def test_refusals_have_a_reason(reason, function):
    region = region_of(function, rand(*IMAGE))
    with pytest.raises(UnsupportedError, match=reason):
        region([rand(*IMAGE)])


def test_names_of_handlers_are_operators_of_pytorch():
    for name in HANDLERS:
        namespace, packet, overload = name.split(".")
        assert namespace in ("aten", "stridewise")
        found = getattr(getattr(torch.ops, namespace), packet, None)
        assert found is None or overload in found.overloads(), name
