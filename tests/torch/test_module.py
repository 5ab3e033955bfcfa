"""Modules and exported programs as compiled models."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

import stridewise.torch as st  # noqa: E402
from stridewise.errors import InputError, PlanError, UnsupportedError  # noqa: E402

F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 7, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(7)
        self.last = torch.nn.Linear(7, 5)
        self.register_buffer("shift", torch.ones(7, 1, 1), persistent=False)

    def forward(self, x, factor=1.0):
        y = F.silu(self.norm(self.conv(x))) + self.shift
        return {"map": y, "logits": self.last(F.adaptive_avg_pool2d(y, 1).flatten(1)) * factor}


def image(batch=2, side=9):
    return torch.randn(batch, 3, side, side)


def check(model, module, *inputs):
    with torch.no_grad():
        wanted = module(*inputs)
    found = model(*inputs)
    assert found.keys() == wanted.keys()
    for key in found:
        assert torch.allclose(found[key], wanted[key], rtol=2e-5, atol=2e-5)
    return found


def test_modules():
    module = Net().eval()
    model = st.compile_module(module, (image(),), fallback="error")
    with pytest.raises(PlanError, match="call the module once"):
        model.plan  # noqa: B018
    check(model, module, image())
    check(model, module, image())
    assert model.plan.gap == 0
    (profile,) = model.profile(image(), runs=2)
    assert profile.rows
    (graph,) = model.report().graphs
    assert graph.calls == 3
    assert not graph.outside


def test_exported_programs():
    module = Net().eval()
    program = torch.export.export(module, (image(),))
    check(st.compile_module(program, fallback="error"), module, image())


def test_inputs_of_other_strides():
    module = Net().eval()
    model = st.compile_module(module, (image(),), fallback="error")
    x = image().contiguous(memory_format=torch.channels_last)
    assert check(model, module, x)["map"].is_contiguous()
    last = st.compile_module(module, (x,), fallback="error")
    found = check(last, module, x)["map"]
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_weights_are_those_of_the_module():
    module = Net().eval()
    model = st.compile_module(module, (image(),))
    check(model, module, image())
    with torch.no_grad():
        module.conv.weight.mul_(2)
        module.norm.running_var.add_(1)
    check(model, module, image())


def test_open_shapes():
    module = Net().eval()
    batch = torch.export.Dim("batch", max=8)
    model = st.compile_module(
        module, (image(),), dynamic_shapes={"x": {0: batch}}, fallback="error"
    )
    for size in (2, 5, 1, 5):
        check(model, module, image(size))
    assert len(model.report().graphs) == 3
    with pytest.raises(InputError, match=r"argument 'x'.*shape"):
        model(image(9))
    with pytest.raises(InputError, match="shape"):
        model(image(2, 10))


def test_arguments_that_do_not_fit():
    model = st.compile_module(Net().eval(), (image(),))
    with pytest.raises(InputError, match=r"expected a tensor of torch.float32 and shape \(2, 3"):
        model(image(3))
    with pytest.raises(InputError, match=r"float64"):
        model(image().double())
    with pytest.raises(InputError, match="arguments as exported"):
        model(image(), image())
    with pytest.raises(InputError, match="found list"):
        st.compile_module([])


def test_compiled_modules_are_not_copied():
    model = st.compile_module(Net().eval(), (image(),))
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(InputError, match=r"torch\.export\.save"):
            copied(model)


def test_modules_that_write():
    with pytest.raises(UnsupportedError, match=r"norm.running_mean.*call \.eval\(\)"):
        st.compile_module(Net().train(), (image(),))


def test_modules_that_cannot_be_exported():
    class Branching(Net):
        def forward(self, x):
            return self.conv(x) if x.sum() > 0 else x

    with pytest.raises(UnsupportedError, match="which allows graph breaks"):
        st.compile_module(Branching().eval(), (image(),))


def test_operators_without_counterpart():
    class Summed(Net):
        def forward(self, x):
            return {"y": F.relu(torch.cumsum(self.conv(x), 1))}

    module = Summed().eval()
    model = st.compile_module(module, (image(),))
    with pytest.warns(st.FallbackWarning, match="cumsum"):
        check(model, module, image())
    assert len(model.plans) == 2
    with pytest.raises(PlanError, match="use plans"):
        model.plan  # noqa: B018
