"""Integers, positions and indices of the run: handlers against PyTorch itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

from tests.torch.aten_graphs import check, region_of  # noqa: E402

import stridewise.torch  # noqa: E402, F401
from stridewise.errors import ExecutionError, UnsupportedError  # noqa: E402

F = torch.nn.functional

SHAPE = (3, 6, 5, 4)
TYPES = ("int64", "int32", "int16", "int8", "uint8")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def rand(*shape):
    return torch.randn(*shape, generator=seeded(sum(shape)))


def integers(*shape, below=5, least=0, dtype="int64"):
    found = torch.randint(least, below, shape, generator=seeded(sum(shape)))
    return found.to(getattr(torch, dtype))


ARITHMETIC = {
    "add": lambda i: i + i,
    "add_alpha": lambda i: torch.add(i, i, alpha=2),
    "add_channel": lambda i: i + i[:, :1],
    "clamp": lambda i: i.clamp(1, 3),
    "clamp_min": lambda i: i.clamp(min=2),
    "compared": lambda i: (i == 2) | (i > 3) & (i != i.flip(1)),
    "compared_with_floats": lambda i: [i > 1.5, i == 2.0],
    "concat": lambda i: torch.cat([i, i * 2], 1),
    "cumsum": lambda i: i.cumsum(1),
    "flip": lambda i: (i + 1).flip(2),
    "floor_divide": lambda i: i // 3,
    "floor_divide_by_less_than_0": lambda i: i // -3 if i.dtype != torch.uint8 else i // 2,
    "logic": lambda i: torch.logical_and(i, i - 1),
    "masked_fill": lambda i: i.masked_fill(i > 2, 1),
    "maximum": lambda i: torch.maximum(i, i.roll(1, 1)),
    "minimum": lambda i: torch.minimum(i, i.roll(1, 1)),
    "mul": lambda i: i * 3,
    "pad": lambda i: F.pad(i, (1, 0, 2, 1), value=3),
    "remainder": lambda i: i % 3,
    "repeat": lambda i: (i + 1).repeat(1, 2, 1, 1),
    "rsub": lambda i: 4 - i,
    "bits": lambda i: (i & (i + 1)) | (~i ^ (i - 1)),
    "sub": lambda i: i - i[:, 1:2],
    "to_floats": lambda i: i.float() * 0.5 + i / 4,
    "to_truth": lambda i: i.bool(),
    "to_wider": lambda i: (i.int() + 1).long() * 3,
    "where": lambda i: torch.where(i > 1, i, 2 * i),
    "where_floats": lambda i: torch.where(i > 1, i, 0.5),
    "where_number": lambda i: torch.where(i > 1, i, 7),
    # reductions
    "amax": lambda i: i.amax((2, 3)),
    "amin": lambda i: i.amin(1, keepdim=True),
    "argmax": lambda i: i.argmax(1),
    "any": lambda i: (i - 1).int().any(2),
    "mean": lambda i: i.mean((2, 3), dtype=torch.float32),
    "max_dim": lambda i: i.max(1),
    "sum": lambda i: i.sum(1),
    "sum_of_all": lambda i: i.sum(),
    "sum_of_a_type": lambda i: i.sum(1, dtype=torch.int32),
    # order
    "sort": lambda i: i.sort(1).values,
    "topk": lambda i: i.topk(2, 1).values,
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_is_that_of_pytorch(name, dtype):
    function = ARITHMETIC[name]
    check(lambda i: [*found] if isinstance(found := function(i), tuple) else found,
          integers(*SHAPE, dtype=dtype))  # fmt: skip


FROM_FLOATS = {
    "argmax": lambda x: x.argmax(1),
    "argmax_keepdim": lambda x: x.argmax(2, keepdim=True),
    "argmax_of_all": lambda x: x.argmax(),
    "argmin": lambda x: x.argmin(3),
    "argsort": lambda x: x.argsort(1),
    "counts": lambda x: (x > 0).sum(1),
    "cumsum": lambda x: x.cumsum(1),
    "cumsum_of_masks": lambda x: (x > 0).cumsum(2),
    "max_dim": lambda x: list(x.max(1)),
    "min_dim": lambda x: list(x.min(3, keepdim=True)),
    "sort": lambda x: list(x.sort(1)),
    "sort_descending": lambda x: list(x.sort(2, descending=True)),
    "sort_stable": lambda x: list(torch.sort(x.round(), stable=True, dim=1)),
    "rounded_down": lambda x: (x * 10).int(),
    "topk": lambda x: list(x.topk(3, 1)),
    "topk_least": lambda x: list(x.topk(2, 2, largest=False)),
    "remainder": lambda x: x % 0.3,
    "floor_divide": lambda x: x // 0.3,
    "div_floor": lambda x: torch.div(x, 0.7, rounding_mode="floor"),
    "truth_to_integers": lambda x: (x > 0).long() * 2,
    "one_of_positions": lambda x: x.argmax(1, keepdim=True) == torch.arange(6).view(1, 6, 1, 1),
    "mask_put": lambda x: torch.clone(x).index_put((x > 0.5,), torch.tensor(2.0)),
}


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", FROM_FLOATS)
def test_positions_and_orders_are_those_of_pytorch(name, memory_format):
    check(FROM_FLOATS[name], rand(*SHAPE).contiguous(memory_format=memory_format))


INDEXED = {
    "constants": lambda x, i: x[torch.tensor([0, 1]), torch.tensor([2, 3])] + i[0, 0],
    "runs_of_constants": lambda x, i: x.flatten()[torch.arange(0, 200, 2)] + i[0, 0, 0, 0],
    "embedding": lambda x, i: F.embedding(i[0, 0], x[0, 0]),
    "embedding_padded": lambda x, i: F.embedding(i[0, 0] % 3, x[0, 0], padding_idx=1),
    "gather": lambda x, i: x.gather(1, i),
    "gather_fewer": lambda x, i: x.gather(1, i[:2, :, :3, :1]),
    "gather_last": lambda x, i: x.gather(3, i % 4),
    "index": lambda x, i: x[:, i[0, 0, 0]],
    "index_of_a_matrix": lambda x, i: x[:, :, i[0, 0] % 4],
    "index_negative": lambda x, i: x[:, i[0, 0, 0] - 4],
    "index_of_neighbours": lambda x, i: x[:, i[0, 0, 0], i[0, 1, 0]],
    "index_of_the_first": lambda x, i: x[i[0, 0, 0] % 3, i[0, 1, 0]],
    "index_of_others": lambda x, i: x[i[0, 0, 0] % 3, :, i[0, 1, 0]],
    "index_broadcast": lambda x, i: x[torch.arange(3)[:, None], i[0, 0, :1] % 3],
    "index_with_a_constant": lambda x, i: x[torch.arange(3), i[:, 0, 0, 0]],
    "index_add": lambda x, i: x.index_add(1, i[0, 0, 0], x[:, :4], alpha=0.5),
    "index_select": lambda x, i: x.index_select(1, i[0, 0, 0]),
    "index_put": lambda x, i: x.index_put((i[:, 0, 0, 0] % 3, i[:, 1, 0, 0]), x[:, 0]),
    "index_put_added": lambda x, i: x.index_put(
        (i[:, 0, 0, 0] % 3, i[:, 1, 0, 0]), x[:, 0], accumulate=True
    ),
    "index_put_number": lambda x, i: x.index_put(
        (i[:, 0, 0, 0] % 3, i[:, 1, 0, 0]), torch.tensor(2.0)
    ),
    "scatter": lambda x, i: x.scatter(1, torch.arange(6).view(1, 6, 1, 1) + 0 * i[:, :1], x * 2),
    "scatter_fewer": lambda x, i: x.scatter(2, i[:2, :3, :1], x * 2),
    "scatter_number": lambda x, i: x.scatter(1, i, 1.5),
    "scatter_add": lambda x, i: torch.zeros_like(x).scatter_add(1, i, x),
    "scatter_amax": lambda x, i: x.scatter_reduce(1, i, x * 2, "amax"),
    "one_hot": lambda x, i: F.one_hot(i[:, 0], 5).float() * x[:, 0][..., None],
    "take_along_dim": lambda x, i: torch.take_along_dim(x, x.argsort(1) * (i >= 0), 1),
    "sorted_pixels": lambda x, i: x.flatten(2).gather(2, x[:, :1].flatten(2).argsort(2)
        .expand(-1, 6, -1) + i[0, 0, 0, 0] * 0),
}  # fmt: skip


@pytest.mark.parametrize("index", ["int64", "int32"])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", INDEXED)
def test_elements_at_indices_are_those_of_pytorch(name, memory_format, index):
    if index == "int32" and any(word in name for word in ("scatter", "gather", "one_hot")):
        index = "int64"  # PyTorch takes no others there
    x = rand(*SHAPE).contiguous(memory_format=memory_format)
    check(INDEXED[name], x, integers(*SHAPE, dtype=index))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("size", [(), (3, 5)])
def test_gradients_are_zero_where_classes_are_ignored(size, reduction):
    def loss(x, target):
        return F.cross_entropy(x, target, reduction=reduction)

    fast = torch.compile(loss, backend="stridewise")
    for count in (1, 4):
        x, target = rand(4, 7, *size).requires_grad_(), integers(4, *size, below=7)
        target[:count] = -100
        last = torch.full_like(loss(x, target), float("inf") if reduction == "none" else 1.0)
        found, wanted = (torch.autograd.grad(f(x, target), x, last)[0] for f in (fast, loss))
        assert (found[:count] == 0).all()
        torch.testing.assert_close(found, wanted, equal_nan=True)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("size", [(), (3,), (3, 5)])
def test_losses_of_classes(size, is_weighted, reduction):
    x, target = rand(4, 7, *size), integers(4, *size, below=7)
    target.view(-1)[:2] = torch.tensor([-100, 3])
    weight = rand(7).abs() if is_weighted else None

    def loss(x, target):
        return F.cross_entropy(x, target, weight, reduction=reduction)

    check(loss, x, target)
    check(lambda x, t: F.nll_loss(x, t, weight, reduction=reduction, ignore_index=2), x, target % 7)

    def gradient(x, target):
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            (found,) = torch.autograd.grad(loss(leaf, target).square().sum(), leaf)
        return found

    compiled = torch.compile(loss, backend="stridewise")
    leaf = x.clone().requires_grad_()
    compiled(leaf, target).square().sum().backward()
    torch.testing.assert_close(leaf.grad, gradient(x, target), rtol=1e-5, atol=1e-6)
    with pytest.raises(ExecutionError, match="indices"):
        region_of(loss, x, target)([x, torch.full_like(target, 7)])


GRADIENTS = {
    "cumsum": lambda x, _: x.cumsum(1),
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_padded": lambda x, i: F.embedding(i, x, padding_idx=1),
    "gather": lambda x, i: x.gather(1, i),
    "index": lambda x, i: x[:, i[0]],
    "index_add": lambda x, i: x.index_add(1, i[0], x[:, :3]),
    "index_of_points": lambda x, i: x[i[0], i[1]],
    "index_put": lambda x, i: (x * 2).index_put((i[0], i[0]), x[0, :3]),
    "index_select": lambda x, i: x.index_select(1, i[0]),
    "max_dim": lambda x, _: x.max(1)[0],
    "scatter": lambda x, i: (x * 2).scatter(1, i, x[:, :3]),
    "scatter_add": lambda x, i: (x * 2).scatter_add(1, i, x[:, :3]),
    "sort": lambda x, _: x.sort(1)[0],
    "topk": lambda x, _: x.topk(2, 1)[0],
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_native_and_those_of_pytorch(name):
    function = GRADIENTS[name]
    compiled = torch.compile(function, backend="stridewise", options={"fallback": "error"})
    index = torch.tensor([[0, 2, 1], [3, 1, 0], [1, 3, 2], [0, 2, 3]])
    found = []
    for each in (function, compiled):
        x = rand(4, 6).requires_grad_()
        y = each(x, index)
        (y * torch.linspace(0.1, 1, y.numel()).view(y.shape)).sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_indices_of_any_axes(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4)))
    points = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)))
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape)))
    seed = data.draw(st.integers(0, 99))
    index = {a: torch.randint(-shape[a], shape[a], points, generator=seeded(seed)) for a in axes}
    x = rand(*shape)

    def read(x, *given):
        left = list(given)
        return x[tuple(left.pop(0) if a in axes else slice(None) for a in range(len(shape)))] * 2

    def added(x, *given):
        left = list(given)
        where = [left.pop(0) if a in axes else None for a in range(max(axes) + 1)]
        values = torch.ops.aten.index(x, where)
        return torch.ops.aten.index_put(x, where, values, accumulate=True)

    given_indices = [index[axis] for axis in sorted(axes)]
    check(read, x, *given_indices)
    check(added, x, *given_indices)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x.gather(1, i),
        lambda x, i: F.embedding(i, x),
        lambda x, i: x.index_select(0, i[0]),
        lambda x, i: x.scatter(1, i, 1.0),
        lambda x, i: x[i],
    ],
)
@pytest.mark.parametrize("index", [-7, 7])
def test_indices_outside_are_errors_as_in_pytorch(function, index):
    x, good = rand(5, 5), torch.ones(2, 3, dtype=torch.int64)
    region = region_of(function, x, good)
    assert torch.equal(region([x, good])[0], function(x, good))
    bad = good.clone()
    bad[0, 1] = index
    with pytest.raises(ExecutionError, match="indices"):
        region([x, bad])


def test_constant_indices_outside_are_left_to_pytorch():
    for function in (lambda x: x[:, torch.tensor([7])], lambda x: x[torch.tensor([-6, 0])]):
        with pytest.raises(UnsupportedError, match="indices outside of 5 elements"):
            region_of(function, rand(5, 5))([rand(5, 5)])


def test_integers_beyond_those_of_floats():
    large, x = 2**60 + 1, integers(3, 4)
    for function in (
        lambda x: x.masked_fill(x > 2, large),
        lambda x: x.scatter(1, x % 4, large),
        lambda x: torch.where(x > 2, large, x) - 1,
        lambda x: (x + large) * 3 // 7,
        lambda x: F.pad(x, (1, 1), value=large),
    ):
        (found,) = region_of(function, x)([x])
        assert torch.equal(found, function(x))


def test_indices_below_0_are_errors_where_pytorch_takes_none():
    x, bad = rand(5, 5), torch.tensor([[-1]])
    for function in (lambda x, i: x.gather(1, i), lambda x, i: F.embedding(i, x)):
        region = region_of(function, x, bad.abs())
        with pytest.raises(ExecutionError, match="indices"):
            region([x, bad])


@pytest.mark.parametrize(
    ("reason", "function"),
    [
        ("a divisor that may be 0", lambda i: i % i),
        ("a divisor that may be 0", lambda i: i // 0),
        ("elements of float64", lambda i: i.double() + 1),
        ("elements of int64", lambda i: F.avg_pool2d(i, 2)),
        (
            "values for the elements of a mask",
            lambda i: i.index_put((i > 0,), torch.ones(2).long()),
        ),
    ],
)
def test_refusals_have_a_reason(reason, function):
    with pytest.raises(UnsupportedError, match=reason):
        region_of(function, integers(*SHAPE))([integers(*SHAPE)])
