"""Modules and exported programs as sources of ``plan``, ``compile`` and ``verify``."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

import stridewise as sw  # noqa: E402
from stridewise.errors import InputError, MemoryLimitError, UnsupportedError  # noqa: E402

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


class Summed(Net):
    """Has an operator that PyTorch computes."""

    def forward(self, x):
        return F.relu(torch.cumprod(self.conv(x), 1))


def image(batch=2, side=9):
    return torch.randn(batch, 3, side, side)


def compiled(module, *inputs, **options):
    return sw.compile(module, inputs, tune="model", **options)


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
    model = compiled(module, image(), fallback=False)
    check(model, module, image())
    assert model.plan.gap == 0
    x = image()
    assert model.profile({"x": x}, runs=2).rows
    assert "Net" in model.report_html({"x": x}, runs=1)
    found = model.run({"x": x})
    assert list(found) == ["output.map", "output.logits"]
    assert torch.equal(found["output.map"], model(x)["map"])
    assert model.memory.arena > 0
    assert repr(model).startswith("ModuleModel('Net', x: f32[2,3,9,9]")


def test_an_example_that_is_given_twice():
    class Pair(Net):
        def forward(self, x, others):
            return {"x": super().forward(x)["logits"] - super().forward(others[0])["logits"] * 2}

    module, x = Pair().eval(), image()
    check(compiled(module, x, [x]), module, image(), [image()])


def test_one_tensor_is_enough():
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
    x = image()
    model = sw.compile(module, x, tune="model")
    assert torch.allclose(model(x), module(x), atol=1e-5)
    assert model.output_names == ("output",)


def test_exported_programs():
    module = Net().eval()
    program = torch.export.export(module, (image(),))
    check(sw.compile(program, tune="model", fallback=False), module, image())
    assert sw.capability(program).is_native
    assert sw.load(program).name == "ExportedProgram"


@pytest.mark.parametrize("is_bool", [False, True])
def test_attention_of_exported_programs(is_bool):
    class Masked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            shown = torch.tensor([[1, 1, 1], [0, 0, 0], [0, 1, 1]]).bool()
            added = torch.zeros(3, 3).masked_fill(~shown, float("-inf"))
            self.register_buffer("mask", shown if is_bool else added)

        def forward(self, x):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=self.mask)

    module, x = Masked().eval(), torch.randn(2, 3, 8)
    model = sw.compile(torch.export.export(module, (x,)), tune="model")
    assert torch.allclose(model(x), module(x), atol=1e-5)


@pytest.mark.parametrize("size", [{"scale_factor": 0.6}, {"size": (4, 9)}])
def test_smoothed_resizes(size):
    class Smoothed(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.interpolate(x, mode="bilinear", antialias=True, **size)

    x = torch.randn(2, 8, 6, 7)
    model = sw.compile(Smoothed(), (x,), tune="model", fallback=False)
    assert torch.allclose(model(x), Smoothed()(x), atol=1e-5)


def test_plan_is_that_of_compile():
    module = Net().eval()
    plan = sw.plan(module, image(), tune="model")
    assert str(plan) == str(compiled(module, image()).plan)


@pytest.mark.parametrize("options", [{"threads": 1}, {"streams": 2}, {"accuracy": "exact"}])
def test_options(options):
    module = Net().eval()
    check(compiled(module, image(), **options), module, image())


def test_batches_that_are_fixed_are_not_divided(tmp_path):
    module = Net().eval()
    check(sw.compile(module, (image(4),), cache_dir=tmp_path), module, image(4))


def test_bfloat16():
    module = Net().eval()
    x = image()
    found = compiled(module, x, dtype="bfloat16")(x)["map"]
    assert found.dtype == torch.float32
    assert torch.allclose(found, module(x)["map"], atol=0.1)


def test_memory_limit():
    with pytest.raises(MemoryLimitError, match="Net"):
        compiled(Net().eval(), image(), memory_limit=100)


@pytest.mark.parametrize("source", [Net, Summed])
def test_verify(source):
    module, x = source().eval(), image()
    for against in ("reference", "pytorch"):
        assert sw.verify(module, x, tune="model", against=against).ok
    assert sw.verify(compiled(module, x, keep_originals=True), inputs={"x": x}).ok
    with pytest.raises(InputError, match="'pytorch', the runtime for this model"):
        sw.verify(module, x, tune="model", against="onnxruntime")


def test_inputs_of_other_strides():
    module = Net().eval()
    model = compiled(module, image())
    x = image().contiguous(memory_format=torch.channels_last)
    assert check(model, module, x)["map"].is_contiguous()
    check(model, module, image(1).expand(2, -1, -1, -1))
    check(model, module, image(4)[::2])
    last = compiled(module, x)
    assert last.interface.values["x"].shape == (2, 9, 9, 3)
    found = check(last, module, x)["map"]
    assert found.is_contiguous(memory_format=torch.channels_last)
    check(last, module, image())


def test_weights_are_those_at_the_time_of_compiling():
    module = Net().eval()
    model = compiled(module, image(), shapes={"x": ("N", 3, 9, 9)})
    before = copy.deepcopy(module)
    with torch.no_grad():
        module.conv.weight.mul_(2)
    for batch in (2, 3):
        check(model, before, image(batch))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
def test_open_shapes(batch, last):
    def stored(x):
        return x.contiguous(memory_format=torch.channels_last) if last else x

    module = Net().eval()
    model = compiled(module, stored(image(batch)), shapes={"x": ("1..8", 3, "H", "W")})
    for size, side in ((2, 9), (5, 9), (1, 9), (5, 12)):
        check(model, module, stored(image(size, side)))
    assert len(model.programs.ready) == 4
    with pytest.raises(InputError, match="shape"):
        model(image(9))


@pytest.mark.parametrize("wrong", [(image(2),), image(2), None, "x"])
def test_inputs_by_name_are_a_mapping(wrong):
    model = compiled(Net().eval(), image(2))
    for method in (model.run, model.profile):
        with pytest.raises(InputError, match=r"expected a mapping.*pass \{'x': \.\.\.\}"):
            method(wrong)


def test_open_shapes_of_programs():
    module = Net().eval()
    batch = torch.export.Dim("batch", max=8)
    program = torch.export.export(module, (image(),), dynamic_shapes={"x": {0: batch}})
    model = sw.compile(program, tune="model")
    for size in (2, 5, 1):
        check(model, module, image(size))
    for wrong in (image(9), image(2, 10)):
        with pytest.raises(InputError, match=r"argument 'x'.*shape \(s\d+: 0\.\.8, 3, 9, 9\)"):
            model(wrong)


class _Pair(torch.nn.Module):
    def forward(self, a, b):
        return {"sum": F.relu(a).sum() + F.relu(b), "a": a * 2}


@settings(max_examples=4, deadline=None)
@given(
    factors=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    shifts=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    axis=st.integers(0, 1),
    last=st.integers(3, 7),
    data=st.data(),
)
def test_extents_that_depend_on_each_other(factors, shifts, axis, last, data):
    def inputs(*extents):
        return [torch.randn((n, 5) if axis == 0 else (5, n)) for n in extents]

    def sizes(number):
        return [f * number + s for f, s in zip(factors, shifts, strict=True)]

    base = torch.export.Dim("n", min=1, max=last)
    spec = tuple({axis: extent} for extent in sizes(base))
    module = _Pair()
    try:
        program = torch.export.export(module, tuple(inputs(*sizes(last))), dynamic_shapes=spec)
    except torch._dynamo.exc.UserError:
        return  # the example has extents that PyTorch takes for fixed ones
    model = sw.compile(program, tune="model")
    for number in {1, last, data.draw(st.integers(1, last))}:
        check(model, module, *inputs(*sizes(number)))
    first, second = sizes(data.draw(st.integers(1, last)))
    for wrong in ((first, second + 1), (first + 1, second), tuple(sizes(last + 1))):
        with pytest.raises(InputError, match=r"argument '[ab]'"):
            model(*inputs(*wrong))


def test_other_fixed_shapes_than_in_the_example():
    module = Net().eval()
    model = compiled(module, image(1), shapes={"x": (4, 3, 9, 9)})
    check(model, module, image(4))


def test_arguments_that_do_not_fit():
    model = compiled(Net().eval(), image())
    with pytest.raises(InputError, match=r"expected a tensor of torch.float32 and shape \(2, 3"):
        model(image(3))
    with pytest.raises(InputError, match="float64"):
        model(image().double())
    with pytest.raises(InputError, match="meta"):
        model(image().to("meta"))
    with pytest.raises(InputError, match=r"of layout torch\.sparse_coo"):
        model(image().to_sparse())
    with pytest.raises(InputError, match="found ndarray"):
        model(image().numpy())
    with pytest.raises(InputError, match="arguments as exported"):
        model(image(), image())
    with pytest.raises(InputError, match="names of inputs"):
        compiled(Net().eval(), image(), shapes={"y": (1, 2)})


def test_example_inputs_that_are_no_arguments():
    with pytest.raises(InputError, match=r"positional arguments, found 3: too many"):
        compiled(Net().eval(), image(), 1.0, 2.0)
    with pytest.raises(InputError, match="missing a required argument"):
        compiled(Net().eval())


def test_strides_that_lead_out_of_views():
    class Strided(torch.nn.Module):
        def forward(self, x):
            return (x * 2)[:, 1:].as_strided((2, 3), (3, 1), 0)

    with pytest.raises(UnsupportedError, match="lead out of views: as_strided"):
        compiled(Strided(), image())


def test_other_values_than_in_the_example():
    model = compiled(Net().eval(), image(), 2.0)
    assert model(image(), 2.0)
    with pytest.raises(InputError, match=r"argument 'factor': expected 2.0, found 3.0"):
        model(image(), 3.0)


def test_values_become_constants():
    module = Net().eval()
    x = image()
    model = compiled(module, x, values={"x": x})
    assert model.interface.inputs == ()
    assert torch.allclose(model.run({})["output.map"], module(x)["map"], atol=1e-5)


def test_sources_that_are_none():
    with pytest.raises(InputError, match=r"example inputs.*compile\(module, \(x,\)\)"):
        sw.compile(Net().eval())
    with pytest.raises(InputError, match=r"torch\.nn\.Module as the model, found list"):
        sw.compile([], image())


def test_compiled_modules_are_not_copied():
    model = compiled(Net().eval(), image())
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(InputError, match=r"torch\.export\.save"):
            copied(model)


def test_modules_that_write():
    with pytest.raises(UnsupportedError, match=r"norm.running_mean.*call \.eval\(\)"):
        compiled(Net().train(), image())


def test_random_modules():
    with pytest.raises(UnsupportedError, match="is random"):
        compiled(torch.nn.Sequential(torch.nn.Dropout()).train(), image())


def test_weights_on_another_device():
    with pytest.raises(UnsupportedError, match=r"on meta; call \.cpu\(\)"):
        compiled(Net().eval().to("meta"), image().to("meta"))


def test_modules_that_cannot_be_exported():
    class Branching(Net):
        def forward(self, x):
            return self.conv(x) if x.sum() > 0 else x

    with pytest.raises(UnsupportedError, match="which allows graph breaks"):
        compiled(Branching().eval(), image())


@pytest.mark.parametrize("last", [False, True])
def test_operators_without_counterpart(last):
    module, x = Summed().eval(), image()
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    model = compiled(module, x)
    assert torch.allclose(model(x), module(x), atol=1e-5)
    assert "pytorch" in str(model.plan)
    with pytest.raises(UnsupportedError, match="cumprod"):
        compiled(module, x, fallback=False)


def test_results_that_are_no_computed_tensors():
    class Mixed(Net):
        def forward(self, x):
            y = self.conv(x)
            return x, y, y, self.shift, None, 3, torch.ones(2)

    module, x = Mixed().eval(), image()
    for found, wanted in zip(compiled(module, x)(x), module(x), strict=True):
        assert (
            torch.allclose(found, wanted, atol=1e-5)
            if torch.is_tensor(wanted)
            else (found == wanted)
        )


def test_shapes_that_a_module_does_not_take_are_refused():
    class Branch(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[0] > 4 else x * 3

    module, x = Branch().eval(), torch.randn(2, 3)
    with pytest.raises(InputError, match=r"a shape within \(s\w+=0\.\.4, 3\)"):
        compiled(module, x, shapes={"x": ("1..8", 3)})
    model, x = compiled(module, x, shapes={"x": ("N", 3)}), torch.randn(4, 3)
    assert torch.equal(model(x), 3 * x)
    with pytest.raises(InputError, match=r"0\.\.4"):
        model(torch.randn(5, 3))


def test_integers_and_masks():
    class Chosen(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(5, 4)

        def forward(self, x, index):
            return torch.where(x > 0, x, 0) @ self.table(index).sum(0), index + 1

    module, x, index = Chosen().eval(), torch.randn(3, 4), torch.tensor([1, 2])
    found = compiled(module, x, index)(x, index)
    for a, b in zip(found, module(x, index), strict=True):
        assert a.dtype == b.dtype
        assert torch.allclose(a, b, atol=1e-5)


def test_requests_from_threads():
    module = Net().eval()
    model = compiled(module, image(), streams=2)
    inputs = [image() for _ in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for x, found in zip(inputs, pool.map(model, inputs), strict=True):
            assert torch.allclose(found["map"], module(x)["map"], atol=1e-5)
    with model:
        assert model.submit(inputs[0]).result()["map"].shape == (2, 7, 9, 9)


def test_inputs_that_need_gradients():
    module, x = Net().eval(), image().requires_grad_()
    assert not compiled(module, x)(x)["map"].requires_grad
