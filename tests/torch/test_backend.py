"""The backend of ``torch.compile``: weights that change, strides, shapes, threads, fallbacks."""

from __future__ import annotations

import copy
import gc
import importlib
import pickle
import threading
import tomllib
import warnings
import weakref
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

import stridewise as sw  # noqa: E402
import stridewise.torch as st  # noqa: E402
from stridewise.errors import (  # noqa: E402
    InputError,
    PlanError,
    StridewiseError,
    UnsupportedError,
)
from stridewise.torch.options import Options  # noqa: E402

F = torch.nn.functional
# PyTorch warns of its own changes to come; the tests are about warnings of the backend.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


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


# --- weights that change --------------------------------------------------------------------------


def _in_place(model):
    with torch.no_grad():
        model.first.weight.mul_(1.5)


def _loaded(model):
    model.load_state_dict(Net().state_dict())


def _assigned(model):
    model.load_state_dict(Net().state_dict(), assign=True)


def _replaced(model):
    model.first.weight = torch.nn.Parameter(torch.randn_like(model.first.weight))


def _data(model):
    model.first.weight.data = torch.randn_like(model.first.weight)


def _statistics(model):
    model.norm.running_mean.add_(1)


def _fused(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    model(image()).sum().backward()
    optimizer.step()


@pytest.mark.parametrize(
    "change", [_in_place, _loaded, _assigned, _replaced, _data, _statistics, _fused]
)
def test_changes_of_weights(change):
    model = Net().eval()
    fast, x = compiled(model), image()
    same(fast, model, x)
    with torch.no_grad():
        before = model(x)
    change(model)
    found = same(fast, model, x)
    assert not torch.allclose(found, before)


def test_changes_that_leave_no_trace_need_repack():
    model = Net().eval()
    fast, x = compiled(model), image()
    same(fast, model, x)
    model.first.weight.data.mul_(2)
    st.repack()
    same(fast, model, x)


def test_instances_of_one_class_have_their_own_weights():
    models = [Net().eval() for _ in range(3)]
    fast = [compiled(model) for model in models]
    x = image()
    for _ in range(2):
        for one, model in zip(fast, models, strict=True):
            same(one, model, x)


def test_new_instances_at_the_addresses_of_old_ones():
    for _ in range(6):
        model = Net().eval()
        same(compiled(model), model, image())
        del model
        gc.collect()


def test_programs_for_other_shapes_share_weights():
    model = Net().eval()
    fast = compiled(model)
    for batch in (2, 3, 4):
        same(fast, model, image(batch))
    programs = [p for region in st.region.REGIONS for p in region.programs() if p.calls]
    models = [step.model for p in programs for step in p.steps]
    later = [m for m in models if m.plan.name == "follows"]
    assert later
    assert all(m.weights.shared_nbytes and not m.weights.own_nbytes for m in later)


def test_negated_views_are_read_as_they_look():
    x = torch.randn(2, 3, 9, 9, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    model = Net().eval()
    same(compiled(model), model, x)


def test_dropped_modules_are_freed():
    model = Net().eval()
    fast = compiled(model)
    same(fast, model, image())
    parameter = weakref.ref(model.first.weight)
    del model, fast
    torch._dynamo.reset()
    gc.collect()
    assert parameter() is None


def test_deepcopy_and_pickle():
    model = Net().eval()
    fast, x = compiled(model), image()
    same(fast, model, x)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.first.weight.neg_()
    same(compiled(twin), twin, x)
    again = pickle.loads(pickle.dumps(model))
    same(compiled(again), again, x)


def test_copies_of_compiled_modules():
    fast = compiled(Net().eval())
    x = image()
    with torch.no_grad():
        wanted = fast(x)
        twin = copy.deepcopy(fast)
        close(twin(x), wanted)
        twin.first.weight.neg_()
        assert not torch.allclose(twin(x), wanted)
        close(fast(x), wanted)


def test_hooks():
    model = Net().eval()
    model.first.register_forward_hook(lambda _module, _args, y: y * 2)
    same(compiled(model), model, image())


# --- what PyTorch computes ------------------------------------------------------------------------


class Mixed(Net):
    """Has an operator in the middle that is not native."""

    def forward(self, x):
        y = torch.cumsum(self.first(x), 2)
        return F.relu(self.norm(y))


def test_operators_without_counterpart_run_in_pytorch():
    model = Mixed().eval()
    fast = compiled(model, fallback="eager")
    x = image(layout=torch.channels_last)
    with pytest.warns(st.FallbackWarning, match=r"1 x cumsum.default \(there is no operator"):
        same(fast, model, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(fast, model, x)  # once a graph
    (graph,) = st.report(fast).graphs
    assert [item.operator for item in graph.outside] == ["aten.cumsum.default"]
    assert graph.programs == 2
    assert graph.calls == 2
    assert graph.native_ms > 0
    assert graph.outside_ms > 0
    assert "cumsum" in str(graph)


def test_fallbacks_as_errors():
    with pytest.raises(UnsupportedError, match="cumsum"), torch.no_grad():
        compiled(Mixed().eval())(image())


def test_parts_that_cannot_be_compiled_run_in_pytorch(monkeypatch):
    def refuse(*_args, **_options):
        raise PlanError("no kernels")

    monkeypatch.setattr("stridewise.torch.region.NativeStep", refuse)
    model = Net().eval()
    fast = compiled(model, fallback="eager")
    with pytest.warns(st.FallbackWarning, match="no kernels"):
        same(fast, model, image())
    (graph,) = st.report(fast).graphs
    assert graph.native == graph.programs == 0
    assert {item.reason for item in graph.outside} == {"no kernels"}


def test_batch_norms_that_count_keep_their_statistics():
    model, twin = Net().train(), Net().train()
    twin.load_state_dict(model.state_dict())
    fast = compiled(model)
    x = image()
    with torch.no_grad():
        close(fast(x), twin(x))
        close(fast(x * 2), twin(x * 2))
    close(model.norm.running_var, twin.norm.running_var)
    assert int(model.norm.num_batches_tracked) == 2


def test_float64_runs_in_pytorch():
    model, x = Net().eval(), image()
    fast = compiled(model, fallback="eager")
    same(fast, model, x)
    model.double()
    with torch.no_grad():
        with pytest.warns(st.FallbackWarning, match="elements of float64"):
            found = fast(x.double())
        assert torch.equal(found, model(x.double()))


def test_weights_that_become_half():
    model, x = Net().eval(), image()
    fast = compiled(model)
    same(fast, model, x)
    model.half()
    with torch.no_grad():
        found, wanted = fast(x.half()), model(x.half())
    assert found.dtype == wanted.dtype == torch.float16
    assert torch.allclose(found, wanted, atol=2e-3)


def test_other_devices():
    model, x = Net().eval().to("meta"), image().to("meta")
    fast = compiled(model, fallback="eager")
    with torch.no_grad(), pytest.warns(st.FallbackWarning, match="a tensor on meta"):
        assert fast(x).shape == (2, 5)


def test_random_operators_draw_as_in_pytorch():
    def noisy(x):
        return F.dropout(F.relu(x), 0.5) + torch.rand_like(x)

    fast, x = compiled(noisy, fallback="eager"), image()
    torch.manual_seed(3)
    with torch.no_grad():
        with pytest.warns(st.FallbackWarning, match="random"):
            found = fast(x)
        torch.manual_seed(3)
        close(found, noisy(x))


def test_writes_to_inputs():
    def writing(x):
        x.add_(1)
        return F.relu(x)

    x = image()
    twin = x.clone()
    with torch.no_grad():
        close(compiled(writing)(x), writing(twin))
    assert torch.equal(x, twin)


def test_weights_that_are_inference_tensors_run_in_pytorch():
    with torch.inference_mode():
        model = Net().eval()
        fast = compiled(model, fallback="eager")
        x = image()
        with pytest.warns(st.FallbackWarning, match="inference tensors"):
            found = fast(x)
        close(found, model(x))


def test_caches_that_are_inference_tensors_are_inputs():
    class Cached(Net):
        cache = None

        def forward(self, x):
            if self.cache is None:
                self.cache = self.first.bias * 2
            return self.first(x) + self.cache.view(-1, 1, 1)

    model, x = Cached().eval(), image()
    with torch.inference_mode():
        wanted = model(x)
        fast = compiled(model)
        close(fast(x), wanted)
        model.cache.zero_()
        close(fast(x), model(x))


def test_inputs_that_require_gradients_without_grad_mode():
    model = Net().eval()
    same(compiled(model), model, image().requires_grad_())


# --- threads and options --------------------------------------------------------------------------


def test_several_threads():
    model = Net().eval()
    fast = compiled(model)
    x = image()
    with torch.no_grad():
        wanted = model(x)
    found, failed = [], []

    def call():
        try:
            with torch.no_grad():
                found.extend(fast(x) for _ in range(5))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(found) == 20
    for item in found:
        close(item, wanted)


def test_options():
    model = Net().eval()
    x = image()
    same(compiled(model, threads=1, accuracy="exact", memory_limit=1 << 30), model, x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thread": 1}, r"expected some of threads.*found 'thread'"),
        ({"accuracy": "slow"}, r"accuracy: expected 'fast' or 'exact'.*found 'slow'"),
        ({"dtype": torch.bfloat16}, r"dtype: expected 'model' or .*found torch.bfloat16"),
        ({"fallback": True}, r"fallback: expected 'eager' or 'error'.*found True"),
        ({"max_error": 0}, r"max_error: expected a relative error above 0.*found 0"),
        ({"max_error": float("nan")}, r"max_error: expected a relative error above 0.*found nan"),
        ({"memory_limit": "1 GB"}, r"memory_limit: expected a number from 1 on.*found '1 GB'"),
        ({"threads": 1.5}, r"threads: expected a number from 1 on.*found 1.5"),
        ({"threads": True}, r"threads: expected a number from 1 on.*found True"),
        ({"tune": "fast"}, r"tune: expected 'auto' or 'measure' or 'model'.*found 'fast'"),
        ({"tune": ["auto"]}, r"tune: expected 'auto' or 'measure' or 'model'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(InputError, match=message):
        Options.of(options)


def test_a_wrong_option_of_torch_compile():
    with pytest.raises(Exception, match=r"InputError: backend 'stridewise', accuracy"):
        compiled(Net().eval(), accuracy="slow")(image())


@pytest.mark.parametrize("tune", ["auto", "measure", "model"])
def test_tuning(tune, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = Net().eval()
    fast = compiled(model, tune=tune)
    for batch in (2, 3, 4):
        same(fast, model, image(batch))
    assert any(tmp_path.iterdir()) == (tune != "model")


def test_bfloat16_inside_of_programs():
    model, x = Net().eval(), image()
    with torch.no_grad():
        found, wanted = compiled(model, dtype="bfloat16")(x), model(x)
    assert found.dtype == torch.float32
    assert torch.allclose(found, wanted, atol=0.05 * float(wanted.abs().max()))


def test_memory_limit():
    with pytest.raises(StridewiseError, match="memory"), torch.no_grad():
        compiled(Net().eval(), memory_limit=100)(image())


def test_modes_and_fullgraph():
    model = Net().eval()
    fast = torch.compile(model, backend="stridewise", mode="reduce-overhead", fullgraph=True)
    same(fast, model, image())


def test_report_of_something_else():
    with pytest.raises(StridewiseError, match=r"torch\.nn\.Module"):
        st.report(3)
