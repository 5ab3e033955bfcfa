"""The check of memory formats: planted losses are found with their line, clean models have none."""

from __future__ import annotations

import importlib
import inspect
import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st_

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

import stridewise.torch as st  # noqa: E402
from stridewise.cli.main import cli  # noqa: E402
from stridewise.errors import InputError, VerificationError  # noqa: E402

F, nn = torch.nn.functional, torch.nn


class Net(nn.Module):
    """Two convolutions with something in between."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Linear(8, 4)
        self.place = nn.Parameter(torch.randn(1, 8, 8, 8))

    def between(self, x):
        return x

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        x = self.second(self.between(x))
        return self.last(F.adaptive_avg_pool2d(x, 1).flatten(1))


def planted(function):
    """Return a class of models whose ``between`` is a function."""
    return type(function.__name__, (Net,), {"between": staticmethod(function)})


# Each function loses channels-last in the line that ends in "# here".


def contiguous(x):
    return x.contiguous()  # here


def contiguous_of_a_part(x):
    a, b = x.chunk(2, 1)
    return torch.cat([a.contiguous(), b.contiguous()], 1)  # here


def shuffled(x):
    n, c, h, w = x.shape
    x = x.reshape(n, 2, c // 2, h, w).transpose(1, 2)
    return x.reshape(n, c, h, w)  # here


def viewed(x):
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2 * h * w).reshape(n, c, h, w)  # here


def attention(x):
    n, c, h, w = x.shape
    flat = x.flatten(2)
    weights = (flat.transpose(1, 2) @ flat).softmax(-1)
    flat = flat @ weights  # here
    return flat.reshape(n, c, h, w)


def permuted_and_back(x):
    x = x.permute(0, 1, 3, 2).contiguous()  # here
    return x.permute(0, 1, 3, 2)


def added_to_a_new_image(x):
    start = torch.zeros(x.shape)
    return start + x  # here


def joined_with_a_new_image(x):
    return torch.cat([torch.ones(x.shape), x], 1)[:, 4:12]  # here


def written_into_a_new_image(x):
    out = torch.empty(x.shape)  # here
    out.copy_(x)
    return out


def cloned(x):
    return x.clone(memory_format=torch.contiguous_format)  # here


def converted(x):
    return x.to(torch.float32, memory_format=torch.contiguous_format)  # here


def rows_of_pixels(x):
    n, c, h, w = x.shape
    return torch.relu(x.reshape(n, c * h, w)).reshape(n, c, h, w)  # here


def squeezed_batches(x):
    return torch.stack([image.contiguous() for image in x])  # here


def parts_in_the_batch(x):
    n, c, h, w = x.shape
    return x.reshape(n * 2, c // 2, h, w).reshape(n, c, h, w)  # here


def split_height(x):
    n, c, h, w = x.shape
    x = x.reshape(n, c, h // 2, 2, w).mean(3)  # here
    return F.interpolate(x, size=(h, w))


def tiles(x):
    n, c, h, w = x.shape
    x = x.view(n, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 1, 3, 5)
    x = torch.relu(x.reshape(-1, c, 4, 4))  # here
    return F.interpolate(x[:n], size=(h, w))


def expanded(x):
    n, c, h, w = x.shape
    return x.unsqueeze(2).expand(n, c, 2, h, w).reshape(n, 2 * c, h, w)[:, :c]  # here


def gathered(x):
    return x[:, torch.tensor([3, 1, 0, 2, 4, 5, 7, 6])]  # here


def rearranged(x):
    n, c, h, w = x.shape
    x = x.reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4)
    x = torch.relu(x.reshape(n, c * 4, h // 2, w // 2))  # here
    return F.pixel_shuffle(x, 2)


def linear_on_pixels(x):
    x = F.linear(x.permute(0, 2, 3, 1), torch.ones(8, 8))
    return x.permute(0, 3, 1, 2).contiguous()  # here


def instance_norm(x):
    return F.instance_norm(x)  # here


def circular_padding(x):
    return F.pad(x, (1, 1, 1, 1), mode="circular")[:, :, 1:-1, 1:-1]  # here


def padded_by_hand(x):
    out = x.new_zeros(2, 8, 10, 10)  # here
    out[:, :, 1:-1, 1:-1] = x
    return F.avg_pool2d(out, 3, 1)


def stacked(x):
    return torch.stack([x, x], 1).mean(1)  # here


def stacked_images(x):
    return torch.stack(list(x))  # here


def unfolded(x):
    columns = F.unfold(x, 2, stride=2)  # here
    return F.fold(columns, x.shape[2:], 2, stride=2)


def repeated(x):
    return F.adaptive_max_pool2d(x, 4).repeat(1, 1, 2, 2)  # here


def sampled(x):
    grid = F.affine_grid(torch.eye(2, 3)[None].repeat(2, 1, 1), x.shape, align_corners=False)
    return F.grid_sample(x, grid, align_corners=False)  # here


def summed(x):
    return x.cumsum(1)  # here


def chosen(x):
    return torch.where(torch.ones(x.shape) > 2, torch.zeros(x.shape), x)  # here


def tokens(x):
    n, c, h, w = x.shape
    rows = F.layer_norm(x.flatten(2).transpose(1, 2), (c,))
    return rows.transpose(1, 2).contiguous().view(n, c, h, w)  # here


def channels_weighted(x):
    n, c, h, w = x.shape
    rows = F.linear(x.permute(0, 2, 3, 1).reshape(n, h * w, c), torch.ones(c, c))
    return torch.relu(rows).mT.contiguous().reshape(n, c, h, w)  # here


def strides_written_down(x):
    return x.as_strided(x.shape, (512, 64, 8, 1))  # here


def weighted(x):
    return x.softmax(1)  # here


def through_numpy(x):
    return torch.from_numpy(np.ascontiguousarray(x.numpy()))  # here


def through_numpy_in_lines(x):
    rows = np.ascontiguousarray(x.detach().cpu().numpy())
    x = torch.from_numpy(rows * 2)  # here
    return x + 1


def through_lists(x):
    return torch.tensor(x.tolist())  # here


def einsum(x):
    return torch.einsum("oc,nchw->nohw", torch.eye(8), x)  # here


def einsum_over_columns(x):
    return torch.einsum("nchw,wv->nchv", x, torch.eye(8))  # here


def item_by_item(x):
    out = torch.zeros(x.shape)  # here
    for n in range(x.shape[0]):
        for c in range(x.shape[1]):
            out[n, c] = x[n, c] * 2
    return out


def channel_by_channel(x):
    out = x.new_empty(x.shape)  # here
    for c in range(8):
        out[:, c] = x[:, 7 - c]
    return out


def multiplied_into(x):
    out = torch.ones(2, 8, 8, 8)  # here
    out *= x
    return out


def added_by_index(x):
    out = torch.zeros(2, 8, 8, 8)  # here
    out.index_add_(1, torch.arange(8), x)
    return out


def filled_like(x):
    out = torch.zeros_like(x, memory_format=torch.contiguous_format)  # here
    out[:, ::2] = x[:, ::2]
    return out


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x):
        return x.contiguous() * 2  # here


def own_function(x):
    return Doubled.apply(x)


def coordinates(x):
    n, _, h, w = x.shape
    rows = torch.linspace(-1, 1, h).view(1, 1, h, 1).expand(n, 1, h, w)
    return torch.cat([rows, x], 1)[:, 1:]  # here


def transposed(x):
    x = x.transpose(2, 3)  # here
    x = F.conv2d(x, torch.ones(8, 8, 1, 3), padding=(0, 1))
    return x.transpose(2, 3)


def spectrum(x):
    return torch.fft.irfft2(torch.fft.rfft2(x) * 2, s=x.shape[2:])  # here


def shuffled_by_stack(x):
    a, b = x.chunk(2, 1)
    return torch.stack((a, b), 2).flatten(1, 2)  # here


def norm_of_a_slice(x):
    a = F.instance_norm(x[:, :4])  # here
    return torch.cat([a, x[:, 4:]], 1)


def copied_ahead_of_numpy(x):
    x = x.contiguous()  # here
    return torch.from_numpy(x.numpy() * 2)


def copied_and_added(x):
    y = x.contiguous()  # here
    return y + x


def median(x):
    tiles = F.pad(x, (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1)
    return tiles.contiguous().view(*x.shape, 9).median(-1).values  # here


def mixed_pixels(x):
    rows = F.linear(x.flatten(2), torch.ones(64, 64))  # here
    return rows.unflatten(2, (8, 8))


def columns(x):
    n, _, h, w = x.shape
    y = torch.linspace(-1, 1, w).expand(n, 1, h, w)
    return torch.cat([x[:, 1:], y], 1)  # here


def resized_in_place(x):
    out = torch.empty(0)
    out.resize_(x.shape)  # here
    out.copy_(x)
    return out


def view_of_flat_memory(x):
    out = x.new_empty(x.numel())
    out = out.view(x.shape)  # here
    out.copy_(x)
    return out


def mapped(x):
    return torch.vmap(lambda image: image.contiguous() * 2)(x)  # here


PLANTED = {
    contiguous: "contiguous(memory_format=torch.channels_last)",
    contiguous_of_a_part: None,
    shuffled: None,
    viewed: ".reshape(",
    attention: None,
    permuted_and_back: "x = x.permute(0, 1, 3, 2)  #",
    added_to_a_new_image: None,
    joined_with_a_new_image: "x], 1).contiguous(memory_format=torch.channels_last)[",
    written_into_a_new_image: "empty(x.shape).contiguous(memory_format=torch.channels_last)",
    cloned: "clone(memory_format=torch.preserve_format)",
    converted: "memory_format=torch.preserve_format)",
    rows_of_pixels: None,
    squeezed_batches: None,
    parts_in_the_batch: None,
    split_height: "mean(3).contiguous(memory_format=torch.channels_last)",
    tiles: None,
    expanded: None,
    gathered: None,
    rearranged: None,
    linear_on_pixels: "contiguous(memory_format=torch.channels_last)",
    instance_norm: None,
    circular_padding: None,
    padded_by_hand: "new_zeros(2, 8, 10, 10).contiguous(memory_format=torch.channels_last)",
    stacked: None,
    stacked_images: "stack(list(x)).contiguous(memory_format=torch.channels_last)",
    unfolded: None,
    repeated: "repeat(1, 1, 2, 2).contiguous(memory_format=torch.channels_last)",
    sampled: None,
    summed: "cumsum(1).contiguous(memory_format=torch.channels_last)",
    chosen: "x).contiguous(memory_format=torch.channels_last)",
    weighted: None,
    tokens: "rows.transpose(1, 2).reshape(n, c, h, w)",
    channels_weighted: "relu(rows).mT.reshape(n, c, h, w)",
    strides_written_down: None,
    through_numpy: None,
    through_numpy_in_lines: None,
    through_lists: None,
    einsum: None,
    einsum_over_columns: None,
    item_by_item: "zeros(x.shape).contiguous(memory_format=torch.channels_last)",
    channel_by_channel: "new_empty(x.shape).contiguous(memory_format=torch.channels_last)",
    multiplied_into: "ones(2, 8, 8, 8).contiguous(memory_format=torch.channels_last)",
    added_by_index: "zeros(2, 8, 8, 8).contiguous(memory_format=torch.channels_last)",
    filled_like: "memory_format=torch.contiguous_format).contiguous(",
    own_function: "x.contiguous(memory_format=torch.channels_last) * 2",
    coordinates: "x], 1).contiguous(memory_format=torch.channels_last)[",
    transposed: None,
    spectrum: None,
    shuffled_by_stack: None,
    norm_of_a_slice: None,
    copied_ahead_of_numpy: "contiguous(memory_format=torch.channels_last)",
    copied_and_added: "contiguous(memory_format=torch.channels_last)",
    median: None,
    mixed_pixels: None,
    columns: "y], 1).contiguous(memory_format=torch.channels_last)",
    resized_in_place: None,
    view_of_flat_memory: None,
    mapped: None,
}


def checked(function):
    return st.check(planted(function)().eval(), torch.randn(2, 3, 8, 8))


@pytest.mark.parametrize("function", PLANTED, ids=lambda f: f.__name__)
def test_planted_losses(function, tmp_path):
    found = checked(function)
    assert len(found.findings) == 1, str(found)
    (finding,) = found.findings
    assert finding.where.place.file == __file__
    assert finding.where.place.text.endswith("# here"), str(found)
    assert finding.fix
    assert finding.milliseconds is None or finding.milliseconds > 0
    assert (finding.milliseconds is None) == (function is viewed)
    patch = PLANTED[function]
    assert (finding.patch is not None) == (patch is not None), str(found)
    if finding.patch is not None and patch is not None:
        assert patch in finding.patch[1]
        assert not any(
            item.where.operator == finding.where.operator
            for item in checked(changed(function, finding.patch, tmp_path)).findings
        )
    assert str(finding.where.place) in str(found)


def changed(function, patch, folder):
    """Return a planted function with a patch applied to its text."""
    texts = [inspect.getsource(item) for item in (Doubled, function)]
    text = "\n".join(texts).replace(*patch)
    assert text != "\n".join(texts)
    path = folder / "changed.py"
    path.write_text(text)
    names = dict(globals())
    exec(compile(text, path, "exec"), names)
    return names[function.__name__]


def test_the_image_in_another_order_is_named():
    (finding,) = checked(columns).findings
    assert "store image 2 of 2 channels-last" in finding.fix
    (finding,) = checked(chosen).findings
    assert "store image 1 of 3" in finding.fix


def test_losses_in_volumes():
    def volumes(x):
        x = torch.relu(x)
        x = x.contiguous()  # here
        return F.max_pool3d(x, 2)

    (finding,) = st.check(volumes, torch.randn(1, 3, 8, 8, 8)).findings
    assert finding.where.place.text == "x = x.contiguous()  # here"
    assert "memory_format=torch.channels_last_3d" in finding.patch[1]


class LayerNorm2d(Net):
    """Permutes to channels-last, normalizes, and permutes back, which moves nothing."""

    def between(self, x):
        return F.layer_norm(x.permute(0, 2, 3, 1), (8,)).permute(0, 3, 1, 2)


class Classifier(Net):
    """Flattens an image, which copies it for good."""

    def forward(self, x):
        return F.linear(self.second(self.first(x)).flatten(1), torch.ones(2, 512))


class Embedded(Net):
    def between(self, x):
        return x + self.place


class Shuffle(Net):
    def between(self, x):
        return F.interpolate(F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2), scale_factor=1.0)


class Branches(Net):
    def between(self, x):
        a, b = x.split(4, 1)
        return torch.cat([F.max_pool2d(a, 3, 1, 1), F.avg_pool2d(b, 3, 1, 1)], 1) * torch.sigmoid(x)


def unpooled(x):
    y, places = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(y, places, 2)


def gated(x):
    n, c = x.shape[:2]
    return x * torch.sigmoid(x.mean((2, 3)).view(n, c, 1, 1)).expand_as(x)


def attended(x):
    most = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
    return x * torch.sigmoid(F.conv2d(most, torch.ones(1, 2, 7, 7), padding=3))


def heads(x):
    n, c, h, w = x.shape
    rows = x.flatten(2).transpose(1, 2)
    q = rows.reshape(n, h * w, 2, 4).transpose(1, 2)
    k = torch.cat([q, torch.ones(n, 2, 1, 4)], 2)
    rows = F.scaled_dot_product_attention(q, k, k).transpose(1, 2).reshape(n, h * w, c)
    return rows.transpose(1, 2).unflatten(2, (h, w))


def windows(x):
    y = F.pad(x.permute(0, 2, 3, 1), (0, 0, 0, 4, 0, 4)).roll((1, 1), (1, 2))
    n, h, w, c = y.shape
    y = y.view(n, h // 4, 4, w // 4, 4, c).transpose(2, 3).reshape(-1, 16, c)
    y = F.layer_norm(y, (c,)).view(n, h // 4, w // 4, 4, 4, c)
    y = F.pad(y.transpose(2, 3).reshape(n, h, w, c), (0, 0, 0, -4, 0, -4))
    return y.permute(0, 3, 1, 2)


def logged(x):
    float(x.numpy().mean())
    x.flatten()[:3].tolist()
    return x + torch.tensor(2.0)


def filled_as_it_is(x):
    out, other = torch.empty_like(x), torch.empty(x.shape, memory_format=torch.channels_last)
    for c in range(8):
        out[:, c], other[:, c] = x[:, 7 - c], x[:, c]
    return out + other


def masked(x):
    x[x < 0] = 0
    return x + x.new_zeros(x.shape)


CLEAN = {
    "unpooled": unpooled,
    "gated": gated,
    "attended": attended,
    "heads": heads,
    "windows": windows,
    "logged": logged,
    "filled as it is": filled_as_it_is,
    "masked": masked,
    "kept by numpy": lambda x: torch.from_numpy(np.clip(x.numpy(), 0, 6)),
    "einsum": lambda x: torch.einsum("nchw,oc->nohw", x, torch.eye(8)),
    "sorted": lambda x: torch.sort(x, 1).values,
    "frames": lambda x: F.conv3d(torch.stack([x, x], 2), torch.ones(8, 8, 2, 1, 1))[:, :, 0],
    "slices": lambda x: torch.cat([x[:, :4], F.conv2d(x[:, 4:], torch.ones(4, 4, 1, 1))], 1),
    "group norm": lambda x: F.group_norm(x, 2),
    "reflecting pad": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "replicating pad": lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
    "zero pad": lambda x: F.pad(x, (1, 1, 1, 1)),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "nearest-exact": lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact"),
    "pool": lambda x: F.interpolate(F.adaptive_avg_pool2d(x, 4), size=(8, 8)),
    "pixel shuffle": lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2),
    "channel shuffle": lambda x: F.channel_shuffle(x, 2),
    "groups": lambda x: F.conv2d(x, torch.ones(8, 4, 3, 3), padding=1, groups=2),
    "flip": lambda x: x.flip(3).roll(1, 2),
    "linear": lambda x: F.linear(x.permute(0, 2, 3, 1), torch.ones(8, 8)).permute(0, 3, 1, 2),
    "dropout": lambda x: F.dropout2d(x, training=False),
}


@pytest.mark.parametrize("name", CLEAN)
def test_clean_operators(name):
    found = st.check(planted(CLEAN[name])().eval(), torch.randn(2, 3, 8, 8))
    assert found.is_clean, str(found)


SAME_SHAPE = sorted(
    name
    for name, function in CLEAN.items()
    if function(torch.randn(2, 8, 8, 8)).shape == (2, 8, 8, 8)
)


@settings(max_examples=10, deadline=None)
@given(
    st_.lists(st_.sampled_from(SAME_SHAPE), max_size=4),
    st_.sampled_from([None, *(f for f in PLANTED if f not in (viewed, strides_written_down))]),
)
def test_a_loss_is_found_after_clean_steps(before, loss):
    def between(x):
        for name in before:
            x = CLEAN[name](x)
        return x if loss is None else loss(x)

    found = st.check(planted(between)().eval(), torch.randn(2, 3, 8, 8))
    lost = [finding.where.place.text for finding in found.findings]
    assert len(lost) == (loss is not None), str(found)
    assert all(text.endswith("# here") for text in lost)


@pytest.mark.parametrize("kind", [Net, LayerNorm2d, Classifier, Embedded, Branches])
def test_clean_models(kind):
    found = st.check(kind().eval(), torch.randn(2, 3, 8, 8))
    assert found.is_clean, str(found)
    assert "none loses it" in str(found)
    assert any(row.module == "second" for row in found.operators)
    assert all(row.place.file == __file__ for row in found.operators)


def test_nothing_else_changes():
    class Moving(Net):
        def between(self, x):
            return F.dropout(x.relu_(), 0.5)

    model, x = Moving().train(), torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    before = [value.clone() for value in (*model.buffers(), *model.parameters(), x)]
    state = torch.get_rng_state()
    st.check(model, x)
    st.check(lambda x: F.max_pool2d(x.mul_(2), 2), x)
    assert torch.equal(torch.get_rng_state(), state)
    after = (*model.buffers(), *model.parameters(), x)
    assert all(map(torch.equal, before, after))


def test_lines_of_libraries_are_passed_over(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    text = "def stored(x):\n    return x.contiguous()\n"
    (folder / "layout_library.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    library = importlib.import_module("layout_library")

    def through_a_library(x):
        return library.stored(x)  # here

    (finding,) = checked(through_a_library).findings
    assert finding.where.place.text.endswith("# here")

    class Inside(Net):
        __module__ = "layout_library.models"

        def between(self, x):
            return library.stored(x)

    (finding,) = st.check(Inside().eval(), torch.randn(2, 3, 8, 8)).findings
    assert finding.where.place.text == "return x.contiguous()"


def test_images_without_a_memory_format():
    with pytest.raises(InputError, match="2 or more channels"):
        st.check(Net().eval(), torch.randn(2, 3))


def test_other_errors_are_not_findings():
    def wrong(x):
        return x @ torch.ones(3, 3)

    with pytest.raises(RuntimeError, match="batch2"):
        st.check(wrong, torch.randn(2, 3, 8, 8))


def test_convert():
    model = Net().eval()
    x = torch.randn(2, 3, 8, 8)
    wanted = model(x)
    assert st.convert(model, x).is_clean
    assert model.first.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(model(x), wanted, atol=1e-5)


def test_convert_of_models_that_change():
    class Moving(Net):
        def forward(self, x):
            found = super().forward(x.relu_())
            return found, found.argmax(1), found > 0, found / 0

    model, x = Moving().train(), torch.randn(2, 3, 8, 8)
    before = [value.clone() for value in (*model.buffers(), x)]
    assert st.convert(model, x).is_clean
    assert all(map(torch.equal, before, (*model.buffers(), x)))


def test_convert_restores_what_would_differ():
    class Strided(Net):
        def forward(self, x):
            return self.first(x) * float(x.is_contiguous())

    model = Strided().eval()
    with pytest.raises(VerificationError, match="difference"):
        st.convert(model, torch.randn(2, 3, 8, 8))
    assert model.first.weight.is_contiguous()


MODEL = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        x = torch.relu(x)
        x = x.{copy}
        return torch.nn.functional.max_pool2d(x, 2)

def make():
    return Net(), torch.randn(2, 3, 8, 8)

def wrong():
    return Net()
"""


