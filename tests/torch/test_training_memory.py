"""Memory of training steps: what is used again, and what is kept between forward and backward."""

from __future__ import annotations

import copy
import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

from stridewise.torch import memory  # noqa: E402
from stridewise.torch.region import REGIONS  # noqa: E402
from stridewise.torch.steps import NativeStep  # noqa: E402

from .test_gradients import relative  # noqa: E402

F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@given(st.lists(st.tuples(st.sampled_from("mdv"), st.integers(0, 3)), max_size=40))
@settings(deadline=None)
def test_tensors_that_are_alive_share_no_memory(actions):
    """Make, drop, or keep by a view alone: what is alive keeps its values."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "LARGE", 1)
        made, alive = memory.Memory(), []
        for number, (action, which) in enumerate(actions):
            if action == "m":
                found = made.empty((2, 3 + which), (1, 2), dtype=torch.float32)
                assert found.stride() == (1, 2)
                alive.append((found.fill_(number), number))
            elif alive and action == "d":
                alive.pop(which % len(alive))
            elif alive:
                tensor, value = alive[which % len(alive)]
                alive[which % len(alive)] = tensor[-1:, 1:], value
                del tensor
            assert all((tensor == value).all() for tensor, value in alive)


def test_memory_is_used_again():
    made = memory.Memory()
    shape, strides = (4, memory.LARGE // 4), (memory.LARGE // 4, 1)
    first = made.empty(shape, strides, dtype=torch.bfloat16)
    address, view = first.data_ptr(), first.view(-1)
    del first
    assert made.empty(shape, strides, dtype=torch.bfloat16).data_ptr() != address
    del view
    gc.collect()
    found = {made.empty(shape, strides, dtype=torch.float32).data_ptr() for _ in range(3)}
    assert address not in found, "it has half of the bytes"
    assert made.empty(shape, strides, dtype=torch.bfloat16).data_ptr() == address
    made.release()
    assert made.empty((1,), (1,), dtype=torch.float32).numel() == 1


class Block(torch.nn.Module):
    """Convolutions, batch norms, a sum and a pool, as residual networks have them."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 32, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(32)
        self.second = torch.nn.Conv2d(32, 32, 3, padding=1, bias=False)
        self.other = torch.nn.BatchNorm2d(32)
        self.last = torch.nn.Linear(32, 5)

    def forward(self, x):
        y = F.relu(self.norm(self.first(x)))
        y = F.relu(self.other(self.second(y)) + y)
        return self.last(F.max_pool2d(y, 2).mean((2, 3)))


def trained(**options):
    """Return the programs of a step under autocast, forward and backward."""
    torch._dynamo.reset()
    model = Block().to(memory_format=torch.channels_last)
    x = torch.randn(4, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    before = set(REGIONS)
    fast = torch.compile(model, backend="stridewise", options={"fallback": "error", **options})
    with torch.autocast("cpu", torch.bfloat16):
        fast(x).square().mean().backward()
    found = {
        region.name.split(".")[1]: step.model
        for region in set(REGIONS) - before
        for program in region.programs()
        for step in program.steps
        if isinstance(step, NativeStep)
    }
    return found["forward"], found["backward"]


def test_autocast_keeps_no_image_in_two_types():
    for model in trained():
        if "BF16" not in model.plan.explain().splitlines()[0]:
            pytest.skip("without products of bfloat16, plans may convert images")
        widened = [
            step.node
            for step in model.program.steps
            if step.spec.kind == "reorder"
            and [memory.dtype for _, memory in step.spec.memories] == ["bf16", "f32"]
            and max(step.spec.memories[0][1].dims) > 5
        ]
        assert widened == []


def test_results_are_stored_as_soon_as_they_are_known():
    """Otherwise the backward would keep all gradients of weights twice."""
    _, backward = trained()
    tensors = [t for block in backward.program.blocks for t in block.tensors]
    gradients = [t for t in tensors if t.value.startswith("conv_weight_gradient")]
    assert gradients
    assert all(t.last - t.first <= 1 for t in gradients)


def test_parameters_are_converted_where_they_are_read():
    _, backward = trained()
    given = map(backward.plan.graph.value, backward.plan.graph.inputs)
    assert [v.dtype.name for v in given if sorted(v.shape) == [3, 3, 32, 32]] == ["float32"]


def shift_from_corners(first, norm, x, corners=(0.0, 6.0)):
    """Let no result of a batch norm be near a corner of the activation behind it.

    There the gradient jumps. One result that rounding moves across changes it by more than all
    other roundings do, in eager PyTorch as well. Factors that are rounded to bfloat16 move results
    of deviation 1 by 0.3 eps (root of the mean square), so that a distance of eps is safe.
    """
    y = first.double()(x.double()).transpose(0, 1).flatten(1)
    first.float()
    y = (y - y.mean(1, True)) / y.std(1, keepdim=True) * norm.weight[:, None]
    shifts = torch.linspace(-1, 1, 2001)[:, None, None]
    gaps = torch.stack([(y + shifts - at).abs().amin(2) for at in corners]).amin(0)
    found = gaps.max(0)
    assert (found.values > norm.weight.abs() * torch.finfo(torch.bfloat16).eps).all()
    norm.bias.copy_(shifts[found.indices, 0, 0])


@pytest.mark.parametrize("kind", [torch.nn.ReLU, torch.nn.ReLU6, torch.nn.Identity])
@pytest.mark.parametrize("autocast", [False, True])
def test_what_convolutions_read_is_normalized_again(kind, autocast):
    """In 16 bits the backward reads the source of the norm, and not its result."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    first, norm = torch.nn.Conv2d(3, 16, 3, bias=False), torch.nn.BatchNorm2d(16)
    model = torch.nn.Sequential(first, norm, kind(), torch.nn.Conv2d(16, 40, 3))
    x, factors = torch.randn(4, 3, 16, 16), torch.randn(4, 40, 12, 12)
    with torch.no_grad():
        norm.weight.uniform_(-2, 2)
        shift_from_corners(first, norm, x)
    twin, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    before = set(REGIONS)
    fast = torch.compile(model, backend="stridewise", options={"fallback": "error"})
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        for net in (fast, twin):
            (net(x) * factors).sum().backward()
    (exact(x.double()) * factors).sum().backward()
    for ours, theirs, wanted in zip(*(n.parameters() for n in (model, twin, exact)), strict=True):
        error, usual = relative(ours.grad, wanted.grad), relative(theirs.grad, wanted.grad)
        assert error <= max(1e-4, 1.5 * usual if autocast else 0)
    (backward,) = (r for r in set(REGIONS) - before if r.name.endswith("backward"))
    images = [i for i in backward.module.graph.nodes if i.op == "placeholder"]
    held = [i for i in images if tuple(i.meta["val"].shape) == (4, 16, 14, 14)]
    assert len(held) == (1 if autocast else 2)


def test_depthwise_convolutions_keep_what_they_read():
    """There, normalizing again would take as long as the gradients."""
    torch._dynamo.reset()
    norm, narrow = torch.nn.BatchNorm2d(16), torch.nn.Conv2d(16, 16, 3, groups=16)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), norm, torch.nn.ReLU(), narrow)
    before = set(REGIONS)
    with torch.autocast("cpu", torch.bfloat16):
        torch.compile(model, backend="stridewise")(torch.randn(4, 3, 16, 16)).sum().backward()
    (backward,) = (r for r in set(REGIONS) - before if r.name.endswith("backward"))
    images = [i for i in backward.module.graph.nodes if i.op == "placeholder"]
    assert sum(tuple(i.meta["val"].shape) == (4, 16, 14, 14) for i in images) == 2
