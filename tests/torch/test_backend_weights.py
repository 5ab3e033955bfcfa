"""The backend of ``torch.compile``: weights that change, are shared, copied or freed."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

import stridewise.torch as st  # noqa: E402

from .compiled_modules import Net, close, compiled, image, same  # noqa: E402

# PyTorch warns of its own changes to come; the tests are about warnings of the backend.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


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


def _swapped(model):
    torch.utils.swap_tensors(
        model.first.weight, torch.nn.Parameter(torch.randn_like(model.first.weight))
    )


def _swapped_at_loading(model):
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.load_state_dict(Net().state_dict())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


CHANGES = (
    _in_place,
    _loaded,
    _assigned,
    _replaced,
    _data,
    _statistics,
    _fused,
    _swapped,
    _swapped_at_loading,
)


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_weights(change):
    model = Net().eval()
    fast, x = compiled(model), image()
    same(fast, model, x)
    with torch.no_grad():
        before = model(x)
    change(model)
    found = same(fast, model, x)
    assert not torch.allclose(found, before)


@pytest.mark.parametrize("with_gradients", [False, True])
def test_running_statistics_that_eager_training_changes(with_gradients):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)).eval()
    fast, x = compiled(model), image()
    same(fast, model, x)
    with torch.no_grad():
        before = model(x)
    model.train()
    with torch.set_grad_enabled(with_gradients):
        model(3 * x + 1)
    model.eval()
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