@pytest.fixture
def command(tmp_path):
    def run(copy, *args):
        path = tmp_path / "net.py"
        path.write_text(MODEL.format(copy=copy))
        function = args[0] if args else "make"
        return CliRunner().invoke(cli, ["check", f"{path}:{function}", *args[1:]])

    return run


def test_command(command, tmp_path):
    found = command("contiguous()", "make", "--html", str(tmp_path / "page.html"))
    assert found.exit_code == 1
    assert "net.py:7: contiguous() stores channels-last images as NCHW" in found.output
    page = (tmp_path / "page.html").read_text()
    assert "+ x = x.contiguous(memory_format=torch.channels_last)" in page
    assert "aten.max_pool2d_with_indices.default" in page
    clean = command("clone()", "make", "--json")
    assert clean.exit_code == 0
    assert json.loads(clean.output)["is_clean"]


def test_the_page_is_never_written_over_the_model(command, tmp_path):
    found = command("clone()", "make", "--html", str(tmp_path / "net.py"))
    assert isinstance(found.exception, InputError)
    assert "another file than that of FACTORY" in str(found.exception)
    assert (tmp_path / "net.py").read_text() == MODEL.format(copy="clone()")


def test_command_with_wrong_factories(command):
    for function, message in (("absent", "a function 'absent'"), ("wrong", "return model, x")):
        found = command("clone()", function)
        assert message in str(found.exception)
        assert isinstance(found.exception, InputError)
