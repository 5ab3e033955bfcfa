"""The backend of ``torch.compile``: results, strides and shapes."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

import stridewise as sw  # noqa: E402
import stridewise.torch as st  # noqa: E402

from .compiled_modules import Features, Net, close, compiled, image, same  # noqa: E402

F = torch.nn.functional
# PyTorch warns of its own changes to come; the tests are about warnings of the backend.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


# --- results and strides --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_results_and_strides(mode, layout):
    model = Features().eval()
    fast = compiled(model)
    x = image(layout=layout)
    with mode():
        found, wanted = fast(x), model(x)
    close(found, wanted)
    assert found.stride() == wanted.stride()
    assert found.is_contiguous(memory_format=layout)


def test_the_entry_point_names_the_backend():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    points = project["project"]["entry-points"]["torch_dynamo_backends"]
    module, _, function = points["stridewise"].partition(":")
    assert getattr(importlib.import_module(module), function) is st.backend
    assert "stridewise" in torch._dynamo.list_backends()


@pytest.mark.parametrize("size", [(1, 3, 1, 1), (2, 3, 1, 9), (1, 3, 9, 1), (1, 3, 9, 9)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_axes_of_one_element(size, layout):
    model = Features().eval()
    x = torch.randn(size).contiguous(memory_format=layout)
    fast = compiled(model)
    with torch.no_grad():
        found, wanted = fast(x), model(x)
    close(found, wanted)
    assert found.stride() == wanted.stride()


@pytest.mark.parametrize(
    "strided",
    [
        lambda x: x[:, :, ::2, 1:],
        lambda x: x.transpose(2, 3),
        lambda x: x[:1].expand(4, -1, -1, -1),
        lambda x: x.flip(3)[:, :, :, :5],
        lambda x: torch.cat([x.flatten(), x[0, 0, 0, :1]])[1:].view(2, 3, 11, 11),
    ],
)
def test_inputs_with_other_strides(strided):
    model = Net().eval()
    same(compiled(model), model, strided(image()))


def test_inputs_are_read_where_they_are():
    model = Features().eval()
    fast = compiled(model)
    x = image()
    same(fast, model, x)
    before = x.clone()
    with torch.no_grad():
        x.mul_(2)
    same(fast, model, x)
    assert torch.equal(x, before * 2)


def test_outputs_do_not_share_memory():
    fast = compiled(Features().eval())
    with torch.no_grad():
        first, second = fast(image()), fast(image())
    assert first.data_ptr() != second.data_ptr()


def test_changes_of_batch_and_size():
    model = Net().eval()
    fast = compiled(model)
    for batch, side in ((2, 11), (3, 11), (5, 11), (1, 11), (2, 13), (4, 16), (2, 11)):
        same(fast, model, image(batch, side))


def test_programs_beyond_the_most_are_made_again():
    model = Net().eval()
    fast = compiled(model, max_programs=1)
    for batch in (2, 3, 5, 3):
        same(fast, model, image(batch))
    assert len(st.report(fast).graphs) == 2  # of the graph with fixed shapes, and the open one


def test_shapes_that_never_return_run_in_pytorch():
    model = Net().eval()
    fast = compiled(model, max_programs=2, fallback="eager")
    for batch in (2, 3, 4, 5, 6):
        same(fast, model, image(batch))
    with pytest.warns(st.FallbackWarning, match="almost every call has another shape"):
        same(fast, model, image(7))
    for _ in range(2):
        same(fast, model, image(6))
        same(fast, model, image(8))
    assert any("another shape" in graph.reason for graph in st.report(fast).graphs)


def test_empty_batches():
    model = Features().eval()
    fast = compiled(model)
    with torch.no_grad():
        assert fast(image(0)).shape == (0, 7, 11, 11)
    same(fast, model, image(2))


RESIZES = {
    "bicubic": {"scale_factor": 2},
    "bilinear": {"size": (7, 20)},
    "nearest": {"scale_factor": (2, 3)},
    "nearest-exact": {"size": (22, 5)},
}


@pytest.mark.parametrize("mode", RESIZES)
def test_resizes_stay_whole(mode):
    def resized(x):
        return F.interpolate(F.relu(x), mode=mode, **RESIZES[mode])

    fast = compiled(resized)
    for batch in (1, 2, 3):
        same(fast, resized, image(batch))
    module = torch.nn.Upsample(mode=mode, **RESIZES[mode])
    model = sw.compile(module, image(), fallback=False, tune="model")
    close(model(x := image()), module(x))
    assert torch.ops.aten.upsample_bilinear2d.vec.py_kernels  # PyTorch's own are back


def test_graph_breaks_make_several_graphs():
    class Broken(Net):
        def forward(self, x):
            y = self.first(x)
            torch._dynamo.graph_break()
            return F.relu(self.norm(y))

    model = Broken().eval()
    fast = compiled(model)
    same(fast, model, image())
    assert len(st.report(fast).graphs) == 2


def test_several_and_structured_results():
    class Many(Net):
        def forward(self, x):
            y = self.first(x)
            return {"y": y, "both": (y.relu(), x), "number": x.shape[0]}

    model = Many().eval()
    x = image()
    with torch.no_grad():
        found, wanted = compiled(model)(x), model(x)
    close(found["y"], wanted["y"])
    close(found["both"][0], wanted["both"][0])
    assert found["both"][1] is x
    assert found["number"] == 2


def test_numbers_that_are_results_of_open_shapes():
    def sizes(x):
        return F.relu(x), x.shape[0] * 2, x.shape[2] + x.shape[3]

    fast = compiled(sizes, fallback="error")
    for batch in (2, 3, 5):
        with torch.no_grad():
            found = fast(image(batch))
        assert found[1:] == (2 * batch, 22)


def test_tied_weights():
    model = Net().eval()
    model.third = torch.nn.Conv2d(7, 7, 3, padding=1, groups=7)
    model.third.weight = model.second.weight
    model.forward = lambda x: model.third(model.second(model.first(x)))
    fast = compiled(model)
    same(fast, model, image())
    with torch.no_grad():
        model.second.weight.mul_(2)
    same(fast, model, image())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_shapes_that_depend_on_data():
    def positive(x):
        y = F.relu(x)
        return y[y > 0.5] * 2

    fast, x = compiled(positive, fallback="eager"), image()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), torch.no_grad():
        close(fast(x), positive(x))


def test_parameters_that_are_results():
    class Returned(Net):
        def forward(self, x):
            return self.first(x), self.last.bias, self.last.bias * 2

    model = Returned().eval()
    fast = compiled(model)
    with torch.no_grad():
        _, bias, doubled = fast(image())
        assert torch.equal(bias, model.last.bias)
        doubled.zero_()
        assert torch.equal(fast(image())[2], model.last.bias * 2)
