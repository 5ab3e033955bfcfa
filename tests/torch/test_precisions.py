"""Models of bfloat16 and float16, and autocast, in native programs: types, errors, what stays."""

from __future__ import annotations

import contextlib

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

from tests.torch.aten_graphs import listed, region_of  # noqa: E402

import stridewise as sw  # noqa: E402
import stridewise.torch as st  # noqa: E402

F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "error::stridewise.torch.FallbackWarning"
)


class Net(torch.nn.Module):
    """Convolutions, batch and layer norm, attention, comparisons and a classifier."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 17, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(17)
        self.second = torch.nn.Conv2d(17, 17, 3, padding=1, groups=17)
        self.tokens = torch.nn.LayerNorm(17)
        self.qkv = torch.nn.Linear(17, 51)
        self.last = torch.nn.Linear(17, 5)
        with torch.no_grad():
            self.norm.running_mean.normal_()
            self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        y = F.relu(self.norm(self.first(x)))
        y = torch.where(y > 0.3, F.hardswish(self.second(y)), y * 0.1) + y
        rows = self.tokens(F.avg_pool2d(y, 2).flatten(2).transpose(1, 2))
        q, k, v = self.qkv(rows).chunk(3, -1)
        rows = rows + F.scaled_dot_product_attention(q, k, v)
        return self.last(rows.mean(1)), y


def compiled(model, **options):
    return torch.compile(model, backend="stridewise", options={"fallback": "error", **options})


def distance(found, wanted):
    return max(
        float((a.double() - b.double()).norm() / b.double().norm())
        for a, b in zip(found, wanted, strict=True)
    )


def models(fast):
    (graph,) = st.report(fast).graphs
    assert graph.outside == ()
    assert graph.fallback_nodes == ()
    regions = [region for region in st.region.REGIONS if region.name == graph.name]
    programs = [p for region in regions for p in region.programs() if p.calls]
    return [step.model for p in programs for step in p.steps]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("way", ["autocast", "model"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_errors_are_those_of_pytorch(dtype, way, layout):
    model, x = Net().eval(), torch.randn(2, 3, 12, 10).contiguous(memory_format=layout)
    with torch.no_grad():
        exact = model.double()(x.double())
    model.float()
    context = torch.autocast("cpu", dtype) if way == "autocast" else contextlib.nullcontext()
    if way == "model":
        model, x = model.to(dtype), x.to(dtype)
    fast = compiled(model)
    with torch.no_grad(), context:
        wanted, found = model(x), fast(x)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        assert a.stride() == b.stride()
    assert distance(found, exact) <= 1.5 * distance(wanted, exact)
    assert len(models(fast)) == 1


def test_autocast_stores_bfloat16():
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3)
    ).eval()  # fmt: skip
    x = torch.randn(2, 3, 40, 40)
    fast, wide = compiled(model), compiled(model, dtype="float32")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        fast(x)
        (found,) = models(fast)
        torch._dynamo.reset()
        wide(x)
    if "AVX512" in found.plan.explain().splitlines()[0]:
        assert "bf16" in found.plan.explain()
    assert "abcd bf16" not in models(wide)[0].plan.explain()


def test_products_that_a_model_wants_in_float32_stay_exact():
    class Careful(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Conv2d(3, 32, 3), torch.nn.Conv2d(32, 32, 3)

        def forward(self, x):
            y = self.first(x)
            with torch.autocast("cpu", enabled=False):
                return self.second(y.float())

    model, x = Careful().eval(), torch.randn(1, 3, 20, 20)
    fast = compiled(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        wanted, found = model(x), fast(x)
    with torch.no_grad():
        exact = model.second(model.first(x))
    assert found.dtype == wanted.dtype == torch.float32
    assert distance([found], [exact]) < distance([wanted], [exact])
    assert "bf16" not in "".join(row for row in models(fast)[0].plan.explain().splitlines()[1:])


def test_float16_keeps_its_digits():
    model, x = Net().eval().half(), torch.randn(2, 3, 12, 10).half()
    fast = compiled(model)
    with torch.no_grad():
        fast(x)
    assert models(fast)[0].plan.graph.nodes
    assert "bf16" not in "".join(models(fast)[0].plan.explain().splitlines()[1:])


def test_modules_of_sixteen_bits():
    model, x = Net().eval().bfloat16(), torch.randn(2, 3, 12, 10).bfloat16()
    found = sw.compile(model, (x,), fallback=False, tune="model", dtype="bfloat16")(x)
    with torch.no_grad():
        wanted = model(x)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype == torch.bfloat16
    assert distance(found, wanted) < 2e-2


CASES = {
    "numbers": lambda x: (x + 0.1) * 1e-3 / 3,
    "large numbers": lambda x: x * 1e4 * 1e-4,
    "types that differ": lambda x: x + torch.linspace(-1, 1, 7),
    "casts": lambda x: (x.float() * 1.001).to(x.dtype),
    "cat": lambda x: torch.cat([x, x.float() * 2], 1),
    "compared with numbers": lambda x: torch.where(x > 0.1, 1.0, 0.0),
    "stack of masks": lambda x: torch.stack([x > 0.1, x < -0.1]),
    "mask to number": lambda x: (x > 0.1).to(x.dtype) * x,
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_promotion_of_types(name, dtype):
    x = torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(1)).to(dtype)
    (found,), (wanted,) = region_of(CASES[name], x)([x]), listed(CASES[name](x))
    assert found.dtype == wanted.dtype
    assert torch.allclose(found.float(), wanted.float(), rtol=2**-7, atol=1e-3)


@pytest.mark.usefixtures("no_graphs")
def test_inputs_of_bool():
    def masked(x, mask):
        return torch.where(mask, x, 0.0).sum(1), mask & (x > 0)

    fast = compiled(masked)
    x = torch.randn(3, 4, 5)
    for mask in (x > 0.3, (x.transpose(1, 2).contiguous() > 0).transpose(1, 2)):
        with torch.no_grad():
            found, wanted = fast(x, mask), masked(x, mask)
        assert torch.allclose(found[0], wanted[0], atol=1e-6)
        assert torch.equal(found[1], wanted[1])
    assert st.report().outside == 0
