"""Recorded graphs are those of AOT Autograd, and what needs more is left to it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

from tests.torch.compiled_modules import F, Net, image  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402

from stridewise.frontends.torch.recording import recorded, static_inputs  # noqa: E402
from stridewise.frontends.torch.tracing import whole_operators  # noqa: E402


def traced(model, *inputs):
    """Return the graph of Dynamo, the recorded one, and that of AOT Autograd."""
    found = []

    def inner(graph, _inputs):
        graph.graph.eliminate_dead_code()
        found.append(graph)
        return graph.forward

    def backend(module, example_inputs):
        found.extend([module, recorded(module)])
        with whole_operators():
            return aot_autograd(fw_compiler=inner, inference_compiler=inner)(module, example_inputs)

    torch._dynamo.reset()
    torch.compile(model, backend=backend, fullgraph=True)(*inputs)
    return found


def types(graph):
    """Return operators with the types of their results."""
    return Counter(
        (str(node.target), node.meta["val"].shape, node.meta["val"].stride())
        for node in graph.graph.nodes
        if node.op == "call_function" and isinstance(node.meta["val"], torch.Tensor)
    )


class Writing(torch.nn.Module):
    """Writes to values that are its own."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3)
        self.norm = torch.nn.BatchNorm2d(8)

    def forward(self, x):
        y = F.relu(self.norm(self.first(x)), inplace=True)
        y += self.first(x)
        y.mul_(0.5)
        return F.adaptive_avg_pool2d(y, 1), F.hardswish(y, inplace=True).sum(1)


STEPS = {
    "relu": F.relu,
    "relu_": lambda x: F.relu_(x * 1.5),
    "sum": lambda x: x + x.mean((2, 3), keepdim=True),
    "pool": lambda x: F.max_pool2d(x, 3, 1, 1),
    "norm": lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)),
    "group norm": lambda x: F.group_norm(x, 2),
    "conv": lambda x: F.conv2d(x, x[0, :, :3, :3].expand(4, 4, 3, 3), padding=1),
    "conv of one image": lambda x: F.conv2d(x[0], x[1, :, :1, :1].expand(4, 4, 1, 1)) + x,
    "same": lambda x: F.conv2d(x, x[0, :, :3, :3].expand(4, 4, 3, 3), padding="same"),
    "parts": lambda x: torch.cat(x.chunk(2, 1)[::-1], 1),
    "permuted": lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (4,)).permute(0, 3, 1, 2),
    "written": lambda x: (x * 2).add_(x).clamp_(-3, 3),
    "shuffle": lambda x: F.pixel_shuffle(torch.cat([x] * 4, 1), 2)[:, :, ::2, ::2],
    "resize": lambda x: F.interpolate(x, scale_factor=1.0, mode="bilinear"),
    "view": lambda x: x.reshape(2, 2, 2, 7, 9).transpose(1, 2).reshape(2, 4, 7, 9),
    "written view": lambda x: (x * 1)[:, 1].zero_().sum() + x,
}


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.sampled_from(list(STEPS)), min_size=1, max_size=6),
    st.sampled_from([torch.contiguous_format, torch.channels_last]),
)
def test_graphs_are_those_of_aot_autograd(names, layout):
    def function(x):
        for name in names:
            x = STEPS[name](x)
        return x * 2

    x = torch.randn(2, 4, 7, 9).contiguous(memory_format=layout)
    with torch.no_grad():
        _, found, wanted = traced(function, x)
        if found is not None:
            assert types(found) == types(wanted)
            (result,) = found(x)
            assert torch.allclose(result, function(x), atol=1e-5)
        else:
            assert {"norm", "written view"} & set(names)  # makes constants, writes to a view


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("kind", [Net, Writing])
def test_modules_are_recorded(kind, layout):
    model, x = kind().eval(), image(layout=layout)
    with torch.no_grad():
        module, found, wanted = traced(model, x)
    assert types(found) == types(wanted)
    assert len(static_inputs(module)) == len(list(model.parameters())) + 2


@given(
    st.sampled_from(["unsqueeze_", "squeeze_", "transpose_", "swapaxes_", "swapdims_"]),
    st.integers(0, 3),
    st.integers(0, 3),
    st.booleans(),
)
@settings(max_examples=10, deadline=None)
def test_shapes_that_change_in_place(name, first, second, is_normed):
    """What Dynamo knows of a tensor is then what it has become."""

    class Changing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = torch.nn.Conv2d(4, 6, 3, padding=1), torch.nn.BatchNorm2d(6)

        def forward(self, x):
            y = self.conv(x)
            y = self.norm(y) if is_normed else y
            axes = (first,) if name.endswith("squeeze_") else (first, second)
            getattr(y, name)(*axes)
            return y.sum(-1) * 2

    model, x = Changing().eval(), torch.randn(1, 4, 7, 7)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="stridewise", fullgraph=True)
    with torch.inference_mode():
        wanted, found = model(x), compiled(x)
    assert found.shape == wanted.shape
    assert torch.allclose(found, wanted, atol=1e-5)


def _writes(x):
    return x.add_(1) * 2


def _views(x):
    return x.view(-1), x * 2


def _twice(x):
    y = x * 2
    return y, y.view(-1)


def _writes_to_a_view(x):
    y = x * 2
    y[:, 0].zero_()
    return y * 3


def _writes_to_a_list(x):
    y = x * 2
    torch._foreach_add_([y], 1.0)
    return y * 3


def _random(x):
    return F.dropout(x, 0.5) * 2


def _reads_a_tensor(x):
    return x * torch.tensor([2.0])


def _converts(x):
    with torch.autocast("cpu", torch.bfloat16):
        return F.conv2d(x, x[:3, :, :3, :3])


def _has_no_counterpart(x):
    return torch.cumprod(x, 1)


@pytest.mark.parametrize(
    "function",
    [
        *(_writes, _views, _twice, _writes_to_a_view, _writes_to_a_list),
        *(_random, _reads_a_tensor, _converts, _has_no_counterpart),
    ],
)
def test_what_is_left_to_aot_autograd(function):
    with torch.no_grad():
        assert traced(function, image(3))[1] is None


def test_gradients_are_left_to_aot_autograd():
    assert traced(Net().eval(), image())[1] is None
    model = Net().eval().requires_grad_(False)
    assert traced(model, image())[1] is not None
