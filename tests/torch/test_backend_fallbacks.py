"""The backend of ``torch.compile``: what PyTorch computes."""

from __future__ import annotations

import copy
import importlib
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

import stridewise as sw  # noqa: E402
import stridewise.torch as st  # noqa: E402
from stridewise.errors import (  # noqa: E402
    PlanError,
    UnsupportedError,
)

from .compiled_modules import Net, close, compiled, image, same  # noqa: E402
from .test_gradients import relative  # noqa: E402

F = torch.nn.functional
# PyTorch warns of its own changes to come; the tests are about warnings of the backend.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


# --- what PyTorch computes ------------------------------------------------------------------------


class Mixed(Net):
    """Has an operator in the middle that is not native."""

    def forward(self, x):
        y = torch.cumprod(self.first(x), 2)
        return F.relu(self.norm(y))


def test_operators_without_counterpart_run_in_pytorch():
    model = Mixed().eval()
    fast = compiled(model, fallback="eager")
    x = image(layout=torch.channels_last)
    with pytest.warns(st.FallbackWarning, match=r"1 x cumprod.default \(there is no operator"):
        same(fast, model, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(fast, model, x)  # once a graph
    (graph,) = st.report(fast).graphs
    assert [item.operator for item in graph.outside] == ["aten.cumprod.default"]
    assert graph.programs == 2
    assert graph.calls == 2
    assert graph.native_ms > 0
    assert graph.outside_ms > 0
    assert "cumprod" in str(graph)


@pytest.fixture
def converted():
    """An operator of PyTorch whose result has another type than it promises in traces."""
    library = torch.library.Library("stridewise_tests", "DEF")
    library.define("converted(Tensor x, ScalarType real, ScalarType traced) -> Tensor")
    library.impl("converted", lambda x, real, _: x.to(real, copy=True), "CPU")
    library.impl("converted", lambda x, _, traced: x.to(traced, copy=True), "Meta")
    yield torch.ops.stridewise_tests.converted.default
    library._destroy()


@pytest.mark.parametrize("way", ["backend", "module"])
@pytest.mark.parametrize("traced", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("real", [torch.float64, torch.float32, torch.bfloat16, torch.int32])
def test_results_of_pytorch_of_another_type_than_promised(converted, real, traced, way):
    class Model(Net):
        def forward(self, x):
            y = converted(self.first(x), real, traced)
            return F.relu(self.norm(y.float()))

    model, x = Model().eval(), 4 * image()
    with torch.no_grad():
        wanted = F.relu(model.norm(model.first(x).to(real).to(traced).float()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", st.FallbackWarning)
            if way == "backend":
                found = compiled(model, fallback="eager")(x)
            else:
                found = sw.compile(model, (x,), tune="model")(x)
    assert relative(found, wanted) <= 1e-2


def test_fallbacks_as_errors():
    with pytest.raises(UnsupportedError, match="cumprod"), torch.no_grad():
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


def test_results_are_on_the_cpu_whatever_the_default_device():
    def mixed(x):
        y = F.relu(x).exp()[:, :, ::2].expand(2, 3, -1, -1) * x.new_ones(3, 1, 1)
        return y + F.layer_norm(y, y.shape[3:]), torch.cumprod(y, 1)

    fast, x = compiled(mixed, fallback="eager"), torch.randn(2, 3, 6, 5)
    with torch.no_grad(), torch.device("meta"), pytest.warns(st.FallbackWarning, match="cumprod"):
        found, wanted = fast(x), mixed(x)
    for a, b in zip(found, wanted, strict=True):
        assert a.device.type == "cpu"
        close(a, b)


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


def test_tangents_of_forward_mode_are_those_of_pytorch():
    forward_mode = torch.autograd.forward_ad
    model = Net().eval()
    fast, strict = compiled(model, fallback="eager"), compiled(Net().eval())
    x, tangent = image(), image()
    same(fast, model, x)
    same(strict, strict._orig_mod, x)
    with torch.no_grad(), forward_mode.dual_level():
        dual = forward_mode.make_dual(x, tangent)
        with pytest.warns(st.FallbackWarning, match="tangents of forward-mode differentiation"):
            found = forward_mode.unpack_dual(fast(dual))
        with pytest.raises(UnsupportedError, match="tangents"):
            strict(dual)
        wanted = forward_mode.unpack_dual(model(dual))
        close(fast(x), model(x))
    close(found.primal, wanted.primal)
    close(found.tangent, wanted.tangent)
    same(fast, model, x)


@pytest.mark.parametrize("whole", [False, True])
def test_tensors_of_mkldnn_run_in_pytorch(whole):
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
    stored = importlib.import_module("torch.utils.mkldnn").to_mkldnn(copy.deepcopy(module))
    function = stored if whole else torch.relu
    x = image().to_mkldnn()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", st.FallbackWarning)
        found = compiled(function, fallback="eager")(x)
        assert torch.equal(found.to_dense(), function(x).to_dense())
